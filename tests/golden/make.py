#!/usr/bin/env python3
"""Write the golden vectors: small cases of attention, in float64, from the formulas.

    python3 tests/golden/make.py            rewrites tests/golden/*.txt

Nothing here is taken from the library: the definitions are written out as they
stand in the literature, sums run over all visible keys, and gradients come from
automatic differentiation of the forward pass, never from a formula of their own.
It needs the standard library only.

The format of the files is in README.md beside this script.
"""

import math
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))


class Num:
    """A number that remembers what it was made of, for its gradient."""

    __slots__ = ("value", "of", "grad")

    def __init__(self, value, of=()):
        self.value = float(value)
        self.of = of  # pairs (operand, derivative by it)
        self.grad = 0.0

    def __add__(self, other):
        other = num(other)
        return Num(self.value + other.value, ((self, 1.0), (other, 1.0)))

    def __mul__(self, other):
        other = num(other)
        return Num(self.value * other.value, ((self, other.value), (other, self.value)))

    def __truediv__(self, other):
        other = num(other)
        q = self.value / other.value
        return Num(q, ((self, 1.0 / other.value), (other, -q / other.value)))

    __radd__ = __add__
    __rmul__ = __mul__


def num(x):
    return x if isinstance(x, Num) else Num(x)


def exp(x):
    y = math.exp(x.value)
    return Num(y, ((x, y),))


def log(x):
    return Num(math.log(x.value), ((x, 1.0 / x.value),))


def sqrt(x):
    y = math.sqrt(x.value)
    return Num(y, ((x, 0.5 / y),))


def tanh(x):
    y = math.tanh(x.value)
    return Num(y, ((x, 1.0 - y * y),))


def relu(x):
    return Num(max(x.value, 0.0), ((x, 1.0 if x.value > 0 else 0.0),))


def total(xs):
    sum_ = Num(0.0)
    for x in xs:
        sum_ = sum_ + x
    return sum_


def dot(a, b):
    return total(x * y for x, y in zip(a, b))


