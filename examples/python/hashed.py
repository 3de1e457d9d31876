"""Keys that are chosen by what they hold: hashes, clusters, routes."""
# %% A query sees the keys of its bucket
import numpy as np

import foci

rng = np.random.default_rng(0)
centres = rng.standard_normal((4, 32)) * 2
kinds = rng.integers(0, 4, 512)  # tokens of four kinds, near to each other
q, k, v = ((centres[kinds] + 0.3 * rng.standard_normal((2, 512, 32))).astype(np.float32) for _ in range(3))
exact = foci.attention(q, k, v)
for rounds in (1, 4):
    error = np.abs(foci.attention(q, k, v, foci.lsh(buckets=8, rounds=rounds)) - exact).mean()
    print(f"lsh, {rounds} rounds: mean error {error:.4f}")
assert error < 0.05

# %% Centroids move to where queries and keys are, once a training step
plan = foci.Plan(foci.routing(clusters=4), heads=2, len_q=512, dim=32, layout="hnd")
params = plan.params(seed=1)
before = params["mu"].copy()
for _ in range(5):
    plan.advance(q, k, params)
print(f"centroids moved by {np.abs(params['mu'] - before).mean():.4f}")
assert (params["mu"] != before).any()

# %% Several sets of keys a head, mixed by gates of the hidden states
x = rng.standard_normal((512, 64)).astype(np.float32)
two = np.concatenate([k, k[::-1]]), np.concatenate([v, v[::-1]])
o = foci.attention(q, *two, foci.routed(inner=foci.softmax(), routes=2), x=x)
assert o.shape == q.shape
