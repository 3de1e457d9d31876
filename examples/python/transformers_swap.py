"""Hugging Face: a model with foci's attention, and with other mechanisms in its place."""
# %% A model; with weights of yours AutoModelForCausalLM.from_pretrained(name, attn_implementation="foci")
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import foci.transformers

foci.transformers.register()
torch.manual_seed(0)
config = LlamaConfig(vocab_size=32, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, bos_token_id=1, eos_token_id=None, attn_implementation="foci")
model = LlamaForCausalLM(config)

# %% It learns to count
ids = (torch.arange(48) + torch.arange(8)[:, None]) % 29 + 3
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(60):
    loss = model(ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
assert loss.item() < 0.5

# %% It writes the same with PyTorch's attention
model.eval()
options = {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 0}
prompt = {"input_ids": ids[:, :8], "attention_mask": torch.ones_like(ids[:, :8])}
written = model.generate(**prompt, **options, past_key_values=foci.transformers.Cache())
model.set_attn_implementation("sdpa")
assert torch.equal(model.generate(**prompt, **options), written)
print("writes", written[0].tolist())

# %% What becomes of the loss when other attention stands in the place of softmax
with torch.no_grad():
    for spec in ("softmax", "local(window=8)", "local(window=2)", "bigbird(block=8)", "linear"):
        model.set_attn_implementation(f"foci|{spec}")
        print(f"{spec:18} loss {model(ids, labels=ids).loss.item():.3f}")
