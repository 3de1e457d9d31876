"""A model that `foci train` made, in Python: its text, its loss, its parameters."""
# %% Train one: a folder, as the command leaves it
import pathlib

import numpy as np

import foci

if not pathlib.Path("foci-lm").exists():
    foci.command("train", "lm", "--steps", "2", "--dim", "16", "--layers", "1", "--batch", "2", "--out", "foci-lm",
                 "--quiet")
model = foci.Model.from_folder("foci-lm")
print(model, model.tokenizer)

# %% It writes; two steps of training write nothing sensible
print(model.generate("It is a truth", 40, temperature=0.8, seed=1))

# %% How surprised it is, token by token
text = "It is a truth universally acknowledged"
found = model.loss(text)
print(f"{found.loss:.3f} nats a token, {found.hits} of {found.labels} right")
ids = model.tokenizer.encode(text)
assert found.nats.shape == (len(ids) - 1,)

# %% One step of gradient descent on this text makes it less surprising
grads = model.loss(text, gradients=True).gradients
model.params.flat[:] -= 0.01 / np.linalg.norm(grads.flat) * grads.flat
assert model.loss(text).loss < found.loss
