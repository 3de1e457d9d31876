"""Products of matrices, against PyTorch's matmul: squares, and the tall ones of a layer,
4096 tokens times a square of its width, or three of them side by side.

A matrix stored the other way round (tn, nt) is one that PyTorch is given transposed.
"""
from dataclasses import dataclass

import torch

import libfoci
from case import NONE, Case, Floor, Nothing, kind

FLAGS = {"nn": 0, "tn": libfoci.TURN_A, "nt": libfoci.TURN_B}


@dataclass
class Product(Case):
    dtype: str  # f32, bf16
    m: int
    n: int
    k: int
    form: str = "nn"
    floor: Floor = NONE
    floor_amx: Floor = NONE
    backward: bool = False

    peer = "PyTorch"

    @property
    def name(self):
        return f"product/m{self.m}n{self.n}k{self.k}/{self.dtype}/{self.form}"

    @property
    def work(self):
        return 2 * self.m * self.n * self.k

    def sides(self, context):
        make = torch.Generator().manual_seed(self.m + self.k)

        def draw(rows, cols, turned):
            shape = (cols, rows) if turned else (rows, cols)
            return torch.randn(shape, generator=make).to(kind(self.dtype))

        a = draw(self.m, self.k, self.form == "tn")
        b = draw(self.k, self.n, self.form == "nt")
        return Foci(context, self, a, b), Torch(self, a, b)


SHAPES = ([(n, n, n, "nn") for n in (1024, 2048, 4096)] +
          [(4096, width, width, "nn") for width in (256, 512, 1024)] +
          [(4096, 1536, 512, "nn"), (4096, 1024, 1024, "nt"), (1024, 1024, 4096, "tn")])


def cases(dtype, floor, floor_amx):
    return [Product(dtype, *shape, floor, floor_amx) for shape in SHAPES]


GROUPS = {
    "product": lambda: cases("bf16", Floor(1.5), Floor(1.25, 0.42)),
    "product-f32": lambda: cases("f32", Floor(0.95), Floor(0.98)),
}


class Foci(Nothing):
    class plan:
        """Products have no plan to describe."""

        @staticmethod
        def describe():
            return "product"

    def __init__(self, context, case, a, b):
        self.context, self.keep = context, (a, b)
        element = libfoci.BF16 if case.dtype == "bf16" else libfoci.F32
        self.c = torch.empty((case.m, case.n), dtype=a.dtype)
        self.io = libfoci.sized(
            libfoci.ProductIO, m=case.m, n=case.n, k=case.k, a=a.data_ptr(),
            b=b.data_ptr(), c=self.c.data_ptr(), type_a=element, type_b=element,
            type_c=element, flags=FLAGS[case.form])
        self.work = torch.empty(context.product_work(self.io) + 64, dtype=torch.uint8)
        self.io.work = (self.work.data_ptr() + 63) // 64 * 64

    def run(self):
        self.context.product(self.io)

    def results(self):
        return [self.c]


class Torch(Nothing):
    def __init__(self, case, a, b):
        self.a = a.t() if case.form == "tn" else a
        self.b = b.t() if case.form == "nt" else b
        self.c = torch.empty((case.m, case.n), dtype=a.dtype)

    def run(self):
        torch.matmul(self.a, self.b, out=self.c)

    def results(self):
        return [self.c]
