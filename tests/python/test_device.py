"""Plans on a device, here on a library that stands in for one: addresses are memory there."""
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

import foci

STAND_IN = pathlib.Path(os.environ.get("FOCI_TEST_BUILD", ROOT / "build")) / "tests/libfoci_stand_in.so"
PROGRAM = """
import numpy as np
import foci
from foci import _c
from foci._context import DeviceMemory

context = foci.Context(device="cuda")
assert context.device == "cuda" and "cuda" in repr(context)
q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 16, 32), dtype=np.float32)
plan = foci.Plan("softmax", heads=2, len_q=16, dim=32, context=context)
places = [DeviceMemory(context, q.nbytes) for _ in range(4)]
for place, values in zip(places, (q, k, v)):
    assert not _c.lib.foci_device_write(context.handle, place.handle, values.ctypes.data, values.nbytes)
plan.execute(*(place.handle for place in places))
o = np.empty_like(q)
assert not _c.lib.foci_device_read(context.handle, o.ctypes.data, places[3].handle, o.nbytes)
np.testing.assert_allclose(o, foci.attention(q, k, v), atol=2e-6)
try:
    plan.forward(q, k, v)
except foci.ArgumentError as error:
    assert "memory of the host" in str(error)
else:
    raise AssertionError("arrays of the host were taken")
"""


def test_addresses_of_a_device():
    if not STAND_IN.exists():
        pytest.skip("the build has no library that stands in for a device")
    env = dict(os.environ, FOCI_CUDA_LIBRARY=str(STAND_IN), PYTHONPATH=str(pathlib.Path(foci.__file__).parents[1]))
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    assert done.returncode == 0, done.stdout


def test_no_device(monkeypatch):
    monkeypatch.setenv("FOCI_CUDA_LIBRARY", "/nothing")
    with pytest.raises(foci.DeviceError, match="/nothing"):
        foci.Context(device="cuda")
    with pytest.raises(foci.ArgumentError, match="no such device"):
        foci.Context(device="abacus")
