"""Causal linear attention, phi = elu + 1: against a good chunked implementation in PyTorch
and against fast-transformers, where that could be built.

In chunks of c tokens, with F = phi(q), G = phi(k) and S, z the sums over earlier chunks,

    o = (tril(F G') v + F S) / (tril(F G') 1 + F z)

all chunks at once by batched products.  What is fastest differs by machine and length, so
all variants are tried first: chunks of 64, 128 and 256, sums by a cumulative sum or by a
loop over chunks, products in the type of the tensors or in f32.
"""
import itertools
import time
from dataclasses import dataclass

import torch

from attend import Foci
from case import NONE, Case, Floor, Nothing, draw

try:
    from fast_transformers.causal_product import causal_dot_product
except ImportError:  # it is built from source, which not every compiler can
    causal_dot_product = None


@dataclass
class Linear(Case):
    n: int
    peer: str  # chunked, fast-transformers
    dtype: str
    backward: bool
    floor: Floor = NONE
    floor_amx: Floor = NONE
    causal: bool = True
    heads: int = 8
    d: int = 64
    rounds: int = 5

    unit = "Mtoken/s"
    share_of = "roofline"

    @property
    def name(self):
        return (f"linear/h{self.heads}n{self.n}d{self.d}c/{self.dtype}/"
                f"{'bwd' if self.backward else 'fwd'}")

    @property
    def work(self):  # so that 1e9 of them are a million tokens
        return 1e3 * self.n

    @property
    def working_set(self):  # q, k, v, o, and when backward d_o, dq, dk, dv
        element = 2 if self.dtype == "bf16" else 4
        return element * (8 if self.backward else 4) * self.heads * self.n * self.d

    def least_seconds(self, machine, ours):
        """Products at the peak rate, or tensors at the rate of copying."""
        flops, moved = ours.plan.cost(self.backward)
        peak = machine.f32_flops if self.dtype == "f32" else machine.bf16_flops
        return max(flops / peak, moved / machine.copy_bytes)

    def sides(self, context):
        tensors = draw((1, self.heads, self.n, self.d), self.dtype, self.n)
        ours = Foci(context, "linear", tensors, self.dtype, causal=True,
                    backward=self.backward)
        peer = Chunked if self.peer == "chunked" else Fast
        return ours, peer(tensors, self.backward)


def cases(dtype, lengths=(4096, 65536)):
    out = [Linear(n, "chunked", dtype, backward, Floor(4),
                  Floor((12, 8)[backward], 0.40) if n == 65536 and dtype == "bf16" else
                  Floor(4))
           for n, backward in itertools.product(lengths, (False, True))]
    if causal_dot_product and dtype == "f32":
        out += [Linear(n, "fast-transformers", dtype, False, Floor(15), Floor(15))
                for n in lengths]
    return out


GROUPS = {"linear": lambda: cases("bf16"), "linear-f32": lambda: cases("f32")}


def phi(x):
    return torch.nn.functional.elu(x) + 1


def before(x, loop):
    """Sums over the chunks before each, [heads][chunks][...], in f32."""
    wide = x.float()
    if not loop:
        return (wide.cumsum(1) - wide).to(x.dtype)
    total, out = torch.zeros_like(wide[:, 0]), []
    for piece in wide.unbind(1):
        out.append(total)
        total = total + piece
    return torch.stack(out, 1).to(x.dtype)


def attend(q, k, v, chunk, loop, wide):
    kind, shape = v.dtype, v.shape
    if wide:
        q, k, v = q.float(), k.float(), v.float()
    q, k, v = (t.reshape(shape[1], -1, chunk, shape[3]) for t in (q, k, v))
    f, g = phi(q), phi(k)
    near = (f @ g.transpose(2, 3)).tril()
    top = near @ v + f @ before(g.transpose(2, 3) @ v, loop)
    below = near.sum(3, keepdim=True, dtype=torch.float32)
    below = below + f @ before(g.sum(2), loop)[..., None]
    return (top / below).to(kind).reshape(shape)


class Side(Nothing):
    def __init__(self, tensors, backward):
        *inputs, self.dout = tensors
        self.backward = backward
        self.inputs = [t.detach().requires_grad_(backward) for t in inputs]

    def forward(self, **how):
        with torch.set_grad_enabled(self.backward):
            self.o = self.attend(*self.inputs, **how)

    def prepare(self):
        for t in self.inputs:
            t.grad = None

    def run(self):
        if self.backward:
            self.o.backward(self.dout, retain_graph=True)
        else:
            self.forward(**self.how)

    def results(self):
        return [t.grad for t in self.inputs] if self.backward else [self.o]


class Chunked(Side):
    def __init__(self, tensors, backward):
        super().__init__(tensors, backward)
        self.attend = attend
        self.how = self.fastest()
        self.forward(**self.how)

    def variants(self):
        n, narrow = self.dout.shape[2], self.dout.dtype != torch.float32
        for chunk, loop, wide in itertools.product((64, 128, 256), (False, True),
                                                   (False, True) if narrow else (False,)):
            if n % chunk == 0:
                yield {"chunk": chunk, "loop": loop, "wide": wide}

    def fastest(self):
        """By one repetition each, after one that warms up; then those that came near the
        best by two more."""
        first = [(self.seconds(how, 1), how) for how in self.variants()]
        best = min(seconds for seconds, _ in first)
        near = [how for seconds, how in first if seconds < 1.3 * best]
        return min(near, key=lambda how: self.seconds(how, 2))

    def seconds(self, how, rounds):
        self.how, taken = how, []
        self.forward(**how)
        for _ in range(1 + rounds):
            self.prepare()
            begin = time.perf_counter()
            self.run()
            taken.append(time.perf_counter() - begin)
        return min(taken[1:])


class Fast(Side):
    def __init__(self, tensors, backward):
        super().__init__(tensors, backward)
        self.how = {}
        self.forward()

    @staticmethod
    def attend(q, k, v):
        f, g = phi(q), phi(k)
        below = (f * g.cumsum(2)).sum(3, keepdim=True)
        return causal_dot_product(f, g, v) / below
