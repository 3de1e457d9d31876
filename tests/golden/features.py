"""features.py -- linear attention and random features, one head of one sequence.

Weights are matrices written from the kernels' definitions, and rows are divided by sums
over all keys that they see: no sums are shared between rows.  Features appear only where
a definition speaks of them: random ones, and under rope, which turns pairs of them.
Matrices of statistics are plain numbers: no gradient flows through them.
"""

import itertools
import math

import numpy as np

from arrays import MARGIN, Array, Tie, concatenate, cos, elu1, exp, relu, sigmoid, sin, size, softmax, sqrt, stack, where
from draws import frame, normals
from streams import Stream

MECHANISMS = ("linear", "cosformer", "efficient", "identity", "retention", "performer")


LEAST = 0.05  # of a divisor that may have either sign


STATISTICS = ("A", "Bx", "By", "Cx", "Cy")


def scale_of(group, d):
    return group.mods["scale"]["s"] if "scale" in group.mods else 1.0 / math.sqrt(d)


# Directions of random features


def draw_omega(stream, m, d, ortho=1, rows="chi"):
    if not ortho:
        return normals(stream, m, d)
    found = []
    while len(found) < m:
        for row in frame(stream, d, d)[:m - len(found)]:
            if rows == "chi":
                length = np.sqrt(np.sum(normals(stream, 1, d) ** 2))
            else:
                length = {"sqrt": math.sqrt(d), "unit": 1.0}[rows]
            found.append(length * row)
    return np.array(found)


def rounded(rows):
    return np.round(rows, 12).ravel().tolist()


assert rounded(frame(Stream(0, 10), 2, 2)) == [0.974820733237, -0.222989995407, -0.222989995407, -0.974820733237]
assert rounded(draw_omega(Stream(0, 0), 3, 2)) == [-0.016228743803, -1.584077604293, 2.543546002899, -0.026058418047,
                                                   -1.265051378607, 0.804336124826]


def omega_count(arg, d):
    return arg.get("features", 0) or 2 * d


def drawn_omega(group, seed, d):
    """Of all heads of a group, one after another."""
    stream, arg = Stream(seed, group.number << 32), group.arg
    return [x for _ in range(group.heads)
            for x in draw_omega(stream, omega_count(arg, d), d, arg.get("ortho", 1), arg.get("rows", "chi")).ravel().tolist()]


# Statistics


def spectral(a, f):
    """f of a symmetric matrix."""
    values, vectors = np.linalg.eigh(a)
    return vectors @ np.diag(f(values)) @ vectors.T


def settled(values, vectors):
    """Vectors, as rows, whose largest entry is positive."""
    sizes = np.sort(np.abs(vectors), axis=1)
    if np.any(np.diff(values) < MARGIN) or np.any(sizes[:, -1:] - sizes[:, -2:-1] < MARGIN):
        raise Tie
    return np.where(vectors.max(axis=1, keepdims=True) == sizes[:, -1:], vectors, -vectors)


class Exponents:
    """Of random features: w.Aw + w.Bx x + x.Cx x and the same of y; of A the diagonal."""

    def __init__(self, a, bx=None, by=None, cx=None, cy=None):
        half = -0.5 * np.eye(len(a))
        self.a = a
        self.bx = np.diag(np.sqrt(1.0 - 4.0 * a)) if bx is None else bx
        self.by = self.bx if by is None else by
        self.cx, self.cy = half if cx is None else cx, half if cy is None else cy

    def numbers(self, name):
        """Of a tensor."""
        return getattr(self, name.lower()).ravel().tolist()


def best_a(r):
    return (1.0 - 2.0 * r - np.sqrt((2.0 * r + 1.0) ** 2 + 8.0 * r)) / 16.0


def statistics(kind, xs, ys):
    """The exponents that rows xs of queries and ys of keys ask for."""
    d = xs.shape[1]
    mx, my, mxx, myy = xs.mean(axis=0), ys.mean(axis=0), xs.T @ xs / len(xs), ys.T @ ys / len(ys)
    cross = mx @ my
    if kind == "favor++":
        return Exponents(np.full(d, best_a((np.trace(mxx) + np.trace(myy) + 2.0 * cross) / d)))
    if kind == "sderf":
        values, vectors = np.linalg.eigh(mxx + myy + np.outer(mx, my) + np.outer(my, mx))
        a = best_a(np.maximum(values, 0.0))
        return Exponents(a, np.diag(np.sqrt(1.0 - 4.0 * a)) @ settled(values, vectors.T))
    m1, m2 = (m + (1e-6 * np.trace(m) / d + 1e-12) * np.eye(d) for m in (mxx, myy))
    root, inverse = spectral(m1, np.sqrt), spectral(m1, lambda x: x ** -0.5)
    t = spectral(root @ m2 @ root, np.sqrt)
    g = inverse @ t @ inverse
    a = np.full(d, best_a((2.0 * np.trace(t) + 2.0 * cross) / d))
    b = np.sqrt(1.0 - 4.0 * a[0])
    return Exponents(a, b * spectral(g, np.sqrt), b * spectral(g, lambda x: x ** -0.5), -0.5 * g,
                     -0.5 * spectral(g, lambda x: 1.0 / x))


