"""Sparse attention: windows, strides, blocks; what each query sees, and what that saves."""
# %% Five supports on the same arrays
import numpy as np

import foci

ROWS = 2048
q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, ROWS, 32), dtype=np.float32)

for spec in (foci.softmax(), foci.local(window=64), foci.blocklocal(block=128), foci.strided(stride=64),
             foci.bigbird(block=64)):
    plan = foci.Plan(spec, heads=2, len_q=ROWS, dim=32)
    o = plan.forward(q, k, v)
    share = plan.cost()["pairs"] / (2 * ROWS * ROWS)
    print(f"{spec:22} {share:6.1%} of the pairs")
    assert o.shape == q.shape and share <= 1

# %% A layout of one's own: each block sees itself and the first
blocks = ROWS // 64
layout = np.eye(blocks, dtype=int)
layout[:, 0] = 1
o = foci.attention(q, k, v, foci.block(block=64), lists={"layout": layout})
seen = np.concatenate([np.arange(64), np.arange(640, 704)])
assert np.allclose(o[:, :, 640:704], foci.attention(q[:, :, 640:704], k[:, :, seen], v[:, :, seen]), atol=1e-5)

# %% A picture, which a notebook shows
picture = foci.show_pattern(foci.bigbird(block=8), n=96)
picture.save("bigbird.svg")
picture
