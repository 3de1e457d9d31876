"""What every case of the comparison has in common.

A module of cases has GROUPS, {name: function that returns a list of cases}; a group
takes a minute at most.  A case names itself, makes its two sides, and knows the work of
one repetition and the least time that the machine could need for it.  Its fields have
`dtype`, `backward`, `floor` (on CPUs without tiles) and `floor_amx`; `peer` names what it
is measured against.
"""
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Floor:
    """What the project asks of itself; None: nothing."""
    ratio: float = None
    share: float = None


NONE = Floor()


class Case:
    unit = "GFLOP/s"
    comparable = True  # the results of both sides are the same
    rounds = None  # repetitions, where not those that were asked for
    calls = 1  # of a repetition: short cases are repeated inside it
    share_of = "peak of products"
    working_set = 0  # bytes that both sides go through in turn, where the memory's rate counts

    def least_seconds(self, machine, ours):
        """For one repetition: all of its products at the peak rate."""
        peak = machine.f32_flops if self.dtype == "f32" else machine.bf16_flops
        return self.work / peak

    def peer_seconds(self, seconds, ours, machine):
        """The time to beat, from that of the other side."""
        return seconds


def kind(dtype):
    return torch.bfloat16 if dtype == "bf16" else torch.float32


def draw(shape, dtype, seed, n=4):
    make = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=make).to(kind(dtype)) for _ in range(n)]


class Nothing:
    """The parts of a side that most sides leave empty."""

    def prepare(self):
        pass

    def close(self):
        pass
