"""training.py -- ten training steps of small models, from the definitions.

    block   x += attention(norm(x));  x += act(norm(x) W1 + b1) W2 + b2
    output  logits = norm(x) table^T, or of its own matrix

with gradients from arrays.py and AdamW after clipping.  Parameters start as 0.3 times normals
of stream t of seed 1, t the tensor's place in `tensors`; gains have 1 added.  Ids and labels of
step s are drawn from stream 1000 + s, all ids first.
"""

import math

import numpy as np

import arrays
from arrays import Array, backward, concatenate, constant, sigmoid, softmax, tanh
from formulas import sinusoid
from streams import Stream

STEPS, BATCH, LEN, VOCAB, WIDTH, HEADS, FFN, BLOCKS = 10, 2, 6, 11, 8, 2, 12, 2
RATE, BETA1, BETA2, EPS, DECAY, CLIP = 0.01, 0.9, 0.95, 1e-8, 0.1, 1.0


def gelu_tanh(x):
    return 0.5 * x * (1.0 + tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3)))


class Training:
    """A model: `rms` and `gated` without biases and positions that learn, or the plain one."""

    def __init__(self, name, plain, smoothing):
        self.name, self.plain, self.smoothing = name, plain, smoothing

    def shapes(self):
        found = [("embedding", (VOCAB, WIDTH))]
        if self.plain:
            found.append(("positions", (LEN, WIDTH)))
        for b in range(BLOCKS):
            at = "%d.attention." % b
            found += self.norm(at + "norm")
            for w in ("Wq", "Wk", "Wv", "Wo"):
                found.append((at + w, (WIDTH, WIDTH)))
                if self.plain:
                    found.append((at + "b" + w[1], (WIDTH,)))
            at = "%d.ffn." % b
            wide = FFN if self.plain else 2 * FFN
            found += self.norm(at + "norm") + [(at + "W1", (WIDTH, wide)), (at + "W2", (FFN, WIDTH))]
            if self.plain:
                found += [(at + "b1", (wide,)), (at + "b2", (WIDTH,))]
        found += self.norm("norm")
        if not self.plain:
            found.append(("output.W", (VOCAB, WIDTH)))
        return found

    def norm(self, name):
        return [(name + ".gain", (WIDTH,))] + ([(name + ".bias", (WIDTH,))] if self.plain else [])

    def start(self):
        found = {}
        for t, (name, shape) in enumerate(self.shapes()):
            stream = Stream(1, t)
            values = np.array([stream.normal() for _ in range(int(np.prod(shape)))]) * 0.3
            values = values.astype(np.float32).astype(np.float64)
            if name.endswith(".gain"):
                values = (values + 1).astype(np.float32).astype(np.float64)
            found[name] = values.reshape(shape)
        return found

    def normed(self, p, name, x):
        if self.plain:
            x = x - x.mean(-1, True)
        x = x / arrays.sqrt((x * x).mean(-1, True) + 1e-5) * p[name + ".gain"]
        return x + p[name + ".bias"] if self.plain else x

    def attention(self, p, at, x):
        rows = lambda w: x @ p[at + w] + (p[at + "b" + w[1]] if self.plain else 0.0)
        q, k, v = rows("Wq"), rows("Wk"), rows("Wv")
        d, seen = WIDTH // HEADS, np.tril(np.ones((LEN, LEN), bool))
        found = []
        for b in range(BATCH):
            heads = []
            for h in range(HEADS):
                part = lambda y: y[b * LEN:(b + 1) * LEN, h * d:(h + 1) * d]
                heads.append(softmax(part(q) @ part(k).T * (1.0 / math.sqrt(d)), seen) @ part(v))
            found.append(concatenate(heads, 1))
        y = concatenate(found) @ p[at + "Wo"]
        return y + p[at + "bo"] if self.plain else y

    def ffn(self, p, at, x):
        z = x @ p[at + "W1"]
        if self.plain:
            return gelu_tanh(z + p[at + "b1"]) @ p[at + "W2"] + p[at + "b2"]
        g, u = z[:, :FFN], z[:, FFN:]
        return (g * sigmoid(g) * u) @ p[at + "W2"]

    def loss(self, p, ids, labels):
        """The mean over labels of -log p, smoothed."""
        x = p["embedding"][ids]
        if self.plain:
            x = x + concatenate([p["positions"]] * BATCH)
        else:
            x = x * math.sqrt(WIDTH) + constant(np.concatenate([sinusoid(LEN, WIDTH)] * BATCH))
        for b in range(BLOCKS):
            x = x + self.attention(p, "%d.attention." % b, self.normed(p, "%d.attention.norm" % b, x))
            x = x + self.ffn(p, "%d.ffn." % b, self.normed(p, "%d.ffn.norm" % b, x))
        logits = self.normed(p, "norm", x) @ p["embedding" if self.plain else "output.W"].T
        top = constant(logits.value.max(axis=1, keepdims=True))
        total = arrays.exp(logits - top).sum(1, True)
        logs = logits - top - Array(np.log(total.value), ((total, lambda g: g / total.value),))
        wanted = np.full(logits.shape, self.smoothing / VOCAB)
        wanted[np.arange(len(labels)), labels] += 1 - self.smoothing
        return -(logs * wanted).sum() * (1.0 / len(labels))

    def batch(self, step):
        stream = Stream(1, 1000 + step)
        draw = lambda: np.array([min(int(stream.uniform() * VOCAB), VOCAB - 1) for _ in range(BATCH * LEN)])
        ids = draw()
        return ids, draw()

    def losses(self):
        values, found = self.start(), []
        m = {name: np.zeros(v.shape) for name, v in values.items()}
        v = {name: np.zeros(w.shape) for name, w in values.items()}
        for step in range(1, STEPS + 1):
            p = {name: Array(w) for name, w in values.items()}
            loss = self.loss(p, *self.batch(step))
            backward(loss)
            found.append(float(loss.value))
            norm = math.sqrt(sum(float((a.grad ** 2).sum()) for a in p.values()))
            for name, a in p.items():
                g = a.grad * min(1.0, CLIP / norm)
                m[name] += (1 - BETA1) * (g - m[name])
                v[name] += (1 - BETA2) * (g * g - v[name])
                decay = DECAY if a.value.ndim == 2 else 0.0
                values[name] = values[name] - RATE * (decay * values[name] + m[name] / (1 - BETA1 ** step)
                                                      / (np.sqrt(v[name] / (1 - BETA2 ** step)) + EPS))
        return found

    def text(self):
        return "case %s\ntensors %s\nlosses %s\nend\n\n" % (
            self.name, " ".join(name for name, _ in self.shapes()), " ".join("%.12g" % x for x in self.losses()))


def cases():
    return [Training("plain", True, 0.0), Training("rms", False, 0.1)]
