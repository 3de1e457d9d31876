"""compressed.py -- logits that are learned, keys that are mixed, landmarks, and slots that
segments write.

Matrices are lists of rows.  Inverses are iterated as the literature says, or found by
elimination; gradients go through every step of either.
"""

import math

from scalar import MARGIN, Num, Stream, Tie, constant, dot, exp, mean, plus, relu, sqrt, times, total

LEAST_PIVOT = 0.02  # of a matrix that is inverted exactly
PRESET_RANK = 256


def product(a, b):
    columns = list(zip(*b))
    return [[dot(row, column) for column in columns] for row in a]


def softmax(logits):
    e = [exp(x) for x in logits]
    s = total(e)
    return [x / s for x in e]


def pairs(s, a, b):
    """softmax(s a b^T), row by row."""
    return [softmax([s * dot(x, y) for y in b]) for x in a]


def scale_of(head, d):
    return head.group.mods["scale"]["s"] if "scale" in head.group.mods else 1.0 / math.sqrt(d)


# Synthesizer: logits by position, or of a net that reads one token


PARTS = {"random": ["table"], "fixed_random": ["table"], "dense": ["net"], "fdense": ["outer"], "frandom": ["factors"],
         "random+dense": ["table", "net"], "random+vanilla": ["pairs", "table"], "dense+vanilla": ["pairs", "net"]}


def parts_of(group):
    """What the logits are sums of, in the order of the mixture's weights."""
    return PARTS[group.arg.get("kind", "random")]


def reads_pairs(group):
    return group.mech != "synthesizer" or "pairs" in parts_of(group)


def longest(arg, planned):
    return arg.get("max", 0) or planned


def split_of(arg, planned):
    most = longest(arg, planned)
    return arg.get("split", 0) or math.isqrt(most - 1) + 1


def net(head, x, suffix):
    """relu(x W1 + b1) W2 + b2"""
    b1, b2 = head.tensor["b1" + suffix], head.tensor["b2" + suffix]
    inside = [relu(t) for t in plus(product([x], head.rows("W1" + suffix, len(b1)))[0], b1)]
    return plus(product([inside], head.rows("W2" + suffix, len(b2)))[0], b2)


def table(head, i):
    r = head.rows("R", math.isqrt(len(head.tensor["R"])))
    return constant(r[i]) if head.arg("kind", "random") == "fixed_random" else r[i]


def factors(head, i):
    r1, r2 = (head.rows(name, head.arg("rank", 8)) for name in ("R1", "R2"))
    return [dot(r1[i], row) for row in r2]


