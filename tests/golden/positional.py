"""positional.py -- rows that are sums of values by their places: fixed patterns of tokens
or words, and convolutions whose taps are learned or made of hidden states.

Patterns are matrices written out; a causal row is the last one of the matrix on the
tokens up to it.
"""

import math

from scalar import Num, dot, exp, plus, times, total

MECHANISMS = ("fixed", "lightconv", "dynconv")

ORDER = ("current", "previous", "next", "left", "right", "end", "start")
CAUSAL_ORDER = ("current", "previous", "left", "end", "start")  # the others would see nothing


def raw(pattern, i, j, n):
    """The weight that place i of n gives to place j, before rows are divided."""
    return {"current": int(j == i), "previous": int(j == i - 1), "next": int(j == i + 1),
            "left": (j + 1) ** 3 if j <= i - 2 else 0, "right": (n - j) ** 3 if j >= i + 2 else 0,
            "end": (j + 1) ** 3, "start": (n - j) ** 3}[pattern]


def matrix(pattern, n, self_=False):
    rows = [[raw(pattern, i, j, n) for j in range(n)] for i in range(n)]
    for i, row in enumerate(rows):
        s = sum(row)
        rows[i] = [x / s for x in row] if s else [float(self_ and j == i) for j in range(n)]
    return rows


def by_words(pattern, words, self_=False):
    """The same of words, whose tokens share what their word gets."""
    p = matrix(pattern, words[-1] + 1, self_)
    return [[p[a][b] / words.count(b) for b in words] for a in words]


def last_rows(make, n):
    """Causal: row i is the last row on the i + 1 first places."""
    return [make(i + 1)[-1] for i in range(n)]


def near(found, wanted):
    return all(abs(x - y) < 5e-5 for a, b in zip(found, wanted) for x, y in zip(a, b))


assert near(matrix("left", 5), [[0] * 5, [0] * 5, [1, 0, 0, 0, 0], [1 / 9, 8 / 9, 0, 0, 0], [1 / 36, 8 / 36, 27 / 36, 0, 0]])
assert near(matrix("end", 4), [[.01, .08, .27, .64]] * 4)
assert near(matrix("start", 4), [[.64, .27, .08, .01]] * 4)
assert near(last_rows(lambda n: matrix("start", n), 4), [[1], [8 / 9, 1 / 9], [.75, .2222, .0278], [.64, .27, .08, .01]])
assert near(by_words("previous", [0, 0, 1, 2, 2]), [[0] * 5] * 2 + [[.5, .5, 0, 0, 0]] + [[0, 0, 1, 0, 0]] * 2)
assert by_words("left", [0, 1, 2, 3, 4]) == matrix("left", 5)


def pattern_of(head):
    pattern = head.arg("pattern", "all")
    if pattern != "all":
        return pattern
    order = CAUSAL_ORDER if head.causal else ORDER
    return order[head.index % len(order)]


def fixed(head):
    pattern, self_, n = pattern_of(head), head.arg("empty", "zero") == "self", head.nk
    places = head.words if head.arg("words", 0) else list(range(n))
    make = lambda count: by_words(pattern, places[:count], self_)
    rows = []
    for weights in last_rows(make, n) if head.causal else make(n):
        o, a = [Num(0.0)] * head.width, {}
        for j, w in enumerate(weights):
            if w:
                o, a[j] = plus(o, times(head.v[j], w)), w
        rows.append((o, None, a))
    return rows


def softmax(logits):
    e = [exp(x) for x in logits]
    s = total(e)
    return [x / s for x in e]


def convolved(head, taps, left):
    """taps(i, part): the weights of row i; columns are cut into `heads` parts."""
    parts = head.arg("heads", 1)
    per = head.width // parts
    rows = []
    for i in range(head.nk):
        o, a = [], {}
        for part in range(parts):
            w = taps(i, part)
            for c in range(part * per, (part + 1) * per):
                o.append(total(w[t] * head.v[i + t - left][c] for t in range(len(w)) if 0 <= i + t - left < head.nk))
            a = {i + t - left: w[t].value for t in range(len(w)) if 0 <= i + t - left < head.nk}
        rows.append((o, None, a if parts == 1 else None))
    return rows


def left_of(head, width):
    return width - 1 if head.causal else math.ceil((width + 1) / 2) - 1


def lightconv(head):
    width = head.arg("width", 7)
    w = [softmax(row) for row in head.rows("W", width)]
    return convolved(head, lambda i, part: w[part], left_of(head, width))


def dynconv(head):
    width = head.arg("width", 7)
    w = head.rows("W", len(head.x[0]))
    taps = lambda i, part: softmax([dot(row, head.x[i]) for row in w[part * width:(part + 1) * width]])
    return convolved(head, taps, left_of(head, width))


def rows_of(head):
    """(output, None, {key: weight} or None) of each row."""
    return {"fixed": fixed, "lightconv": lightconv, "dynconv": dynconv}[head.group.mech](head)


def tensors(group, dim_x):
    """[(name, how many numbers)] of one head."""
    arg = group.arg
    taps = arg.get("heads", 1) * arg.get("width", 7)
    return {"lightconv": [("W", taps)], "dynconv": [("W", taps * dim_x)]}.get(group.mech, [])
