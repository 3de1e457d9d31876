"""Linear attention: sums over features in place of pairs, and states that do not grow."""
# %% A million tokens cost what the first cost
import numpy as np

import foci

rng = np.random.default_rng(0)
state = foci.State("retention", heads=4, dim=32)
q, k, v = rng.standard_normal((3, 1, 4, 256, 32)).astype(np.float32)
state.step(q, k, v)
held = state.nbytes
state.step(q, k, v)
print(f"{state.lengths[0]} tokens in {state.nbytes} bytes")
assert state.nbytes == held

# %% Random features estimate softmax, better with more of them
exact = foci.attention(q, k, v)
errors = []
for features in (16, 64, 256):
    o = foci.attention(q / 3, k / 3, v, foci.performer(features=features))
    errors.append(float(np.abs(o - foci.attention(q / 3, k / 3, v)).mean()))
    print(f"performer, {features} features: mean error {errors[-1]:.4f}")
assert errors[-1] < errors[0]

# %% Statistics of q and k are found once, and then stay: causal problems need that
plan = foci.Plan(foci.performer(kind="aderf", features=64), heads=4, len_q=256, dim=32, causal=True)
params = plan.params()
plan.calibrate(q, k, params)
assert np.isfinite(plan.forward(q, k, v, params=params)).all()
