"""formulas.py -- attention as it is defined, one head of one sequence at a time.

What the rows of a head see are columns: keys as they are, then slots made of keys.  Logits,
weights and outputs are matrices of rows by columns; weights are divided by sums over all
that a row sees.  Nothing is arranged for speed, and nothing here has been told how the
library does it.
"""

import math

import numpy as np

import compressed
import features
import positional
from arrays import MARGIN, Array, Tie, array, concatenate, constant, exp, relu, softmax, sqrt, tanh, where
from streams import Stream


class Group:
    """Some heads with a mechanism and its modifiers: {name: arguments}."""

    def __init__(self, heads, mech, arg=None, arrays=None, inner=None, **mods):
        self.heads, self.mech, self.arg, self.mods = heads, mech, arg or {}, mods
        self.arrays = arrays or {}  # {name: whole numbers}
        self.inner = inner  # of routed: the Group of a route
        self.number = 0  # among the groups of the mix
        self.seed = 0  # of the plan


class Head:
    """One head of one sequence.  Keys stand at 0, 1, ...; the last query stands at the
    last key.  shown, bias [nq][nk] and keep(numbers) belong to the problem: which pairs the
    mask lets through, what is added to their logits, and what dropout multiplies weights by
    (1: nothing), [nq][numbers], where a number is that of a key or a slot."""

    def __init__(self, group, index, tensor, causal, q, k, v, planned, x, words, shown, bias, keep):
        self.group, self.index, self.causal = group, index, causal
        self.tensor = tensor  # {name: Array}
        self.planned = planned  # keys of a whole sequence
        self.words = words  # of each token
        self.raw_q, self.raw_k, self.v, self.x = q, k, v, x
        self.nq, self.nk, self.width = len(q), len(v), v.shape[1]
        self.places, self.keys = self.place(np.arange(self.nq)), np.arange(self.nk)
        self.visible = shown & (self.keys <= self.places[:, None]) if causal else shown
        self.bias, self.keep = bias, keep
        self.routes = []  # of routed: Heads
        self.q, self.k = mapped(self)
        setup = SETUP.get(group.mech)
        if setup:
            setup(self)

    def arg(self, name, preset):
        return self.group.arg.get(name, preset)

    def place(self, i):
        return i + self.nk - self.nq

    def rows(self, name, width):
        """A tensor of this head as rows."""
        return self.tensor[name].reshape(-1, width)


# Rows as the logits read them


def unit(x):
    """x / |x|, the norms floored at 1e-12."""
    square = (x * x).sum(-1, True)
    some = square.value >= 1e-24
    return x / where(some, sqrt(where(some, square, 1.0)), 1e-12)


def layer_norm(x):
    """Mean 0 and variance 1."""
    c = x - x.mean(-1, True)
    return c / sqrt((c * c).mean(-1, True) + 1e-5)


