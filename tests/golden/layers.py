"""layers.py -- whole layers: what is multiplied before the heads and after them.

    attention   y = [heads of x Wq, x Wk, x Wv] Wo
    gau         y = (silu(x Wu) * head of q, k, silu(x Wv)) Wo,  q = silu(x Wz) gamma_q + beta_q
    conv        y = [heads of a * sigmoid(b)] Wo,  [a, b] = x Wi

every product with a bias where the layer has them, outputs dropped, the residual added.
The heads are those of case.py, on rows that are expressions of x and of the weights.
"""

import struct

import draws
from case import Case, routes_of
from formulas import reads, sinusoid
from scalar import Num, backward, constant, dot, dropout_uniform, exp, total


def sigmoid(x):
    return Num(1.0) / (exp(-1.0 * x) + 1.0)


def silu(x):
    return x * sigmoid(x)


def single(x):
    """To float, where the library keeps it as one."""
    return struct.unpack("f", struct.pack("f", x))[0]


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

    def learn(self, name, shape, start=None):
        """A tensor of the layer, [rows][columns] or [columns]; its bias is another."""
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = start or [round(self.rng.gauss(0, 1) / (shape[0] ** 0.5 if len(shape) > 1 else 2), 3) for _ in range(count)]
        numbers = [Num(x) for x in values]
        self.own.append((name, numbers))
        return numbers

    def project(self, rows, name, cols, frozen=None):
        """Rows times the weights W.., and their bias b..; frozen: drawn, and not learned."""
        shape = (len(rows[0]), cols)
        short = name.split(".")
        bias = ".".join(short[:-1] + ["b" + short[-1][1:]])
        if frozen:
            w, b = [Num(x) for x in frozen], None
            self.frozen.append((name, w))
        else:
            w = self.learn(name, shape)
            b = self.learn(bias, (cols,)) if self.biases else None
        return lambda row: [dot(row, w[c::cols]) + (b[c] if b else 0.0) for c in range(cols)]

    # From hidden states to heads

    def rows_of(self, x, width):
        return [x[t:t + width] for t in range(0, len(x), width)]

    def valid(self, b, i, lens):
        if self.docs:
            return self.docs[0] <= i < self.docs[-1]
        return not lens or i < lens[b]

    def keys_from(self):
        """Rows that give keys and values, [batch][m]."""
        if self.source_shape:
            return self.rows_of(self.source, self.source_shape[1])
        x, old = self.rows_of(self.x, self.width), self.rows_of(self.past, self.width)
        return [row for b in range(self.b)
                for row in old[b * self.before:(b + 1) * self.before] + x[b * self.n:(b + 1) * self.n]]

    def held(self, group):
        """Rows of the memory take no gradient, but the keys and values that weights make of them do."""
        return 0 if self.before else super().held(group)

    def draw_attention(self):
        hidden, sources = self.rows_of(self.x, self.width), self.keys_from()
        parts = {"q": [], "k": [], "v": []}  # of each group: rows
        for group in self.groups:
            share = sum(self.sets) // self.kv
            kv = group.heads * routes_of(group) // share
            said = group.mods.get("frozen")
            for key, rows, heads, dim, stream in (("q", hidden, group.heads, self.d, 10), ("k", sources, kv, self.d, 11),
                                                  ("v", sources, kv, self.dv, 12)):
                if key in "qk" and key not in reads(group):
                    parts[key].append([[Num(0.0)] * (heads * dim) for _ in rows])
                    continue
                frozen = self.drawn_weights(said, group, len(rows[0]), heads, dim, stream) if said is not None and key in "qk" else None
                by = self.project(rows, self.name_of(group, "W" + key), heads * dim, frozen)
                parts[key].append([by(row) for row in rows])
        for key in "qkv":  # groups side by side
            setattr(self, key, [x for rows in zip(*parts[key]) for row in rows for x in row])

    def drawn_weights(self, said, group, width, heads, dim, stream):
        number = (10 if said.get("tie") else stream) + (group.number << 32)
        seed = self.seed + (0 if said.get("shared") else self.index)
        found = draws.projection(said.get("kind", "orthogonal"), said.get("sample") == "block", width, heads, dim, seed, number)
        return [single(x) for row in found for x in row]

    def draw_gau(self):
        hidden = self.rows_of(self.x, self.width)
        u, v, z = (self.project(hidden, name, cols) for name, cols in (("Wu", self.dv), ("Wv", self.dv), ("Wz", self.d)))
        gamma, beta = {}, {}
        for key in "qk":
            gamma[key], beta[key] = self.learn("gamma_" + key, (self.d,)), self.learn("beta_" + key, (self.d,))
        self.gates = [silu(x) for row in hidden for x in u(row)]
        self.v = [silu(x) for row in hidden for x in v(row)]
        bent = [[silu(x) for x in z(row)] for row in hidden]
        for key in "qk":
            setattr(self, key, [x * g + b for row in bent for x, g, b in zip(row, gamma[key], beta[key])])

    def draw_conv(self):
        hidden, half = self.rows_of(self.x, self.width), self.heads * self.dv
        by = self.project(hidden, "Wi", 2 * half)
        self.v = []
        for row in map(by, hidden):
            self.v += [a * sigmoid(b) for a, b in zip(row[:half], row[half:])]

    def draw_distances(self):
        """R of txl: waves of distances times WR."""
        first = 0
        for group in self.groups:
            if "txl" in group.mods:
                cols = group.heads * self.d
                w = self.learn(self.name_of(group, "WR"), (self.width, cols))
                waves = self.rows_of(sinusoid(self.m, self.width), self.width)
                for h in range(group.heads):
                    self.tensor[first + h]["R"] = [total(x * y for x, y in zip(w[h * self.d + t::cols], wave))
                                                   for wave in waves for t in range(self.d)]
                self.params = [p for p in self.params if p[0] != self.name_of(group, "R")]
            first += group.heads

    def draw(self, rng, q, k, v, given):
        super().draw(rng, q, k, v, given)
        self.rng, self.own, self.frozen = rng, [], []
        some = lambda count: [Num(round(rng.gauss(0, 1), 3)) for _ in range(count)]
        self.source = some(self.b * self.source_shape[0] * self.source_shape[1]) if self.source_shape else []
        self.past = some(self.b * self.before * self.width)
        self.residual = some(self.b * self.n * self.width) if self.wants_residual else []
        self.dy = some(self.b * self.n * self.width)
        getattr(self, "draw_" + self.kind)()
        self.draw_distances()

    # And back

    def solve(self):
        self.attend()
        width, o = self.width, self.o
        if self.kind == "gau":
            o = [x * g for x, g in zip(o, self.gates)]
        rows = self.rows_of(o, self.heads * self.dv)
        by = self.project(rows, "Wo", width)
        self.y = []
        for at, row in enumerate(rows):
            b, i = divmod(at, self.n)
            if not self.valid(b, i, self.len_q):
                self.y += [Num(0.0)] * width
                continue
            p, seed = self.drop or (0.0, 0)
            keep = [0.0 if p and dropout_uniform(seed, b, -1, i, c) < p else 1.0 / (1.0 - p) for c in range(width)]
            out = [x * k for x, k in zip(by(row), keep)]
            if self.residual:
                out = [x + y for x, y in zip(out, self.residual[at * width:(at + 1) * width])]
            self.y += out
        backward(dot(self.y, constant(self.dy)))

    def text(self):
        values, grads = (lambda xs: [x.value for x in xs]), (lambda xs: [x.grad for x in xs])
        line = lambda key, xs: key + "".join(" %r" % x for x in xs) + "\n"
        out = "case %s\nspec %s\nkind %s\n" % (self.name, self.spec, self.kind)
        out += line("shape", [self.b, self.n, self.width, self.heads, self.kv, self.d, self.dv])
        for key, there, xs in (("causal", self.causal, []), ("biases", self.biases, []), ("source_shape", self.source_shape, self.source_shape),
                               ("before", self.before, [self.before]), ("drop_out", self.drop, self.drop), ("seed", self.seed, [self.seed]),
                               ("index", self.index, [self.index]), ("lens", self.len_q, self.len_q),
                               ("lens_source", self.source_shape and self.len_k, self.len_k), ("docs", self.docs, self.docs)):
            if there:
                out += line(key, xs)
        for name, xs in self.frozen:
            out += line("frozen " + name, values(xs))
        for name, xs in self.own + self.params:
            out += line("param " + name, values(xs))
        for key, xs in (("x", self.x), ("source", self.source), ("past", self.past), ("residual", self.residual), ("dy", self.dy),
                        ("y", self.y)):
            if xs:
                out += line(key, values(xs))
        out += line("dx", grads(self.x))
        if self.source:
            out += line("dsource", grads(self.source))
        for name, xs in self.own + self.params:
            out += line("dparam " + name, grads(xs))
        return out + "end\n\n"


class Sinusoid:
    """Rows of the encoding by itself: its first position, rows, width and base."""

    def __init__(self, *shape):
        self.shape = shape

    def text(self):
        first, rows, width, base = self.shape
        found = sinusoid(first + rows, width, base)[first * width:]
        return "case sinusoid\nsinusoid %d %d %d %r\nvalues%s\nend\n\n" % (*self.shape, "".join(" %r" % x for x in found))
