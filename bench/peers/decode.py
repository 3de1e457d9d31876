"""Decoding: one new token of several sequences, against PyTorch's attention of one
query row to keys and values that lie ready.

Bound by reading keys and values; the share is of the rate of merely reading a large
buffer, measured beside it.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import libfoci
from case import Case, Floor, Nothing, draw

PAGE = 64


@dataclass
class Decode(Case):
    sequences: int
    heads: int
    kv_heads: int
    n: int
    d: int = 128
    floor: Floor = Floor(1.0, 0.85)
    floor_amx: Floor = Floor(1.0, 0.85)
    dtype: str = "bf16"
    backward: bool = False

    unit = "GB/s"
    peer = "PyTorch"
    share_of = "rate of reading memory"

    @property
    def name(self):
        return (f"softmax/b{self.sequences}h{self.heads}k{self.kv_heads}n1m{self.n}"
                f"d{self.d}/{self.dtype}/step")

    @property
    def work(self):  # bytes of keys and values
        return 2 * 2 * self.sequences * self.kv_heads * self.n * self.d

    @property
    def working_set(self):
        return 2 * self.work

    def least_seconds(self, machine, ours):
        return self.work / machine.read_bytes

    def sides(self, context):
        make = torch.Generator().manual_seed(self.n)
        shape = (self.sequences, self.kv_heads, self.n, self.d)
        k, v = (torch.empty(shape, dtype=torch.bfloat16).normal_(generator=make)
                for _ in range(2))
        q, = draw((self.sequences, self.heads, 1, self.d), self.dtype, self.n, 1)
        return Foci(context, self, q, k, v), Torch(self, q, k, v)


def cases():
    return [Decode(b, 32, kv, n) for b, kv, n in (
        (8, 8, 4096), (8, 8, 32768), (1, 8, 4096), (1, 8, 32768), (8, 32, 4096),
        (1, 32, 32768))]


GROUPS = {"decode": cases}


class Foci:
    def __init__(self, context, case, q, k, v):
        problem = libfoci.sized(
            libfoci.Problem, dtype=libfoci.BF16, flags=libfoci.CAUSAL, batch=1,
            heads=case.heads, kv_heads=case.kv_heads, len_q=1, len_k=1, dim_qk=case.d)
        self.plan = context.plan("softmax", problem)
        pages = case.sequences * (-(-case.n // PAGE))
        self.decoder = libfoci.Decoder(self.plan, case.sequences, pages)
        self.before = case.n - 1

        def rows(x, begin, end):  # [sequence][token][head][dim]
            return x[:, :, begin:end].transpose(1, 2).contiguous()

        for at in range(0, self.before, PAGE):
            end = min(at + PAGE, self.before)
            keys, values = rows(k, at, end), rows(v, at, end)
            self.decoder.step(keys.data_ptr(), values.data_ptr(), end - at)
        self.q = q.transpose(1, 2).contiguous()
        self.k, self.v = rows(k, self.before, case.n), rows(v, self.before, case.n)
        self.o = torch.empty_like(self.q)
        work = torch.empty(self.decoder.work_bytes(case.sequences, case.n) + 64,
                           dtype=torch.uint8)
        self.keep, self.work = work, (work.data_ptr() + 63) // 64 * 64

    def prepare(self):
        self.decoder.truncate(self.before)

    def run(self):
        self.decoder.step(self.k.data_ptr(), self.v.data_ptr(), q=self.q.data_ptr(),
                          o=self.o.data_ptr(), work=self.work)

    def results(self):
        return [self.o.transpose(1, 2)]

    def close(self):
        self.decoder.close()


class Torch(Nothing):
    def __init__(self, case, q, k, v):
        self.q, self.k, self.v = q, k, v
        self.grouped = case.heads != case.kv_heads

    def run(self):
        with torch.no_grad():
            self.o = F.scaled_dot_product_attention(self.q, self.k, self.v,
                                                    enable_gqa=self.grouped)

    def results(self):
        return [self.o]
