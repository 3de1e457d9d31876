"""formulas.py -- attention as it is defined, one head of one sequence at a time.

What a row sees is a list of keys and slots; its logits are written out one by one
and its weights are divided by a sum over all of them.  Nothing is arranged for speed,
and nothing here has been told how the library does it.
"""

import math

import compressed
import features
import positional
from scalar import MARGIN, Num, Stream, Tie, constant, dot, exp, mean, plus, relu, sqrt, tanh, times, total


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
    last key.  hidden(i, j), bias(i, j) and keep(i, number) belong to the problem: is
    the pair masked, what is added to its logit, and what dropout multiplies its weight
    by (1: nothing), where number is that of a key or a slot."""

    def __init__(self, group, index, tensor, causal, q, k, v, width, planned, x=None, words=None, hidden=None, bias=None,
                 keep=None):
        self.group, self.index, self.tensor, self.causal = group, index, tensor, causal
        self.width = width  # of a value
        self.planned = planned  # keys of a whole sequence
        self.words = words  # of each token
        self.raw_q, self.raw_k, self.v, self.x = q, k, v, x
        self.nq, self.nk = len(q), len(v)
        self.hidden = hidden or (lambda i, j: False)
        self.bias = bias or (lambda i, j: 0.0)
        self.keep = keep or (lambda i, number: 1.0)
        self.routes = []  # of routed: Heads
        self.means = {}
        self.q, self.k = mapped(self)
        setup = SETUP.get(group.mech)
        if setup:
            setup(self)

    def arg(self, name, preset):
        return self.group.arg.get(name, preset)

    def place(self, i):
        return i + self.nk - self.nq

    def visible(self, i, j):
        return not (self.causal and j > self.place(i)) and not self.hidden(i, j)

    def rows(self, name, width):
        """A tensor of this head as rows."""
        x = self.tensor[name]
        return [x[t:t + width] for t in range(0, len(x), width)]


# Rows as the logits read them


def unit(x):
    """x / |x|, the norm floored at 1e-12."""
    square = dot(x, x)
    norm = sqrt(square) if square.value >= 1e-24 else Num(1e-12)
    return [t / norm for t in x]


def layer_norm(x):
    """Mean 0 and variance 1."""
    m = total(x) / float(len(x))
    c = [t + -1.0 * m for t in x]
    s = sqrt(dot(c, c) / float(len(x)) + 1e-5)
    return [t / s for t in c]


def rope(x, place, base=10000, layout="interleaved"):
    """Pairs of x turned by angles that grow with the place."""
    d, y = len(x), list(x)
    assert d % 2 == 0
    for t in range(d // 2):
        a, b = (2 * t, 2 * t + 1) if layout == "interleaved" else (t, t + d // 2)
        angle = place * float(base) ** (-2.0 * t / d)
        c, s = math.cos(angle), math.sin(angle)
        y[a], y[b] = c * x[a] + -s * x[b], s * x[a] + c * x[b]
    return y


def mapped(head):
    group = head.group
    q, k = head.raw_q, head.raw_k
    if group.mech == "routed" or group.mech in features.MECHANISMS:
        return q, k
    if group.mech == "lsh" and group.arg.get("shared"):
        k = [unit(x) for x in q]
    if group.mech == "lowrank":
        q, k = compressed.projected(head)
    if group.mech == "routing":
        q, k = [layer_norm(x) for x in q], [layer_norm(x) for x in k]
    if "qknorm" in group.mods:
        q, k = [unit(x) for x in q], [unit(x) for x in k]
    if "rope" in group.mods:
        q = [rope(x, head.place(i), **group.mods["rope"]) for i, x in enumerate(q)]
        k = [rope(x, j, **group.mods["rope"]) for j, x in enumerate(k)]
    return q, k


# Weights of one row from its logits, and the logarithm of what they were divided by.
# A key may count several times.


def softmax(x, count, _arg, sink):
    e = [exp(t) if c == 1 else float(c) * exp(t) for t, c in zip(x, count)]
    s = total(e) + (exp(sink) if sink is not None else 0.0)
    return [t / s for t in e], math.log(s.value)


def l2norm(x, _count, _arg, _sink):
    s = total(exp(2.0 * t) for t in x)
    return [exp(t) / sqrt(s) for t in x], 0.5 * math.log(s.value)


def relu2(x, _count, arg, _sink):
    n = arg.get("n", 0) or len(x)
    return [relu(t) * relu(t) / float(n) for t in x], math.log(n)


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


def clip(rel, c):
    return max(-c, min(c, rel)) + c


def sinusoid(rows, d, base=10000.0):
    return [f(p / base ** ((t - t % 2) / d)) for p in range(rows) for t in range(d) for f in ((math.cos if t % 2 else math.sin),)]


class Seen:
    """A key or a slot that a row sees.  rel is its place less that of the row, share
    {key: part of it that is this key}."""

    def __init__(self, key, value, bias, rel, number, share, count=1):
        self.key, self.value, self.bias, self.rel = key, value, bias, rel
        self.number, self.share, self.count = number, share, count


def logit(head, q, f, seen, given):
    """given: what stands beside q.k by key, or None."""
    mods, x, rel = head.group.mods, seen.bias, seen.rel
    product = dot(q, seen.key)
    if given:
        x = x + given[seen.number]
    if "shaw" in mods:
        product = product + dot(q, head.rows("aK", len(q))[clip(rel, mods["shaw"].get("clip", 16))])
    if "txl" in mods:
        r = head.rows("R", len(q))[-rel]
        product = product + dot(head.tensor["u"], seen.key) + dot(plus(q, head.tensor["w"]), r)
    if "alibi" in mods:
        slope = mods["alibi"].get("slope", 0) or alibi_slopes(head.group.heads)[head.index]
        x = x + -slope * abs(rel)
    if "t5" in mods:
        x = x + head.tensor["table"][t5_bucket(rel, head.causal, **mods["t5"])]
    if "bias" in mods:
        x = x + head.tensor["table"][clip(rel, mods["bias"].get("clip", 16))]
    x = f * product + x
    if "cap" in mods:
        c = mods["cap"]["c"]
        x = c * tanh(x / c)
    return x


def factor(head, d, n):
    """What q.k is multiplied by in a row that sees n keys and slots."""
    mods = head.group.mods
    f = Num(1.0 if "qknorm" in mods else 1.0 / math.sqrt(d))
    if "scale" in mods:
        f = Num(mods["scale"]["s"])
    if "qknorm" in mods:
        f = f * head.tensor["tau"][0]
    if "temper" in mods:
        f = f * head.tensor["temper"][0]
    if "logn" in mods:
        ratio = math.log(n) / math.log(mods["logn"].get("n0", 512))
        f = f * (max(1.0, ratio) if mods["logn"].get("clamp") else ratio)
    return f


def attend(head, i, seen):
    """Output, log of the divisor and {key: weight} of row i."""
    sink = head.tensor["sink"][0] if "sink" in head.group.mods else None
    if not seen:
        return [Num(0.0)] * head.width, sink.value if sink else -math.inf, {}
    q = head.q[i]
    f, given = factor(head, len(q), len(seen)), None
    if head.group.mech == "synthesizer":
        given, share = compressed.synthetic(head, i)
        f = f * share
    x = [logit(head, q, f, s, given) for s in seen]
    w, lse = WEIGH.get(head.group.mech, softmax)(x, [s.count for s in seen], head.group.arg, sink)
    o, a = [Num(0.0)] * head.width, {}
    for weight, s in zip(w, seen):
        for j, part in s.share.items():
            a[j] = a.get(j, 0.0) + weight.value * part
        keep = head.keep(i, s.number)
        weight = weight if keep == 1.0 else weight * keep
        o = plus(o, times(s.value, weight))
        if "shaw" in head.group.mods and head.group.mods["shaw"].get("values", 1):
            c = head.group.mods["shaw"].get("clip", 16)
            o = plus(o, times(head.rows("aV", head.width)[clip(s.rel, c)], weight))
    return o, lse, a


# Supports: how often row i sees the key at j, by the mechanism alone.


def everything(_head, _i, _j):
    return 1


def local(head, i, j):
    far, dilation = abs(head.place(i) - j), head.arg("dilation", 1)
    return far <= head.arg("window", 256) * dilation and far % dilation == 0


def blocklocal(head, i, j):
    b = head.arg("block", 64)
    return head.place(i) // b == j // b


def stride_of(head):
    return head.arg("stride", 0) or math.isqrt(head.nk - 1) + 1


def strided(head, i, j):
    l, part, far = stride_of(head), head.arg("part", "both"), abs(head.place(i) - j)
    return part != 2 and far <= l or part != 1 and far % l == 0


def sparse_fixed(head, i, j):
    l, part = stride_of(head), head.arg("part", "both")
    return part != 2 and head.place(i) // l == j // l or part != 1 and j % l >= l - head.arg("summary", 1)


def block(head, i, j):
    b = head.arg("block", 64)
    layout = head.group.arrays["layout"]
    nb = math.isqrt(len(layout))
    return layout[head.place(i) // b * nb + j // b]


def global_(head, i, j):
    chosen = lambda p: p < head.arg("first", 0) or p in head.group.arrays.get("global", ())
    return local(head, i, j) or chosen(head.place(i)) or chosen(j)


def bigbird_layout(nb, causal, radius, first, draws, seed, group):
    """Sets of block columns."""
    rows = []
    for u in range(nb):
        row = {t for t in range(nb) if abs(u - t) <= radius or u < first or t < first}
        if u >= first:
            free = [t for t in range(u + 1 if causal else nb) if t not in row]
            row |= set(Stream(seed, 1000 + u + (group << 32)).choose(draws, free))
        rows.append({t for t in row if not (causal and t > u)})
    return rows


def printed(layout):
    return ["".join(str(int(t in row)) for t in range(max(row) + 1)) for row in layout]


assert printed(bigbird_layout(5, False, 1, 1, 1, 0, 0)) == ["11111", "1111", "11111", "11111", "10111"]
assert printed(bigbird_layout(6, True, 1, 1, 1, 0, 0)) == ["1", "11", "111", "1111", "10111", "101011"]


def bigbird_setup(head):
    head.layout = bigbird_layout(-(-head.nk // head.arg("block", 64)), head.causal, head.arg("radius", 1), head.arg("global", 1),
                                 head.arg("random", 1), head.group.seed, head.group.number)


def bigbird(head, i, j):
    b = head.arg("block", 64)
    return j // b in head.layout[head.place(i) // b]


def best(values):
    """The index of the largest; a Tie where the next is near."""
    order = sorted(range(len(values)), key=lambda t: -values[t])
    if len(values) > 1 and values[order[0]] - values[order[1]] < MARGIN:
        raise Tie
    return order[0]


def product(x, y):
    return sum(a.value * b.value for a, b in zip(x, y))


def hashes(head, r, rows):
    """Buckets of rows in round r."""
    d = len(rows[0]) if rows else 0
    if head.arg("hash", "angular") == "angular":
        half = head.arg("buckets", 64) // 2
        matrix = head.tensor["R"][r * d * half:(r + 1) * d * half]
        turned = [[product(x, matrix[c::half]) for c in range(half)] for x in rows]
        return [best(y + [-t for t in y]) for y in turned]
    a, b = head.tensor["a"][r * d:(r + 1) * d], head.tensor["b"][r].value
    places = [(product(x, a) + b) / head.arg("width", 1) for x in rows]
    if any(abs(y - round(y)) < MARGIN for y in places):
        raise Tie
    return [math.floor(y) for y in places]


def lsh_setup(head):
    head.buckets = []  # of each round: those of queries and of keys
    head.chunks = []  # of each round: the chunk of each row, all 0 without chunks
    for r in range(head.arg("rounds", 1)):
        of_q = hashes(head, r, head.raw_q)
        of_k = of_q if head.arg("shared", 0) else hashes(head, r, head.raw_k)
        head.buckets.append((of_q, of_k))
        chunk, cut = [0] * head.nk, head.arg("chunk", 0)
        if cut:
            for at, j in enumerate(sorted(range(head.nk), key=lambda j: (of_k[j], j))):
                chunk[j] = at // cut
        head.chunks.append(chunk)


def lsh(head, i, j):
    rounds = 0
    for (of_q, of_k), chunk in zip(head.buckets, head.chunks):
        near = not head.arg("chunk", 0) or chunk[j] in (chunk[i], chunk[i] - 1)
        rounds += of_q[i] == of_k[j] and near
    return min(rounds, 1) if head.arg("dedup", 1) else rounds


def routing_setup(head):
    mu = head.rows("mu", len(head.raw_q[0])) if head.raw_q else []
    fits = lambda rows: [[product(layer_norm(x), m) for m in mu] for x in rows]
    head.fit_q, head.fit_k = fits(head.raw_q), fits(head.raw_k)
    if head.arg("pick", "argmax") == "argmax":
        head.cluster_q, head.cluster_k = [best(f) for f in head.fit_q], [best(f) for f in head.fit_k]


def routing(head, i, j):
    return head.cluster_q[i] == head.cluster_k[j]


def segment_of(head, j):
    return j // head.arg("length", 64)


def segmented(head, i, j):
    u = segment_of(head, head.place(i))
    return u - head.arg("back", 0) <= segment_of(head, j) <= u


def pooled_near(head):
    """Does a row see its own block raw?"""
    return head.causal or head.arg("local", 0) or head.arg("levels", 1) > 1


def linformer(head, i, j):
    b = head.arg("block", 0)
    return b and head.place(i) // b == j // b


def pooled(head, i, j):
    b = head.arg("block", 16)
    return pooled_near(head) and head.place(i) // b == j // b


SUPPORT = {"local": local, "blocklocal": blocklocal, "strided": strided, "sparse_fixed": sparse_fixed, "block": block,
           "global": global_, "bigbird": bigbird, "lsh": lsh, "routing": routing, "segmented": segmented, "pooled": pooled,
           "linformer": linformer}
SETUP = {"bigbird": bigbird_setup, "lsh": lsh_setup, "routing": routing_setup}


# Slots: means of keys and values, (level, number, keys) of those that row i sees.


def members(head, size, t):
    return range(t * size, min((t + 1) * size, head.nk))


def segment_slots(head, i):
    if head.arg("integrate", "none") != "summary":
        return []
    b = head.arg("length", 64)
    u = segment_of(head, head.place(i))
    return [(1, t, members(head, b, t)) for t in range(-(-head.nk // b))
            if t < u - head.arg("back", 0) or not head.causal and t > u]


def pooled_slots(head, i):
    b, levels, p = head.arg("block", 16), head.arg("levels", 1), head.place(i)
    slots = []
    for level in range(1, levels + 1):
        size = b ** level
        for t in range(-(-head.nk // size)):
            own = p // size
            inside = level == levels or t // b == own // b
            other = t < own if head.causal else t != own or not pooled_near(head)
            if inside and other:
                slots.append((level, t, members(head, size, t)))
    return slots


SLOTS = {"segmented": segment_slots, "pooled": pooled_slots}


def slot_mean(head, level, t, keys, what):
    """The mean of rows of head.k or head.v, made once."""
    at = level, t, what
    if at not in head.means:
        head.means[at] = mean([getattr(head, what)[j] for j in keys])
    return head.means[at]


def counted(head):
    """Do slots get the logarithm of their length?"""
    bias = head.arg("count_bias", "auto")
    return head.arg("levels", 1) > 1 if bias == "auto" else bool(bias)


def mixed_keys(head, i):
    """The mixtures that row i of linformer sees: of everything, or of the blocks before its own."""
    every = head.arg("block", 0) or head.planned
    runs = head.place(i) // every if head.arg("block", 0) else min(head.nk, 1)
    seen = []
    for u in range(runs):
        if u not in head.means:
            run = range(u * every, min((u + 1) * every, head.nk))
            head.means[u] = compressed.mixtures(head, run, u * compressed.rank_of(head.group.arg, head.planned))
        seen += [Seen(key, value, 0.0, None, (1 << 40) + t, share) for t, key, value, share in head.means[u]]
    return seen


def raw_key(head, i, j, count=1):
    key, value = head.k[j], head.v[j]
    cut = head.group.mech == "segmented" and head.arg("stop_grad", 0)
    if cut and segment_of(head, j) != segment_of(head, head.place(i)):
        key, value = constant(key), constant(value)
    return Seen(key, value, head.bias(i, j), j - head.place(i), j, {j: 1.0}, count)


def seen_by(head, i):
    support = SUPPORT.get(head.group.mech, everything)
    found = [(j, int(support(head, i, j))) for j in range(head.nk) if head.visible(i, j)]
    found = [(j, count) for j, count in found if count]
    if head.group.mech == "lsh" and head.arg("shared", 0):
        found = [(j, count) for j, count in found if j != i] or found
    seen = [raw_key(head, i, j, count) for j, count in found]
    if head.group.mech == "linformer":
        return seen + mixed_keys(head, i)
    for level, t, keys in SLOTS.get(head.group.mech, lambda *_: ())(head, i):
        bias = math.log(len(keys)) if counted(head) else 0.0
        key, value = slot_mean(head, level, t, keys, "k"), slot_mean(head, level, t, keys, "v")
        seen.append(Seen(key, value, bias, None, (level << 40) + t, {j: 1.0 / len(keys) for j in keys}))
    return seen


# All rows of a head: (output, log of the divisor or None, {key: weight}) of each.


def plain(head):
    return [attend(head, i, seen_by(head, i)) for i in range(head.nq)]


def added(a, b, factor_):
    for j, x in b.items():
        a[j] = a.get(j, 0.0) + factor_ * x


def topk(head):
    """Each centroid takes its best queries and keys; rows taken more than once average."""
    clusters = head.arg("clusters", 0)
    take = head.arg("take", 0) or max(1, head.nk // clusters)

    def taken(fits, t):
        order = sorted(range(len(fits)), key=lambda i: -fits[i][t])
        if take < len(fits) and fits[order[take - 1]][t] - fits[order[take]][t] < MARGIN:
            raise Tie
        return sorted(order[:take])

    outputs = [[] for _ in range(head.nq)]
    for t in range(clusters):
        keys = taken(head.fit_k, t)
        for i in taken(head.fit_q, t):
            outputs[i].append(attend(head, i, [raw_key(head, i, j) for j in keys if head.visible(i, j)]))
    result = []
    for found in outputs:
        a = {}
        for _, _, weights in found:
            added(a, weights, 1.0 / len(found))
        result.append((mean([o for o, _, _ in found]) if found else [Num(0.0)] * head.width, None, a))
    return result


def second(head):
    """Attention in segments, then of every row to the segments' mean results."""
    first = plain(head)
    b, gamma = head.arg("length", 64), head.tensor["gamma"][0]
    slots = [members(head, b, t) for t in range(-(-head.nk // b))]
    means = [mean([first[j][0] for j in keys]) for keys in slots]
    result = []
    for i, (y, _, weights) in enumerate(first):
        u = segment_of(head, i)
        seen = [Seen(slot_mean(head, 1, t, keys, "k"), means[t], 0.0, None, (1 << 40) + t, {t: 1.0})
                for t, keys in enumerate(slots) if not head.causal or t < u]
        if not seen:
            result.append((y, None, weights))
            continue
        z, _, slot_weights = attend(head, i, seen)
        rest = 1.0 + -1.0 * gamma
        a = {}
        added(a, weights, rest.value)
        for t, x in slot_weights.items():
            for j in slots[t]:
                added(a, first[j][2], gamma.value * x / len(slots[t]))
        result.append((plus(times(y, rest), times(z, gamma)), None, a))
    return result


def routed(head):
    """Routes summed by gates that are read from x."""
    routes = [run(route) for route in head.routes]
    wr, top = head.rows("Wr", len(head.x[0])) if head.x else [], head.arg("top", 0)
    result = []
    for i in range(head.nq):
        gates = [dot(w, head.x[i]) for w in wr]
        order = sorted(range(len(gates)), key=lambda j: -gates[j].value)
        if top and top < len(gates):
            if gates[order[top - 1]].value - gates[order[top]].value < MARGIN:
                raise Tie
            order = order[:top]
        e = {j: exp(gates[j]) for j in sorted(order)}
        s = total(e.values())
        o = [Num(0.0)] * head.width
        for j, gate in e.items():
            o = plus(o, times(routes[j][i][0], gate / s))
        result.append((o, None, None))
    return result


def run(head):
    mech, turn = head.group.mech, head.group.mods.get("rope")
    if head.nq == 0:
        return []
    if mech in features.MECHANISMS:
        return features.rows_of(head, None if turn is None else lambda x, place: rope(x, place, **turn))
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
