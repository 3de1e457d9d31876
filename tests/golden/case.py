"""case.py -- one case of the golden vectors: its data, its results, its text."""

import itertools
import math
import random

import compressed
import features
from formulas import Head, reads, run, tensors
from scalar import Num, Tie, backward, constant, dot, dropout_uniform


def routes_of(group):
    return group.arg.get("routes", 2) if group.inner else 1


def has_weights(group):
    """Is there one matrix A with o = A v?"""
    return group.mech != "memformer" and not (group.mech in ("lightconv", "dynconv") and group.arg.get("heads", 1) > 1)


class Case:
    def __init__(self, name, spec, groups, b=1, n=3, m=None, d=3, dv=None, kv=None, causal=False, q=None, k=None, v=None,
                 len_q=None, len_k=None, docs=None, memory=0, mask=None, bias=None, printed=None,
                 seed=0, dim_x=0, dropout=None, given=None, weights=False, drawn=None, calibrated=False,
                 words=None):
        self.name, self.spec, self.groups = name, spec, groups
        self.heads = sum(g.heads for g in groups)
        self.b, self.n, self.m, self.d = b, n, n if m is None else m, d
        self.dv = d if dv is None else dv
        self.sets = [routes_of(g) for g in groups for _ in range(g.heads)]  # of keys and values, by head
        self.kv, self.causal = kv or sum(self.sets), causal
        self.len_q, self.len_k, self.docs, self.memory = len_q, len_k, docs, memory
        self.mask_shape, self.bias_shape = mask, bias  # (batch, heads), or None
        assert not (mask and bias) or mask == bias  # a problem has one pair of extents
        self.printed = printed or {}
        self.seed, self.dim_x, self.dropout, self.weights = seed, dim_x, dropout, weights
        self.drawn, self.calibrated = drawn, calibrated  # the seed of tensors; are statistics of the batch wanted?
        self.words = words  # [batch][row], or None
        self.reads = [key for key in "qk" if any(key in reads(g) for g in groups)]
        for number, group in enumerate(groups):
            for part in (group, group.inner) if group.inner else (group,):
                part.number, part.seed = number, seed
        for attempt in itertools.count():
            self.draw(random.Random("foci golden %s %d" % (name, attempt)), q, k, v, given or {})
            try:
                self.solve()
                break
            except Tie:
                assert attempt < 1000, (name, spec)

    def draw(self, rng, q, k, v, given):
        def some(count, values=None):
            values = values or [round(rng.gauss(0, 1), 3) for _ in range(count)]
            assert len(values) == count
            return [Num(x) for x in values]

        self.q = some(self.b * self.n * self.heads * self.d, q)
        self.k = some(self.b * self.m * self.kv * self.d, k)
        self.v = some(self.b * self.m * self.kv * self.dv, v)
        self.g = some(self.b * self.n * self.heads * self.dv)
        self.params = []  # (name, numbers of all heads)
        self.tensor = []  # {name: numbers} of each head
        self.inner = []  # of each head: the same of each route

        def draw_tensors(group, prefix, rows):
            """`rows` sets of the tensors of a group."""
            sets, found = [{} for _ in range(rows)], tensors(group, self.d, self.dv, self.m, self.dim_x)
            starts = compressed.initial(group, found, self.drawn, self.d, self.m, self.dim_x)
            for name, count in found:
                start = starts.get(name) or features.initial(group, name, rows * count, self.d, self.drawn)
                values = some(rows * count, given.get(name, start))
                self.params.append((self.name_of(group, prefix + name), values))
                for t, numbers in enumerate(sets):
                    numbers[name] = values[t * count:(t + 1) * count]
            return sets

        for group in self.groups:
            self.tensor += draw_tensors(group, "", group.heads)
            if group.inner:
                sets = draw_tensors(group.inner, "inner.", routes_of(group) * group.heads)
                self.inner += [sets[h::group.heads] for h in range(group.heads)]
            else:
                self.inner += [[]] * group.heads
        pairs = lambda shape: range(shape[0] * shape[1] * self.n * self.m)
        self.mask = self.mask_shape and [int(rng.random() < 0.6) for _ in pairs(self.mask_shape)]
        self.bias = self.bias_shape and [Num(round(8 * rng.gauss(0, 1)) / 8) for _ in pairs(self.bias_shape)]
        self.x = some(self.b * self.n * self.dim_x)

    def name_of(self, group, name):
        """Of a tensor or a list: in a mix the group's number stands before it."""
        return name if len(self.groups) == 1 else "%d.%s" % (group.number, name)

    def vector(self, x, rows, heads, d, b, i, h):
        at = ((b * rows + i) * heads + h) * d
        return x[at:at + d]

    def pair(self, x, shape, b, h, i, j):
        b, h = (b if shape[0] > 1 else 0), (h if shape[1] > 1 else 0)
        return x[((b * shape[1] + h) * self.n + i) * self.m + j]

    def sequences(self):
        """(batch entry, rows of queries, rows of keys)"""
        if self.docs:
            return [(0, range(s, e), range(s, e)) for s, e in zip(self.docs, self.docs[1:])]
        len_q, len_k = self.len_q or [self.n] * self.b, self.len_k or [self.m] * self.b
        return [(b, range(len_q[b]), range(len_k[b])) for b in range(self.b)]

    def key_head(self, h, route=0):
        """The key/value head of a route of head h: neighbours share all their routes."""
        share, first = sum(self.sets) // self.kv, 0
        for group in self.groups:
            if h < group.heads:
                return first // share + h // share * routes_of(group) + route
            h, first = h - group.heads, first + group.heads * routes_of(group)

    def held(self, group):
        """Leading keys that take no gradient."""
        if group.mech == "xl":
            return group.arg.get("memory", 0) or self.m - self.n
        return self.memory

    def head(self, group, index, tensor, b, rows, cols, h, kh):
        """Head h of the problem, number `index` of its group, on key/value head kh."""
        memory = self.held(group)

        def keys(x, d):
            found = [self.vector(x, self.m, self.kv, d, b, j, kh) for j in cols]
            # Memory takes no gradient: its rows enter as constants.
            return [constant(row) if j - cols.start < memory else row for j, row in zip(cols, found)]

        def keep(i, number):
            if not self.dropout:
                return 1.0
            p, seed = self.dropout
            key = number + cols.start if number < 1 << 40 else number
            return 0.0 if dropout_uniform(seed, b, h, rows.start + i, key) < p else 1.0 / (1.0 - p)

        queries = [self.vector(self.q, self.n, self.heads, self.d, b, i, h) for i in rows]
        hidden = self.mask and (lambda i, j: not self.pair(self.mask, self.mask_shape, b, h, rows.start + i, cols.start + j))
        bias = self.bias and (lambda i, j: self.pair(self.bias, self.bias_shape, b, h, rows.start + i, cols.start + j))
        x = [self.x[(b * self.n + i) * self.dim_x:(b * self.n + i + 1) * self.dim_x] for i in rows]
        return Head(group, index, tensor, self.causal, queries, keys(self.k, self.d), keys(self.v, self.dv), self.dv,
                    self.m, x, self.words and [self.words[b * self.n + i] for i in rows], hidden, bias, keep)

    def attend(self):
        """Outputs of all heads from q, k, v and x."""
        zero = Num(0.0)
        o = {}
        self.lse = [-math.inf] * (self.b * self.heads * self.n)
        self.a = [0.0] * (self.b * self.heads * self.n * self.m)
        owner = [(g, index) for g in self.groups for index in range(g.heads)]
        for b, rows, cols in self.sequences():
            for h, (group, index) in enumerate(owner):
                head = self.head(group, index, self.tensor[h], b, rows, cols, h, self.key_head(h))
                head.routes = [self.head(group.inner, index, tensor, b, rows, cols, h, self.key_head(h, j))
                               for j, tensor in enumerate(self.inner[h])]
                for i, (out, lse, a) in zip(rows, run(head)):
                    o[b, i, h] = out
                    at = (b * self.heads + h) * self.n + i
                    self.lse[at] = lse
                    for j, weight in (a or {}).items():
                        self.a[at * self.m + cols.start + j] = weight
        rows = itertools.product(range(self.b), range(self.n), range(self.heads))
        self.o = [x for at in rows for x in o.get(at, [zero] * self.dv)]

    def solve(self):
        self.attend()
        backward(dot(self.o, constant(self.g)))
        self.check()
        self.moments = self.calibrate() if self.calibrated else []

    def calibrate(self):
        """Statistics of all sequences together: (name, numbers of all heads)."""
        found, heads = {}, [g for g in self.groups for _ in range(g.heads)]
        for h, group in enumerate(heads):
            if not features.has_statistics(group):
                continue
            root = math.sqrt(features.scale_of(group, self.d))
            xs = [self.vector(self.q, self.n, self.heads, self.d, b, i, h) for b, rows, _ in self.sequences() for i in rows]
            ys = [self.vector(self.k, self.m, self.kv, self.d, b, j, self.key_head(h)) for b, _, cols in self.sequences() for j in cols]
            e = features.statistics(group.arg["kind"], features.numbers(xs, root), features.numbers(ys, root))
            for name, _ in tensors(group, self.d, self.dv, self.m, self.dim_x):
                if name in features.STATISTICS:
                    found.setdefault(self.name_of(group, name), []).extend(e.numbers(name))
        return list(found.items())

    def check(self):
        """What is known beforehand: printed numbers, and that o = A v."""
        for what, (values, count) in self.printed.items():
            mine = {"a": self.a, "o": [x.value for x in self.o]}[what][:count]
            assert max(abs(x - y) for x, y in zip(mine, values)) < 6e-7, (self.name, what)
        if self.dropout or any(g.inner or g.mods.get("shaw", {"values": 0}).get("values", 1) or not has_weights(g)
                               for g in self.groups):
            return
        for b, i, h in itertools.product(range(self.b), range(self.n), range(self.heads)):
            at = ((b * self.heads + h) * self.n + i) * self.m
            for c, x in enumerate(self.vector(self.o, self.n, self.heads, self.dv, b, i, h)):
                values = [self.vector(self.v, self.m, self.kv, self.dv, b, j, self.key_head(h))[c] for j in range(self.m)]
                sum_ = sum(w * y.value for w, y in zip(self.a[at:at + self.m], values))
                assert abs(x.value - sum_) < 1e-12 * max(1.0, abs(sum_)), (self.name, self.spec)

    def text(self):
        def line(key, values):
            return key + "".join(" %r" % v for v in values) + "\n"

        values = lambda xs: [x.value for x in xs]
        grads = lambda xs: [x.grad for x in xs]
        even = self.heads % self.kv == 0
        out = "case %s\nspec %s\nproblem b%dh%d%sn%dm%dd%dv%d%s\n" % (
            self.name, self.spec, self.b, self.heads, "k%d" % self.kv if even else "", self.n, self.m, self.d, self.dv,
            "c" if self.causal else "")
        if not even:
            out += line("kv_heads", [self.kv])
        for key in ("len_q", "len_k", "docs"):
            if getattr(self, key):
                out += line(key, getattr(self, key))
        if self.words:
            out += line("words", self.words)
        for key in ("memory", "dim_x", "seed"):
            if getattr(self, key):
                out += line(key, [getattr(self, key)])
        if self.dropout:
            out += line("dropout", self.dropout)
        for group in self.groups:
            for name, xs in group.arrays.items():
                out += line("list " + self.name_of(group, name), xs)
            for name, xs in group.inner.arrays.items() if group.inner else ():
                out += line("list " + self.name_of(group, "inner." + name), xs)
        if self.mask:
            out += line("mask_extents", self.mask_shape) + line("mask", self.mask)
        if self.bias:
            out += line("bias_extents", self.bias_shape) + line("bias", values(self.bias))
        for name, xs in self.params:
            out += line("param " + name, values(xs))
        if self.drawn is not None:
            out += line("drawn", [self.drawn])
        for name, xs in self.moments:
            out += line("calibrated " + name, xs)
        inputs = self.reads + ["v"] + ["x"] * bool(self.x)
        for key in inputs + ["g", "o"]:
            out += line(key, values(getattr(self, key)))
        if None not in self.lse:
            out += line("lse", self.lse)
        for key in inputs + ["bias"] * bool(self.bias):
            out += line("d" + key, grads(getattr(self, key)))
        for name, xs in self.params:
            out += line("dparam " + name, grads(xs))
        if self.weights:
            out += "a" + "".join(" %.9g" % x for x in self.a) + "\n"
        for what, (xs, _) in self.printed.items():
            out += line("printed_" + what, xs)
        return out + "end\n\n"
