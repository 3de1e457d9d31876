"""Fewer keys than tokens: mixtures, means, landmarks, and memories."""
# %% How far each is from softmax
import numpy as np

import foci

rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, 1, 2, 256, 16)).astype(np.float32)
for spec in (foci.linformer(rank=32), foci.nystrom(landmarks=32), foci.pooled(block=8),
             foci.segmented(length=32, integrate="summary"), foci.lowrank(rank=8)):
    print(f"{spec:45} {foci.softmax_errors(q, k, v, spec).round(2)}")

# %% Slots that segments before wrote
o, vjp = foci.attention_vjp(q, k, v, foci.memformer(slots=8, segment=64), causal=True)
assert set(vjp(np.ones_like(o)).params) == {"beta"}

# %% A memory before the segment, which takes no gradient
o, vjp = foci.attention_vjp(q[:, :, 128:], k, v, foci.xl(), causal=True)
grads = vjp(np.ones_like(o))
assert not grads.k[:, :, :128].any() and grads.k[:, :, 128:].any()
print("the first 128 keys are memory")