def outer(head, i):
    a, b = net(head, head.x[i], "a"), net(head, head.x[i], "b")
    return [a[j // len(b)] * b[j % len(b)] for j in range(min(len(a) * len(b), head.nk))]


def synthetic(head, i):
    """What stands in the logits of row i beside q.k, by key, and what multiplies q.k."""
    parts = parts_of(head.group)
    mix = softmax(head.tensor["mix"]) if len(parts) > 1 else [Num(1.0)]
    found, factor = [Num(0.0)] * head.nk, Num(0.0)
    for part, weight in zip(parts, mix):
        if part == "pairs":
            factor = weight
            continue
        row = {"table": lambda: table(head, i), "factors": lambda: factors(head, i), "net": lambda: net(head, head.x[i], ""),
               "outer": lambda: outer(head, i)}[part]()
        found = plus(found, times(row, weight))
    return found, factor


# Linformer: (number, key, value, {key: part of it}) of the mixtures of a run


def rank_of(arg, planned):
    return arg.get("rank", min(PRESET_RANK, arg.get("block", 0) or planned))


def mixtures(head, run, first):
    """Those of the keys in the range `run`, the first of them numbered `first`."""
    every = head.arg("block", 0) or head.planned
    e, f = head.rows("E", every), head.rows("E" if head.arg("share", 1) else "F", every)
    return [(first + t, product([ke[:len(run)]], head.k[run.start:run.stop])[0],
             product([ve[:len(run)]], head.v[run.start:run.stop])[0], {j: ve[j - run.start].value for j in run})
            for t, (ke, ve) in enumerate(zip(e, f))]


# Lowrank


def projected(head):
    d = len(head.raw_q[0]) if head.raw_q else len(head.raw_k[0]) if head.raw_k else 1
    uq, uk = (head.rows(name, len(head.tensor[name]) // d) for name in ("Uq", "Uk"))
    return product(head.raw_q, uq), product(head.raw_k, uk)


# Nystrom


def landmarks(rows, m):
    n = len(rows)
    return [mean(rows[t * n // m:(t + 1) * n // m]) for t in range(m)]


def unit_less(number, a):
    """number I - a"""
    return [[(number if i == j else 0.0) + -1.0 * x for j, x in enumerate(row)] for i, row in enumerate(a)]


def iterated(c, steps):
    columns = [total(column) for column in zip(*c)]
    order = sorted(columns, key=lambda x: -x.value)
    if len(order) > 1 and order[0].value - order[1].value < MARGIN:
        raise Tie
    largest_row = 1.0  # rows of c sum to one
    z = [[x / (order[0] * largest_row) for x in column] for column in zip(*c)]
    for _ in range(steps):
        y = product(c, z)
        inner = unit_less(13.0, product(y, unit_less(15.0, product(y, unit_less(7.0, y)))))
        z = [[0.25 * x for x in row] for row in product(z, inner)]
    return z


def inverse(c):
    """By elimination."""
    n = len(c)
    rows = [list(row) + [Num(float(i == j)) for j in range(n)] for i, row in enumerate(c)]
    for t in range(n):
        best = max(range(t, n), key=lambda i: abs(rows[i][t].value))
        rows[t], rows[best] = rows[best], rows[t]
        if abs(rows[t][t].value) < LEAST_PIVOT:
            raise Tie
        rows[t] = [x / rows[t][t] for x in rows[t]]
        for i in range(n):
            if i != t:
                rows[i] = [x + -1.0 * rows[i][t] * y for x, y in zip(rows[i], rows[t])]
    return [row[n:] for row in rows]


def nystrom(head):
    m = min(head.arg("landmarks", 64), head.nq, head.nk)
    if m == 0:
        return [([Num(0.0)] * head.width, None, {}) for _ in range(head.nq)]
    q, k, s = head.raw_q, head.raw_k, scale_of(head, len(head.raw_q[0]))
    mq, mk = landmarks(q, m), landmarks(k, m)
    c, steps = pairs(s, mq, mk), head.arg("iters", 6)
    a = product(product(pairs(s, q, mk), iterated(c, steps) if steps else inverse(c)), pairs(s, mq, k))
    width = head.arg("conv", 0)
    for i, row in enumerate(a):
        for t in range(width):
            j = i + t - (math.ceil((width + 1) / 2) - 1)
            if 0 <= j < head.nk:
                row[j] = row[j] + head.tensor["W"][t]
    return [(o, None, {j: x.value for j, x in enumerate(row)}) for o, row in zip(product(a, head.v), a)]


# Memformer


def normalised(x, old):
    square = dot(x, x)
    if square.value == 0.0:
        return old
    norm = sqrt(square)
    return [t / norm for t in x]


def written(m, beta, keys, values, s):
    """A slot after a segment."""
    w = softmax([s * dot(m, key) for key in [m] + keys])
    return normalised(plus(product([w], [m] + values)[0], beta), m)


def memformer(head):
    d, length, rows = head.width, head.arg("segment", 64), []
    s, beta = scale_of(head, d), head.rows("beta", head.width)
    slots = [normalised(b, [Num(0.0)] * d) for b in beta]
    for start in range(0, head.nq, length):
        span = slice(start, start + length)
        for w in pairs(s, head.raw_q[span], slots):
            rows.append((product([w], slots)[0], None, None))
        if start + length <= head.nk:
            slots = [written(m, b, head.raw_k[span], head.v[span], s / head.arg("tau", 0.25)) for m, b in zip(slots, beta)]
    return rows


# Tensors


def net_tensors(suffix, dim_x, hidden, n):
    return [("W1" + suffix, dim_x * hidden), ("b1" + suffix, hidden), ("W2" + suffix, hidden * n), ("b2" + suffix, n)]


def synthesizer_tensors(group, d, planned, dim_x):
    arg, found = group.arg, []
    n, hidden, split = longest(arg, planned), arg.get("hidden", 0) or d, split_of(arg, planned)
    for part in parts_of(group):
        found += {"table": [("R", n * n)], "factors": [(name, n * arg.get("rank", 8)) for name in ("R1", "R2")],
                  "net": net_tensors("", dim_x, hidden, n),
                  "outer": net_tensors("a", dim_x, hidden, -(-n // split)) + net_tensors("b", dim_x, hidden, split),
                  "pairs": []}[part]
    return found + ([("mix", 2)] if len(parts_of(group)) > 1 else [])


def tensors(group, d, planned, dim_x):
    """[(name, how many numbers)] of one head."""
    arg = group.arg
    if group.mech == "synthesizer":
        return synthesizer_tensors(group, d, planned, dim_x)
    if group.mech == "linformer":
        count = rank_of(arg, planned) * (arg.get("block", 0) or planned)
        return [("E", count)] + ([] if arg.get("share", 1) else [("F", count)])
    if group.mech == "lowrank":
        return [(name, d * (arg.get("rank", 0) or (d + 1) // 2)) for name in ("Uq", "Uk")]
    if group.mech == "nystrom":
        return [("W", arg["conv"])] if arg.get("conv", 0) else []
    return [("beta", arg.get("slots", 16) * d)] if group.mech == "memformer" else []


STREAM = {"linformer": 2, "lowrank": 3, "synthesizer": 5, "memformer": 7, "lightconv": 8, "dynconv": 8, "nystrom": 8}


def variance(group, name, d, planned, dim_x):
    """Of what a tensor starts with; 0: it starts with zeros."""
    arg, mech = group.arg, group.mech
    if mech == "synthesizer":
        factor = arg.get("rank", 8) ** -0.5
        return {"R": 1.0, "R1": factor, "R2": factor, "W1": 1.0 / max(dim_x, 1),
                "W2": 1.0 / (arg.get("hidden", 0) or d)}.get(name.rstrip("ab") if name[0] == "W" else name, 0.0)
    return {"linformer": 1.0 / rank_of(arg, planned), "lowrank": 1.0 / d, "memformer": 1.0, "lightconv": 0.0,
            "dynconv": 1.0 / max(dim_x, 1), "nystrom": 1.0 / max(arg.get("conv", 0), 1)}[mech]


def initial(group, found, seed, d, planned, dim_x):
    """{name: numbers of all heads} that a group's tensors start with; `found` are those of
    one head.  Heads follow one another in the stream, of each its tensors."""
    if seed is None or group.mech not in STREAM:
        return {}
    stream, start = Stream(seed, STREAM[group.mech] + (group.number << 32)), {}
    for _ in range(group.heads):
        for name, count in found:
            by = math.sqrt(variance(group, name, d, planned, dim_x))
            start.setdefault(name, []).extend(by * stream.normal() if by else 0.0 for _ in range(count))
    return start