def backward(result):
    order, seen, stack = [], set(), [(result, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((operand, False) for operand, _ in node.of)
    result.grad = 1.0
    for node in reversed(order):
        for operand, slope in node.of:
            operand.grad += node.grad * slope


# The mechanisms: weights of one row from its visible logits, and the logarithm of
# what they were divided by.


def softmax(x, _arg, sink):
    e = [exp(t) for t in x]
    s = total(e) + (exp(sink) if sink is not None else 0.0)
    return [t / s for t in e], math.log(s.value)


def l2norm(x, _arg, _sink):
    s = total(exp(2.0 * t) for t in x)
    return [exp(t) / sqrt(s) for t in x], 0.5 * math.log(s.value)


def relu2(x, arg, _sink):
    n = arg.get("n", 0) or len(x)
    return [relu(t) * relu(t) / float(n) for t in x], math.log(n)


MECHANISMS = {"softmax": softmax, "l2norm": l2norm, "relu2": relu2}


def unit(x):
    """x / |x|, the norm floored at 1e-12."""
    square = dot(x, x)
    norm = sqrt(square) if square.value >= 1e-24 else Num(1e-12)
    return [t / norm for t in x]


class Group:
    """Some heads with a mechanism and its modifiers: {name: arguments}."""

    def __init__(self, heads, mech, arg=None, **mods):
        self.heads, self.mech, self.arg, self.mods = heads, mech, arg or {}, mods


def row(group, number, q, keys, bias):
    """Weights of one query over the keys it sees, and the log of the sum.

    number: {modifier: the number it has learned for this head}."""
    mods, n = group.mods, len(keys)
    if not keys:
        return [], number["sink"].value if "sink" in mods else -math.inf
    f = Num(1.0 if "qknorm" in mods else 1.0 / math.sqrt(len(q)))
    if "scale" in mods:
        f = Num(mods["scale"]["s"])
    if "qknorm" in mods:
        q, keys = unit(q), [unit(k) for k in keys]
        f = f * number["qknorm"]
    if "temper" in mods:
        f = f * number["temper"]
    if "logn" in mods:
        ratio = math.log(n) / math.log(mods["logn"].get("n0", 512))
        f = f * (max(1.0, ratio) if mods["logn"].get("clamp") else ratio)
    x = [f * dot(q, k) + b for k, b in zip(keys, bias)]
    if "cap" in mods:
        c = mods["cap"]["c"]
        x = [c * tanh(t / c) for t in x]
    return MECHANISMS[group.mech](x, group.arg, number.get("sink"))


TENSOR = {"sink": "sink", "temper": "temper", "qknorm": "tau"}


class Case:
    def __init__(self, name, spec, groups, b=1, n=3, m=None, d=3, dv=None, kv=None, causal=False, seed=0, q=None, k=None, v=None,
                 len_q=None, len_k=None, docs=None, memory=0, mask=None, bias=None, printed=None):
        self.name, self.spec, self.groups = name, spec, groups
        self.heads = sum(g.heads for g in groups)
        self.b, self.n, self.m, self.d = b, n, n if m is None else m, d
        self.dv = d if dv is None else dv
        self.kv, self.causal = kv or self.heads, causal
        self.len_q, self.len_k, self.docs, self.memory = len_q, len_k, docs, memory
        self.mask_shape, self.bias_shape = mask, bias  # (batch, heads), or None
        self.printed = printed or {}
        self.draw(random.Random("foci golden %s %d" % (name, seed)), q, k, v)

    def draw(self, rng, q, k, v):
        def some(count, given=None):
            values = given or [round(rng.gauss(0, 1), 3) for _ in range(count)]
            assert len(values) == count
            return [Num(x) for x in values]

        self.q = some(self.b * self.n * self.heads * self.d, q)
        self.k = some(self.b * self.m * self.kv * self.d, k)
        self.v = some(self.b * self.m * self.kv * self.dv, v)
        self.g = some(self.b * self.n * self.heads * self.dv)
        self.params = []  # (name, one number for each head)
        self.number = []  # {modifier: number} of each head
        for index, group in enumerate(self.groups):
            heads = [{} for _ in range(group.heads)]
            for mod in group.mods:
                if mod in TENSOR:
                    name = TENSOR[mod] if len(self.groups) == 1 else "%d.%s" % (index, TENSOR[mod])
                    values = some(group.heads)
                    self.params.append((name, values))
                    for head, value in zip(heads, values):
                        head[mod] = value
            self.number += heads
        pairs = self.n * self.m
        self.mask = self.mask_shape and [int(rng.random() < 0.6) for _ in range(self.mask_shape[0] * self.mask_shape[1] * pairs)]
        self.bias = self.bias_shape and [round(8 * rng.gauss(0, 1)) / 8 for _ in range(self.bias_shape[0] * self.bias_shape[1] * pairs)]

    def vector(self, x, rows, heads, d, b, i, h):
        at = ((b * rows + i) * heads + h) * d
        return x[at:at + d]

    def pair(self, x, shape, b, h, i, j):
        if x is None:
            return None
        b, h = (b if shape[0] > 1 else 0), (h if shape[1] > 1 else 0)
        return x[((b * shape[1] + h) * self.n + i) * self.m + j]

    def sequences(self):
        """(batch entry, rows of queries, rows of keys)"""
        if self.docs:
            return [(0, range(s, e), range(s, e)) for s, e in zip(self.docs, self.docs[1:])]
        return [(b, range(self.len_q[b] if self.len_q else self.n), range(self.len_k[b] if self.len_k else self.m)) for b in range(self.b)]

    def solve(self):
        zero = Num(0.0)
        o = {}
        self.lse = [-math.inf] * (self.b * self.heads * self.n)
        self.a = [0.0] * (self.b * self.heads * self.n * self.m)
        group_of = [g for g in self.groups for _ in range(g.heads)]
        for b, rows, cols in self.sequences():
            for h in range(self.heads):
                kh = h // (self.heads // self.kv)
                for i in rows:
                    # The last query stands at the last key.
                    place = (i - rows.start) + len(cols) - len(rows)
                    seen = [j for j in cols if not (self.causal and j - cols.start > place)
                            and self.pair(self.mask, self.mask_shape, b, h, i, j) != 0]
                    keys = [self.vector(self.k, self.m, self.kv, self.d, b, j, kh) for j in seen]
                    bias = [self.pair(self.bias, self.bias_shape, b, h, i, j) or 0.0 for j in seen]
                    # Memory takes no gradient: its rows enter as constants.
                    keys = [[Num(x.value) for x in key] if j < self.memory else key for j, key in zip(seen, keys)]
                    w, lse = row(group_of[h], self.number[h], self.vector(self.q, self.n, self.heads, self.d, b, i, h), keys, bias)
                    self.lse[(b * self.heads + h) * self.n + i] = lse
                    sums = [zero] * self.dv
                    for j, a in zip(seen, w):
                        self.a[((b * self.heads + h) * self.n + i) * self.m + j] = a.value
                        value = self.vector(self.v, self.m, self.kv, self.dv, b, j, kh)
                        if j < self.memory:
                            value = [Num(x.value) for x in value]
                        sums = [s + a * x for s, x in zip(sums, value)]
                    o[b, i, h] = sums
        self.o = [x for b in range(self.b) for i in range(self.n) for h in range(self.heads) for x in o.get((b, i, h), [zero] * self.dv)]
        backward(dot(self.o, [Num(x.value) for x in self.g]))
        for what, (values, count) in self.printed.items():
            mine = {"a": self.a, "o": [x.value for x in self.o]}[what][:count]
            assert max(abs(x - y) for x, y in zip(mine, values)) < 6e-7, (self.name, what)

    def text(self):
        def line(key, values):
            return key + "".join(" %r" % v for v in values) + "\n"

        self.solve()
        values = lambda xs: [x.value for x in xs]
        grads = lambda xs: [x.grad for x in xs]
        out = "case %s\nspec %s\nproblem b%dh%dk%dn%dm%dd%dv%d%s\n" % (
            self.name, self.spec, self.b, self.heads, self.kv, self.n, self.m, self.d, self.dv, "c" if self.causal else "")
        for key in ("len_q", "len_k", "docs"):
            if getattr(self, key):
                out += line(key, getattr(self, key))
        if self.memory:
            out += line("memory", [self.memory])
        for key in ("mask", "bias"):
            if getattr(self, key):
                out += line(key + "_extents", getattr(self, key + "_shape"))
                out += line(key, getattr(self, key))
        for name, xs in self.params:
            out += line("param " + name, values(xs))
        for key in ("q", "k", "v", "g", "o"):
            out += line(key, values(getattr(self, key)))
        out += line("lse", self.lse)
        for key in ("q", "k", "v"):
            out += line("d" + key, grads(getattr(self, key)))
        for name, xs in self.params:
            out += line("dparam " + name, grads(xs))
        for what, (xs, _) in self.printed.items():
            out += line("printed_" + what, xs)
        return out + "end\n\n"


# The example that the mechanisms' definitions share, with the numbers printed there.
WORKED = dict(n=3, d=2, q=[1, 0, 0, 1, 1, 1], k=[1, 0, 0, 2, -1, 1], v=[1, 0, 0, 1, 2, -1])


def one(mech, heads=1, arg=None, **mods):
    return [Group(heads, mech, arg, **mods)]


def shapes(spec, groups, tag=""):
    """The shapes that every mechanism and modifier is tried on."""
    make = lambda name, heads, **kw: Case(name + tag, spec, groups(heads), **kw)
    return [
        make("self", 1, n=4),
        make("one row", 2, n=1, d=2, dv=3),
        make("causal, grouped heads", 4, b=2, n=5, d=3, dv=2, kv=2, causal=True),
        make("more keys than queries", 2, n=3, m=5, d=4, dv=1),
        make("more keys than queries, causal", 2, n=3, m=5, d=2, dv=3, causal=True),
        make("empty rows", 1, n=5, m=3, d=2, causal=True),
    ]


def files():
    yield "softmax", [
        Case("worked example", "softmax", one("softmax"), printed={
            "a": ([.575975, .283995, .140029, .140029, .575975, .283995, .283995, .575975, .140029], 9),
            "o": ([.856034, .143966, .70802, .29198, .564054, .435946], 6)}, **WORKED),
        Case("worked example, causal", "softmax", one("softmax"), causal=True, printed={
            "o": ([1, 0, .19557, .80443, .564054, .435946], 6)}, **WORKED),
    ] + shapes("softmax", lambda h: one("softmax", h))
    yield "l2norm", [
        Case("worked example", "l2norm", one("l2norm"), printed={"a": ([.876309, .432081, .213045], 3)}, **WORKED),
    ] + shapes("l2norm", lambda h: one("l2norm", h))
    yield "relu2", [
        Case("worked example", "relu2", one("relu2"), printed={
            "a": ([.166667, 0, 0, 0, .666667, .166667, .166667, .666667, 0], 9)}, **WORKED),
        Case("constant n", "relu2(n=7)", one("relu2", 2, {"n": 7}), n=4, m=6, causal=True),
    ] + shapes("relu2", lambda h: one("relu2", h))
    yield "scale", shapes("softmax scale(0.3)", lambda h: one("softmax", h, scale={"s": 0.3})) + [
        Case("of l2norm", "l2norm scale(1.5)", one("l2norm", 1, scale={"s": 1.5}), n=4),
        Case("of relu2", "relu2 scale(0.125)", one("relu2", 1, scale={"s": 0.125}), n=4, causal=True)]
    yield "cap", shapes("softmax cap(0.7)", lambda h: one("softmax", h, cap={"c": 0.7})) + [
        Case("preset", "softmax cap", one("softmax", 1, cap={"c": 30.0}), n=4),
        Case("over a bias", "softmax cap(1.5)", one("softmax", 2, cap={"c": 1.5}), n=3, m=4, bias=(1, 2)),
        Case("of l2norm", "l2norm cap(0.5)", one("l2norm", 1, cap={"c": 0.5}), n=4),
        Case("of relu2", "relu2 cap(0.5)", one("relu2", 1, cap={"c": 0.5}), n=4)]
    yield "logn", [
        Case("worked example", "softmax logn", one("softmax", 1, logn={}), printed={"a": ([.375593, .331617, .29279], 3)}, **WORKED),
    ] + shapes("softmax logn(n0=4)", lambda h: one("softmax", h, logn={"n0": 4})) + \
        shapes("softmax logn(n0=3, clamp=1)", lambda h: one("softmax", h, logn={"n0": 3, "clamp": 1}), ", clamped") + [
        Case("of l2norm", "l2norm logn(n0=3)", one("l2norm", 1, logn={"n0": 3}), n=4, causal=True)]
    yield "qknorm", shapes("softmax qknorm", lambda h: one("softmax", h, qknorm={})) + [
        Case("a zero query", "softmax qknorm", one("softmax", 1, qknorm={}), n=3, d=2, q=[0, 0, 1, 2, -1, 3]),
        Case("a zero key", "softmax qknorm", one("softmax", 1, qknorm={}), n=3, d=2, k=[0.5, 1, 0, 0, -1, 3])]
    yield "sink", shapes("softmax sink", lambda h: one("softmax", h, sink={}))
    yield "temper", shapes("softmax temper", lambda h: one("softmax", h, temper={})) + [
        Case("of relu2", "relu2 temper", one("relu2", 2, temper={}), n=4),
        Case("of l2norm", "l2norm temper", one("l2norm", 2, temper={}), n=4, causal=True)]
    yield "problems", [
        Case("lengths", "softmax", one("softmax", 2), b=3, n=4, m=5, d=2, len_q=[2, 0, 4], len_k=[5, 3, 1]),
        Case("lengths, causal", "softmax", one("softmax", 2), b=3, n=4, m=5, d=2, len_q=[2, 4, 3], len_k=[5, 2, 0], causal=True),
        Case("key lengths alone", "relu2", one("relu2", 1), b=2, n=3, d=2, len_k=[1, 2]),
        Case("documents", "softmax logn(n0=3)", one("softmax", 2, logn={"n0": 3}), n=7, d=2, docs=[0, 3, 3, 4, 7]),
        Case("documents, causal", "l2norm", one("l2norm", 2), n=7, d=2, kv=1, docs=[0, 2, 6, 7], causal=True),
        Case("memory", "softmax", one("softmax", 2), b=2, n=3, m=5, d=2, kv=1, memory=2, causal=True),
        Case("mask", "softmax logn(n0=2)", one("softmax", 2, logn={"n0": 2}), b=2, n=4, d=2, mask=(1, 1)),
        Case("mask of each head, causal", "relu2", one("relu2", 2), b=2, n=4, d=2, mask=(2, 2), causal=True),
        Case("bias", "softmax", one("softmax", 2), b=2, n=3, m=4, d=2, bias=(2, 1)),
        Case("mask and bias", "l2norm", one("l2norm", 2), b=2, n=3, m=4, d=2, mask=(1, 2), bias=(1, 2))]
    yield "mixes", [
        Case("modifiers together", "softmax qknorm temper sink cap(4) logn(n0=3)", one(
            "softmax", 2, qknorm={}, temper={}, sink={}, cap={"c": 4.0}, logn={"n0": 3}), n=4, d=3, causal=True),
        Case("groups", "2*softmax sink temper + 4*relu2 temper + l2norm", [
            Group(2, "softmax", sink={}, temper={}), Group(4, "relu2", temper={}), Group(2, "l2norm")],
            b=2, n=4, d=3, dv=2, kv=4, causal=True)]


def main():
    for name, cases in files():
        with open(os.path.join(HERE, name + ".txt"), "w") as f:
            f.write("# Made by make.py; README.md has the format.\n\n")
            for case in cases:
                f.write(case.text())


if __name__ == "__main__":
    main()
