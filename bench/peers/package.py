"""The Python package: what foci.torch adds to the C call, its attention beside PyTorch's on the
same tensors, and models of transformers with either.
"""
import copy
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

import attend
from case import NONE, Case, Floor, Nothing, draw, kind

ALLOWED = 15e-6  # seconds that a call from PyTorch may add to the C call


def package(context):
    """foci.torch, with as many threads as the others have."""
    import foci
    import foci.torch

    if foci.get_threads() != context.threads:
        foci.set_threads(context.threads)
    return foci.torch


class Described(Nothing):
    """A side that has no plan to describe."""

    def __init__(self):
        self.plan = self

    def describe(self):
        return type(self).__name__


class Attend(Described):
    """A function of q, k and v, and its gradients where they are asked for."""

    def __init__(self, case, attention, q, k, v, dout):
        super().__init__()
        self.attention, self.dout = attention, dout
        self.backward = case.passes == "both"
        self.inputs = [t.detach().requires_grad_(self.backward) for t in (q, k, v)]
        self.run()

    def run(self):
        self.o = self.attention(*self.inputs)
        if self.backward:
            self.grads = torch.autograd.grad(self.o, self.inputs, self.dout)

    def results(self):
        return [self.o, *(self.grads if self.backward else ())]


class Call(attend.Foci):
    """The same by the C calls alone."""

    def __init__(self, context, case, tensors):
        self.both = case.passes == "both"
        super().__init__(context, "softmax", tensors, case.dtype, case.causal, self.both)

    def run(self):
        self.plan.forward(self.io)
        if self.both:
            self.plan.backward(self.io, self.d)

    def results(self):
        return [self.o, *(self.grads if self.both else ())]


@dataclass
class Softmax(Case):
    peer: str
    passes: str
    n: int
    d: int
    causal: bool
    floor: Floor = NONE
    floor_amx: Floor = NONE
    heads: int = 8
    dtype: str = "bf16"
    share_of = None

    @property
    def backward(self):
        return self.passes == "both"

    @property
    def name(self):
        return f"softmax/h{self.heads}n{self.n}d{self.d}{'c' * self.causal}/{self.dtype}/{self.passes}"

    @property
    def work(self):
        forward = 4 * self.heads * self.n * self.n * self.d / (2 if self.causal else 1)
        return self.calls * forward * (3.5 if self.backward else 1)

    def sides(self, context):
        tensors = draw((1, self.heads, self.n, self.d), self.dtype, self.n + self.d)
        ours = partial(package(context).attention, causal=self.causal)
        theirs = partial(F.scaled_dot_product_attention, is_causal=self.causal)
        return (Attend(self, ours, *tensors),
                Attend(self, theirs, *tensors) if self.peer == "PyTorch" else Call(context, self, tensors))


@dataclass
class Overhead(Softmax):
    """A call that computes next to nothing, against the C call and what may be added to it."""
    calls: int = 1000
    unit = "us"

    def peer_seconds(self, seconds, ours, machine):
        return seconds + self.calls * ALLOWED


def overhead():
    return [Overhead(f"the C call + {1e6 * ALLOWED:.0f} us", "fwd", 1, 16, False, Floor(1), Floor(1), heads=1)]


def attention():
    """At least 90 % of the C figures; twice PyTorch's where the README says so."""
    out = []
    for n in (512, 2048):
        for passes in ("fwd", "both"):
            twice = Floor(2) if n == 2048 else NONE
            out += [Softmax("our own C call", passes, n, 64, False, Floor(0.9), Floor(0.9)),
                    Softmax("PyTorch", passes, n, 64, False, twice if passes == "fwd" else NONE, twice)]
    return out


# Models of transformers

@dataclass
class Llama(Case):
    """A random model of the shape of Llama; `new` tokens after `past` that are in the cache."""
    past: int
    new: int
    floor: Floor
    floor_amx: Floor
    layers: int = 4
    width: int = 512
    heads: int = 8
    dtype: str = "bf16"
    backward = False
    comparable = False  # rounding differs, layer by layer
    peer = "sdpa"
    unit = "ktoken/s"
    share_of = None

    @property
    def name(self):
        what = "decode" if self.new == 1 else "prefill"
        return f"llama/l{self.layers}w{self.width}h{self.heads}n{self.past + self.new}/{self.dtype}/{what}"

    @property
    def work(self):
        return 1e6 * self.new

    def sides(self, context):
        from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

        package(context)
        import foci.transformers

        foci.transformers.register()
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=4096, hidden_size=self.width, intermediate_size=1376,
                             num_hidden_layers=self.layers, num_attention_heads=self.heads,
                             max_position_embeddings=8192, attn_implementation="sdpa")
        theirs = LlamaForCausalLM(config).to(kind(self.dtype)).eval()
        ours = copy.deepcopy(theirs)
        ours.set_attn_implementation("foci")
        return Forward(self, ours, foci.transformers.Cache), Forward(self, theirs, DynamicCache)


class Forward(Described):
    """The last token's logits, for what follows the tokens in the cache."""

    def __init__(self, case, model, cache):
        super().__init__()
        self.case, self.model, self.make = case, model, cache
        ids = torch.randint(0, 4096, (1, case.past + case.new), generator=torch.Generator().manual_seed(1))
        self.before, self.ids = ids[:, :case.past], ids[:, case.past:]
        self.cache = None
        self.prepare()

    @torch.inference_mode()
    def prepare(self):
        """The cache as it is before the tokens that are timed."""
        if self.cache is None or not self.case.past:
            self.cache = self.make()
            if self.case.past:
                self.model(self.before, past_key_values=self.cache, logits_to_keep=1)
        elif (more := self.cache.get_seq_length() - self.case.past) > 0:
            self.cache.crop(-more)

    @torch.inference_mode()
    def run(self):
        self.logits = self.model(self.ids, past_key_values=self.cache, logits_to_keep=1).logits

    def results(self):
        return [self.logits]


def models():
    return [Llama(0, 2048, Floor(1.3), Floor(1.3)), Llama(4095, 1, Floor(1.5), Floor(1.5))]


GROUPS = {"package-call": overhead, "package": attention, "transformers": models}
