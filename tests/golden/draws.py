"""draws.py -- frozen projections of layers, from the recipe of docs/random.md.

Matrices are lists of rows; every product is written out.
"""

import math

from scalar import Stream

SHAPES = (  # kind, block, width, heads, dim, seed, stream
    ("orthogonal", 0, 2, 1, 2, 0, 10),
    ("orthogonal", 0, 5, 3, 2, 7, 10),
    ("orthogonal", 0, 7, 2, 3, 7, 11 + (1 << 32)),
    ("orthogonal", 1, 6, 3, 2, 9, 10),
    ("orthogonal", 1, 40, 4, 9, 9, 11),
    ("gaussian", 0, 3, 2, 3, 5, 10),
    ("gaussian", 0, 3, 2, 5, 5, 10),
    ("gaussian", 1, 6, 2, 3, 5, 11),
    ("hadamard", 0, 2, 1, 2, 1, 10),
    ("hadamard", 0, 12, 2, 3, 1, 10),
    ("hadamard", 1, 12, 3, 3, 2, 11),
    ("hadamard", 0, 16, 2, 5, 3, 10),
    ("hadamard", 1, 20, 5, 4, 4, 10),
)


def frame(stream, d, k):
    """Gram and Schmidt on the columns of normals, each twice."""
    g = [[stream.normal() for _ in range(k)] for _ in range(d)]
    columns = []
    for t in range(k):
        x = [g[r][t] for r in range(d)]
        for _ in range(2):
            for y in columns:
                along = sum(a * b for a, b in zip(x, y))
                x = [a - along * b for a, b in zip(x, y)]
        norm = math.sqrt(sum(a * a for a in x))
        columns.append([a / norm for a in x])
    return [[columns[t][r] for t in range(k)] for r in range(d)]


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def signs(stream, n):
    u = [stream.uniform() for _ in range(n)]
    return [[(-1.0 if u[i] < 0.5 else 1.0) if i == t else 0.0 for t in range(n)] for i in range(n)]


def permutation(stream, n):
    p = stream.choose(n, range(n))
    return [[1.0 if p[t] == i else 0.0 for t in range(n)] for i in range(n)]


def runs(n):
    b = n & -n
    return [[(-1.0) ** bin(i % b & t).count("1") / math.sqrt(b) if i // b == t // b else 0.0 for t in range(n)] for i in range(n)]


def transform(stream, n, kept):
    found = product(signs(stream, n), runs(n))
    for _ in range(2):
        found = product(found, permutation(stream, n))
        found = product(product(found, signs(stream, n)), runs(n))
    return [row[:kept] for row in found]


def matrix(kind, stream, width, cols):
    if kind == "orthogonal":
        return frame(stream, width, cols)
    if kind == "hadamard":
        return transform(stream, width, cols)
    return [[stream.normal() / math.sqrt(width) for _ in range(cols)] for _ in range(width)]


def projection(kind, block, width, heads, dim, seed, number):
    stream = Stream(seed, number)
    if block:
        return matrix(kind, stream, width, heads * dim)
    drawn = [matrix(kind, stream, width, dim) for _ in range(heads)]
    return [[x for head in drawn for x in head[i]] for i in range(width)]


def text():
    lines = []
    for shape in SHAPES:
        lines.append("draw %s %d %d %d %d %d %d" % shape)
        lines.append("w " + " ".join("%.9g" % x for row in projection(*shape) for x in row))
    return "\n".join(lines) + "\n"
