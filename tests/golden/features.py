"""features.py -- linear attention and random features, one head of one sequence.

Weights are written out pair by pair from the kernels' definitions, and divided by sums
over all keys that a row sees: no sums are shared between rows.  Features appear only
where a definition speaks of them: random ones, and under rope, which turns pairs of
them.  Matrices of statistics are plain numbers: no gradient flows through them.
"""

import itertools
import math

from draws import frame
from scalar import MARGIN, Num, Stream, Tie, cos, dot, elu1, exp, num, power, relu, sin, size, sqrt, times, total

MECHANISMS = ("linear", "cosformer", "efficient", "identity", "retention", "performer")


LEAST = 0.05  # of a divisor that may have either sign


STATISTICS = ("A", "Bx", "By", "Cx", "Cy")


def scale_of(group, d):
    return group.mods["scale"]["s"] if "scale" in group.mods else 1.0 / math.sqrt(d)


# Directions of random features


def draw_omega(stream, m, d, ortho=1, rows="chi"):
    if not ortho:
        return [[stream.normal() for _ in range(d)] for _ in range(m)]
    found = []
    while len(found) < m:
        for row in frame(stream, d, d)[:m - len(found)]:
            if rows == "chi":
                length = math.sqrt(sum(stream.normal() ** 2 for _ in range(d)))
            else:
                length = {"sqrt": math.sqrt(d), "unit": 1.0}[rows]
            found.append([length * x for x in row])
    return found


def rounded(rows):
    return [round(x, 12) for row in rows for x in row]


assert rounded(frame(Stream(0, 10), 2, 2)) == [0.974820733237, -0.222989995407, -0.222989995407, -0.974820733237]
assert rounded(draw_omega(Stream(0, 0), 3, 2)) == [-0.016228743803, -1.584077604293, 2.543546002899, -0.026058418047,
                                                   -1.265051378607, 0.804336124826]


def omega_count(arg, d):
    return arg.get("features", 0) or 2 * d


def drawn_omega(group, seed, d):
    """Of all heads of a group, one after another."""
    stream, arg = Stream(seed, group.number << 32), group.arg
    return [x for _ in range(group.heads)
            for row in draw_omega(stream, omega_count(arg, d), d, arg.get("ortho", 1), arg.get("rows", "chi")) for x in row]


# Matrices of numbers


def matmul(a, b):
    return [[sum(x * b[t][c] for t, x in enumerate(row)) for c in range(len(b[0]))] for row in a]


def transpose(a):
    return [list(column) for column in zip(*a)]


def diagonal(xs):
    return [[x if r == c else 0.0 for c in range(len(xs))] for r, x in enumerate(xs)]


def plus(a, b):
    return [[x + y for x, y in zip(p, q)] for p, q in zip(a, b)]


def multiple(s, a):
    return [[s * x for x in row] for row in a]


def outer(x, y):
    return [[a * b for b in y] for a in x]


def trace(a):
    return sum(a[t][t] for t in range(len(a)))


def eigen(a):
    """Eigenvalues upward and eigenvectors, as rows, by the rotations of Jacobi."""
    d = len(a)
    a, v = [list(row) for row in a], diagonal([1.0] * d)
    for _ in range(60):
        for p in range(d):
            for q in range(p + 1, d):
                if a[p][q] == 0.0:
                    continue
                angle = 0.5 * math.atan2(2.0 * a[p][q], a[q][q] - a[p][p])
                turn = diagonal([1.0] * d)
                turn[p][p] = turn[q][q] = math.cos(angle)
                turn[p][q], turn[q][p] = math.sin(angle), -math.sin(angle)
                a = matmul(transpose(turn), matmul(a, turn))
                v = matmul(v, turn)
    order = sorted(range(d), key=lambda t: a[t][t])
    return [a[t][t] for t in order], [[v[r][t] for r in range(d)] for t in order]


def spectral(a, f):
    values, vectors = eigen(a)
    return matmul(transpose(vectors), matmul(diagonal([f(x) for x in values]), vectors))


def settled(values, vectors):
    """Vectors whose largest entry is positive."""
    for x, y in zip(values, values[1:]):
        if y - x < MARGIN:
            raise Tie
    found = []
    for v in vectors:
        sizes = sorted(abs(x) for x in v)
        if len(v) > 1 and sizes[-1] - sizes[-2] < MARGIN:
            raise Tie
        found.append([x if max(v) == sizes[-1] else -x for x in v])
    return found


