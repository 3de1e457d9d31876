"""Looking at attention: weights, how evenly they are spread, and what theory says of it."""
# %% The weights of a layer, and a picture of two of its heads
import numpy as np

import foci

rng = np.random.default_rng(0)
x = rng.standard_normal((1, 48, 32)).astype(np.float32)
layer = foci.Layer("softmax rope", width=32, heads=2, causal=True)
weights = layer.weights(x)
assert np.allclose(weights.sum(-1), 1, atol=1e-5)
print("concentration of the heads", foci.layer_concentration(layer, x).round(3))

# %% Random logits: measured, and in closed form
for gamma in (0.5, 1.0, 2.0):
    rows = np.exp(gamma * rng.standard_normal((20, 100_000))).astype(np.float32)
    measured, theory = foci.concentration(rows).mean(), foci.concentration_theory("exp", gamma=gamma)
    print(f"gamma {gamma}: measured {measured:.3f}, theory {theory:.3f}")
    assert abs(measured - theory) < 0.05

# %% How good random features are
pairs = rng.standard_normal((2, 6, 16)) * 0.2
estimate = foci.estimator("performer(features=32)", *pairs, draws=500)
print("kernel  ", estimate.exact.round(3))
print("estimate", estimate.mean.round(3))

# %% What there is to choose from
for name, entry in foci.mechanisms().items():
    print(f"{name:12} {entry['summary']}")
