"""make.py -- cases.json: S = E|a| / sqrt(E a^2) of random weights, from the definition.

    python3 -m venv DIR && DIR/bin/pip install mpmath==1.4.1
    DIR/bin/python tests/golden/concentration/make.py

Expectations are integrals over the normal density, weights of decay are added up, features
are a few points with probabilities: nothing here is a closed form.  concentration.c holds
the library to the numbers.
"""
import json
import pathlib
import random

from mpmath import exp, mp, mpf, npdf, quad, sqrt

HERE = pathlib.Path(__file__).resolve().parent
mp.dps = 40

T = [-30, -20, -12.5, -12, -11.5, -10, -8, -5, -3, -2, -1.001, -1, -0.999, -0.5, -0.1, 0, 0.1, 0.5, 1, 2, 3, 5,
     8, 10, 12, 20, 30]
GAMMA = [0, 0.001, 0.1, 0.5, 1, 2, 3, 5, 10, 30]
LAMBDA = [0, 0.1, 0.5, 0.9, 0.99, 0.999, 1 - 2.0 ** -20, 1 - 2.0 ** -40, 1]
KEYS = [1, 2, 3, 10, 50, 1000, 4096]


def moment(f, low, top, scale):
    """The integral of f(z) phi(z) from low on, highest near `top` and about as wide as `scale`."""
    steps = (-40, -20, -10, -5, -2, 0, 2, 5, 10, 20, 40, 80)
    cuts = sorted({mpf(low)} | {c for c in (top + d * scale for d in steps) if c > low})
    # quad() looks at absolute errors: the integrand should be neither tiny nor huge.
    size = f(top) * npdf(top)
    return size * quad(lambda z: f(z) * npdf(z) / size, cuts)


def ratio(one, two):
    return float(one / sqrt(two))


def softmax(gamma):
    g = mpf(gamma)
    return ratio(*(moment(lambda z, p=p: exp(p * g * z), p * g - 40, p * g, 1) for p in (1, 2)))


def relu2(t):
    t = mpf(t)
    scale = 1 / max(mpf(1), -t)
    return ratio(*(moment(lambda z, p=p: (z + t) ** (2 * p), max(-t, -40), max(-t, 0) + p * scale, scale)
                   for p in (1, 2)))


def identity(t):
    t = mpf(t)
    return ratio(*(sum(moment(lambda z, p=p: (z + side * t) ** p, max(-side * t, -40), max(-side * t, 0) + 1, 1)
                       for side in (-1, 1)) for p in (1, 2)))


def decay(lam, n):
    row = [mpf(lam) ** j for j in range(n)]
    return ratio(sum(row) / n, sum(a * a for a in row) / n)


def features(draw):
    """Points of features with their probabilities, and what a query makes of them."""
    dim, points = draw.randrange(1, 5), draw.randrange(1, 6)
    k = [[draw.random() ** 2 for _ in range(dim)] for _ in range(points)]
    p = [draw.random() for _ in range(points)]
    p = [x / sum(p) for x in p]
    q = [draw.random() for _ in range(dim)]
    a = [sum(x * y for x, y in zip(q, row)) for row in k]
    mean = [sum(w * row[i] for w, row in zip(p, k)) for i in range(dim)]
    covariance = [sum(w * (row[i] - mean[i]) * (row[j] - mean[j]) for w, row in zip(p, k))
                  for i in range(dim) for j in range(dim)]
    return {"q": q, "mean": mean, "covariance": covariance,
            "s": ratio(sum(w * x for w, x in zip(p, a)), sum(w * mpf(x) ** 2 for w, x in zip(p, a)))}


def main():
    draw = random.Random(1)
    cases = {"exp": [[g, softmax(g)] for g in GAMMA], "relu2": [[t, relu2(t)] for t in T],
             "identity": [[t, identity(t)] for t in T],
             "decay": [[lam, n, decay(lam, n)] for lam in LAMBDA for n in KEYS],
             "linear": [features(draw) for _ in range(20)]}
    lines = ["%s: [\n  %s\n]" % (json.dumps(name), ",\n  ".join(map(json.dumps, rows))) for name, rows in cases.items()]
    (HERE / "cases.json").write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