def worked():
    """The example of the definitions: mean |x + y|^2 is 3.535534."""
    q, k = np.array([[1, 0], [0, 1], [1, 1]]), np.array([[1, 0], [0, 2], [-1, 1]])
    return statistics("favor++", q * 2.0 ** -0.25, k * 2.0 ** -0.25).a[0]


assert round(worked(), 6) == -0.526708


def has_statistics(group):
    kind = group.arg.get("kind", "favor+")
    return kind in ("sderf", "aderf") or kind == "favor++" and "a" not in group.arg


def exponents_of(head):
    d, kind = head.raw_q.shape[1], head.arg("kind", "favor+")
    if not has_statistics(head.group):
        return Exponents(np.full(d, head.arg("a", 0.0)))
    a = head.tensor["A"].value
    if np.isnan(a[0]):
        root = math.sqrt(scale_of(head.group, d))
        return statistics(kind, root * head.raw_q.value, root * head.raw_k.value)
    if kind == "favor++":
        return Exponents(a)
    return Exponents(a, *(head.rows(name, d).value for name in ("Bx", "By", "Cx", "Cy")))


# Features where a definition speaks of them: functions of rows of queries or keys


def random_features(head, rows, keys):
    """Without the factors D and 1/sqrt(m), which cancel."""
    d, kind = rows.shape[1], head.arg("kind", "favor+")
    x, omega = math.sqrt(scale_of(head.group, d)) * rows, head.rows("omega", d).value
    square = (x * x).sum(1, True)
    extra = -0.5 * square if head.arg("kernel", "exp") == "gaussian" else 0.0
    if kind == "trig":
        front, angles = exp(0.5 * square + extra), x @ omega.T
        return concatenate([front * cos(angles), front * sin(angles)], axis=1)
    e = exponents_of(head)
    b, c = (e.by, e.cy) if keys else (e.bx, e.cx)
    quad, along = (x @ c * x).sum(1, True) + extra, x @ b.T @ omega.T
    found = exp(quad + along + omega ** 2 @ e.a)
    return concatenate([found, exp(quad - along)], axis=1) if kind == "hyp" else found


def products(x, share, s, negative):
    """Products of r elements for every power r of s q.k that has a share, as they stand in
    a dictionary: aa, ab, ac, bb, bc, cc."""
    root = math.sqrt(abs(s))
    columns, found = (x * (-root if negative else root)).T, []
    for r, part in enumerate(share):
        for word in itertools.combinations_with_replacement(range(x.shape[1]), r) if part else ():
            ways = math.factorial(r)
            for a in set(word):
                ways //= math.factorial(word.count(a))
            product = Array(np.full(len(x), math.sqrt(part * ways)))
            for a in word:
                product = product * columns[a]
            found.append(product)
    return stack(found).T


def shares(head):
    """Of the powers of s q.k."""
    if head.arg("kernel", "elu") == "poly":
        p, c = head.arg("power", 2), head.arg("const", 1)
        return [math.comb(p, r) * float(c) ** (p - r) for r in range(p + 1)]
    return [1.0 / math.factorial(r) for r in range(head.arg("order", 2) + 1)]


ELEMENTS = {"elu": elu1, "relu": relu, "cos": cos}


def features(head, x, places, keys):
    mech, s = head.group.mech, scale_of(head.group, x.shape[1])
    if mech == "performer":
        return random_features(head, x, keys)
    if mech == "cosformer":
        angles = math.pi * places[:, None] / (2.0 * (head.arg("length", 0) or head.nk))
        return concatenate([np.cos(angles) * relu(x), np.sin(angles) * relu(x)], axis=1)
    if mech in ("identity", "retention"):
        return x if keys else s * x
    kernel = head.arg("kernel", "elu")
    if kernel in ("poly", "taylor"):
        return products(x, shares(head), s, s < 0 and not keys)
    if kernel == "powers":
        y = x * math.copysign(math.sqrt(abs(s)), 1.0 if keys else s)
        return concatenate([np.ones((len(x), 1))] + [y ** r for r in range(1, head.arg("order", 2) + 1)], axis=1)
    return ELEMENTS[kernel](x)


# Kernels: the weights of all pairs before they are divided


def decay_of(group, index):
    return group.arg.get("decay", 0) or 1.0 - 2.0 ** (-5 - index)


def distances(head):
    return head.places[:, None] - np.arange(head.nk)


def fading(head):
    """lambda^|i - j|"""
    lam = sigmoid(head.tensor["theta"]) if head.arg("learn", 0) else Array([decay_of(head.group, head.index)])
    return lam ** abs(distances(head))


