"""A layer learns, by plain gradient descent: to give each token the mean of those before it."""
# %% The layer, and what it should do
import numpy as np

import foci

rng = np.random.default_rng(0)
x = rng.standard_normal((8, 32, 16)).astype(np.float32)
wanted = np.cumsum(x, 1) / np.arange(1, 33, dtype=np.float32)[:, None]

layer = foci.Layer("2*softmax frozen + 2*softmax", width=16, heads=4, causal=True, seed=1, longest=32)
print(layer)
print(layer.params, "and frozen", list(layer.frozen))

# %% Gradient descent
losses = []
for step in range(200):
    y, vjp = layer.vjp(x)
    losses.append(float(((y - wanted) ** 2).mean()))
    grads = vjp(2 * (y - wanted) / y.size)
    layer.params.flat[:] -= 4 * grads.params.flat
    if step % 50 == 0:
        print(f"step {step:3}  loss {losses[-1]:.4f}")
print(f"at last   loss {losses[-1]:.4f}")
assert losses[-1] < 0.1 * losses[0]

# %% What it has learned, token by token
state = layer.state(batch=8)
rows = np.concatenate([state.step(x[:, i:i + 1]) for i in range(32)], 1)
assert np.allclose(rows, layer(x), atol=1e-5)

# %% Kept for another day
np.save("layer.npy", layer.params.flat)
layer.params.flat[:] = np.load("layer.npy")