def rope(x, places, base=10000, layout="interleaved"):
    """Pairs of every row turned by angles that grow with its place."""
    d = x.shape[1]
    assert d % 2 == 0
    t = np.arange(d // 2)
    a, b = (2 * t, 2 * t + 1) if layout == "interleaved" else (t, t + d // 2)
    angles = np.outer(places, float(base) ** (-2.0 * t / d))
    c, s = np.cos(angles), np.sin(angles)
    turned = concatenate([c * x[:, a] - s * x[:, b], s * x[:, a] + c * x[:, b]], 1)
    return turned[:, np.argsort(np.concatenate([a, b]))]


def mapped(head):
    group = head.group
    q, k = head.raw_q, head.raw_k
    if group.mech == "routed" or group.mech in features.MECHANISMS:
        return q, k
    if group.mech == "lsh" and group.arg.get("shared"):
        k = unit(q)
    if group.mech == "lowrank":
        q, k = compressed.projected(head)
    if group.mech == "routing":
        q, k = layer_norm(q), layer_norm(k)
    if "qknorm" in group.mods:
        q, k = unit(q), unit(k)
    if "rope" in group.mods:
        q, k = rope(q, head.places, **group.mods["rope"]), rope(k, head.keys, **group.mods["rope"])
    return q, k


# What the rows of a head may see


class Columns:
    """Keys or slots: their numbers, keys [columns][d], values [columns][width]; how often
    each row sees them, count [rows][columns]; what is added to logits; share [columns][nk],
    the parts of them that are the keys; rel [rows][columns], their places less that of the
    row, None for slots."""

    def __init__(self, number, key, value, count, bias, share, rel=None):
        self.number, self.key, self.value, self.share = number, key, value, share
        self.count, self.bias, self.rel = count, bias, rel

    def __add__(self, other):
        both = lambda name, axis: concatenate([getattr(self, name), getattr(other, name)], axis)
        rel = None if self.rel is None or other.rel is None else np.concatenate([self.rel, other.rel], 1)
        return Columns(self.number + other.number, both("key", 0), both("value", 0), np.concatenate([self.count, other.count], 1),
                       both("bias", 1), np.concatenate([self.share, other.share]), rel)


def raw_keys(head, count):
    rel = head.keys - head.places[:, None]
    return Columns(head.keys.tolist(), head.k, head.v, count, head.bias, np.eye(head.nk), rel)


def held_keys(head, count):
    """The same where no gradient flows to the keys."""
    found = raw_keys(head, count)
    found.key, found.value = constant(head.k), constant(head.v)
    return found


def slots(number, key, value, count, share, bias=0.0):
    return Columns(number, key, value, count, Array(np.zeros(count.shape) + bias), share)


# Weights of rows from their logits, and the logarithms of what they were divided by.
# A key may count several times.


def of_softmax(x, count, _arg, sink):
    e = count * exp(where(count > 0, x, 0.0))
    s = e.sum(1, True) + (exp(sink) if sink is not None else 0.0)
    s = where(s.value > 0, s, 1.0)
    return e / s, np.log(s.value[:, 0])


def l2norm(x, count, _arg, _sink):
    seen = count > 0
    e = where(seen, exp(where(seen, x, 0.0)), 0.0)
    s = (e * e).sum(1, True)
    s = where(s.value > 0, s, 1.0)
    return e / sqrt(s), 0.5 * np.log(s.value[:, 0])


def relu2(x, count, arg, _sink):
    seen = count > 0
    n = arg.get("n", 0) or np.maximum(seen.sum(1, keepdims=True), 1)
    return where(seen, relu(x) ** 2 / n, 0.0), np.log(np.broadcast_to(n, (len(x), 1))[:, 0])


WEIGH = {"l2norm": l2norm, "relu2": relu2}


# Position terms


def alibi_slopes(heads):
    """2^(-8(h+1)/H) for powers of two; the others take every second slope of the next."""
    power = lambda n: [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]
    low = 1 << (heads.bit_length() - 1)
    return power(low) + power(2 * low)[::2][:heads - low]


def t5_bucket(rel, causal, buckets=32, max_distance=128):
    if causal:
        nb, start, n = buckets, 0, max(-rel, 0)
    else:
        nb = buckets // 2
        start, n = nb if rel > 0 else 0, abs(rel)
    exact = nb // 2
    if n < exact:
        return start + n
    return start + min(nb - 1, exact + math.floor(math.log(n / exact) / math.log(max_distance / exact) * (nb - exact)))


assert [round(m, 8) for m in alibi_slopes(6)] == [.25, .0625, .015625, .00390625, .5, .125]
assert [t5_bucket(r, False) for r in (-3, -2, -1, 0, 1, 2, 3)] == [3, 2, 1, 0, 17, 18, 19]
assert [t5_bucket(r, False) for r in (-16, -64, -200, 20, 200)] == [10, 14, 15, 26, 31]
assert [t5_bucket(-r, True) for r in (0, 5, 15, 16, 20, 40, 127, 500)] == [0, 5, 15, 16, 17, 23, 31, 31]


def t5_buckets(rel, causal, arg):
    """One by one: logarithms that are rounded down must not differ between processors, as NumPy's may."""
    return np.array([t5_bucket(r, causal, **arg) for r in rel.ravel().tolist()], dtype=int).reshape(rel.shape)


def clip(rel, c):
    return np.clip(rel, -c, c) + c


def sinusoid(rows, d, base=10000.0):
    """[rows][d]"""
    t = np.arange(d)
    angles = np.arange(rows)[:, None] / base ** ((t - t % 2) / d)
    return np.where(t % 2, np.cos(angles), np.sin(angles))


# Logits and outputs


def by_pair(x, y):
    """x_i . y_ij of rows x [rows][d] and y [rows][columns][d]."""
    return (x.reshape(len(x), 1, -1) * y).sum(2)


def products(head, cols):
    """q.k, and what is multiplied as it is."""
    mods, q, rel = head.group.mods, head.q, cols.rel
    found = q @ cols.key.T
    if "shaw" in mods:
        found = found + by_pair(q, head.rows("aK", q.shape[1])[clip(rel, mods["shaw"].get("clip", 16))])
    if "txl" in mods:
        r = head.rows("R", q.shape[1])[np.maximum(-rel, 0)]  # keys behind the row's place are not seen
        found = found + head.rows("u", q.shape[1]) @ cols.key.T + by_pair(q + head.tensor["w"], r)
    return found


def biases(head, cols):
    """What stands in the logits beside products."""
    mods, found, rel = head.group.mods, cols.bias, cols.rel
    if "alibi" in mods:
        slope = mods["alibi"].get("slope", 0) or alibi_slopes(head.group.heads)[head.index]
        found = found - slope * np.abs(rel)
    if "t5" in mods:
        found = found + head.tensor["table"][t5_buckets(rel, head.causal, mods["t5"])]
    if "bias" in mods:
        found = found + head.tensor["table"][clip(rel, mods["bias"].get("clip", 16))]
    return found


def factor(head, n):
    """What q.k is multiplied by in rows that see n [rows][1] keys and slots."""
    mods = head.group.mods
    f = array(1.0 if "qknorm" in mods else 1.0 / math.sqrt(head.q.shape[1]))
    if "scale" in mods:
        f = array(mods["scale"]["s"])
    if "qknorm" in mods:
        f = f * head.tensor["tau"]
    if "temper" in mods:
        f = f * head.tensor["temper"]
    if "logn" in mods:
        ratio = np.log(np.maximum(n, 1)) / math.log(mods["logn"].get("n0", 512))
        f = f * (np.maximum(1.0, ratio) if mods["logn"].get("clamp") else ratio)
    return f


def attend(head, cols):
    """Outputs, logarithms of divisors and weights of keys of all rows."""
    sink = head.tensor["sink"] if "sink" in head.group.mods else None
    n = (cols.count > 0).sum(1, keepdims=True)
    f, beside = factor(head, n), biases(head, cols)
    if head.group.mech == "synthesizer":
        given, share = compressed.synthetic(head)
        f, beside = f * share, beside + given
    x = f * products(head, cols) + beside
    if "cap" in head.group.mods:
        c = head.group.mods["cap"]["c"]
        x = c * tanh(x / c)
    w, lse = WEIGH.get(head.group.mech, of_softmax)(x, cols.count, head.group.arg, sink)
    lse = np.where(n[:, 0] > 0, lse, -math.inf if sink is None else sink.value)
    a, w = w.value @ cols.share, w * head.keep(cols.number)
    o, shaw = w @ cols.value, head.group.mods.get("shaw")
    if shaw is not None and shaw.get("values", 1):
        by_place = head.rows("aV", head.width)[clip(cols.rel, shaw.get("clip", 16))]
        o = o + (w.reshape(*w.shape, 1) * by_place).sum(1)
    return o, lse, a


# Supports: how often rows see keys by the mechanism alone, [nq][nk], from the places p of
# queries, a column, and j of keys, a row.


def everything(_head, _p, _j):
    return 1


def local(head, p, j):
    far, dilation = np.abs(p - j), head.arg("dilation", 1)
    return (far <= head.arg("window", 256) * dilation) & (far % dilation == 0)


def blocklocal(head, p, j):
    b = head.arg("block", 64)
    return p // b == j // b


def stride_of(head):
    return head.arg("stride", 0) or math.isqrt(head.nk - 1) + 1


def strided(head, p, j):
    l, part, far = stride_of(head), head.arg("part", "both"), np.abs(p - j)
    return (part != 2) & (far <= l) | (part != 1) & (far % l == 0)


def sparse_fixed(head, p, j):
    l, part = stride_of(head), head.arg("part", "both")
    return (part != 2) & (p // l == j // l) | (part != 1) & (j % l >= l - head.arg("summary", 1))


def block(head, p, j):
    b, layout = head.arg("block", 64), np.array(head.group.arrays["layout"])
    nb = math.isqrt(len(layout))
    return layout.reshape(nb, nb)[p // b, j // b]


def global_(head, p, j):
    chosen = lambda at: (at < head.arg("first", 0)) | np.isin(at, head.group.arrays.get("global", ()))
    return local(head, p, j) | chosen(p) | chosen(j)


def bigbird_layout(nb, causal, radius, first, draws, seed, group):
    """[nb][nb]"""
    u, t = np.ogrid[:nb, :nb]
    layout = (np.abs(u - t) <= radius) | (u < first) | (t < first)
    for row in range(first, nb):
        free = np.flatnonzero(~layout[row, :row + 1 if causal else nb])
        layout[row, Stream(seed, 1000 + row + (group << 32)).choose(draws, free)] = True
    return np.tril(layout) if causal else layout


def printed(layout):
    return ["".join(str(int(x)) for x in row[:np.flatnonzero(row)[-1] + 1]) for row in layout]


assert printed(bigbird_layout(5, False, 1, 1, 1, 0, 0)) == ["11111", "1111", "11111", "11111", "10111"]
assert printed(bigbird_layout(6, True, 1, 1, 1, 0, 0)) == ["1", "11", "111", "1111", "10111", "101011"]


def bigbird(head, p, j):
    b = head.arg("block", 64)
    layout = bigbird_layout(-(-head.nk // b), head.causal, head.arg("radius", 1), head.arg("global", 1), head.arg("random", 1),
                            head.group.seed, head.group.number)
    return layout[p // b, j // b]


def best(values):
    """Where the largest of each row is; a Tie where the next is near."""
    order = np.sort(values, axis=1)
    if values.shape[1] > 1 and np.any(order[:, -1] - order[:, -2] < MARGIN):
        raise Tie
    return np.argmax(values, axis=1)


def hashes(head, r, rows):
    """Buckets of rows in round r."""
    rounds, d = head.arg("rounds", 1), rows.shape[1]
    if head.arg("hash", "angular") == "angular":
        turned = rows @ head.tensor["R"].value.reshape(rounds, d, -1)[r]
        return best(np.concatenate([turned, -turned], 1))
    y = (rows @ head.rows("a", d).value[r] + head.tensor["b"].value[r]) / head.arg("width", 1)
    if np.any(np.abs(y - np.round(y)) < MARGIN):
        raise Tie
    return np.floor(y)


def lsh_setup(head):
    head.buckets = []  # of each round: those of queries and of keys
    for r in range(head.arg("rounds", 1)):
        of_q = hashes(head, r, head.raw_q.value)
        head.buckets.append((of_q, of_q if head.arg("shared", 0) else hashes(head, r, head.raw_k.value)))


def chunks(of_k, length):
    """The chunk of each row: rows stand by their buckets, then by their places."""
    found = np.zeros(len(of_k), dtype=int)
    found[np.argsort(of_k, kind="stable")] = np.arange(len(of_k)) // length
    return found


def lsh(head, _p, _j):
    rounds = np.zeros((head.nq, head.nk), dtype=int)
    for of_q, of_k in head.buckets:
        near = of_q[:, None] == of_k
        if head.arg("chunk", 0):
            chunk = chunks(of_k, head.arg("chunk", 0))
            near &= np.isin(chunk[:, None] - chunk, (0, 1))
        rounds += near
    return np.minimum(rounds, 1) if head.arg("dedup", 1) else rounds


def routing_setup(head):
    mu = head.rows("mu", head.raw_q.shape[1]).value
    head.fit_q, head.fit_k = (layer_norm(x).value @ mu.T for x in (head.raw_q, head.raw_k))
    if head.arg("pick", "argmax") == "argmax":
        head.cluster_q, head.cluster_k = best(head.fit_q), best(head.fit_k)


def routing(head, _p, _j):
    return head.cluster_q[:, None] == head.cluster_k


def segment_of(head, at):
    return at // head.arg("length", 64)


def segmented(head, p, j):
    u, t = segment_of(head, p), segment_of(head, j)
    return (u - head.arg("back", 0) <= t) & (t <= u)


def pooled_near(head):
    """Does a row see its own block raw?"""
    return head.causal or head.arg("local", 0) or head.arg("levels", 1) > 1


def pooled(head, p, j):
    b = head.arg("block", 16)
    return p // b == j // b if pooled_near(head) else 0


def linformer(head, p, j):
    b = head.arg("block", 0)
    return p // b == j // b if b else 0


SUPPORT = {"local": local, "blocklocal": blocklocal, "strided": strided, "sparse_fixed": sparse_fixed, "block": block,
           "global": global_, "bigbird": bigbird, "lsh": lsh, "routing": routing, "segmented": segmented, "pooled": pooled,
           "linformer": linformer}
SETUP = {"lsh": lsh_setup, "routing": routing_setup}


# Slots: means and mixtures of keys and values


def averages(head, size):
    """The matrix that takes means of `size` keys each, [slots][nk]."""
    t = np.arange(-(-head.nk // size))[:, None]
    inside = head.keys // size == t
    return inside / inside.sum(1, keepdims=True)


def counted(head):
    """Do slots get the logarithm of their length?"""
    bias = head.arg("count_bias", "auto")
    return head.arg("levels", 1) > 1 if bias == "auto" else bool(bias)


def means(head, level, size, count):
    share = averages(head, size)
    bias = np.log((share > 0).sum(1)) if counted(head) else 0.0
    return slots([(level << 40) + t for t in range(len(share))], share @ head.k, share @ head.v, count, share, bias)


def segment_slots(head, p):
    t, u = np.arange(-(-head.nk // head.arg("length", 64))), segment_of(head, p)
    others = (t < u - head.arg("back", 0)) | (not head.causal) & (t > u)
    return [means(head, 1, head.arg("length", 64), others.astype(int))]


def pooled_slots(head, p):
    b, levels, found = head.arg("block", 16), head.arg("levels", 1), []
    for level in range(1, levels + 1):
        size = b ** level
        t, own = np.arange(-(-head.nk // size)), p // size
        inside = (level == levels) | (t // b == own // b)
        other = t < own if head.causal else (t != own) | (not pooled_near(head))
        found.append(means(head, level, size, (inside & other).astype(int)))
    return found


def mixed_keys(head, p):
    """The mixtures that rows of linformer see: of everything, or of the blocks before their own."""
    b = head.arg("block", 0)
    every, found = b or head.planned, []
    for u in range((head.nk - 1) // b if b else min(head.nk, 1)):
        run = range(u * every, min((u + 1) * every, head.nk))
        number, key, value, share = compressed.mixtures(head, run, u * compressed.rank_of(head.group.arg, head.planned))
        count = np.repeat(u < p // b if b else np.ones(p.shape, dtype=int), len(number), 1)
        found.append(slots([(1 << 40) + t for t in number], key, value, count.astype(int), share))
    return found


def slots_of(head, p):
    if head.group.mech == "segmented" and head.arg("integrate", "none") == "summary":
        return segment_slots(head, p)
    return {"pooled": pooled_slots, "linformer": mixed_keys}.get(head.group.mech, lambda *_: [])(head, p)


def seen(head):
    """All that the rows of a head see."""
    p = head.places[:, None]
    count = head.visible * np.asarray(SUPPORT.get(head.group.mech, everything)(head, p, head.keys)).astype(int)
    if head.group.mech == "lsh" and head.arg("shared", 0):
        others = count * (p != head.keys)
        count = np.where(others.any(1, keepdims=True), others, count)
    if head.group.mech == "segmented" and head.arg("stop_grad", 0):
        own = segment_of(head, p) == segment_of(head, head.keys)
        found = raw_keys(head, count * own) + held_keys(head, count * ~own)
    else:
        found = raw_keys(head, count)
    for more in slots_of(head, p):
        found = found + more
    return found


# All rows of a head: outputs [nq][width], logarithms of divisors [nq] or None, weights of
# keys [nq][nk] or None


def plain(head):
    return attend(head, seen(head))


def topk(head):
    """Each centroid takes its best queries and keys; rows taken more than once average."""
    clusters = head.arg("clusters", 0)
    take = head.arg("take", 0) or max(1, head.nk // clusters)

    def taken(fits):
        """[rows][clusters]"""
        order = np.sort(fits, axis=0)[::-1]
        if take < len(fits) and np.any(order[take - 1] - order[take] < MARGIN):
            raise Tie
        return fits >= order[min(take, len(fits)) - 1]

    of_q, of_k = taken(head.fit_q), taken(head.fit_k)
    parts = of_q / np.maximum(of_q.sum(1, keepdims=True), 1)
    o, a = array(0.0), 0.0
    for t in range(clusters):
        found, _, weights = attend(head, raw_keys(head, head.visible * of_k[:, t].astype(int)))
        o, a = o + parts[:, t:t + 1] * found, a + parts[:, t:t + 1] * weights
    return o, None, a


def second(head):
    """Attention in segments, then of every row to the segments' mean results."""
    y, _, weights = plain(head)
    share, u = averages(head, head.arg("length", 64)), segment_of(head, head.places[:, None])
    count = (np.arange(len(share)) < (u if head.causal else np.full_like(u, len(share)))).astype(int)
    means_ = slots([(1 << 40) + t for t in range(len(share))], share @ head.k, share @ y, count, share @ weights)
    z, _, slot_weights = attend(head, means_)
    gamma = count.any(1, keepdims=True) * head.tensor["gamma"]
    return (1.0 - gamma) * y + gamma * z, None, (1.0 - gamma.value) * weights + gamma.value * slot_weights


def routed(head):
    """Routes summed by gates that are read from x."""
    top, gates = head.arg("top", 0), head.x @ head.rows("Wr", head.x.shape[1]).T
    chosen = True
    if top and top < gates.shape[1]:
        order = np.sort(gates.value, axis=1)[:, ::-1]
        if np.any(order[:, top - 1] - order[:, top] < MARGIN):
            raise Tie
        chosen = gates.value >= order[:, top - 1:top]
    shares, o = softmax(gates, chosen), array(0.0)
    for t, route in enumerate(head.routes):
        o = o + shares[:, t:t + 1] * run(route)[0]
    return o, None, None


def run(head):
    mech, turn = head.group.mech, head.group.mods.get("rope")
    if head.nq == 0:
        return Array(np.zeros((0, head.width))), np.zeros(0), np.zeros((0, head.nk))
    if mech in features.MECHANISMS:
        return features.rows_of(head, None if turn is None else lambda x, places: rope(x, places, **turn))
    if mech in positional.MECHANISMS:
        return positional.rows_of(head)
    if mech in ("nystrom", "memformer"):
        return getattr(compressed, mech)(head)
    if mech == "routed":
        return routed(head)
    if mech == "routing" and head.arg("pick", "argmax") == "topk":
        return topk(head)
    if mech == "segmented" and head.arg("integrate", "none") == "second":
        return second(head)
    return plain(head)


# Tensors of one head: [(name, how many numbers)].


def tensors(group, d, dv, nk, dim_x):
    arg, mods = group.arg, group.mods
    found = features.tensors(group, d) + positional.tensors(group, dim_x) + compressed.tensors(group, d, nk, dim_x)
    if group.mech == "lsh" and arg.get("hash", "angular") == "angular":
        found.append(("R", arg.get("rounds", 1) * d * (arg.get("buckets", 64) // 2)))
    elif group.mech == "lsh":
        found += [("a", arg.get("rounds", 1) * d), ("b", arg.get("rounds", 1))]
    elif group.mech == "routing":
        found.append(("mu", arg["clusters"] * d))
    elif group.mech == "routed":
        found.append(("Wr", arg.get("routes", 2) * dim_x))
    elif group.mech == "segmented" and arg.get("integrate") == "second":
        found.append(("gamma", 1))
    for mod, values in mods.items():
        span = 2 * values.get("clip", 16) + 1
        found += {"sink": [("sink", 1)], "temper": [("temper", 1)], "qknorm": [("tau", 1)],
                  "t5": [("table", values.get("buckets", 32))], "bias": [("table", span)],
                  "shaw": [("aK", span * d)] + ([("aV", span * dv)] if values.get("values", 1) else []),
                  "txl": [("u", d), ("w", d), ("R", nk * d)]}.get(mod, [])
    return found


def reads(group):
    """What a group reads of q and k."""
    if group.mech in positional.MECHANISMS or not compressed.reads_pairs(group):
        return ""
    return "q" if group.mech == "lsh" and group.arg.get("shared") else "qk"
