"""Attention by any mechanism, its gradient, and the same token by token: the Python of the
README."""
# README: begin
import numpy as np

import foci

q, k, v = np.random.default_rng(0).standard_normal((3, 1, 8, 1000, 64), dtype=np.float32)
o = foci.attention(q, k, v, "local(window=256) rope", causal=True)  # [batch][head][row][dim]

o, vjp = foci.attention_vjp(q, k, v, "4*softmax sink + 4*relu2", causal=True)
grads = vjp(np.ones_like(o))  # grads.q, grads.k, grads.v, grads.params["0.sink"]

state = foci.State("softmax rope", heads=8, dim=64)  # token by token
for i in range(10):
    row = state.step(q[:, :, i:i + 1], k[:, :, i:i + 1], v[:, :, i:i + 1])
# README: end

whole = foci.attention(q[:, :, :10], k[:, :, :10], v[:, :, :10], "softmax rope", causal=True)
assert np.allclose(row, whole[:, :, 9:], atol=1e-5)
assert grads.q.shape == q.shape and grads.params["0.sink"].shape == (4,)
print("the tenth token comes out as the causal pass over ten gives it")
