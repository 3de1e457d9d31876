#!/usr/bin/env python3
"""make.py -- cases.json: what the weights of heads do, from the definitions, by NumPy.

    tools/python tests/golden/heads/make.py

Patterns are made key by key, ranks are those of numpy.linalg.svd, top weights those of a sorted
row.  heads.c holds foci_heads_add_weights() to the numbers.  Weights are f32, written with as
many digits as give them back.
"""
import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
PATTERNS = ["current", "previous", "next", "left", "right", "end", "start"]
ODD = 1e-3


def pattern(name, i, n):
    """Row i of a pattern on n tokens, or None where it is empty."""
    p = np.zeros(n)
    for j in range(n):
        if name == "current":
            p[j] = j == i
        elif name == "previous":
            p[j] = j == i - 1
        elif name == "next":
            p[j] = j == i + 1
        elif name == "left" and j <= i - 2 or name == "end":
            p[j] = (j + 1) ** 3
        elif name == "right" and j >= i + 2 or name == "start":
            p[j] = (n - j) ** 3
    return p / p.sum() if p.sum() > 0 else None


def row_figures(a, place, top, square):
    """The figures of one row of visible weights, and whether it is a distribution."""
    n, f = len(a), {}
    size = np.abs(a)
    spread = bool(np.all(a >= 0) and abs(a.sum() - 1) <= ODD)
    if size.sum() > 0:
        f["concentration"] = np.mean(size) / np.sqrt(np.mean(size ** 2))
        f["top"] = np.sort(size)[::-1][:top].sum() / size.sum()
        f["distance"] = np.sum(size * np.abs(place - np.arange(n))) / size.sum()
        if spread:
            p = a[a > 0]
            f["entropy"] = -np.sum(p * np.log(p))
            f["normalised_entropy"] = f["entropy"] / np.log(n) if n > 1 else 0.0
            f["perplexity"] = np.exp(f["entropy"])
    else:
        spread = True
    if spread and square:
        for name in PATTERNS:
            p = pattern(name, place, n)
            if p is not None:
                f[name] = np.minimum(a, p).sum()
    return f, spread


def ranks(a):
    s = np.linalg.svd(a, compute_uv=False)
    if s[0] == 0:
        return 0.0, 0.0
    p = s / s.sum()
    p = p[p > 0]
    return float(np.exp(-np.sum(p * np.log(p)))), float(np.sum(s > 1e-6 * s[0]))


def head(a, causal, top):
    nq, nk = a.shape
    sums, spreads = {}, []
    for i in range(nq):
        n = max(0, min(nk, i + 1 + nk - nq)) if causal else nk
        if n == 0:
            continue
        f, spread = row_figures(a[i, :n], i + nk - nq, top, nq == nk)
        spreads.append(spread)
        for k, x in f.items():
            sums.setdefault(k, []).append(x)
    out = {k: float(np.mean(x)) for k, x in sums.items()}
    if not all(spreads):
        for k in ["entropy", "normalised_entropy", "perplexity"] + PATTERNS:
            out.pop(k, None)
    out["effective_rank"], out["numerical_rank"] = ranks(a)
    return out, all(spreads)


def likeness(a, b):
    rows = [np.minimum(x, y).sum() for x, y in zip(a, b) if x.any() or y.any()]
    return float(np.mean(rows)) if rows else None


def case(name, a, causal=False, top=2):
    a = np.asarray(a, np.float32)
    d = a.astype(np.float64)
    found = [head(h, causal, top) for h in d]
    like = [[likeness(x, y) if u and v else None for y, (_, v) in zip(d, found)]
            for x, (_, u) in zip(d, found)]
    return {"name": name, "heads": a.shape[0], "queries": a.shape[1], "keys": a.shape[2], "causal": causal,
            "top": top, "weights": [float(x) for x in a.ravel()], "figures": [f for f, _ in found],
            "likeness": like}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def masked(a):
    a = np.where(np.tril(np.ones(a.shape[-2:])) > 0, a, 0)
    return a / a.sum(-1, keepdims=True)


def main():
    r = np.random.default_rng(21)
    fixed = np.zeros((7, 9, 9))
    for h, name in enumerate(PATTERNS):
        for i in range(9):
            p = pattern(name, i, 9)
            if p is not None:
                fixed[h, i] = p
    signed = r.standard_normal((2, 6, 6))
    relu = np.maximum(r.standard_normal((1, 6, 6)), 0) ** 2
    low = softmax(r.standard_normal((1, 8, 2))) @ softmax(r.standard_normal((1, 2, 8)))
    cases = [
        case("published", [np.tile(softmax(np.arange(4.0)), (4, 1))]),
        case("softmax", softmax(2 * r.standard_normal((3, 7, 7))), top=3),
        case("causal", masked(softmax(r.standard_normal((2, 9, 9)))), causal=True),
        case("fixed", fixed),
        case("signed", signed),
        case("unnormalised", relu),
        case("low rank", low),
        case("more keys", softmax(r.standard_normal((2, 4, 7))), top=1),
        case("more queries", softmax(r.standard_normal((1, 9, 5)))),
        case("memory", np.triu(softmax(r.standard_normal((1, 3, 7))) * 0) +
             np.array([[softmax(r.standard_normal(5 + i)).tolist() + [0.0] * (2 - i) for i in range(3)]]),
             causal=True),
        case("one", [[[1.0]]]),
        case("zeros", np.zeros((1, 3, 3))),
        case("some zero rows", np.concatenate([np.zeros((1, 2, 5)), softmax(r.standard_normal((1, 3, 5)))], 1)),
    ]
    (HERE / "cases.json").write_text(json.dumps(cases, indent=None, separators=(",", ":")).replace('},{"name"', '},\n{"name"') + "\n")


if __name__ == "__main__":
    main()
