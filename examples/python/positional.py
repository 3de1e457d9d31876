"""Weights that positions make, or the token alone: fixed patterns and convolutions."""
# %% Seven heads that learn nothing, beside one of softmax
import numpy as np

import foci

rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, 1, 8, 64, 16)).astype(np.float32)
o = foci.attention(q, k, v, "7*fixed + 1*softmax")
assert np.allclose(o[:, 1, 1:], v[:, 1, :-1])  # the second pattern is the neighbour before
assert np.allclose(o[:, 7], foci.attention(q, k, v)[:, 7], atol=1e-5)

# %% A fixed head reads values only
alone = foci.attention(None, None, v, foci.fixed(pattern="previous"))
assert np.allclose(alone[:, :, 1:], v[:, :, :-1])

# %% Kernels that learn, and kernels made of hidden states
x = rng.standard_normal((1, 64, 128)).astype(np.float32)
for spec in (foci.lightconv(width=5), foci.dynconv(width=5)):
    o, vjp = foci.attention_vjp(None, None, v, spec, x=x if spec.startswith("dyn") else None)
    grads = vjp(np.ones_like(o))
    print(spec, {name: list(values.shape) for name, values in grads.params.items()})
    assert set(grads.params) == {"W"}