# Exponents of random features: w.Aw + w.Bx x + x.Cx x and the same of y


class Exponents:
    def __init__(self, d, a=None, bx=None, by=None, cx=None, cy=None):
        half = diagonal([-0.5] * d)
        self.a = a or [0.0] * d
        self.bx = bx or diagonal([math.sqrt(1.0 - 4.0 * x) for x in self.a])
        self.by = by or self.bx
        self.cx, self.cy = cx or half, cy or half

    def numbers(self, name):
        """Of a tensor."""
        found = getattr(self, name.lower())
        return found if name == "A" else [x for row in found for x in row]


def best_a(r):
    return (1.0 - 2.0 * r - math.sqrt((2.0 * r + 1.0) ** 2 + 8.0 * r)) / 16.0


def mean_rows(rows):
    return [sum(column) / len(rows) for column in zip(*rows)]


def mean_outer(rows):
    d = len(rows[0])
    found = diagonal([0.0] * d)
    for row in rows:
        found = plus(found, outer(row, row))
    return multiple(1.0 / len(rows), found)


def statistics(kind, xs, ys):
    """The exponents that rows xs of queries and ys of keys ask for."""
    d = len(xs[0])
    mx, my, mxx, myy = mean_rows(xs), mean_rows(ys), mean_outer(xs), mean_outer(ys)
    cross = sum(a * b for a, b in zip(mx, my))
    if kind == "favor++":
        return Exponents(d, [best_a((trace(mxx) + trace(myy) + 2.0 * cross) / d)] * d)
    if kind == "sderf":
        values, vectors = eigen(plus(plus(mxx, myy), plus(outer(mx, my), outer(my, mx))))
        vectors = settled(values, vectors)
        a = [best_a(max(x, 0.0)) for x in values]
        return Exponents(d, a, [[math.sqrt(1.0 - 4.0 * s) * x for x in v] for s, v in zip(a, vectors)])
    m1 = plus(mxx, diagonal([1e-6 * trace(mxx) / d + 1e-12] * d))
    m2 = plus(myy, diagonal([1e-6 * trace(myy) / d + 1e-12] * d))
    root, inverse = spectral(m1, math.sqrt), spectral(m1, lambda x: x ** -0.5)
    t = spectral(matmul(root, matmul(m2, root)), math.sqrt)
    g = matmul(inverse, matmul(t, inverse))
    a = best_a((2.0 * trace(t) + 2.0 * cross) / d)
    b = math.sqrt(1.0 - 4.0 * a)
    return Exponents(d, [a] * d, multiple(b, spectral(g, math.sqrt)), multiple(b, spectral(g, lambda x: x ** -0.5)),
                     multiple(-0.5, g), multiple(-0.5, spectral(g, lambda x: 1.0 / x)))


def worked():
    """The example of the definitions: mean |x + y|^2 is 3.535534."""
    q, k = [[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 2], [-1, 1]]
    x, y = ([[t * 2.0 ** -0.25 for t in row] for row in rows] for rows in (q, k))
    return statistics("favor++", x, y).a[0]


assert round(worked(), 6) == -0.526708


def has_statistics(group):
    kind = group.arg.get("kind", "favor+")
    return kind in ("sderf", "aderf") or kind == "favor++" and "a" not in group.arg


def numbers(rows, s=1.0):
    return [[s * x.value for x in row] for row in rows]


def exponents_of(head):
    d, kind = len(head.raw_q[0]), head.arg("kind", "favor+")
    if not has_statistics(head.group):
        return Exponents(d, [head.arg("a", 0.0)] * d)
    if math.isnan(head.tensor["A"][0].value):
        root = math.sqrt(scale_of(head.group, d))
        return statistics(kind, numbers(head.raw_q, root), numbers(head.raw_k, root))
    a = [x.value for x in head.tensor["A"]]
    if kind == "favor++":
        return Exponents(d, a)
    return Exponents(d, a, *(numbers(head.rows(name, d)) for name in ("Bx", "By", "Cx", "Cy")))