def kernel_of(head):
    q, k, mech = head.raw_q, head.raw_k, head.group.mech
    t = scale_of(head.group, q.shape[1]) * (q @ k.T)
    if mech == "performer":
        return random_features(head, q, False) @ random_features(head, k, True).T
    if mech == "cosformer":
        far = distances(head) / (head.arg("length", 0) or head.nk)
        return np.cos(0.5 * math.pi * far) * (relu(q) @ relu(k).T)
    if mech == "identity":
        return t
    if mech == "retention":
        return t * fading(head) if head.arg("content", 1) else fading(head)
    kernel, order = head.arg("kernel", "elu"), head.arg("order", 2)
    if kernel == "poly":
        return (head.arg("const", 1) + t) ** head.arg("power", 2)
    if kernel == "taylor":
        return sum(t ** r / math.factorial(r) for r in range(order + 1))
    if kernel == "powers":
        elements = scale_of(head.group, q.shape[1]) * (q[:, None] * k)
        return 1.0 + sum((elements ** r).sum(2) for r in range(1, order + 1))
    return ELEMENTS[kernel](q) @ ELEMENTS[kernel](k).T


def turned_kernel(head, plain, rope):
    """The weights once more, with features turned by rope."""
    keys = np.arange(head.nk)
    f, g = features(head, head.raw_q, head.places, False), features(head, head.raw_k, keys, True)
    both, turned = f @ g.T, rope(f, head.places) @ rope(g, keys).T
    if head.group.mech == "retention":
        both, turned = both * fading(head), turned * fading(head)
    assert np.all(abs(both.value - plain.value) < 1e-10 * np.maximum(1.0, abs(plain.value))), (head.group.mech, head.group.arg)
    return turned


def signed(head):
    mech, kernel = head.group.mech, head.arg("kernel", "elu")
    return mech in ("identity", "retention") or mech == "performer" and head.arg("kind", "") == "trig" or \
        mech == "linear" and (kernel in ("cos", "powers") or len(shares(head)) % 2 == 0 and kernel in ("poly", "taylor"))


def norm_of(head):
    return {"linear": "sum" if head.arg("normalise", 1) else "none", "cosformer": "sum", "performer": "sum"}.get(
        head.group.mech, head.arg("norm", "none"))


def retained(head, weights, sums):
    """Divided by roots of the sums of what fades, and where that is more than 1 by its size."""
    some = head.visible.any(axis=1, keepdims=True)
    t = sqrt(where(some, where(head.visible, fading(head), 0.0).sum(1, True), 1.0))
    r = size(sums / t)
    far = abs(r.value - 1.0)
    if np.any(some & (0.0 < far) & (far < MARGIN)):
        raise Tie
    return weights / t / where(r.value > 1.0, r, 1.0)


def divided(head, weights, plain):
    """Rows of weights that are 0 where nothing is seen, by the sums of the plain ones."""
    count = head.visible.sum(axis=1, keepdims=True)
    norm, sums = norm_of(head), plain.sum(1, True)
    if norm == "none":
        return weights
    if norm == "n":
        return weights / np.maximum(count, 1)
    if norm == "retnet":
        return retained(head, weights, sums)
    sums = sums + head.arg("eps", 0)
    full = (count > 0) & (sums.value != 0.0)
    if signed(head) and np.any(full & (abs(sums.value) < LEAST)):
        raise Tie
    return where(full, weights / where(full, sums, 1.0), 0.0)


def efficient(head):
    """Softmax over the elements of a query, and over the keys seen of every element."""
    e = exp(head.raw_k)
    sums = head.visible.astype(float) @ e
    shares_ = softmax(head.raw_q) / where(sums.value > 0.0, sums, 1.0)
    return where(head.visible, shares_ @ e.T, 0.0)


def weights_of(head, rope):
    if head.group.mech == "efficient":
        return efficient(head)
    plain = kernel_of(head)
    turned = turned_kernel(head, plain, rope) if rope else plain
    return divided(head, where(head.visible, turned, 0.0), where(head.visible, plain, 0.0))


def rows_of(head, rope):
    """Outputs, None, and the weights of keys; rope(x, places) turns rows, or is None."""
    if head.nk == 0:
        return Array(np.zeros((head.nq, head.width))), None, np.zeros((head.nq, 0))
    a = weights_of(head, rope)
    return a @ head.v, None, a.value


def initial(group, name, count, d, seed):
    """What a tensor of a group starts with, unless that is any numbers: None."""
    if group.mech != "performer" and name != "theta":
        return None
    if name in STATISTICS:
        return [math.nan] * count
    if name == "steps":
        return [0.0] * count
    if seed is None:
        return None
    if name == "omega":
        return drawn_omega(group, seed, d)
    return [math.log(x / (1.0 - x)) for x in (decay_of(group, h) for h in range(group.heads))]


def tensors(group, d):
    """[(name, how many numbers)] of one head."""
    arg = group.arg
    if group.mech == "retention" and arg.get("learn", 0):
        return [("theta", 1)]
    if group.mech != "performer":
        return []
    found = [("omega", omega_count(arg, d) * d)]
    if has_statistics(group):
        found.append(("A", d))
    if arg.get("kind") in ("sderf", "aderf"):
        found += [(name, d * d) for name in ("Bx", "By", "Cx", "Cy")]
    return found + ([("steps", 1)] if arg.get("redraw", 0) else [])
