"""PyTorch: any attention with its gradient, layers to train, generation, and weights that the
command and C programs read."""
# %% A function, differentiable, compiled like any other
import torch

import foci
import foci.torch

torch.manual_seed(0)
q, k, v = (torch.randn(2, 8, 128, 32, requires_grad=True) for _ in range(3))
o = foci.torch.attention(q, k, v, "local(window=32) rope", causal=True)
o.square().mean().backward()
want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
assert torch.allclose(foci.torch.attention(q, k, v, causal=True), want, atol=1e-5)

# %% A layer in the place of nn.MultiheadAttention: half of its heads see a window, half have
# query and key projections that are never trained
SPEC = "4*local(window=16) rope + 4*softmax frozen(orthogonal)"
attn = foci.torch.Attention(64, 8, spec=SPEC, causal=True, batch_first=True)
print(attn, {name: tuple(t.shape) for name, t in attn.state_dict().items()})

# %% It learns to repeat what it saw eight rows before
optimizer = torch.optim.AdamW(attn.parameters(), lr=3e-3)
losses = []
for step in range(150):
    x = torch.randn(8, 48, 64)
    loss = (attn(x)[0][:, 8:] - x[:, :-8]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f}, after {len(losses)} steps {losses[-1]:.3f}")
assert losses[-1] < 0.9 * losses[0]

# %% Token by token
with torch.no_grad():
    whole, _ = attn(x)
    state = foci.torch.DecodeState(attn, batch=8)
    rows = torch.cat([state.step(x[:, i:i + 1]) for i in range(48)], 1)
assert torch.allclose(rows, whole, atol=1e-4)

# %% The weights in a file, and the same layer in the command
try:
    from safetensors.torch import save_file
except ImportError:
    raise SystemExit("safetensors is not installed: pip install safetensors")
import numpy as np

save_file(attn.state_dict(), "layer.safetensors")
np.save("x.npy", x[0].numpy())
foci.command("run", SPEC, "--x", "x.npy", "--heads", "8", "--causal", "--biases", "--params", "layer.safetensors",
             "--out", "y.npy")
assert np.array_equal(np.load("y.npy"), whole[0].numpy())
print("foci run computes the same bits")
