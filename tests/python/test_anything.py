"""Arrays and options as they come: what the judge computes, or an exception of foci's, and
gradients of the right shapes; never a crash, never an exception of another kind."""
import os
import random

import numpy as np
import pytest

import foci

ROUNDS = 5000 if os.environ.get("FOCI_TEST_LONG") else 200


def arrange(rng, numbers, layout, sizes, dtype):
    """An array of these sizes whose rows lie apart, overlap, run backwards, or are of another
    type."""
    shape = [sizes[axis] for axis in layout]
    whole = [size * rng.choice([1, 1, 1, 2]) + rng.choice([0, 0, 0, 1]) for size in shape]
    found = numbers.standard_normal(whole).astype(dtype)
    found = found[tuple(slice(0, 2 * size, 2) if size and have >= 2 * size else slice(0, size)
                        for have, size in zip(whole, shape))]
    if rng.random() < 0.1:
        found = np.flip(found, rng.randrange(found.ndim))
    if rng.random() < 0.1:
        found = np.broadcast_to(found[:1], found.shape)
    if rng.random() < 0.05:
        found = found.astype(rng.choice(["f8", "f2", "i4", ">f4"]))
    if rng.random() < 0.05:
        found = found[..., : rng.randrange(found.shape[-1] + 1)]
    return found


def call(rng, numbers):
    """Arguments of one call."""
    layout = rng.choice(["bhnd", "bnhd", "hnd", "nd", "nhd", "bnd", "nbhd"])
    rows, dim, dtype = rng.choice([0, 1, 3, 17, 64, 65]), rng.choice([1, 4, 8, 16]), rng.choice(["f4", "f4", "f2"])
    keys = rng.choice([rows, rows, 5])
    heads = rng.choice([1, 2, 4]) if "h" in layout else 1
    batch = rng.choice([0, 1, 1, 1, 2]) if "b" in layout else 1
    shared = rng.choice([heads, 1])
    sizes = {"b": batch, "h": heads, "n": rows, "d": dim}
    q = arrange(rng, numbers, layout, sizes, dtype)
    k = arrange(rng, numbers, layout, {**sizes, "h": shared, "n": keys}, dtype)
    v = arrange(rng, numbers, layout, {**sizes, "h": shared, "n": keys, "d": rng.choice([dim, dim, 3])}, dtype)
    spec = rng.choice(list(foci.mechanisms()))
    if rng.random() < 0.4:
        spec += " " + rng.choice(list(foci.modifiers()))
    options = {"causal": rng.random() < 0.5, "layout": layout}
    pairs = rng.choice([(rows, keys), (heads, rows, keys), (batch, heads, rows, keys), (1, keys)])
    maybe = {
        "mask": lambda: numbers.random(pairs) < 0.5,
        "bias": lambda: numbers.standard_normal(pairs).astype("f4"),
        "lengths": lambda: [rng.randrange(-1, rows + 2) for _ in range(batch)],
        "docs": lambda: sorted(rng.randrange(0, rows + 2) for _ in range(3)),
        "x": lambda: numbers.standard_normal((batch, rows, 8)).astype(dtype),
        "lists": lambda: {"layout": [rng.randrange(2) for _ in range(rng.choice([1, 4]))]},
        "words": lambda: [[i // 2 for i in range(rows)]] * batch,
        "memory": lambda: rng.randrange(5),
        "dropout": lambda: 0.3,
        "seed": lambda: rng.randrange(-1, 5),
    }
    options.update({name: make() for name, make in maybe.items() if rng.random() < 0.12})
    return [None if rng.random() < 0.03 else a for a in (q, k, v)], spec, options


@pytest.mark.parametrize("seed", range(2))
def test_anything(seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    done = 0
    for _ in range(ROUNDS):
        arrays, spec, options = call(rng, numbers)
        try:
            out, vjp = foci.attention_vjp(*arrays, spec, **options)
            grads = vjp(np.ones_like(out))
        except foci.Error as error:
            assert str(error)
            continue
        done += 1
        for given, grad in zip(arrays, grads[:3]):
            assert (given is None) == (grad is None) and (given is None or given.shape == grad.shape)
        packed = [None if a is None else np.ascontiguousarray(a) for a in arrays]
        again = foci.attention(*packed, spec, **options)
        np.testing.assert_allclose(out.astype("f4"), again.astype("f4"), atol=2e-5 if out.dtype == "f4" else 2e-2)
    assert done > ROUNDS // 5
