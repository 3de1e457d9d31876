"""draws.py -- frozen projections of layers, from the recipe of docs/random.md.

Matrices as NumPy has them; the Hadamard matrix by products of Kronecker.
"""

import numpy as np

from streams import Stream

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


def normals(stream, rows, cols):
    return np.array([[stream.normal() for _ in range(cols)] for _ in range(rows)])


def frame(stream, d, k):
    """Gram and Schmidt on the columns of normals, each twice."""
    g = normals(stream, d, k)
    for t in range(k):
        x = g[:, t]
        for _ in range(2):
            for y in g.T[:t]:
                x -= np.sum(x * y) * y
        x /= np.sqrt(np.sum(x * x))
    return g


def signs(stream, n):
    return np.diag([-1.0 if stream.uniform() < 0.5 else 1.0 for _ in range(n)])


def permutation(stream, n):
    return np.eye(n)[:, stream.choose(n, range(n))]


def hadamard(b):
    """Of a power of two."""
    return np.kron(hadamard(b // 2), [[1.0, 1.0], [1.0, -1.0]]) if b > 1 else np.eye(1)


def runs(n):
    """Hadamard's matrix for each run of the largest power of two that divides n."""
    b = n & -n
    return np.kron(np.eye(n // b), hadamard(b) / np.sqrt(b))


def transform(stream, n, kept):
    found = signs(stream, n) @ runs(n)
    for _ in range(2):
        found = found @ permutation(stream, n)
        found = found @ signs(stream, n) @ runs(n)
    return found[:, :kept]


def matrix(kind, stream, width, cols):
    if kind == "orthogonal":
        return frame(stream, width, cols)
    if kind == "hadamard":
        return transform(stream, width, cols)
    return normals(stream, width, cols) / np.sqrt(width)


def projection(kind, block, width, heads, dim, seed, number):
    """[width][heads dim]"""
    stream = Stream(seed, number)
    if block:
        return matrix(kind, stream, width, heads * dim)
    return np.concatenate([matrix(kind, stream, width, dim) for _ in range(heads)], axis=1)


def text():
    lines = []
    for shape in SHAPES:
        lines.append("draw %s %d %d %d %d %d %d" % shape)
        lines.append("w " + " ".join("%.9g" % x for x in projection(*shape).ravel()))
    return "\n".join(lines) + "\n"