def form(c, x):
    """x.Cx"""
    return total(x[r] * (c[r][s] * x[s]) for r in range(len(x)) for s in range(len(x)))


def random_features(head, row, keys):
    """Without the factors D and 1/sqrt(m), which cancel."""
    d, kind, e = len(row), head.arg("kind", "favor+"), head.exponents
    x = times(row, math.sqrt(scale_of(head.group, d)))
    omega = numbers(head.rows("omega", d))
    extra = -0.5 * dot(x, x) if head.arg("kernel", "exp") == "gaussian" else num(0.0)
    if kind == "trig":
        front = exp(0.5 * dot(x, x) + extra)
        angles = [dot([Num(t) for t in w], x) for w in omega]
        return [front * cos(t) for t in angles] + [front * sin(t) for t in angles]
    b, c = (e.by, e.cy) if keys else (e.bx, e.cx)
    quad = form(c, x) + extra
    bx = [dot([Num(t) for t in r], x) for r in b]
    along = [dot([Num(t) for t in w], bx) for w in omega]
    square = [sum(a * t * t for a, t in zip(e.a, w)) for w in omega]
    found = [exp(quad + t + s) for t, s in zip(along, square)]
    return found + [exp(quad + -1.0 * t) for t in along] if kind == "hyp" else found


# Features where a definition speaks of them


def products(x, share, s, negative):
    """Products of r elements for every power r of s q.k that has a share, as they stand in
    a dictionary: aa, ab, ac, bb, bc, cc."""
    root = math.sqrt(abs(s))
    y, found = times(x, -root if negative else root), []
    for r, part in enumerate(share):
        for word in itertools.combinations_with_replacement(range(len(x)), r) if part else ():
            ways = math.factorial(r)
            for a in set(word):
                ways //= math.factorial(word.count(a))
            product = num(math.sqrt(part * ways))
            for a in word:
                product = product * y[a]
            found.append(product)
    return found


def shares(head):
    """Of the powers of s q.k."""
    if head.arg("kernel", "elu") == "poly":
        p, c = head.arg("power", 2), head.arg("const", 1)
        return [math.comb(p, r) * float(c) ** (p - r) for r in range(p + 1)]
    return [1.0 / math.factorial(r) for r in range(head.arg("order", 2) + 1)]


def features(head, row, place, keys):
    mech, s = head.group.mech, scale_of(head.group, len(row))
    if mech == "performer":
        return random_features(head, row, keys)
    if mech == "cosformer":
        angle = math.pi * place / (2.0 * (head.arg("length", 0) or head.nk))
        return [math.cos(angle) * relu(x) for x in row] + [math.sin(angle) * relu(x) for x in row]
    if mech in ("identity", "retention"):
        return row if keys else times(row, s)
    kernel = head.arg("kernel", "elu")
    if kernel in ("poly", "taylor"):
        return products(row, shares(head), s, s < 0 and not keys)
    if kernel == "powers":
        root = math.copysign(math.sqrt(abs(s)), 1.0 if keys else s)
        return [num(1.0)] + [power(root * x, r) for r in range(1, head.arg("order", 2) + 1) for x in row]
    return [{"elu": elu1, "relu": relu, "cos": cos}[kernel](x) for x in row]


# Kernels: the weight of a pair before it is divided


def decay_of(group, index):
    return group.arg.get("decay", 0) or 1.0 - 2.0 ** (-5 - index)


def sigmoid(x):
    """1/(1 + e^-x), however large x is."""
    y = 1.0 / (1.0 + math.exp(-x.value)) if x.value > -700.0 else 0.0
    return Num(y, ((x, y * (1.0 - y)),))


def lam(head):
    return sigmoid(head.tensor["theta"][0]) if head.arg("learn", 0) else num(decay_of(head.group, head.index))


def fading(head, i, j):
    return power(head.lam, abs(i - j))


