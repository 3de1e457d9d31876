"""case.py -- one case of the golden vectors: its data, its results, its text."""

import itertools
import math
import random

import numpy as np

import compressed
import features
from arrays import Array, Tie, array, backward, concatenate, constant, placed
from formulas import Head, reads, run, tensors
from streams import dropout_uniform


def routes_of(group):
    return group.arg.get("routes", 2) if group.inner else 1


def has_weights(group):
    """Is there one matrix A with o = A v?"""
    return group.mech != "memformer" and not (group.mech in ("lightconv", "dynconv") and group.arg.get("heads", 1) > 1)


def line(key, values):
    """Of a file; values: an Array, an array of NumPy, or a list."""
    values = values.value if isinstance(values, Array) else values
    values = values.ravel().tolist() if isinstance(values, np.ndarray) else values
    return key + "".join(" %r" % x for x in values) + "\n"


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
        def some(shape, values=None):
            if values is None:
                values = [round(rng.gauss(0, 1), 3) for _ in range(math.prod(shape))]
            return Array(np.reshape(values, shape))

        self.q = some((self.b, self.n, self.heads, self.d), q)
        self.k = some((self.b, self.m, self.kv, self.d), k)
        self.v = some((self.b, self.m, self.kv, self.dv), v)
        self.g = some((self.b, self.n, self.heads, self.dv))
        self.params = []  # (name, Array of all heads)
        self.tensor = []  # {name: Array} of each head
        self.inner = []  # of each head: the same of each route

        def draw_tensors(group, prefix, rows):
            """`rows` sets of the tensors of a group."""
            sets, found = [{} for _ in range(rows)], tensors(group, self.d, self.dv, self.m, self.dim_x)
            starts = compressed.initial(group, found, self.drawn, self.d, self.m, self.dim_x)
            for name, count in found:
                start = starts.get(name) or features.initial(group, name, rows * count, self.d, self.drawn)
                values = some((rows, count), given.get(name, start))
                self.params.append((self.name_of(group, prefix + name), values))
                for t, of_head in enumerate(sets):
                    of_head[name] = values[t]
            return sets

        for group in self.groups:
            self.tensor += draw_tensors(group, "", group.heads)
            if group.inner:
                sets = draw_tensors(group.inner, "inner.", routes_of(group) * group.heads)
                self.inner += [sets[h::group.heads] for h in range(group.heads)]
            else:
                self.inner += [[]] * group.heads

        def pairs(shape, draw):
            shape = *shape, self.n, self.m
            return np.reshape([draw() for _ in range(math.prod(shape))], shape)

        self.mask = self.mask_shape and pairs(self.mask_shape, lambda: int(rng.random() < 0.6))
        self.bias = self.bias_shape and Array(pairs(self.bias_shape, lambda: round(8 * rng.gauss(0, 1)) / 8))
        self.x = some((self.b, self.n, self.dim_x)) if self.dim_x else None

    def name_of(self, group, name):
        """Of a tensor or a list: in a mix the group's number stands before it."""
        return name if len(self.groups) == 1 else "%d.%s" % (group.number, name)

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
        memory = min(self.held(group), len(cols))
        queries, keys = slice(rows.start, rows.stop), slice(cols.start, cols.stop)

        def held(x):
            # Memory takes no gradient: its rows enter as constants.
            found = x[b, keys, kh]
            return concatenate([constant(found[:memory]), found[memory:]])

        def keep(numbers):
            if not self.dropout:
                return np.ones((len(rows), len(numbers)))
            p, seed = self.dropout
            at = [t + cols.start if t < 1 << 40 else t for t in numbers]
            return np.reshape([0.0 if dropout_uniform(seed, b, h, i, t) < p else 1.0 / (1.0 - p) for i in rows for t in at],
                              (len(rows), len(at)))

        def pair(x, preset):
            """Of this head, where all heads or batch entries may share one matrix."""
            if x is None:
                return np.full((len(rows), len(cols)), preset)
            return x[b if x.shape[0] > 1 else 0, h if x.shape[1] > 1 else 0, queries, keys]

        return Head(group, index, tensor, self.causal, self.q[b, queries, h], held(self.k), held(self.v), self.m,
                    None if self.x is None else self.x[b, queries], self.words and [self.words[b * self.n + i] for i in rows],
                    pair(self.mask, 1) > 0, array(pair(self.bias, 0.0)), keep)

    def attend(self):
        """Outputs of all heads from q, k, v and x."""
        self.o = Array(np.zeros((self.b, self.n, self.heads, self.dv)))
        self.lse, self.has_lse = np.full((self.b, self.heads, self.n), -math.inf), True
        self.a = np.zeros((self.b, self.heads, self.n, self.m))
        owner = [(g, index) for g in self.groups for index in range(g.heads)]
        for b, rows, cols in self.sequences():
            for h, (group, index) in enumerate(owner):
                head = self.head(group, index, self.tensor[h], b, rows, cols, h, self.key_head(h))
                head.routes = [self.head(group.inner, index, tensor, b, rows, cols, h, self.key_head(h, j))
                               for j, tensor in enumerate(self.inner[h])]
                out, lse, a = run(head)
                at, keys = slice(rows.start, rows.stop), slice(cols.start, cols.stop)
                self.o = self.o + placed(out, (b, at, h), self.o.shape)
                self.has_lse &= lse is not None
                if lse is not None:
                    self.lse[b, h, at] = lse
                if a is not None:
                    self.a[b, h, at, keys] = a

    def solve(self):
        self.attend()
        backward((self.o * constant(self.g)).sum())
        self.check()
        self.moments = self.calibrate() if self.calibrated else []

    def calibrate(self):
        """Statistics of all sequences together: (name, numbers of all heads)."""
        found, heads = {}, [g for g in self.groups for _ in range(g.heads)]
        for h, group in enumerate(heads):
            if not features.has_statistics(group):
                continue
            root = math.sqrt(features.scale_of(group, self.d))
            xs = np.concatenate([self.q.value[b, list(rows), h] for b, rows, _ in self.sequences()])
            ys = np.concatenate([self.k.value[b, list(cols), self.key_head(h)] for b, _, cols in self.sequences()])
            e = features.statistics(group.arg["kind"], root * xs, root * ys)
            for name, _ in tensors(group, self.d, self.dv, self.m, self.dim_x):
                if name in features.STATISTICS:
                    found.setdefault(self.name_of(group, name), []).extend(e.numbers(name))
        return list(found.items())

    def check(self):
        """What is known beforehand: printed numbers, and that o = A v."""
        for what, (values, count) in self.printed.items():
            mine = {"a": self.a, "o": self.o.value}[what].ravel()[:count]
            assert np.max(np.abs(mine - values)) < 6e-7, (self.name, what)
        if self.dropout or any(g.inner or g.mods.get("shaw", {"values": 0}).get("values", 1) or not has_weights(g)
                               for g in self.groups):
            return
        for h in range(self.heads):
            wanted = self.a[:, h] @ self.v.value[:, :, self.key_head(h)]
            far = np.abs(self.o.value[:, :, h] - wanted) / np.maximum(1.0, np.abs(wanted))
            assert np.max(far) < 1e-12, (self.name, self.spec)

    def text(self):
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
        if self.mask_shape:
            out += line("mask_extents", self.mask_shape) + line("mask", self.mask)
        if self.bias_shape:
            out += line("bias_extents", self.bias_shape) + line("bias", self.bias)
        for name, xs in self.params:
            out += line("param " + name, xs)
        if self.drawn is not None:
            out += line("drawn", [self.drawn])
        for name, xs in self.moments:
            out += line("calibrated " + name, xs)
        inputs = self.reads + ["v"] + ["x"] * bool(self.dim_x)
        for key in inputs + ["g", "o"]:
            out += line(key, getattr(self, key))
        if self.has_lse:
            out += line("lse", self.lse)
        for key in inputs + ["bias"] * bool(self.bias_shape):
            out += line("d" + key, getattr(self, key).grad)
        for name, xs in self.params:
            out += line("dparam " + name, xs.grad)
        if self.weights:
            out += "a" + "".join(" %.9g" % x for x in self.a.ravel()) + "\n"
        for what, (xs, _) in self.printed.items():
            out += line("printed_" + what, xs)
        return out + "end\n\n"
