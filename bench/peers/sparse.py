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
from case import NONE, Case, Floor, Nothing, draw


@dataclass
class Sparse(Case):
    spec: str
    n: int
    peer: str  # softmax, share of softmax, flex, dense mask
    floor: Floor
    floor_amx: Floor = NONE
    backward: bool = False
    causal: bool = False
    heads: int = 8
    d: int = 64
    dtype: str = "bf16"
    lists: dict = field(default_factory=dict)
    docs: list = None
    rounds: int = 3
    label: str = ""  # what the spec does not say

    unit = "ktoken/s"
    share_of = None

    @property
    def name(self):
        return (f"{self.spec}{self.label}/h{self.heads}n{self.n}d{self.d}"
                f"{'c' * self.causal}/{self.dtype}/{'bwd' if self.backward else 'fwd'}")

    @property
    def work(self):  # so that 1e9 of them are a thousand tokens
        return 1e6 * self.n

    def least_seconds(self, machine, ours):
        return 0

    def sides(self, context):
        tensors = draw((1, self.heads, self.n, self.d), self.dtype, self.n)
        how = {"causal": self.causal, "backward": self.backward}
        ours = Foci(context, self.spec, tensors, lists=self.lists, docs=self.docs, **how)
        if self.comparable:
            return ours, Torch(self, tensors)
        return ours, Foci(context, "softmax", tensors, **how)

    @property
    def comparable(self):
        return self.peer in ("flex", "dense mask")

    def peer_seconds(self, seconds, ours, machine):
        if self.peer != "share of softmax":
            return seconds
        tensors = 11 if self.backward else 4  # q k v o do lse, and gradients
        moved = 2 * tensors * self.heads * self.n * self.d * 2
        return ours.plan.density() * seconds + moved / machine.copy_bytes


def layout(n, block, every):
    """Blocks of a layout of which one in `every` is seen, the diagonal among them."""
    nb = n // block
    return [int((u + t) % every == 0 or u == t) for u in range(nb) for t in range(nb)]


LONG = 16384


def share(backward, spec, **more):
    """0.74 of softmax's rate times the density, and more of it on tiles."""
    return Sparse(spec, LONG, "share of softmax", Floor(0.74), Floor(0.8), backward, **more)


def layouts(backward, *every):
    return [share(backward, "block(block=64)", lists={"layout": layout(LONG, 64, one)},
                  label=f" at 1/{one}") for one in every]


def main(backward):
    return [share(backward, "local(window=256)"), *layouts(backward, 8),
            share(backward, "bigbird")]


def more(backward):
    return [share(backward, "blocklocal(block=512)"), *layouts(backward, 4, 16),
            share(backward, "global(first=16)")]


def routed():
    return [Sparse(spec, n, "softmax", Floor(floor), Floor(floor),
                   rounds=3 if n == LONG else 1)
            for spec, floor, n in (
                ("strided(stride=128)", 20, LONG),
                ("segmented(length=64, back=1)", 30, LONG), ("pooled(block=64)", 20, LONG),
                ("lsh(buckets=256, rounds=4)", 4, LONG),
                ("lsh(buckets=256, rounds=4)", 10, 65536))]


def masks():
    def case(spec, peer, floor, **more):
        return Sparse(spec, 4096, peer, Floor(floor), Floor(floor), rounds=10, **more)
    return [case("local(window=256)", "flex", 3),
            case("softmax", "flex", 3, docs=[0, 500, 1300, 1400, 2900, 4096],
                 label=" of 5 documents"),
            case("block(block=128)", "flex", 3, lists={"layout": layout(4096, 128, 4)}),
            case("block(block=64)", "dense mask", 5,
                 lists={"layout": layout(4096, 64, 4)})]


def positions():
    def case(mod, most, **more):
        return Sparse(f"softmax {mod}", 2048, "softmax", Floor(1 / most), Floor(1 / most),
                      rounds=20, **more)
    return [case("rope", 1.10), case("alibi", 1.10), case("t5", 1.15), case("bias", 1.15),
            case("cap(30)", 1.60), case("shaw", 1.60),
            case("txl", 1.60, causal=True)]  # defined for causal problems only


GROUPS = {"sparse": lambda: main(False), "sparse-backward": lambda: main(True),
          "sparse-more": lambda: more(False), "sparse-more-backward": lambda: more(True),
          "routed": routed, "masks": masks, "positions": positions}


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


class Torch(Nothing):
    def __init__(self, case, tensors):
        self.q, self.k, self.v = tensors[:3]
        see = mask_of(case)
        i = torch.arange(case.n)
        if case.peer == "dense mask":
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

    def run(self):
        with torch.no_grad():
            self.o = self.attend()

    def results(self):
        return [self.o]
