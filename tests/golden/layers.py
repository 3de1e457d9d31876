"""layers.py -- whole layers: what is multiplied before the heads and after them.

    attention   y = [heads of x Wq, x Wk, x Wv] Wo
    gau         y = (silu(x Wu) * head of q, k, silu(x Wv)) Wo,  q = silu(x Wz) gamma_q + beta_q
    conv        y = [heads of a * sigmoid(b)] Wo,  [a, b] = x Wi

every product with a bias where the layer has them, outputs dropped, the residual added.
The heads are those of case.py, on rows that are expressions of x and of the weights.
"""

import math

import numpy as np

import draws
from arrays import Array, backward, concatenate, constant, sigmoid, where
from case import Case, line, routes_of
from formulas import reads, sinusoid
from streams import dropout_uniform


def silu(x):
    return x * sigmoid(x)


class Layer(Case):
    def __init__(self, name, spec, groups, width=4, kind="attention", source=None, before=0, biases=False, residual=False,
                 drop=None, index=0, **kw):
        """source: (rows, width) of cross-attention; before: rows of memory; drop: (share, seed)."""
        self.kind, self.width, self.source_shape, self.before = kind, width, source, before
        self.biases, self.drop, self.index = biases, drop, index
        self.wants_residual = residual
        n = kw.get("n", 3)
        m = source[0] if source else n + before
        if before and kw.get("len_q"):
            kw["len_k"] = [before + t for t in kw["len_q"]]
        super().__init__(name, spec, groups, m=m, dim_x=width, memory=before, **kw)

    # Tensors

    def learn(self, name, shape):
        """A tensor of the layer, [rows][columns] or [columns]; its bias is another."""
        by = shape[0] ** 0.5 if len(shape) > 1 else 2
        numbers = Array(np.reshape([round(self.rng.gauss(0, 1) / by, 3) for _ in range(math.prod(shape))], shape))
        self.own.append((name, numbers))
        return numbers

    def project(self, rows, name, cols, frozen=None):
        """Rows times the weights W.., and their bias b..; frozen: drawn, and not learned."""
        if frozen is not None:
            self.frozen.append((name, frozen))
            return rows @ frozen
        found = rows @ self.learn(name, (rows.shape[1], cols))
        short = name.split(".")
        return found + self.learn(".".join(short[:-1] + ["b" + short[-1][1:]]), (cols,)) if self.biases else found

    # From hidden states to heads

    def hidden(self):
        return self.x.reshape(-1, self.width)

    def valid(self):
        """[batch][row]"""
        i = np.broadcast_to(np.arange(self.n), (self.b, self.n))
        if self.docs:
            return (self.docs[0] <= i) & (i < self.docs[-1])
        return i < np.reshape(self.len_q or [self.n] * self.b, (-1, 1))

    def keys_from(self):
        """Rows that give keys and values, [batch m][width]."""
        if self.source_shape:
            return self.source.reshape(-1, self.source_shape[1])
        return concatenate([self.past, self.x], 1).reshape(-1, self.width)

    def held(self, group):
        """Rows of the memory take no gradient, but the keys and values that weights make of them do."""
        return 0 if self.before else super().held(group)

    def draw_attention(self):
        hidden, sources = self.hidden(), self.keys_from()
        parts = {"q": [], "k": [], "v": []}  # of each group: rows
        for group in self.groups:
            share = sum(self.sets) // self.kv
            kv = group.heads * routes_of(group) // share
            said = group.mods.get("frozen")
            for key, rows, heads, dim, stream in (("q", hidden, group.heads, self.d, 10), ("k", sources, kv, self.d, 11),
                                                  ("v", sources, kv, self.dv, 12)):
                if key in "qk" and key not in reads(group):
                    parts[key].append(np.zeros((len(rows), heads * dim)))
                    continue
                drawn = said is not None and key in "qk"
                frozen = self.drawn_weights(said, group, rows.shape[1], heads, dim, stream) if drawn else None
                parts[key].append(self.project(rows, self.name_of(group, "W" + key), heads * dim, frozen))
        for key in "qkv":  # groups side by side
            setattr(self, key, concatenate(parts[key], 1).reshape(getattr(self, key).shape))

    def drawn_weights(self, said, group, width, heads, dim, stream):
        """To floats, as which the library keeps them."""
        number = (10 if said.get("tie") else stream) + (group.number << 32)
        seed = self.seed + (0 if said.get("shared") else self.index)
        found = draws.projection(said.get("kind", "orthogonal"), said.get("sample") == "block", width, heads, dim, seed, number)
        return Array(found.astype(np.float32))

    def draw_gau(self):
        widths = (("Wu", self.dv), ("Wv", self.dv), ("Wz", self.d))
        self.gates, v, z = (silu(self.project(self.hidden(), name, cols)) for name, cols in widths)
        self.v = v.reshape(self.v.shape)
        for key in "qk":
            gamma, beta = self.learn("gamma_" + key, (self.d,)), self.learn("beta_" + key, (self.d,))
            setattr(self, key, (z * gamma + beta).reshape(self.q.shape))

    def draw_conv(self):
        half = self.heads * self.dv
        both = self.project(self.hidden(), "Wi", 2 * half)
        self.v = (both[:, :half] * sigmoid(both[:, half:])).reshape(self.v.shape)

    def draw_distances(self):
        """R of txl: waves of distances times WR."""
        first = 0
        for group in self.groups:
            if "txl" in group.mods:
                w = self.learn(self.name_of(group, "WR"), (self.width, group.heads * self.d))
                waves = sinusoid(self.m, self.width)
                for h in range(group.heads):
                    self.tensor[first + h]["R"] = (waves @ w[:, h * self.d:(h + 1) * self.d]).reshape(-1)
                self.params = [p for p in self.params if p[0] != self.name_of(group, "R")]
            first += group.heads

    def draw(self, rng, q, k, v, given):
        super().draw(rng, q, k, v, given)
        self.rng, self.own, self.frozen = rng, [], []
        some = lambda *shape: Array(np.reshape([round(rng.gauss(0, 1), 3) for _ in range(math.prod(shape))], shape))
        self.source = some(self.b, *self.source_shape) if self.source_shape else None
        self.past = some(self.b, self.before, self.width)
        self.residual = some(self.b, self.n, self.width) if self.wants_residual else None
        self.dy = some(self.b, self.n, self.width)
        getattr(self, "draw_" + self.kind)()
        self.draw_distances()

    # And back

    def kept(self):
        """What the outputs are multiplied by, [batch][row][width]."""
        p, seed = self.drop or (0.0, 0)
        dropped = [p and dropout_uniform(seed, b, -1, i, c) < p
                   for b in range(self.b) for i in range(self.n) for c in range(self.width)]
        return np.where(np.reshape(dropped, self.dy.shape), 0.0, 1.0 / (1.0 - p))

    def solve(self):
        self.attend()
        rows = self.o.reshape(-1, self.heads * self.dv)
        if self.kind == "gau":
            rows = rows * self.gates
        y = self.project(rows, "Wo", self.width).reshape(self.dy.shape) * self.kept()
        if self.residual is not None:
            y = y + self.residual
        self.y = where(self.valid()[:, :, None], y, 0.0)
        backward((self.y * constant(self.dy)).sum())

    def text(self):
        out = "case %s\nspec %s\nkind %s\n" % (self.name, self.spec, self.kind)
        out += line("shape", [self.b, self.n, self.width, self.heads, self.kv, self.d, self.dv])
        for key, there, xs in (("causal", self.causal, []), ("biases", self.biases, []),
                               ("source_shape", self.source_shape, self.source_shape), ("before", self.before, [self.before]),
                               ("output_dropout", self.drop, self.drop), ("seed", self.seed, [self.seed]),
                               ("index", self.index, [self.index]), ("lens", self.len_q, self.len_q),
                               ("lens_source", self.source_shape and self.len_k, self.len_k), ("docs", self.docs, self.docs)):
            if there:
                out += line(key, xs)
        for name, xs in self.frozen:
            out += line("frozen " + name, xs)
        for name, xs in self.own + self.params:
            out += line("param " + name, xs)
        for key, there in (("x", True), ("source", self.source_shape), ("past", self.before), ("residual", self.wants_residual),
                           ("dy", True), ("y", True)):
            if there:
                out += line(key, getattr(self, key))
        out += line("dx", self.x.grad)
        if self.source_shape:
            out += line("dsource", self.source.grad)
        for name, xs in self.own + self.params:
            out += line("dparam " + name, xs.grad)
        return out + "end\n\n"


class Sinusoid:
    """Rows of the encoding by itself: its first position, rows, width and base."""

    def __init__(self, *shape):
        self.shape = shape

    def text(self):
        first, rows, width, base = self.shape
        found = sinusoid(first + rows, width, base)[first:]
        return "case sinusoid\n" + line("sinusoid", self.shape) + line("values", found) + "end\n\n"
