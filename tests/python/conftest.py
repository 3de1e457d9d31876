"""What several tests of the package need: arrays, a softmax of NumPy's, a case for each
mechanism."""
import pathlib

import numpy as np
import pytest

import foci

ROOT = pathlib.Path(__file__).resolve().parents[2]


def draw(*shape, seed=0, scale=1.0, dtype=np.float32):
    """Normal numbers that follow from the seed."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def softmax(q, k, v, causal=False, mask=None, bias=None, lengths=None):
    """Attention by NumPy in double precision, [batch][heads][rows][elements]."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if bias is not None:
        logits = logits + bias
    rows, keys = logits.shape[-2:]
    seen = np.tri(rows, keys, keys - rows, dtype=bool) if causal else np.ones((rows, keys), bool)
    seen = np.broadcast_to(seen, logits.shape).copy()
    if mask is not None:
        seen &= mask
    if lengths is not None:
        seen &= (np.arange(keys) < np.asarray(lengths)[:, None])[:, None, None]
    logits = np.where(seen, logits, -np.inf)
    top = logits.max(-1, keepdims=True)
    weights = np.where(seen, np.exp(logits - np.where(np.isfinite(top), top, 0)), 0)
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0) @ v


HEADS, ROWS, DIM, WIDTH = 2, 24, 8, 16
# arguments that suit so few rows
ARGUMENTS = {"block": "block(block=8)", "bigbird": "bigbird(block=4)", "local": "local(window=5)",
             "global": "global(window=2, first=1)", "lsh": "lsh(buckets=4)", "routing": "routing(clusters=3)",
             "segmented": "segmented(length=8, integrate=summary)", "pooled": "pooled(block=4)",
             "strided": "strided(stride=4)", "sparse_fixed": "sparse_fixed(stride=4)", "blocklocal": "blocklocal(block=8)",
             "linformer": "linformer(rank=4)", "nystrom": "nystrom(landmarks=4, iters=0)", "cosformer": "cosformer(length=24)",
             "synthesizer": "synthesizer(kind=dense, max=24)", "performer": "performer(features=8)",
             "memformer": "memformer(slots=4, segment=8)", "fixed": "fixed(pattern=left)"}
LISTS = {"block": {"layout": np.tri(3, dtype=int)}, "global": {"global": [3, 7]}}


class Case:
    """A mechanism on small arrays that suit it."""

    def __init__(self, name, causal):
        entry = foci.mechanisms()[name]
        routes = 2 if name == "routed" else 1
        reads = entry["reads"] + entry["may_read"]
        self.spec, self.causal = ARGUMENTS.get(name, name), causal
        if name == "linformer" and causal:
            self.spec = "linformer(rank=4, block=8)"
        self.q = draw(1, HEADS, ROWS, DIM, seed=1) if "q" in reads else None
        self.k = draw(1, HEADS * routes, ROWS, DIM, seed=2) if "k" in reads else None
        self.v = draw(1, HEADS * routes, ROWS, DIM, seed=3)
        self.options = {"causal": causal}
        if name == "routed":
            self.options["x"] = draw(1, ROWS, WIDTH, seed=4)
        elif "x" in reads:
            self.options["x"] = draw(1, ROWS, WIDTH, seed=4)
        if name in LISTS:
            self.options["lists"] = LISTS[name]

    @property
    def arrays(self):
        return self.q, self.k, self.v


def cases(backward=False):
    """Parameters of a test over all mechanisms, causal and not."""
    found = []
    for name, entry in foci.mechanisms().items():
        for causal in (False, True):
            if causal and (entry["causal"] is not True or name == "performer"):
                continue
            if backward and entry["backward"] is not True:
                continue
            found.append(pytest.param(name, causal, id=f"{name}{'-causal' if causal else ''}"))
    return found


@pytest.fixture
def case(request):
    return Case(*request.param)