def kernel_of(head, i, j):
    q, k, mech = head.raw_q[i], head.raw_k[j], head.group.mech
    s = scale_of(head.group, len(q))
    if mech == "performer":
        return dot(head.f[i], head.g[j])
    if mech == "cosformer":
        far = (i - j) / float(head.arg("length", 0) or head.nk)
        return math.cos(0.5 * math.pi * far) * dot([relu(x) for x in q], [relu(x) for x in k])
    if mech == "identity":
        return s * dot(q, k)
    if mech == "retention":
        return (s * dot(q, k) if head.arg("content", 1) else num(1.0)) * fading(head, i, j)
    kernel, t = head.arg("kernel", "elu"), s * dot(q, k)
    if kernel == "poly":
        return power(head.arg("const", 1) + t, head.arg("power", 2))
    if kernel == "taylor":
        return total(power(t, r) / float(math.factorial(r)) for r in range(head.arg("order", 2) + 1))
    if kernel == "powers":
        return 1.0 + total(power(s * (x * y), r) for x, y in zip(q, k) for r in range(1, head.arg("order", 2) + 1))
    return dot(*([{"elu": elu1, "relu": relu, "cos": cos}[kernel](x) for x in row] for row in (q, k)))


def signed(head):
    mech, kernel = head.group.mech, head.arg("kernel", "elu")
    return mech in ("identity", "retention") or mech == "performer" and head.arg("kind", "") == "trig" or \
        mech == "linear" and (kernel in ("cos", "powers") or len(shares(head)) % 2 == 0 and kernel in ("poly", "taylor"))


def divided(head, i, sees, turned, plain):
    """Weights of row i; None: the row is empty."""
    mech = head.group.mech
    norm = {"linear": "sum" if head.arg("normalise", 1) else "none", "cosformer": "sum", "performer": "sum"}.get(
        mech, head.arg("norm", "none"))
    if not sees:
        return None
    if norm == "none":
        return turned
    if norm == "n":
        return [w / float(len(sees)) for w in turned]
    sums = total(plain)
    if norm == "retnet":
        t = sqrt(total(fading(head, i, j) for j in sees))
        r = size(sums / t)
        if 0.0 < abs(r.value - 1.0) < MARGIN:
            raise Tie
        return [w / t / (r if r.value > 1.0 else 1.0) for w in turned]
    sums = sums + head.arg("eps", 0)
    if sums.value == 0.0:
        return None
    if signed(head) and abs(sums.value) < LEAST:
        raise Tie
    return [w / sums for w in turned]


def turned_row(head, i, sees, plain, rope):
    """The weights once more, with features turned by rope."""
    found = []
    for j, w in zip(sees, plain):
        f = features(head, head.raw_q[i], head.place(i), False)
        g = features(head, head.raw_k[j], j, True)
        both = dot(f, g)
        turn = dot(rope(f, head.place(i)), rope(g, j))
        if head.group.mech == "retention":
            both, turn = both * fading(head, i, j), turn * fading(head, i, j)
        assert abs(both.value - w.value) < 1e-10 * max(1.0, abs(w.value)), (head.group.mech, head.group.arg)
        found.append(turn)
    return found


def efficient(head, i, sees):
    """Softmax over the elements of a query, and over the keys seen of every element."""
    e = [exp(x) for x in head.raw_q[i]]
    p = [x / total(e) for x in e]
    weights = [num(0.0)] * len(sees)
    for c, share in enumerate(p):
        column = [exp(head.raw_k[j][c]) for j in sees]
        s = total(column)
        weights = [w + share * (x / s) for w, x in zip(weights, column)]
    return weights if sees else None


def rows_of(head, rope):
    """(output, None, {key: weight}) of each row; rope(x, place) or None."""
    mech = head.group.mech
    if mech == "retention":
        head.lam = lam(head)
    if mech == "performer" and head.nk:
        head.exponents = exponents_of(head)
        head.f = [random_features(head, x, False) for x in head.raw_q]
        head.g = [random_features(head, x, True) for x in head.raw_k]
    result = []
    for i in range(head.nq):
        sees = [j for j in range(head.nk) if head.visible(i, j)]
        if mech == "efficient":
            weights = efficient(head, i, sees)
        else:
            plain = [kernel_of(head, i, j) for j in sees]
            turned = turned_row(head, i, sees, plain, rope) if rope else plain
            weights = divided(head, i, sees, turned, plain)
        o = [Num(0.0)] * head.width
        for j, w in zip(sees, weights or ()):
            o = [x + y * w for x, y in zip(o, head.v[j])]
        result.append((o, None, {j: w.value for j, w in zip(sees, weights or ())}))
    return result


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
