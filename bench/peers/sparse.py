"""Sparse and positioned attention: against our own softmax on all pairs, PyTorch's
FlexAttention and PyTorch's attention under a dense boolean mask.

A case names what it is measured against and what ratio of times it must reach.
"share of softmax" is the time that softmax would take for as many tiles as the support
has, plus that of copying inputs and outputs once; the ratio is that over our time.
"""
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from attend import Foci


@dataclass
class Case:
    spec: str
    n: int
    against: str  # softmax, share of softmax, flex, dense mask
    ratio_floor: float
    backward: bool = False
    causal: bool = False
    heads: int = 8
    d: int = 64
    dtype: str = "bf16"
    lists: dict = field(default_factory=dict)
    docs: list = None
    least: int = 3  # repetitions
    share_floor: float = None
    label: str = ""  # what the spec does not say

    unit = "ktoken/s"

    @property
    def name(self):
        return (f"{self.spec}{self.label}/h{self.heads}n{self.n}d{self.d}{'c' * self.causal}/{self.dtype}/"
                f"{'bwd' if self.backward else 'fwd'} : {self.against}")

    @property
    def work(self):  # so that 1e9 of them are a thousand tokens
        return 1e6 * self.n

    def peak(self, machine):
        self.copy_bytes = machine.copy_bytes
        return machine.bf16_flops

    def sides(self, context):
        make = torch.Generator().manual_seed(self.n)
        shape = (1, self.heads, self.n, self.d)
        tensors = [torch.randn(shape, generator=make).to(torch.bfloat16)
                   for _ in range(4)]
        how = {"causal": self.causal, "backward": self.backward}
        ours = Foci(context, self.spec, tensors, lists=self.lists, docs=self.docs, **how)
        if self.comparable:
            return ours, Torch(self, tensors)
        return ours, Foci(context, "softmax", tensors, **how)

    @property
    def comparable(self):
        return self.against in ("flex", "dense mask")

    def peer_seconds(self, seconds, ours):
        """The time to beat, from that of the other side."""
        if self.against != "share of softmax":
            return seconds
        tensors = 11 if self.backward else 4  # q k v o do lse, and gradients
        moved = 2 * tensors * self.heads * self.n * self.d * 2
        return ours.plan.density() * seconds + moved / self.copy_bytes


def layout(n, block, every):
    """Blocks of a layout of which one in `every` is seen, the diagonal among them."""
    nb = n // block
    return [int((u + t) % every == 0 or u == t) for u in range(nb) for t in range(nb)]


def cases():
    out, n = [], 16384
    for backward in False, True:
        def share(spec, **more):
            out.append(Case(spec, n, "share of softmax", 1 / 1.35, backward, **more))
        share("local(window=256)")
        share("blocklocal(block=512)")
        for every in 4, 8, 16:
            share("block(block=64)", lists={"layout": layout(n, 64, every)},
                  label=f" at 1/{every}")
        share("bigbird")
        share("global(first=16)")
    for spec, floor, length in (
            ("strided(stride=128)", 20, n), ("segmented(length=64, back=1)", 30, n),
            ("pooled(block=64)", 20, n), ("lsh(buckets=256, rounds=4)", 4, n),
            ("lsh(buckets=256, rounds=4)", 10, 65536)):
        out.append(Case(spec, length, "softmax", floor, least=3 if length == n else 1))
    out += [
        Case("local(window=256)", 4096, "flex", 3, least=10),
        Case("softmax", 4096, "flex", 3, docs=[0, 500, 1300, 1400, 2900, 4096], least=10),
        Case("block(block=128)", 4096, "flex", 3, least=10,
             lists={"layout": layout(4096, 128, 4)}),
        Case("block(block=64)", 4096, "dense mask", 5, least=10,
             lists={"layout": layout(4096, 64, 4)}),
    ]
    for mod, most in (("rope", 1.10), ("alibi", 1.10), ("t5", 1.15), ("bias", 1.15),
                      ("cap(30)", 1.60), ("shaw", 1.60)):
        out.append(Case(f"softmax {mod}", 2048, "softmax", 1 / most, least=20))
    # Defined for causal problems only.
    return out + [Case("softmax txl", 2048, "softmax", 1 / 1.60, causal=True, least=20)]


def mask_of(case):
    """Which pairs are seen, as FlexAttention wants to know it."""
    if case.docs:
        document = torch.zeros(case.n, dtype=torch.int32)
        for at in case.docs[1:-1]:
            document[at:] += 1
        return lambda b, h, i, j: document[i] == document[j]
    if "layout" in case.lists:
        block = int(case.spec.split("block=")[1].rstrip(")"))
        nb = case.n // block
        table = torch.tensor(case.lists["layout"], dtype=torch.bool).view(nb, nb)
        return lambda b, h, i, j: table[i // block, j // block]
    window = int(case.spec.split("window=")[1].rstrip(")"))
    return lambda b, h, i, j: (i - j).abs() <= window


class Torch:
    def __init__(self, case, tensors):
        self.q, self.k, self.v = tensors[:3]
        see = mask_of(case)
        i = torch.arange(case.n)
        if case.against == "dense mask":
            mask = see(0, 0, i[:, None], i[None, :])
            self.attend = lambda: F.scaled_dot_product_attention(
                self.q, self.k, self.v, attn_mask=mask)
        else:
            from torch.nn.attention.flex_attention import (create_block_mask,
                                                           flex_attention)
            blocks = create_block_mask(see, None, None, case.n, case.n, device="cpu")
            # Compiled anew for each mask: one that was generalised from another's does
            # not compile everywhere.
            torch._dynamo.reset()
            compiled = torch.compile(flex_attention, dynamic=False)
            self.attend = lambda: compiled(self.q, self.k, self.v, block_mask=blocks)
        self.run()

    def prepare(self):
        pass

    def run(self):
        with torch.no_grad():
            self.o = self.attend()

    def results(self):
        return [self.o]

    def close(self):
        pass
