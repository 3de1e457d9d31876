"""compressed.py -- logits that are learned, keys that are mixed, landmarks, and slots that
segments write.

Inverses are iterated as the literature says, or exact; gradients go through every step of
either.
"""

import math

import numpy as np

from arrays import MARGIN, Array, Tie, concatenate, constant, inverse, relu, softmax, sqrt, where
from positional import band
from streams import Stream

LEAST_PIVOT = 0.02  # of a matrix that is inverted exactly
PRESET_RANK = 256


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


def net(head, suffix):
    """relu(x W1 + b1) W2 + b2"""
    b1, b2 = head.tensor["b1" + suffix], head.tensor["b2" + suffix]
    return relu(head.x @ head.rows("W1" + suffix, len(b1)) + b1) @ head.rows("W2" + suffix, len(b2)) + b2


def table(head):
    r = head.rows("R", math.isqrt(len(head.tensor["R"])))
    return (constant(r) if head.arg("kind", "random") == "fixed_random" else r)[:head.nq]


def factors(head):
    r1, r2 = (head.rows(name, head.arg("rank", 8)) for name in ("R1", "R2"))
    return r1[:head.nq] @ r2.T


def outer(head):
    """Products of each number of one net with each of another."""
    a, b = net(head, "a"), net(head, "b")
    return (a[:, :, None] * b[:, None]).reshape(head.nq, -1)


def synthetic(head):
    """What stands in the logits beside q.k, by key, and what multiplies q.k."""
    parts = parts_of(head.group)
    mix = softmax(head.tensor["mix"]) if len(parts) > 1 else Array([1.0])
    found, factor = Array(np.zeros((head.nq, head.nk))), Array(0.0)
    for t, part in enumerate(parts):
        if part == "pairs":
            factor = mix[t]
            continue
        logits = {"table": table, "factors": factors, "net": lambda head: net(head, ""), "outer": outer}[part](head)
        found = found + mix[t] * logits[:, :head.nk]
    return found, factor


# Linformer


def rank_of(arg, planned):
    return arg.get("rank", min(PRESET_RANK, arg.get("block", 0) or planned))


def mixtures(head, run, first):
    """Those of the keys in the range `run`, the first of them numbered `first`: numbers, keys,
    values, and what part each key has in the values."""
    every = head.arg("block", 0) or head.planned
    e, f = (head.rows(name, every)[:, :len(run)] for name in ("E", "E" if head.arg("share", 1) else "F"))
    shares = np.zeros((len(f), head.nk))
    shares[:, run.start:run.stop] = f.value
    return list(range(first, first + len(e))), e @ head.k[run.start:run.stop], f @ head.v[run.start:run.stop], shares


# Lowrank


def projected(head):
    d = head.raw_q.shape[1]
    uq, uk = (head.rows(name, len(head.tensor[name]) // d) for name in ("Uq", "Uk"))
    return head.raw_q @ uq, head.raw_k @ uk


# Nystrom


def landmarks(rows, m):
    """Means of m runs of rows."""
    ends = np.arange(m + 1) * len(rows) // m
    return concatenate([rows[start:end].mean(0, True) for start, end in zip(ends, ends[1:])])


def iterated(c, steps):
    """From c^T, divided by the largest sum of a column; rows of c sum to one."""
    sums, unit = c.sum(0), np.eye(len(c))
    order = np.argsort(-sums.value)
    if len(order) > 1 and sums.value[order[0]] - sums.value[order[1]] < MARGIN:
        raise Tie
    z = c.T / sums[order[0]]
    for _ in range(steps):
        y = c @ z
        z = 0.25 * z @ (13.0 * unit - y @ (15.0 * unit - y @ (7.0 * unit - y)))
    return z


def settled(c):
    """A matrix whose elimination meets no small pivot."""
    rows = c.value.copy()
    for t in range(len(rows)):
        best = t + np.argmax(abs(rows[t:, t]))
        rows[[t, best]] = rows[[best, t]]
        if abs(rows[t, t]) < LEAST_PIVOT:
            raise Tie
        rows[t + 1:] -= np.outer(rows[t + 1:, t] / rows[t, t], rows[t])
    return c


def nystrom(head):
    m = min(head.arg("landmarks", 64), head.nq, head.nk)
    if m == 0:
        return Array(np.zeros((head.nq, head.width))), None, np.zeros((head.nq, head.nk))
    q, k, s = head.raw_q, head.raw_k, scale_of(head, head.raw_q.shape[1])
    mq, mk, steps = landmarks(q, m), landmarks(k, m), head.arg("iters", 6)
    c = softmax(s * mq @ mk.T)
    a = softmax(s * q @ mk.T) @ (iterated(c, steps) if steps else inverse(settled(c))) @ softmax(s * mq @ k.T)
    width = head.arg("conv", 0)
    if width:
        a = a + band(np.ones((head.nq, 1)) @ head.rows("W", width), head.nk, math.ceil((width + 1) / 2) - 1)
    return a @ head.v, None, a.value


# Memformer


def normalised(x, old):
    """Rows of length one; the old ones where they are 0."""
    square = (x * x).sum(1, True)
    some = square.value > 0.0
    return where(some, x / sqrt(where(some, square, 1.0)), old)


def written(slots, beta, keys, values, s):
    """The slots after a segment: each attends to itself and to the segment's rows."""
    w = softmax(s * concatenate([(slots * slots).sum(1, True), slots @ keys.T], axis=1))
    return normalised(w[:, :1] * slots + w[:, 1:] @ values + beta, slots)


def memformer(head):
    length, s, beta = head.arg("segment", 64), scale_of(head, head.width), head.rows("beta", head.width)
    slots, found = normalised(beta, np.zeros(beta.shape)), []
    for start in range(0, head.nq, length):
        span = slice(start, start + length)
        found.append(softmax(s * head.raw_q[span] @ slots.T) @ slots)
        if start + length <= head.nk:
            slots = written(slots, beta, head.raw_k[span], head.v[span], s / head.arg("tau", 0.25))
    return concatenate(found), None, None


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
