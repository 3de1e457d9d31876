"""Attention of all pairs, against PyTorch's scaled_dot_product_attention; products of
f32 tensors in bf16 (f32fast) against our own of f32.

FLOP: 4 N^2 d for each head forward, half of that when causal; backward 2.5 times as
much.
"""
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F

from attend import Foci
from case import NONE, Case, Floor, Nothing, draw


@dataclass
class Softmax(Case):
    dtype: str  # f32, f32fast, bf16
    backward: bool
    n: int
    d: int
    causal: bool
    floor: Floor = NONE
    floor_amx: Floor = NONE
    heads: int = 8
    calls: int = 1

    @property
    def name(self):
        return (f"softmax/h{self.heads}n{self.n}d{self.d}{'c' * self.causal}"
                f"/{self.dtype}/{'bwd' if self.backward else 'fwd'}")

    @property
    def peer(self):
        return "our own f32" if self.dtype == "f32fast" else "PyTorch"

    def sides(self, context):
        shape = (1, self.heads, self.n, self.d)
        tensors = draw(shape, self.dtype, self.n + self.d)
        how = {"causal": self.causal, "backward": self.backward}
        ours = Foci(context, "softmax", tensors, self.dtype, **how)
        if self.dtype == "f32fast":
            return ours, Foci(context, "softmax", tensors, "f32", **how)
        return ours, Torch(self, *tensors)

    @property
    def work(self):
        forward = 4 * self.heads * self.n * self.n * self.d
        return (self.calls * forward * (2.5 if self.backward else 1) /
                (2 if self.causal else 1))


@dataclass
class Small(Softmax):
    """A call so short that starting it counts."""
    unit = "us"
    share_of = None
    calls: int = 200


def forward():
    out = []
    for c, d in product((False, True), (64, 128)):
        amx = Floor(2.8) if c else {64: Floor(3.0, 0.33), 128: Floor(1.8, 0.40)}[d]
        ratio = {64: (2.2, 2.5), 128: (1.7, 2.0)}[d][c]
        share = None if c else {64: 0.28, 128: 0.32}[d]
        out.append(Softmax("bf16", False, 2048, d, c, Floor(ratio, share), amx))
        out.append(Softmax("bf16", False, 512, d, c, Floor((1.5, 2.0)[c]), Floor(2.2)))
    return out + [Softmax("bf16", False, 8192, 128, c, Floor(1.5), Floor(1.7), heads=2)
                  for c in (False, True)]


def widths():
    return [Softmax("bf16", False, 2048, d, False, Floor(3), Floor(2.2))
            for d in (72, 80, 96)]


def backward():
    return [Softmax("bf16", True, 2048, d, c,
                    Floor({64: 3, 128: 2.5}[d], None if c else 0.20),
                    Floor({64: 3.2, 128: 2.4}[d], 0.28))
            for c, d in product((False, True), (64, 128))]


def f32():
    out = [Softmax("f32", False, 2048, d, c, Floor({64: 1.3, 128: 1.15}[d] if not c else 1.4),
                   Floor(1.3))
           for c, d in product((False, True), (64, 128))]
    return out + [Softmax("f32", True, 2048, d, c, Floor(1.15), Floor(1.15))
                  for c, d in product((False, True), (64, 128))]


def fast():
    return [Softmax("f32fast", False, 2048, d, False, Floor(2.5), Floor(3))
            for d in (64, 128)]


def small():
    return [Small("bf16", False, 64, 64, c) for c in (False, True)]


def wide():
    """For many threads: run it with --threads 16."""
    return [Softmax("bf16", b, 4096, 128, False, NONE, Floor(None, (0.60, 0.45)[b]),
                    heads=16) for b in (False, True)]


GROUPS = {"forward": forward, "widths": widths, "backward": backward, "f32": f32,
          "fast": fast, "small": small, "wide": wide}


class Torch(Nothing):
    """The same case through PyTorch."""

    def __init__(self, case, q, k, v, dout):
        self.case, self.dout = case, dout
        self.inputs = [t.detach().requires_grad_(case.backward) for t in (q, k, v)]
        self.o = self.attend()

    def attend(self):
        with torch.set_grad_enabled(self.case.backward):
            return F.scaled_dot_product_attention(*self.inputs,
                                                  is_causal=self.case.causal)

    def prepare(self):
        for t in self.inputs:
            t.grad = None

    def run(self):
        if self.case.backward:
            self.o.backward(self.dout, retain_graph=True)
        else:
            self.o = self.attend()

    def results(self):
        if self.case.backward:
            return [t.grad for t in self.inputs]
        return [self.o]
