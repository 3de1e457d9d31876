#!/usr/bin/env python3
"""python_overhead.py -- what calls from Python add to the C call: microseconds, the least of
several rounds, of a problem so small that the call itself takes next to nothing.

    PYTHONPATH=build/python build/venv/bin/python tools/python_overhead.py
"""
import ctypes
import timeit

import numpy as np

import foci
from foci import _c

ROUNDS, CALLS = 300, 100
foci.set_threads(1)
plan = foci.Plan(heads=2, len_q=1, dim=4)
q, k, v, o = np.zeros((4, 1, 2, 1, 4), np.float32)
places = [a.ctypes.data for a in (q, k, v, o)]
work = plan.context.take(plan.work_bytes)
fields = dict(zip("qkvo", places), work=work.address)
ready = ctypes.byref(_c.foci_io(**fields))
forward, handle = _c.lib.foci_forward, plan.handle
ways = {
    "the C call, its struct ready": lambda: forward(handle, ready),
    "a call that is refused at once": lambda: forward(None, None),
    "and filling the struct": lambda: forward(handle, ctypes.byref(_c.foci_io(**fields))),
    "Plan.execute, of addresses": lambda: plan.execute(*places),
    "Plan.forward, of arrays": lambda: plan.forward(q, k, v),
    "foci.attention": lambda: foci.attention(q, k, v),
}
least = {name: min(timeit.repeat(way, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6 for name, way in ways.items()}
for name, time in least.items():
    print(f"{name:32} {time:7.2f} us")
