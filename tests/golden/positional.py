"""positional.py -- rows that are sums of values by their places: fixed patterns of tokens
or words, and convolutions whose taps are learned or made of hidden states.

Patterns are matrices written out; a causal row is the last one of the matrix on the
tokens up to it.
"""

import math

import numpy as np

from arrays import concatenate, softmax, where

MECHANISMS = ("fixed", "lightconv", "dynconv")

ORDER = ("current", "previous", "next", "left", "right", "end", "start")
CAUSAL_ORDER = ("current", "previous", "left", "end", "start")  # the others would see nothing


def raw(pattern, n):
    """The weights that places 0 .. n-1 give to each other, before rows are divided."""
    i, j = np.indices((n, n))
    return {"current": j == i, "previous": j == i - 1, "next": j == i + 1, "left": (j <= i - 2) * (j + 1) ** 3,
            "right": (j >= i + 2) * (n - j) ** 3, "end": (j + 1) ** 3, "start": (n - j) ** 3}[pattern]


def matrix(pattern, n, self_=False):
    p = raw(pattern, n)
    sums = p.sum(axis=1, keepdims=True)
    return np.where(sums > 0, p / np.maximum(sums, 1), float(self_) * np.eye(n))


def by_words(pattern, words, self_=False):
    """The same of words, whose tokens share what their word gets."""
    return (matrix(pattern, words[-1] + 1, self_) / np.maximum(np.bincount(words), 1))[np.ix_(words, words)]


def last_rows(make, n):
    """Causal: row i is the last row on the i + 1 first places."""
    return np.stack([np.pad(make(i + 1)[-1], (0, n - 1 - i)) for i in range(n)])


def near(found, wanted):
    return np.all(abs(found - np.array(wanted)) < 5e-5)


assert near(matrix("left", 5), [[0] * 5, [0] * 5, [1, 0, 0, 0, 0], [1 / 9, 8 / 9, 0, 0, 0], [1 / 36, 8 / 36, 27 / 36, 0, 0]])
assert near(matrix("end", 4), [[.01, .08, .27, .64]] * 4)
assert near(matrix("start", 4), [[.64, .27, .08, .01]] * 4)
assert near(last_rows(lambda n: matrix("start", n), 4),
            [[1, 0, 0, 0], [8 / 9, 1 / 9, 0, 0], [.75, .2222, .0278, 0], [.64, .27, .08, .01]])
assert near(by_words("previous", [0, 0, 1, 2, 2]), [[0] * 5] * 2 + [[.5, .5, 0, 0, 0]] + [[0, 0, 1, 0, 0]] * 2)
assert np.array_equal(by_words("left", [0, 1, 2, 3, 4]), matrix("left", 5))


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
    a = last_rows(make, n) if head.causal else make(n)
    return a @ head.v, None, a


def band(taps, cols, left):
    """Row i of taps along the diagonal of row i: tap t stands at i + t - left."""
    i, j = np.indices((len(taps), cols))
    t, width = j - i + left, taps.shape[1]
    return where((t >= 0) & (t < width), taps[i, np.clip(t, 0, width - 1)], 0.0)


def convolved(head, taps):
    """taps: matrices of the weights that each row gives; each has its part of the columns."""
    width, per = taps[0].shape[1], head.width // len(taps)
    left = width - 1 if head.causal else math.ceil((width + 1) / 2) - 1
    a = [band(w, head.nk, left) for w in taps]
    o = concatenate([x @ head.v[:, part * per:(part + 1) * per] for part, x in enumerate(a)], axis=1)
    return o, None, a[0].value if len(a) == 1 else None


def split(head, rows):
    """A tensor's rows by the part of the columns that they make taps of."""
    count = len(rows) // head.arg("heads", 1)
    return [rows[at:at + count] for at in range(0, len(rows), count)]


def lightconv(head):
    return convolved(head, [np.ones((head.nk, 1)) @ softmax(w) for w in split(head, head.rows("W", head.arg("width", 7)))])


def dynconv(head):
    return convolved(head, [softmax(head.x @ w.T) for w in split(head, head.rows("W", head.x.shape[1]))])


def rows_of(head):
    """Outputs, None, and the weights of keys or None."""
    return {"fixed": fixed, "lightconv": lightconv, "dynconv": dynconv}[head.group.mech](head)


def tensors(group, dim_x):
    """[(name, how many numbers)] of one head."""
    arg = group.arg
    taps = arg.get("heads", 1) * arg.get("width", 7)
    return {"lightconv": [("W", taps)], "dynconv": [("W", taps * dim_x)]}.get(group.mech, [])
