"""Products of matrices, against PyTorch's matmul: squares, and the projections of a
layer, 4096 tokens times a square of its width.

A matrix stored the other way round (tn, nt) is one that PyTorch is given transposed.
"""
from dataclasses import dataclass

import torch

import libfoci

FLAGS = {"nn": 0, "tn": libfoci.TURN_A, "nt": libfoci.TURN_B}


@dataclass
class Case:
    dtype: str  # f32, bf16
    m: int
    n: int
    k: int
    form: str = "nn"
    ratio_floor: float = None
    share_floor: float = None
    backward: bool = False

    unit = "product GFLOP/s"

    @property
    def name(self):
        return f"product/m{self.m}n{self.n}k{self.k}/{self.dtype}/{self.form}"

    @property
    def work(self):
        return 2 * self.m * self.n * self.k

    def peak(self, machine):
        return machine.f32_flops if self.dtype == "f32" else machine.bf16_flops

    def sides(self, context):
        kind = torch.bfloat16 if self.dtype == "bf16" else torch.float32
        make = torch.Generator().manual_seed(self.m + self.k)

        def draw(rows, cols, turned):
            shape = (cols, rows) if turned else (rows, cols)
            return torch.randn(shape, generator=make).to(kind)

        a = draw(self.m, self.k, self.form == "tn")
        b = draw(self.k, self.n, self.form == "nt")
        return Foci(context, self, a, b), Torch(self, a, b)


def cases():
    out = []
    for dtype, ratio in ("bf16", 1.5), ("f32", 0.95):
        for n in 1024, 2048, 4096:
            out.append(Case(dtype, n, n, n, ratio_floor=ratio))
        for width in 256, 512, 1024:
            out.append(Case(dtype, 4096, width, width, ratio_floor=ratio))
        out.append(Case(dtype, 4096, 1024, 1024, "nt", ratio))
        out.append(Case(dtype, 1024, 1024, 4096, "tn", ratio))
    return out


class Foci:
    class plan:
        """Products have no plan to describe."""

        @staticmethod
        def describe():
            return "product"

    def __init__(self, context, case, a, b):
        self.context, self.keep = context, (a, b)
        kind = libfoci.BF16 if case.dtype == "bf16" else libfoci.F32
        self.c = torch.empty((case.m, case.n), dtype=a.dtype)
        self.io = libfoci.sized(
            libfoci.ProductIO, m=case.m, n=case.n, k=case.k, a=a.data_ptr(),
            b=b.data_ptr(), c=self.c.data_ptr(), type_a=kind, type_b=kind, type_c=kind,
            flags=FLAGS[case.form])
        self.work = torch.empty(context.product_work(self.io) + 64, dtype=torch.uint8)
        self.io.work = (self.work.data_ptr() + 63) // 64 * 64

    def prepare(self):
        pass

    def run(self):
        self.context.product(self.io)

    def results(self):
        return [self.c]

    def close(self):
        pass


class Torch:
    def __init__(self, case, a, b):
        self.a = a.t() if case.form == "tn" else a
        self.b = b.t() if case.form == "nt" else b
        self.c = torch.empty((case.m, case.n), dtype=a.dtype)

    def prepare(self):
        pass

    def run(self):
        torch.matmul(self.a, self.b, out=self.c)

    def results(self):
        return [self.c]

    def close(self):
        pass
