"""make.py [DIRECTORY] -- write the golden vectors: small cases of attention, in float64, from the formulas.

    tools/python tests/golden/make.py            rewrites tests/golden/*.txt

Nothing is taken from the library: formulas.py has the definitions as they stand in
the literature, as matrices of NumPy, sums run over all visible keys, and gradients come
from automatic differentiation of the forward pass (arrays.py), never from a formula of
their own.  Here are the cases.

The format of the files is in README.md beside this script.
"""

import itertools
import os
import random
import sys

import draws
import tasks
import training
from case import Case
from formulas import Group, sinusoid
from layers import Layer, Sinusoid
from positional import ORDER

HERE = os.path.dirname(os.path.abspath(__file__))

# The example that the mechanisms' definitions share, with the numbers printed there.
WORKED = dict(n=3, d=2, q=[1, 0, 0, 1, 1, 1], k=[1, 0, 0, 2, -1, 1], v=[1, 0, 0, 1, 2, -1])


def one(mech, heads=1, arg=None, **mods):
    return [Group(heads, mech, arg, **mods)]


def shapes(spec, groups, tag="", d=3):
    """The shapes that every mechanism and modifier is tried on."""
    make = lambda name, heads, **kw: Case(name + tag, spec, groups(heads), **kw)
    return [
        make("self", 1, n=4, d=d),
        make("one row", 2, n=1, d=2, dv=3),
        make("causal, grouped heads", 4, b=2, n=5, d=d, dv=2, kv=2, causal=True),
        make("more keys than queries", 2, n=3, m=5, d=4, dv=1),
        make("more keys than queries, causal", 2, n=3, m=5, d=2, dv=3, causal=True),
        make("empty rows", 1, n=5, m=3, d=2, causal=True),
    ]


def words(name, arg):
    return "%s(%s)" % (name, ", ".join("%s=%s" % pair for pair in arg.items())) if arg else name


def phrase(group):
    """The spec of a group without its count."""
    arg = dict(group.arg)
    if group.inner:
        mech = "%s(%s)" % (group.mech, ", ".join([phrase(group.inner)] + ["%s=%s" % pair for pair in arg.items()]))
    else:
        mech = words(group.mech, arg)
    return " ".join([mech] + [words(*mod) for mod in group.mods.items()])


def case(name, mech, arg=None, mods=None, heads=1, arrays=None, inner=None, **kw):
    """One group, whose spec is written from its arguments.  arrays: {name: function of
    the length}; inner: (mechanism, arguments, modifiers, lists if any) of routes."""
    if inner:
        inner = Group(heads, *inner[:2], *inner[3:], **inner[2])
    group = Group(heads, mech, arg, {key: f(kw.get("n", 3)) for key, f in (arrays or {}).items()}, inner, **(mods or {}))
    return Case(name, phrase(group), [group], **kw)


def mix(name, groups, **kw):
    return Case(name, " + ".join("%d*%s" % (g.heads, phrase(g)) for g in groups), groups, **kw)


def selves(mech, arg=None, mods=None, tag="", causal=True, **kw):
    """The shapes that mechanisms of one sequence attending to itself are tried on."""
    make = lambda name, **more: case(name + tag, mech, arg, mods, **{**more, **kw})
    found = [
        make("self", n=7, d=2),
        make("one row", heads=2, n=1, d=2, dv=3),
        make("grouped heads", heads=4, b=2, n=5, d=2, dv=1, kv=2),
        make("documents", heads=2, n=10, d=2, kv=1, docs=[0, 4, 4, 5, 10]),
        make("lengths", heads=2, b=3, n=6, d=2, len_q=[6, 0, 3], len_k=[6, 0, 3]),
    ]
    if causal:
        found += [
            make("causal, grouped heads", heads=4, b=2, n=6, d=2, dv=3, kv=2, causal=True),
            make("documents, causal", n=11, d=2, docs=[0, 1, 8, 11], causal=True),
            make("lengths, causal", b=2, n=7, d=2, len_q=[5, 7], len_k=[5, 7], causal=True),
        ]
    return found


def crosses(mech, arg=None, mods=None, tag="", d=2, **kw):
    """And where queries and keys may differ in number."""
    make = lambda name, **more: case(name + tag, mech, arg, mods, **{**more, **kw})
    return [
        make("more keys than queries", heads=2, n=4, m=7, d=d, dv=1),
        make("more keys than queries, causal", heads=2, n=4, m=7, d=d, dv=3, kv=1, causal=True),
        make("empty rows", n=5, m=3, d=d, causal=True),
        make("unequal lengths", b=3, n=4, m=6, d=d, len_q=[2, 4, 3], len_k=[6, 2, 0], causal=True),
    ]


def spread(rows, n):
    """Weights, six decimals, of rows of zero logits that see these keys (a string of 0
    and 1), as printed layouts say it."""
    return [round(int(t) / row.count("1"), 6) for row in rows for t in row.ljust(n, "0")]


def zeros(n, d=1):
    return [0.0] * (n * d)


def layout_of(block, seed=0):
    """A layout of half its blocks, one block row of it empty."""
    def make(n):
        nb, rng = -(-n // block), random.Random("layout %d %d" % (block, seed))
        layout = [[int(rng.random() < 0.5) for _ in range(nb)] for _ in range(nb)]
        if nb > 2:
            layout[1] = [0] * nb
        return sum(layout, [])
    return make


def supports():
    yield "local", \
        selves("local", {"window": 2}) + \
        selves("local", {"window": 1, "dilation": 2}, tag=", dilated") + [
            case("preset", "local", n=5),
            case("wide dilation", "local", {"window": 2, "dilation": 3}, n=12, d=2, causal=True),
            case("modifiers", "local", {"window": 2}, {"logn": {"n0": 3}, "sink": {}, "temper": {}}, heads=2, n=7, d=2, causal=True),
            case("mask", "local", {"window": 2}, heads=2, n=6, d=2, mask=(1, 2)),
            case("bias", "local", {"window": 1}, heads=2, n=6, d=2, bias=(1, 1), causal=True)]
    yield "blocklocal", selves("blocklocal", {"block": 3}) + [
        case("a block longer than the sequence", "blocklocal", n=5),
        case("modifiers", "blocklocal", {"block": 4}, {"logn": {"n0": 3}, "qknorm": {}}, n=7, d=2)]
    yield "strided", selves("strided", {"stride": 3}) + \
        selves("strided", tag=", stride by length", causal=False) + [
            case("part %d%s" % (part, ", causal" * causal), "strided", {"stride": 3, "part": part}, n=9, d=2, causal=causal)
            for part in (1, 2) for causal in (False, True)] + [
            case("part 2, stride by length", "strided", {"part": 2}, n=10, d=2),
            case("stride longer than the sequence", "strided", {"stride": 20}, n=5),
            case("stride 1", "strided", {"stride": 1, "part": 1}, n=5, d=2, causal=True),
            case("modifiers", "strided", {"stride": 4}, {"logn": {"n0": 3}, "rope": {}, "sink": {}}, heads=2, n=10, d=2, causal=True)]
    yield "sparse_fixed", selves("sparse_fixed", {"stride": 3}) + \
        selves("sparse_fixed", {"summary": 2}, tag=", stride by length", causal=False) + [
            case("part %d%s" % (part, ", causal" * causal), "sparse_fixed", {"stride": 4, "summary": 2, "part": part}, n=10, d=2,
                 causal=causal)
            for part in (1, 2) for causal in (False, True)] + [
            case("all of a block summary", "sparse_fixed", {"stride": 3, "summary": 3}, n=7, d=2, causal=True),
            case("modifiers", "sparse_fixed", {"stride": 3}, {"rope": {}, "temper": {}, "logn": {"n0": 3}, "sink": {}}, heads=2, n=8,
                 d=2, causal=True)]
    yield "block", selves("block", {"block": 2}, arrays={"layout": layout_of(2)}) + [
        case("a short last block", "block", {"block": 3}, heads=2, n=11, d=2, arrays={"layout": layout_of(3, 1)}),
        case("one block", "block", n=5, arrays={"layout": lambda n: [1]}, causal=True),
        case("nothing", "block", {"block": 2}, n=4, d=2, arrays={"layout": lambda n: [0, 0, 0, 0]}),
        case("modifiers", "block", {"block": 2}, {"logn": {"n0": 3}, "sink": {}}, n=7, d=2, arrays={"layout": layout_of(2, 2)},
             causal=True)]
    yield "global", selves("global", {"window": 1, "first": 2}) + \
        selves("global", {"window": 1}, tag=", by index", arrays={"global": lambda n: [min(2, n - 1), 0] + [8] * (n > 8)}) + [
            case("indices repeated and the first", "global", {"window": 1, "dilation": 2, "first": 1}, n=9, d=2,
                 arrays={"global": lambda n: [7, 4, 7]}),
            case("none", "global", {"window": 1}, n=5, d=2),
            case("modifiers", "global", {"window": 1, "first": 1}, {"logn": {"n0": 3}, "bias": {"clip": 3}}, n=8, d=2, causal=True)]
    yield "bigbird", [
        case("printed layout", "bigbird", {"block": 1}, n=5, d=1, q=zeros(5), printed={
            "a": (spread(["11111", "11110", "11111", "11111", "10111"], 5), 25)}),
        case("printed layout, causal", "bigbird", {"block": 1}, n=6, d=1, q=zeros(6), causal=True, printed={
            "a": (spread(["1", "11", "111", "1111", "10111", "101011"], 6), 36)}),
    ] + selves("bigbird", {"block": 2}) + selves("bigbird", {"block": 1, "random": 2}, tag=", single tokens", seed=7) + [
        case("wide", "bigbird", {"block": 1, "radius": 2, "global": 2, "random": 2}, n=12, d=2, seed=(1 << 63) + 12345),
        case("wide, causal", "bigbird", {"block": 1, "radius": 0, "global": 0, "random": 2}, n=12, d=2, seed=99, causal=True),
        case("random alone", "bigbird", {"block": 2, "radius": 0, "global": 0, "random": 3}, n=11, d=2, seed=3),
        case("modifiers", "bigbird", {"block": 1, "radius": 0}, {"logn": {"n0": 3}, "rope": {"layout": "half"}}, heads=2, n=9, d=2,
             causal=True)]


def inside_routes():
    """Routes that do not weigh pairs of queries and keys alone."""
    of = lambda name, mech, arg, **kw: case(name, "routed", inner=(mech, arg, {}), dim_x=2, heads=2, n=6, d=2, **kw)
    return [
        of("features of routes", "linear", {}, causal=True),
        of("projections of routes", "lowrank", {"rank": 1}, causal=True),
        of("mixtures of routes", "linformer", {"rank": 2, "share": 0}),
        of("mixtures of routes, blocks", "linformer", {"rank": 2, "block": 2}, causal=True),
        of("tables of logits", "synthesizer", {"kind": "random+vanilla"}),
        of("nets of logits", "synthesizer", {"kind": "dense", "max": 7}, causal=True),
        of("patterns", "fixed", {}),
        of("patterns of words", "fixed", {"pattern": "left", "words": 1}, words=[0, 0, 1, 2, 3, 3], causal=True),
        of("taps", "lightconv", {"width": 3}),
        of("taps of hidden states", "dynconv", {"width": 3, "heads": 2}, causal=True),
        of("landmarks of routes", "nystrom", {"landmarks": 2, "conv": 3}),
        of("memory of routes", "memformer", {"slots": 2, "segment": 2})]


def orders():
    angular, floor = {"buckets": 4, "rounds": 2}, {"hash": "floor", "width": 1.5, "rounds": 2}
    shared = {"buckets": 4, "shared": 1}
    yield "lsh", \
        selves("lsh", angular) + crosses("lsh", angular) + \
        selves("lsh", floor, tag=", floor") + crosses("lsh", floor, tag=", floor") + \
        selves("lsh", shared, tag=", shared") + [
            case("one round", "lsh", {"buckets": 2}, n=6, d=2),
            case("each key as often as met", "lsh", {"buckets": 4, "rounds": 3, "dedup": 0}, heads=2, n=7, d=2, weights=True),
            case("each key as often as met, causal", "lsh", {"buckets": 2, "rounds": 3, "dedup": 0}, {"sink": {}}, heads=2, n=7, d=3,
                 causal=True, weights=True),
            case("each key as often as met, floor", "lsh", {"hash": "floor", "rounds": 3, "width": 2, "dedup": 0}, n=7, d=2,
                 weights=True),
            case("floor without offset", "lsh", {"hash": "floor", "width": 2.5, "offset": 0}, n=7, d=2, given={"b": [0.0]}),
            case("shared, several rounds", "lsh", {"buckets": 4, "rounds": 3, "shared": 1}, heads=2, n=8, d=3, dv=2, kv=1, causal=True),
            case("shared, each as often as met", "lsh", {"buckets": 6, "rounds": 2, "shared": 1, "dedup": 0}, n=8, d=3, dv=2,
                 weights=True),
            case("shared, floor", "lsh", {"hash": "floor", "rounds": 2, "shared": 1}, heads=2, n=8, d=2),
            case("chunks", "lsh", {"buckets": 2, "shared": 1, "chunk": 2}, heads=2, n=11, d=2),
            case("chunks, several rounds", "lsh", {"buckets": 4, "rounds": 2, "shared": 1, "chunk": 3}, heads=2, n=12, d=3, kv=1),
            case("chunks, each as often as met", "lsh", {"buckets": 2, "rounds": 2, "shared": 1, "chunk": 2, "dedup": 0}, n=9, d=2,
                 weights=True),
            case("chunks, documents", "lsh", {"buckets": 2, "shared": 1, "chunk": 2}, n=11, d=2, docs=[0, 5, 6, 11]),
            case("chunks, floor", "lsh", {"hash": "floor", "width": 2, "shared": 1, "chunk": 2}, n=9, d=2),
            case("mask", "lsh", angular, n=6, d=2, mask=(1, 1)),
            case("bias", "lsh", angular, heads=2, n=6, d=2, bias=(1, 2), causal=True),
            case("modifiers", "lsh", angular, {"rope": {}, "temper": {}, "sink": {}, "logn": {"n0": 3}}, heads=2, n=8, d=4,
                 causal=True),
            case("each key as often as met, counted once", "lsh", {"buckets": 2, "rounds": 3, "dedup": 0}, {"logn": {"n0": 3}}, heads=2,
                 n=8, d=3, causal=True),
            case("shared, each as often as met, counted once", "lsh", {"buckets": 4, "rounds": 3, "shared": 1, "dedup": 0},
                 {"logn": {"n0": 3}}, n=9, d=3),
            case("chunks, each as often as met, counted once", "lsh",
                 {"buckets": 2, "rounds": 3, "shared": 1, "chunk": 2, "dedup": 0}, {"logn": {"n0": 3}}, n=9, d=2),
            case("unit rows", "lsh", angular, {"qknorm": {}, "rope": {"layout": "half"}}, n=7, d=4),
            case("unit rows, floor", "lsh", floor, {"qknorm": {}, "rope": {}}, n=7, d=2, causal=True),
            case("shared, turned", "lsh", {"buckets": 4, "rounds": 2, "shared": 1}, {"rope": {"base": 100}}, n=8, d=2, causal=True),
            case("distances", "lsh", angular, {"alibi": {}}, heads=2, n=7, d=2)]
    yield "routing", \
        selves("routing", {"clusters": 3}, d=3) + crosses("routing", {"clusters": 2}, d=3) + \
        selves("routing", {"clusters": 2, "pick": "topk"}, tag=", topk", causal=False, d=3, weights=True) + [
            case("topk, take", "routing", {"clusters": 3, "pick": "topk", "take": 3}, heads=2, n=8, d=3, dv=2, kv=1, weights=True),
            case("topk, take all", "routing", {"clusters": 2, "pick": "topk", "take": 9}, n=5, d=3, weights=True),
            case("topk, more keys than queries", "routing", {"clusters": 3, "pick": "topk", "take": 2}, n=4, m=7, d=3, weights=True),
            case("topk, mask", "routing", {"clusters": 3, "pick": "topk", "take": 3}, n=6, d=3, mask=(1, 1), weights=True),
            case("topk, turned", "routing", {"clusters": 2, "pick": "topk", "take": 3}, {"rope": {}, "temper": {}}, n=7, d=4,
                 weights=True),
            case("turned", "routing", {"clusters": 2}, {"rope": {}, "sink": {}, "logn": {"n0": 3}}, heads=2, n=8, d=4, causal=True),
            case("distances", "routing", {"clusters": 2}, {"t5": {"buckets": 8, "max_distance": 6}}, n=8, d=3),
            case("bias", "routing", {"clusters": 2}, heads=2, n=6, d=3, bias=(1, 2))]
    softmax, local = ("softmax", {}, {}), ("local", {"window": 1}, {"rope": {}})
    many = dict(inner=softmax, dim_x=3)
    yield "routed", [
        case("self", "routed", n=4, d=2, **many),
        case("one row", "routed", heads=2, n=1, d=2, dv=3, **many),
        case("causal", "routed", {"routes": 3}, heads=2, b=2, n=5, d=2, dv=1, causal=True, **many),
        case("one route", "routed", {"routes": 1}, heads=2, n=4, d=2, **many),
        case("grouped heads", "routed", {"routes": 3}, heads=4, b=2, n=4, d=2, dv=3, kv=6, causal=True, **many),
        case("the best", "routed", {"routes": 3, "top": 1}, heads=2, n=5, d=2, **many),
        case("the best two", "routed", {"routes": 4, "top": 2}, heads=2, n=5, d=2, causal=True, **many),
        case("as many as there are", "routed", {"routes": 2, "top": 2}, n=4, d=2, **many),
        case("documents", "routed", heads=2, n=9, d=2, docs=[0, 4, 4, 5, 9], **many),
        case("lengths", "routed", b=3, n=4, d=2, len_q=[4, 0, 2], len_k=[4, 0, 2], causal=True, **many),
        case("more keys than queries", "routed", heads=2, n=3, m=5, d=2, causal=True, **many),
        case("mask and bias", "routed", heads=2, n=4, d=2, mask=(1, 1), bias=(1, 1), **many),
        case("inside a window", "routed", {"routes": 3}, heads=2, n=6, d=2, causal=True, inner=local, dim_x=2),
        case("inside a window, the best", "routed", {"routes": 3, "top": 1}, n=6, d=2, inner=local, dim_x=2),
        case("squares", "routed", heads=2, n=4, d=2, inner=("relu2", {}, {}), dim_x=2),
        case("unit norm", "routed", n=4, d=2, inner=("l2norm", {}, {"cap": {"c": 2.0}}), dim_x=2, causal=True),
        case("slots", "routed", n=7, d=2, inner=("pooled", {"block": 2}, {}), dim_x=2, causal=True),
        case("tensors of routes", "routed", {"routes": 3}, heads=2, n=5, d=2, dim_x=2,
             inner=("softmax", {}, {"sink": {}, "temper": {}})),
        case("tables of routes", "routed", heads=2, n=5, d=2, dim_x=2, causal=True, inner=("softmax", {}, {"shaw": {"clip": 1}})),
        case("slopes", "routed", heads=4, n=4, d=2, kv=4, dim_x=2, inner=("relu2", {}, {"alibi": {}})),
        case("hashes", "routed", heads=2, n=6, d=2, dim_x=2, causal=True, inner=("lsh", {"buckets": 4, "rounds": 2}, {})),
        case("clusters, topk", "routed", n=6, d=3, dim_x=2, inner=("routing", {"clusters": 2, "pick": "topk", "take": 3}, {})),
        case("second look", "routed", heads=2, n=7, d=2, dim_x=2, causal=True,
             inner=("segmented", {"length": 2, "integrate": "second"}, {})),
        case("layout", "routed", heads=2, n=6, d=2, dim_x=2,
             inner=("block", {"block": 2}, {}, {"layout": [1, 0, 1, 0, 1, 0, 1, 1, 0]})),
        case("drawn layout", "routed", n=9, d=2, dim_x=2, seed=4, inner=("bigbird", {"block": 1, "radius": 0}, {}))] + \
        inside_routes()


def slots():
    yield "segmented", \
        selves("segmented", {"length": 3}) + \
        selves("segmented", {"length": 2, "back": 1}, tag=", back") + \
        selves("segmented", {"length": 2, "integrate": "summary"}, tag=", summary", weights=True) + \
        selves("segmented", {"length": 3, "integrate": "second"}, tag=", second", weights=True) + [
            case("%s, back %d%s" % (integrate, back, ", causal" * causal), "segmented",
                 {"length": 2, "back": back, "integrate": integrate},
                 n=9, d=2, causal=causal, weights=True)
            for integrate in ("summary", "second") for back in (1, 2) for causal in (False, True)] + [
            case("summary, counted%s" % (", causal" * causal), "segmented", {"length": 3, "integrate": "summary", "count_bias": 1},
                 heads=2, n=8, d=2, causal=causal, weights=True) for causal in (False, True)] + [
            case("constant history%s" % (", causal" * causal), "segmented", {"length": 2, "back": 2, "stop_grad": 1}, heads=2, n=9,
                 d=2, causal=causal)
            for causal in (False, True)] + [
            case("one segment, summary", "segmented", {"integrate": "summary"}, n=5, causal=True, weights=True),
            case("one segment, second", "segmented", {"integrate": "second"}, n=5, weights=True),
            case("summary, modifiers", "segmented", {"length": 2, "integrate": "summary"},
                 {"rope": {}, "logn": {"n0": 3}, "sink": {}, "temper": {}}, heads=2, n=7, d=4, causal=True, weights=True),
            case("summary, unit rows", "segmented", {"length": 3, "integrate": "summary"}, {"qknorm": {}, "rope": {"layout": "half"}},
                 n=8, d=2, weights=True),
            case("summary, capped", "segmented", {"length": 3, "integrate": "summary"}, {"cap": {"c": 0.8}}, n=8, d=2, weights=True),
            case("second, turned", "segmented", {"length": 2, "integrate": "second"}, {"rope": {}, "scale": {"s": 0.4}}, heads=2, n=7,
                 d=2, causal=True, weights=True),
            case("distances", "segmented", {"length": 3, "back": 1}, {"alibi": {}}, heads=2, n=8, d=2, causal=True),
            case("mask", "segmented", {"length": 3, "back": 1}, n=7, d=2, mask=(1, 1))]
    yield "pooled", [
        case("printed slots", "pooled", {"block": 2}, n=6, d=1, q=zeros(6), causal=True, weights=True, printed={
            "a": ([1, 0, 0, 0, 0, 0, .5, .5, 0, 0, 0, 0, .25, .25, .5, 0, 0, 0, .166667, .166667, .333333, .333333, 0, 0], 24)}),
        case("equal keys", "pooled", {"block": 2, "levels": 3}, n=11, d=1, q=zeros(11), causal=True, weights=True, printed={
            "a": ([round((j <= i) / (i + 1), 6) for i in range(11) for j in range(11)], 121)}),
    ] + selves("pooled", {"block": 2}, weights=True) + \
        selves("pooled", {"block": 3, "local": 1}, tag=", local", weights=True) + \
        selves("pooled", {"block": 2, "levels": 2}, tag=", two levels", weights=True) + [
            case("three levels%s" % (", causal" * causal), "pooled", {"block": 2, "levels": 3}, heads=2, n=12, d=2, causal=causal,
                 weights=True)
            for causal in (False, True)] + [
            case("more levels than blocks", "pooled", {"block": 3, "levels": 4}, n=10, d=2, weights=True),
            case("two levels, not counted", "pooled", {"block": 2, "levels": 2, "count_bias": 0}, n=9, d=2, causal=True, weights=True),
            case("counted", "pooled", {"block": 3, "count_bias": 1}, n=8, d=2, weights=True),
            case("counted, local", "pooled", {"block": 3, "local": 1, "count_bias": 1}, n=8, d=2, weights=True),
            case("counted, causal", "pooled", {"block": 3, "count_bias": 1}, n=8, d=2, causal=True, weights=True),
            case("single tokens", "pooled", {"block": 1}, n=5, weights=True),
            case("one block", "pooled", n=5, weights=True),
            case("modifiers", "pooled", {"block": 2}, {"rope": {}, "logn": {"n0": 3}, "sink": {}, "temper": {}}, heads=2, n=7, d=4,
                 causal=True, weights=True),
            case("modifiers, two levels", "pooled", {"block": 2, "levels": 2}, {"qknorm": {}, "rope": {"layout": "half"}}, n=9, d=2,
                 weights=True),
            case("capped", "pooled", {"block": 2}, {"cap": {"c": 0.8}}, n=7, d=2, weights=True)]


def memories():
    yield "xl", [
        case("self", "xl", n=4, d=2, causal=True),
        case("the keys before", "xl", heads=4, b=2, n=3, m=6, d=2, dv=3, kv=2, causal=True),
        case("given", "xl", {"memory": 2}, heads=2, n=3, m=6, d=2, causal=True),
        case("not causal", "xl", heads=2, n=3, m=5, d=2),
        case("lengths", "xl", b=2, n=3, m=6, d=2, len_k=[6, 4], causal=True),
        case("turned", "xl", mods={"rope": {}, "sink": {}}, heads=2, n=4, m=7, d=4, causal=True),
        case("unit rows", "xl", mods={"qknorm": {}, "logn": {"n0": 3}}, n=4, m=7, d=3, causal=True),
        case("distances", "xl", mods={"alibi": {}}, heads=2, n=4, m=7, d=2, causal=True),
        case("relative", "xl", mods={"txl": {}}, heads=4, b=2, n=3, m=6, d=2, kv=2, causal=True),
        case("relative, of the sinusoid", "xl", {"memory": 3}, {"txl": {}}, n=4, m=7, d=4, causal=True, given={"R": sinusoid(7, 4)}),
        case("mask", "xl", n=3, m=6, d=2, mask=(1, 1), causal=True)]


def positions():
    plain = lambda mods: lambda heads: one("softmax", heads, **mods)

    def both(mods, tag="", d=3):
        """Positions of problems where rows do not count from 0."""
        make = lambda name, **kw: case(name + tag, "softmax", None, mods, **kw)
        return shapes(phrase(plain(mods)(1)[0]), plain(mods), tag, d) + [
            make("documents", heads=2, n=8, d=2, docs=[0, 3, 3, 4, 8]),
            make("documents, causal", heads=2, n=8, d=2, kv=1, docs=[0, 2, 7, 8], causal=True),
            make("lengths", heads=2, b=3, n=4, m=5, d=2, len_q=[2, 0, 4], len_k=[5, 3, 1]),
            make("lengths, causal", b=3, n=4, m=5, d=2, len_q=[2, 4, 3], len_k=[5, 2, 0], causal=True),
            make("memory", heads=2, n=3, m=5, d=2, memory=2, causal=True)]

    def others(mods, d=2):
        """Beside other modifiers and in other mechanisms."""
        return [
            case("with modifiers", "softmax", None, {**mods, "temper": {}, "logn": {"n0": 3}, "cap": {"c": 2.0}, "sink": {}}, heads=2,
                 n=6, d=d, causal=True),
            case("of relu2", "relu2", None, mods, heads=2, n=5, d=d),
            case("of relu2, causal", "relu2", {"n": 3}, mods, heads=2, n=5, d=d, causal=True),
            case("of l2norm", "l2norm", None, mods, heads=2, n=5, d=d, causal=True),
            case("in a window", "local", {"window": 2}, mods, heads=2, n=7, d=d),
            case("mask and bias", "softmax", None, mods, heads=2, n=5, d=d, mask=(1, 1), bias=(1, 1))]

    yield "rope", both({"rope": {}}, d=4) + both({"rope": {"base": 50, "layout": "half"}}, ", half",
                                                 d=4) + others({"rope": {}}, d=4) + [
        case("unit rows", "softmax", None, {"qknorm": {}, "rope": {}}, heads=2, n=6, d=4, causal=True),
        case("wide", "softmax", None, {"rope": {"layout": "half"}}, n=4, d=8, dv=1)]
    yield "alibi", [
        Case("worked example, causal", "softmax alibi(0.5)", one("softmax", alibi={"slope": 0.5}), causal=True, printed={
            "a": ([1, 0, 0, .128508, .871492, 0], 6)}, **WORKED),
        case("six heads", "softmax", None, {"alibi": {}}, heads=6, n=4, d=2, kv=3),
        case("five heads, causal", "softmax", None, {"alibi": {}}, heads=5, n=4, d=2, kv=1, causal=True),
        case("given", "softmax", None, {"alibi": {"slope": 0.3}}, heads=2, n=5, d=2),
    ] + both({"alibi": {}}) + others({"alibi": {}})
    small = {"t5": {"buckets": 8, "max_distance": 6}}
    yield "t5", both(small) + others(small) + [
        case("as published", "softmax", None, {"t5": {}}, n=1, m=201, d=1, dv=1, causal=True),
        case("as published, not causal", "softmax", None, {"t5": {}}, n=25, d=1, dv=1),
        case("longest distance", "softmax", None, {"t5": {"buckets": 6, "max_distance": 20}}, heads=2, n=12, d=2)]
    yield "bias", both({"bias": {"clip": 2}}) + others({"bias": {"clip": 2}}) + [
        case("preset", "softmax", None, {"bias": {}}, heads=2, n=4, d=2)]
    yield "shaw", both({"shaw": {"clip": 2}}) + others({"shaw": {"clip": 2}}) + \
        both({"shaw": {"clip": 2, "values": 0}}, ", keys alone") + [
        case("keys alone, with modifiers", "softmax", None,
             {"shaw": {"clip": 1, "values": 0}, "temper": {}, "logn": {"n0": 3}, "sink": {}}, heads=2, n=6, d=2, causal=True),
        case("wide clip", "softmax", None, {"shaw": {}}, n=3, d=2),
        case("in a block", "blocklocal", {"block": 3}, {"shaw": {"clip": 1}}, heads=2, n=7, d=2, dv=3, causal=True)]
    txl = lambda name, mech="softmax", arg=None, mods=None, **kw: case(name, mech, arg, {"txl": {}, **(mods or {})}, causal=True, **kw)
    yield "txl", [
        txl("self", n=4),
        txl("one row", heads=2, n=1, d=2, dv=3),
        txl("grouped heads", heads=4, b=2, n=5, d=2, dv=1, kv=2),
        txl("more keys than queries", heads=2, n=3, m=5, d=2, dv=3),
        txl("empty rows", n=5, m=3, d=2),
        txl("documents", heads=2, n=8, d=2, kv=1, docs=[0, 2, 7, 8]),
        txl("lengths", b=3, n=4, m=5, d=2, len_q=[2, 4, 3], len_k=[5, 2, 0]),
        txl("memory", heads=2, n=3, m=5, d=2, memory=2),
        txl("of the sinusoid", n=5, d=4, given={"R": sinusoid(5, 4)}),
        txl("with modifiers", mods={"temper": {}, "logn": {"n0": 3}, "cap": {"c": 2.0}, "sink": {}}, heads=2, n=6, d=2),
        txl("with a scale", mods={"scale": {"s": 0.3}}, n=5, d=2),
        txl("of relu2", "relu2", heads=2, n=5, d=2),
        txl("of l2norm", "l2norm", heads=2, n=5, d=2),
        txl("in a window", "local", {"window": 2}, heads=2, n=7, d=2),
        txl("mask and bias", heads=2, n=5, d=2, mask=(1, 1), bias=(1, 1))]


def dropouts():
    make = lambda name, mech, arg=None, mods=None, p=0.3, seed=1, **kw: case(name, mech, arg, mods, dropout=(p, seed), **kw)
    yield "dropout", [
        make("softmax", "softmax", n=6, d=2),
        make("softmax, causal, grouped heads", "softmax", heads=4, b=2, n=5, d=2, dv=3, kv=2, causal=True, p=0.5, seed=0),
        make("a large seed", "softmax", heads=2, n=5, m=7, d=2, p=0.1, seed=(1 << 64) - 59),
        make("nearly all", "softmax", n=5, d=2, p=0.9, seed=12345678901234567890),
        make("relu2", "relu2", heads=2, n=5, d=2),
        make("l2norm", "l2norm", heads=2, n=5, d=2, causal=True),
        make("sink", "softmax", None, {"sink": {}, "cap": {"c": 2.0}}, heads=2, n=5, d=2),
        make("documents", "softmax", heads=2, n=8, d=2, docs=[0, 3, 3, 4, 8]),
        make("lengths", "softmax", heads=2, b=3, n=4, m=5, d=2, len_q=[2, 4, 3], len_k=[5, 2, 0], causal=True),
        make("memory", "softmax", heads=2, n=3, m=5, d=2, memory=2, causal=True),
        make("mask and bias", "softmax", heads=2, b=2, n=4, d=2, mask=(1, 2), bias=(1, 2)),
        make("shaw", "softmax", None, {"shaw": {"clip": 2}}, heads=2, n=5, d=2, dv=3),
        make("t5", "softmax", None, {"t5": {"buckets": 4, "max_distance": 4}}, n=5, d=2),
        make("a window", "local", {"window": 2}, heads=2, n=8, d=2, causal=True),
        make("strided", "strided", {"stride": 3}, heads=2, n=8, d=2, causal=True),
        make("strided, documents", "strided", {"stride": 2}, n=9, d=2, docs=[0, 4, 9]),
        make("hashes", "lsh", {"buckets": 4, "rounds": 2}, heads=2, n=8, d=2),
        make("hashes, documents", "lsh", {"buckets": 2, "rounds": 2}, n=9, d=2, docs=[0, 4, 9], causal=True),
        make("hashes, shared, each as often as met", "lsh", {"buckets": 2, "rounds": 2, "dedup": 0, "shared": 1}, n=8, d=2),
        make("clusters", "routing", {"clusters": 2}, heads=2, n=8, d=3),
        make("clusters, topk", "routing", {"clusters": 3, "pick": "topk", "take": 3}, n=7, d=3),
        make("routes", "routed", heads=2, n=5, d=2, inner=("softmax", {}, {}), dim_x=2),
        make("segments", "segmented", {"length": 2, "back": 1}, heads=2, n=7, d=2, causal=True),
        make("segments, summary", "segmented", {"length": 2, "integrate": "summary"}, heads=2, n=8, d=2, causal=True),
        make("segments, second", "segmented", {"length": 2, "integrate": "second"}, heads=2, n=8, d=2),
        make("pooled", "pooled", {"block": 2}, heads=2, n=8, d=2),
        make("pooled, levels", "pooled", {"block": 2, "levels": 2}, heads=2, n=9, d=2, causal=True),
        make("memory of xl", "xl", n=3, m=6, d=2, causal=True)]


def linears():
    every = lambda mech, arg=None, mods=None, tag="", d=2, **kw: \
        selves(mech, arg, mods, tag, d=d, **kw) + crosses(mech, arg, mods, tag, d=d, **kw)
    few = lambda tag, mech, arg=None, mods=None, **kw: [
        case(tag, mech, arg, mods, heads=2, n=6, d=2, dv=3, kv=1, **kw),
        case(tag + ", causal", mech, arg, mods, heads=2, n=6, d=2, dv=3, kv=1, causal=True, **kw)]
    kernel = lambda name, **arg: {"kernel": name, **arg}
    yield "linear", [
        case("worked example", "linear", printed={"o": ([.822214, .177786, .828726, .171274, .825775, .174225], 6)}, **WORKED),
        case("worked example, causal", "linear", printed={"a": ([1, 0, 0, .363636, .636364, 0], 6)}, causal=True, **WORKED),
        case("worked example, taylor", "linear", kernel("taylor"), printed={"a": ([.559173, .285714, .155112], 3)}, **WORKED),
        case("worked example, poly", "linear", kernel("poly"), printed={"a": ([.728553, .25, .021447], 3)}, **WORKED),
    ] + every("linear") + [
        case("memory", "linear", heads=2, n=3, m=5, d=2, memory=2, causal=True),
        case("documents, memory", "linear", kernel("taylor"), heads=2, n=7, d=2, docs=[0, 3, 7], memory=2),
    ] + few("relu", "linear", kernel("relu")) + [
        case("relu, a row of nothing", "linear", kernel("relu"), n=3, d=2, q=[1, 1, -1, -2, 2, -1], k=[1, .5, -1, 2, 1, 1]),
        case("relu, keys of nothing", "linear", kernel("relu"), n=4, d=2, causal=True, k=[-1, 0, 0, -2, 1, 1, 2, -1]),
    ] + few("cos", "linear", kernel("cos")) + \
        few("powers", "linear", kernel("powers")) + few("powers of 3", "linear", kernel("powers", order=3)) + \
        few("powers of 1", "linear", kernel("powers", order=1)) + \
        few("poly", "linear", kernel("poly")) + few("poly of 3", "linear", kernel("poly", power=3)) + \
        few("poly of 4", "linear", kernel("poly", power=4, const=0.5)) + few("poly of 1", "linear", kernel("poly", power=1)) + \
        few("poly without constant", "linear", kernel("poly", const=0)) + [
        case("poly of 8", "linear", kernel("poly", power=8, const=0.25), n=5, d=2),
        case("poly of 3, wide", "linear", kernel("poly", power=3), n=4, d=5, dv=2),
        case("poly, a query of nothing", "linear", kernel("poly", const=0), n=3, d=2, q=[1, 1, 0, 0, 2, -1]),
    ] + few("taylor", "linear", kernel("taylor")) + few("taylor of 1", "linear", kernel("taylor", order=1)) + \
        few("taylor of 3", "linear", kernel("taylor", order=3)) + few("taylor of 4", "linear", kernel("taylor", order=4)) + [
        case("taylor of 6", "linear", kernel("taylor", order=6), n=5, d=2, causal=True),
        case("taylor of 4, wide", "linear", kernel("taylor", order=4), n=4, d=4, dv=2),
    ] + sum((few("%s, sums" % name, "linear", kernel(name, normalise=0))
             for name in ("elu", "relu", "poly", "taylor", "powers", "cos")), []) + \
        sum((few("%s, eps" % name, "linear", kernel(name, eps=0.5)) for name in ("elu", "relu", "taylor")), []) + \
        sum((few("%s, scale" % name, "linear", kernel(name), {"scale": {"s": 0.3}}) for name in ("poly", "taylor", "powers")), []) + \
        sum((few("%s, negative scale" % name, "linear", kernel(name, order=3), {"scale": {"s": -0.4}})
             for name in ("taylor", "powers")), []) + \
        few("turned", "linear", None, {"rope": {}}) + \
        few("turned, halves", "linear", kernel("relu"), {"rope": {"base": 100, "layout": "half"}}) + \
        few("turned, cos", "linear", kernel("cos"), {"rope": {}}) + \
        few("turned, sums", "linear", kernel("elu", normalise=0), {"rope": {}}) + \
        few("turned, eps", "linear", kernel("elu", eps=0.5), {"rope": {}}) + \
        few("turned, taylor", "linear", kernel("taylor"), {"rope": {}}) + \
        few("turned, poly", "linear", kernel("poly"), {"rope": {"layout": "half"}, "scale": {"s": 0.4}}) + [
        case("turned, wide", "linear", None, {"rope": {}}, heads=2, n=6, d=6, causal=True, weights=True),
        case("turned, taylor of 3", "linear", kernel("taylor", order=3), {"rope": {}}, n=5, d=3, weights=True),
        case("turned, powers", "linear", kernel("powers", order=3), {"rope": {}}, n=5, d=3),
        case("turned, more keys than queries", "linear", None, {"rope": {}}, n=4, m=7, d=2, causal=True)]
    yield "cosformer", [
        case("worked example", "cosformer", {"length": 3}, printed={
            "a": ([1, 0, 0, 0, .697831, .302169, .154701, .535898, .309401], 9)}, **WORKED),
    ] + selves("cosformer", {"length": 16}) + selves("cosformer", tag=", length of the sequence", causal=False) + \
        few("turned", "cosformer", {"length": 9}, {"rope": {}}) + \
        few("turned, halves", "cosformer", {"length": 9}, {"rope": {"layout": "half"}}) + [
        case("memory", "cosformer", {"length": 6}, heads=2, n=6, d=3, dv=2, memory=2, causal=True),
        case("rows of nothing", "cosformer", n=3, d=2, q=[1, 1, -1, -2, 2, -1], k=[1, .5, -1, 2, 1, 1])]
    yield "efficient", [
        case("worked example", "efficient", printed={"a": ([.510543, .357822, .131635], 3)}, **WORKED),
    ] + every("efficient") + [case("memory", "efficient", heads=2, n=3, m=5, d=3, dv=2, memory=2, causal=True)]
    yield "identity", every("identity") + few("by the keys", "identity", {"norm": "n"}) + [
        case("by the keys, more keys than queries", "identity", {"norm": "n"}, n=3, m=5, d=2, causal=True),
        case("by the keys, empty rows", "identity", {"norm": "n"}, n=5, m=3, d=2, causal=True),
        case("memory", "identity", heads=2, n=3, m=5, d=2, memory=2, causal=True),
    ] + few("scale", "identity", None, {"scale": {"s": 1.5}}) + few("negative scale", "identity", None, {"scale": {"s": -0.5}}) + \
        few("turned", "identity", None, {"rope": {}}) + few("turned, by the keys", "identity", {"norm": "n"}, {"rope": {"layout": "half"}})
    yield "retention", [
        case("worked example", "retention", {"decay": 0.5}, causal=True, printed={
            "a": ([.707107, 0, 0, 0, 1.414214, 0, .176777, .707107, 0], 9)}, **WORKED),
    ] + selves("retention", {"decay": 0.6}) + selves("retention", {"decay": 0.6, "learn": 1}, tag=", learnt") + \
        sum((few("%s%s%s" % (norm, ", bare" * (1 - content), ", learnt" * learn), "retention",
                 {"decay": 0.7, "content": content, "norm": norm, "learn": learn})
             for norm in ("none", "sum", "retnet") for content in (0, 1) for learn in (0, 1)), []) + \
        few("decays of heads", "retention") + few("decays of heads, sums", "retention", {"norm": "sum", "content": 0}) + \
        few("decays of heads, learnt", "retention", {"learn": 1}, drawn=0) + \
        few("decay 1", "retention", {"decay": 1, "norm": "retnet"}) + \
        few("nearly 0, learnt", "retention", {"learn": 1, "norm": "retnet"}, given={"theta": [-1000.0, -3.0]}) + \
        few("nearly 1, learnt", "retention", {"learn": 1, "norm": "sum", "content": 0}, given={"theta": [40.0, 5.0]}) + \
        few("scale", "retention", {"decay": 0.8, "norm": "retnet"}, {"scale": {"s": 2.5}}) + \
        few("turned", "retention", {"decay": 0.8}, {"rope": {}}) + \
        few("turned, sums", "retention", {"decay": 0.8, "norm": "sum", "learn": 1}, {"rope": {}}) + \
        few("turned, retnet", "retention", {"decay": 0.8, "norm": "retnet", "learn": 1}, {"rope": {"layout": "half"}}) + [
        case("a query of nothing, sums", "retention", {"norm": "sum", "decay": 0.5}, n=3, d=2, q=[1, 1, 0, 0, 2, -1]),
        case("memory", "retention", {"decay": 0.5}, heads=2, n=6, d=2, memory=2, causal=True)]
    yield "performer", performers(every, few)


def performers(every, few):
    kind = lambda name, **arg: {"kind": name, "features": 5, **arg}
    omega = {"omega": [1, 0, 0, 1, -1, 1]}
    share = lambda rows: [round(x / sum(row), 6) for row in rows for x in row]
    kernels = [[1.078378, .569733, .650548], [.926458, 1.475202, 2.108359], [.937693, .805376, .952237]]
    found = [
        case("worked example", "performer", {"features": 3}, given=omega, printed={"a": (share(kernels), 9)}, **WORKED),
        case("worked example, favor++", "performer", {"kind": "favor++", "features": 3, "a": -0.1}, given=omega,
             printed={"a": (share([[1.587535, .797964, .782989]]), 3)}, **WORKED),
        case("worked example, trig", "performer", {"kind": "trig", "features": 3}, given=omega,
             printed={"a": (share([[2.028115, -.504722, -.248862]]), 3)}, **WORKED),
    ] + every("performer", {"features": 5}) + every("performer", kind("favor++", a=-0.2), tag=", favor++")
    for name in ("trig", "hyp"):
        found += few(name, "performer", kind(name))
    for name in ("favor+", "favor++", "sderf", "aderf", "trig", "hyp"):
        found += [
            case(name + ", drawn", "performer", {"kind": name}, heads=2, n=5, d=3, kv=1, drawn=3),
            case(name + ", gaussian", "performer", kind(name, kernel="gaussian"), heads=2, n=5, d=2, kv=1),
            case(name + ", scale", "performer", kind(name), {"scale": {"s": 0.3}}, heads=2, n=5, d=2),
            case(name + ", turned", "performer", kind(name, features=4), {"rope": {}}, heads=2, n=5, d=2, weights=True),
            case(name + ", turned, halves", "performer", kind(name, features=6, kernel="gaussian"), {"rope": {"layout": "half"}},
                 n=6, d=2, causal=name not in ("favor++", "sderf", "aderf"))]
    drawn = lambda tag, **arg: case(tag, "performer", arg, heads=2, n=4, d=3, drawn=(1 << 63) + 5, causal=True)
    found += [
        drawn("rows of sqrt", rows="sqrt"), drawn("rows of unit", rows="unit", features=4), drawn("independent rows", ortho=0),
        drawn("many features", features=17), drawn("one feature", features=1), drawn("redrawn", redraw=10),
        case("memory", "performer", kind("favor+"), heads=2, n=3, m=5, d=2, memory=2, causal=True)]
    for name in ("favor++", "sderf", "aderf"):
        found += every("performer", kind(name), tag=", %s, found" % name, causal=False)[:5] + [
            case(name + ", found, more keys than queries", "performer", kind(name), heads=2, n=4, m=7, d=2, dv=1),
            case(name + ", found, unequal lengths", "performer", kind(name), b=3, n=4, m=6, d=2, len_q=[2, 4, 3], len_k=[6, 2, 0]),
            case(name + ", calibrated", "performer", kind(name), heads=4, b=2, n=5, d=3, kv=2, len_q=[5, 3], len_k=[4, 5],
                 calibrated=True)]
        found += few(name + ", given", "performer", kind(name), given=given_exponents(name, 2, 2))
        found += few(name + ", given, gaussian", "performer", kind(name, kernel="gaussian"), given=given_exponents(name, 2, 2))
    return found


def given_exponents(kind, heads, d):
    """Any numbers, not those of an estimator without bias."""
    rng = random.Random("exponents " + kind)
    if kind == "favor++":
        return {"A": [a for a in (-0.3, -0.05)[:heads] for _ in range(d)]}
    some = lambda count, width: [round(rng.gauss(0, width), 3) for _ in range(count)]
    squares = {name: some(heads * d * d, 0.5) for name in ("Bx", "By", "Cx", "Cy")}
    return {"A": [-abs(x) for x in some(heads * d, 0.2)], **squares}


def eye(n):
    return [float(i == j) for i in range(n) for j in range(n)]


def fixed_cases():
    third = lambda *xs: [round(x, 6) for x in xs]
    worked = lambda name, arg, rows, n, **kw: case(name, "fixed", arg, n=n, d=1, printed={
        "a": (third(*[x for row in rows for x in row + [0] * (n - len(row))]), n * n)}, **kw)
    found = [
        worked("worked example, left", {"pattern": "left"}, [[], [], [1], [1 / 9, 8 / 9], [1 / 36, 8 / 36, 27 / 36]], 5),
        worked("worked example, end", {"pattern": "end"}, [[.01, .08, .27, .64]] * 4, 4),
        worked("worked example, start", {"pattern": "start"}, [[.64, .27, .08, .01]] * 4, 4),
        worked("worked example, start, causal", {"pattern": "start"},
               [[1], [8 / 9, 1 / 9], [27 / 36, 8 / 36, 1 / 36], [.64, .27, .08, .01]], 4, causal=True),
        worked("worked example, words", {"pattern": "previous", "words": 1},
               [[], [], [.5, .5], [0, 0, 1], [0, 0, 1]], 5, words=[0, 0, 1, 2, 2])]
    for pattern in ORDER:
        for causal in (False, True):
            make = lambda name, **arg: case(
                "%s%s%s" % (pattern, name, ", causal" * causal), "fixed", {"pattern": pattern, **arg}, heads=2, n=7, d=2, dv=3, kv=1,
                causal=causal, weights=True, words=[0, 1, 1, 2, 3, 3, 3] if "words" in arg else None)
            found += [make(""), make(", self", empty="self"), make(", words", words=1),
                      make(", words, self", words=1, empty="self"),
                      case("%s, two tokens%s" % (pattern, ", causal" * causal), "fixed", {"pattern": pattern}, n=2, d=1, causal=causal),
                      case("%s, one word%s" % (pattern, ", causal" * causal), "fixed", {"pattern": pattern, "words": 1}, n=3, d=1,
                           words=[0, 0, 0], causal=causal),
                      case("%s, lengths and words%s" % (pattern, ", causal" * causal), "fixed", {"pattern": pattern, "words": 1}, b=3,
                           n=5, d=2, len_q=[5, 0, 3], len_k=[5, 0, 3], words=[0, 0, 1, 1, 2] + [9] * 5 + [0, 1, 2, -1, 7],
                           causal=causal)]
    return found + selves("fixed") + [
        case("each once", "fixed", heads=7, n=6, d=2, kv=1, weights=True),
        case("each again", "fixed", heads=9, b=2, n=5, d=2, weights=True),
        case("each again, causal", "fixed", heads=7, b=2, n=5, d=2, causal=True, weights=True),
        case("documents of words", "fixed", {"words": 1}, heads=7, n=10, d=2, docs=[0, 4, 4, 5, 10],
             words=[0, 0, 1, 1, 0, 0, 1, 1, 2, 3], weights=True),
        case("documents of words, causal", "fixed", {"words": 1, "empty": "self"}, heads=5, n=10, d=2, docs=[0, 4, 4, 5, 10],
             words=[0, 0, 1, 1, 0, 0, 1, 1, 2, 3], causal=True, weights=True),
        case("a word for each token", "fixed", {"words": 1}, heads=7, n=5, d=2, words=[0, 1, 2, 3, 4]),
        case("memory", "fixed", heads=7, n=6, d=2, memory=2),
        case("memory of words, causal", "fixed", {"words": 1}, heads=5, n=6, d=2, memory=2, causal=True, words=[0, 0, 0, 1, 2, 2])]


def convolutions():
    for mech, dim_x in (("lightconv", 0), ("dynconv", 3)):
        make = lambda name, arg=None, **kw: case(name, mech, arg, dim_x=dim_x, **kw)
        found = selves(mech, {"width": 3}, dim_x=dim_x) + \
            selves(mech, {"width": 4, "heads": 3}, tag=", parts", dv=6, dim_x=dim_x)
        for width in (1, 2, 5, 6):
            for causal in (False, True):
                found.append(make("width %d%s" % (width, ", causal" * causal), {"width": width}, heads=2, n=6, d=1, dv=2, kv=1,
                                  causal=causal, weights=True))
        yield mech, found + [
            make("preset", heads=2, n=9, d=2, weights=True),
            make("longer than the sequence", {"width": 9}, n=4, d=2, weights=True),
            make("longer than the sequence, causal", {"width": 9}, n=4, d=2, causal=True, weights=True),
            make("a part for each element", {"width": 3, "heads": 3}, heads=2, b=2, n=5, d=2, dv=3),
            make("memory", {"width": 3}, heads=2, n=6, d=2, memory=2),
            make("memory, causal", {"width": 3, "heads": 2}, n=6, d=2, memory=3, causal=True),
            make("drawn", {"width": 3, "heads": 2}, heads=2, n=5, d=2, drawn=5)]


def synthesizers():
    nets, found = ("dense", "fdense", "random+dense", "dense+vanilla"), []
    for kind in ("random", "fixed_random", "dense", "fdense", "frandom", "random+dense", "random+vanilla", "dense+vanilla"):
        of = lambda **arg: {"kind": kind, **arg}
        rest = dict(dim_x=3 if kind in nets else 0)
        make = lambda name, arg, mods=None, **kw: case("%s, %s" % (kind, name), "synthesizer", of(**arg), mods, **{**rest, **kw})
        small = {"rank": 2} if kind == "frandom" else {}
        found += [
            make("self", small, heads=2, n=5, d=2, dv=3, kv=1, weights=True),
            make("causal", {"max": 5, **small}, heads=2, b=2, n=5, d=2, kv=1, causal=True, weights=True),
            make("slice", {"max": 7, **small}, heads=2, n=4, d=2, dv=1, weights=True),
            make("slice, causal", {"max": 7, **small}, heads=2, n=4, d=2, causal=True),
            make("one row", {"max": 3, **small}, heads=2, n=1, d=2, dv=3),
            make("documents", small, heads=2, n=8, d=2, docs=[0, 4, 4, 5, 8]),
            make("lengths, causal", {"max": 6, **small}, b=3, n=5, d=2, len_q=[5, 0, 3], len_k=[5, 0, 3], causal=True),
            make("mask and bias", small, heads=2, n=4, d=2, mask=(1, 1), bias=(1, 1)),
            make("dropout", small, heads=2, n=5, d=2, dropout=(0.3, 4)),
            make("memory", small, n=5, d=2, memory=2),
            make("sink, distances", {"max": 6, **small}, {"sink": {}, "cap": {"c": 1.5}, "alibi": {}}, heads=2, n=5, d=2, causal=True),
            make("drawn", {"max": 6}, heads=2, n=4, d=2, drawn=9)]
        if "vanilla" in kind:
            found += [
                make("modifiers", {"max": 6}, {"temper": {}, "rope": {}, "logn": {"n0": 3}}, heads=2, n=5, d=2, causal=True),
                make("unit rows", {}, {"qknorm": {}, "t5": {"buckets": 4, "max_distance": 4}}, heads=2, n=5, d=2),
                make("scale", {}, {"scale": {"s": 0.3}, "shaw": {"clip": 1}}, n=4, d=2)]
        if kind in nets:
            found.append(make("wide net", {"hidden": 4, "max": 5}, n=5, d=2))
    return found + [
        case("fdense, short b", "synthesizer", {"kind": "fdense", "split": 2, "max": 7}, heads=2, n=7, d=2, dim_x=2, causal=True),
        case("fdense, long b", "synthesizer", {"kind": "fdense", "split": 5, "max": 7}, n=6, d=2, dim_x=2),
        case("frandom, preset", "synthesizer", {"kind": "frandom"}, n=4, d=2)]


def compressions():
    yield "synthesizer", synthesizers()
    soft = {"a": ([.575975, .283995, .140029, .140029, .575975, .283995, .283995, .575975, .140029], 9),
            "o": ([.856034, .143966, .70802, .29198, .564054, .435946], 6)}
    found = [case("every key a mixture", "linformer", {"rank": 3}, given={"E": eye(3)}, printed=soft, **WORKED)]
    apart = {"rank": 2, "share": 0}
    for name, arg in (("", {"rank": 2}), (", apart", apart)):
        make = lambda tag, mods=None, **kw: case(tag + name, "linformer", arg, mods, weights=True, **kw)
        found += selves("linformer", arg, tag=name, causal=False, weights=True)[:1] + [
            make("grouped heads", heads=4, b=2, n=5, d=2, dv=1, kv=2),
            make("documents", heads=2, n=10, d=2, kv=1, docs=[0, 4, 4, 5, 10]),
            make("lengths", heads=2, b=3, n=6, d=2, len_q=[6, 0, 3], len_k=[6, 0, 3]),
            make("more keys than queries", heads=2, n=4, m=7, d=2, dv=1),
            make("more queries than keys", n=5, m=3, d=2),
            make("unequal lengths", b=3, n=4, m=6, d=2, len_q=[2, 4, 3], len_k=[6, 2, 0]),
            make("memory", heads=2, n=3, m=5, d=2, memory=2),
            make("modifiers", {"rope": {}, "logn": {"n0": 3}, "sink": {}, "temper": {}}, heads=2, n=5, d=4),
            make("unit rows", {"qknorm": {}, "rope": {"layout": "half"}}, n=5, d=2),
            make("capped", {"cap": {"c": 0.8}, "scale": {"s": 0.4}}, n=5, d=2)]
        block = lambda tag, mods=None, **kw: case("blocks, " + tag + name, "linformer", {**arg, "block": 3}, mods, causal=True,
                                                  **{"weights": True, **kw})
        found += [
            block("self", n=8, d=2),
            block("grouped heads", heads=4, b=2, n=7, d=2, dv=3, kv=2),
            block("documents", n=14, d=2, docs=[0, 1, 8, 14]),
            block("lengths", b=3, n=8, d=2, len_q=[8, 0, 4], len_k=[8, 0, 4]),
            block("more keys than queries", heads=2, n=4, m=8, d=2, dv=1),
            block("empty rows", n=8, m=5, d=2),
            block("memory", n=8, d=2, memory=4),
            block("modifiers", {"rope": {}, "logn": {"n0": 3}, "sink": {}, "temper": {}}, heads=2, n=7, d=2),
            block("dropout", heads=2, n=7, d=2, dropout=(0.4, 8), weights=False)]
    yield "linformer", found + [
        case("preset", "linformer", n=5, d=2, weights=True),
        case("preset, blocks", "linformer", {"block": 2}, n=7, d=2, causal=True, weights=True),
        case("one mixture", "linformer", {"rank": 1}, heads=2, n=4, d=2, weights=True),
        case("dropout", "linformer", {"rank": 3}, heads=2, n=6, d=2, dropout=(0.3, 2)),
        case("drawn", "linformer", {"rank": 2}, heads=2, n=5, d=2, drawn=6),
        case("drawn, apart", "linformer", {"rank": 3, "share": 0}, heads=2, n=5, d=2, drawn=(1 << 63) + 1)]
    yield "lowrank", [
        case("all that there is", "lowrank", {"rank": 2}, given={"Uq": eye(2), "Uk": eye(2)}, printed=soft, **WORKED),
    ] + selves("lowrank", {"rank": 1}) + crosses("lowrank", {"rank": 2}, d=3) + [
        case("preset", "lowrank", heads=2, n=5, d=5, dv=2, kv=1, causal=True),
        case("memory", "lowrank", {"rank": 2}, heads=2, n=3, m=5, d=3, memory=2, causal=True),
        case("modifiers", "lowrank", {"rank": 2}, {"rope": {}, "temper": {}, "sink": {}, "logn": {"n0": 3}}, heads=2, n=6, d=3,
             causal=True),
        case("unit rows", "lowrank", {"rank": 2}, {"qknorm": {}, "alibi": {}}, heads=2, n=6, d=3),
        case("scale", "lowrank", {"rank": 2}, {"scale": {"s": 0.3}, "cap": {"c": 0.8}}, n=5, d=3),
        case("mask and bias", "lowrank", {"rank": 2}, heads=2, n=5, d=3, mask=(1, 1), bias=(1, 1)),
        case("dropout", "lowrank", {"rank": 2}, heads=2, n=5, d=3, dropout=(0.3, 1)),
        case("drawn", "lowrank", {"rank": 2}, heads=2, n=4, d=3, drawn=4)]


def externals():
    worked = {"o": ([.856034, .143966, .540013, .459987, .698023, .301977], 6)}
    soft = {"o": ([.856034, .143966, .70802, .29198, .564054, .435946], 6)}
    found = [case("worked example", "nystrom", {"landmarks": 2}, printed=worked, **WORKED),
             case("worked example, exactly", "nystrom", {"landmarks": 2, "iters": 0}, printed=worked, **WORKED),
             case("every token a landmark", "nystrom", {"landmarks": 3, "iters": 0}, printed=soft, **WORKED)]
    for tag, more in (("", {}), (", exactly", {"iters": 0}), (", residual", {"iters": 2, "conv": 3})):
        arg = {"landmarks": 3, **more}
        found += selves("nystrom", arg, tag=tag, causal=False, weights=True)
        if "conv" not in more:
            found += [
                case("more keys than queries" + tag, "nystrom", arg, heads=2, n=4, m=7, d=2, dv=1, weights=True),
                case("more queries than keys" + tag, "nystrom", arg, heads=2, n=7, m=4, d=2, kv=1, weights=True),
                case("unequal lengths" + tag, "nystrom", arg, b=3, n=4, m=6, d=2, len_q=[2, 4, 3], len_k=[6, 2, 0], weights=True),
                case("memory" + tag, "nystrom", arg, heads=2, n=4, m=6, d=2, memory=3, weights=True)]
        found += [
            case("scale" + tag, "nystrom", arg, {"scale": {"s": 1.5}}, heads=2, n=6, d=2, weights=True),
            case("one landmark" + tag, "nystrom", {"landmarks": 1, **more}, n=5, d=2, weights=True)]
    yield "nystrom", found + [
        case("steps %d" % steps, "nystrom", {"landmarks": 4, "iters": steps}, heads=2, n=9, d=3, weights=True)
        for steps in (1, 2, 6, 12)] + [
        case("preset", "nystrom", n=4, d=3, weights=True),
        case("residual, even", "nystrom", {"landmarks": 2, "conv": 4}, heads=2, n=6, d=2, memory=2, weights=True),
        case("residual, wide", "nystrom", {"landmarks": 2, "conv": 33}, n=5, d=2, weights=True),
        case("drawn", "nystrom", {"landmarks": 2, "conv": 5}, heads=2, n=4, d=2, drawn=1)]
    arg = {"slots": 3, "segment": 2}
    yield "memformer", selves("memformer", arg, dv=2) + [
        case("whole segments", "memformer", arg, heads=2, n=8, d=3, kv=1),
        case("segments of three", "memformer", {"slots": 2, "segment": 3}, heads=2, b=2, n=10, d=2, causal=True),
        case("single tokens", "memformer", {"slots": 2, "segment": 1}, n=6, d=2, causal=True),
        case("one slot", "memformer", {"slots": 1, "segment": 2}, heads=2, n=7, d=3),
        case("warm", "memformer", {**arg, "tau": 1.5}, heads=2, n=7, d=2),
        case("sharp", "memformer", {**arg, "tau": 0.05}, n=7, d=2, causal=True),
        case("scale", "memformer", arg, {"scale": {"s": 1.2}}, n=7, d=2),
        case("preset", "memformer", n=5, d=2, causal=True),
        case("memory", "memformer", arg, heads=2, n=7, d=2, memory=3),
        case("a slot that starts as nothing", "memformer", arg, n=7, d=2, given={"beta": [0, 0, 1, -0.5, 0.25, 2]}),
        case("drawn", "memformer", arg, heads=2, n=4, d=2, drawn=8)]


def mixtures():
    words = [0, 0, 1, 2, 2, 3]
    return [
        mix("patterns beside softmax", [Group(7, "fixed"), Group(1, "softmax", rope={})], b=2, n=6, d=2, dv=3),
        mix("patterns of words beside softmax", [Group(7, "fixed", {"words": 1}), Group(1, "softmax")], n=6, d=2, words=words),
        mix("patterns, causal", [Group(3, "fixed"), Group(1, "softmax", sink={}), Group(2, "fixed", {"words": 1, "empty": "self"})],
            n=6, d=2, causal=True, words=words),
        mix("all that can be causal", [
            Group(2, "fixed", {"pattern": "start"}), Group(1, "lightconv", {"width": 3}), Group(1, "dynconv", {"width": 2, "heads": 2}),
            Group(1, "synthesizer", {"kind": "random+dense", "max": 6}), Group(1, "linformer", {"rank": 2, "block": 3}),
            Group(1, "lowrank", {"rank": 1}), Group(2, "memformer", {"slots": 2, "segment": 2}), Group(1, "local", {"window": 1}),
            Group(1, "retention", {"decay": 0.5})], n=6, d=2, dim_x=3, causal=True),
        mix("all that cannot", [
            Group(1, "nystrom", {"landmarks": 2, "conv": 3}), Group(2, "linformer", {"rank": 2, "share": 0}),
            Group(1, "synthesizer", {"kind": "fdense"}), Group(2, "fixed", {"pattern": "right"}), Group(1, "dynconv", {"width": 3}),
            Group(1, "nystrom", {"landmarks": 3, "iters": 0}), Group(1, "pooled", {"block": 2})], b=2, n=6, d=2, dim_x=2),
        mix("hidden states alone", [Group(1, "fixed", {"pattern": "left"}), Group(1, "dynconv", {"width": 3}),
                                    Group(2, "synthesizer", {"kind": "dense"})], n=5, d=2, dv=3, dim_x=2),
        mix("learned streams by group", [
            Group(1, "linformer", {"rank": 2}), Group(2, "lowrank", {"rank": 1}), Group(1, "linformer", {"rank": 2}),
            Group(1, "synthesizer", {"kind": "random+vanilla"}), Group(1, "memformer", {"slots": 2, "segment": 2}),
            Group(1, "lightconv", {"width": 3})], n=4, d=2, drawn=13),
        mix("documents", [Group(2, "fixed", {"pattern": "end"}), Group(1, "nystrom", {"landmarks": 2}),
                          Group(1, "memformer", {"slots": 2, "segment": 2}), Group(2, "softmax", alibi={})],
            n=10, d=2, docs=[0, 4, 4, 5, 10])]


def layers():
    """What speaks of the layer around the heads changes nothing in them."""
    for name, kind in (("frozen", "hadamard, sample=block, tie=1"), ("init", "gaussian")):
        mod = {name: {}}
        yield name, shapes("softmax " + name, lambda h, mod=mod: one("softmax", h, **mod)) + [
            Case("arguments", "softmax %s(%s)" % (name, kind), one("softmax", 2, **mod), n=4, causal=True),
            Case("of local, turned", "local(window=1) %s rope" % name, one("local", 2, {"window": 1}, rope={}, **mod), n=5, d=2),
            Case("of linear", "linear %s" % name, one("linear", 1, {}, **mod), n=4, causal=True)]


def files():
    yield "softmax", [
        Case("worked example", "softmax", one("softmax"), printed={
            "a": ([.575975, .283995, .140029, .140029, .575975, .283995, .283995, .575975, .140029], 9),
            "o": ([.856034, .143966, .70802, .29198, .564054, .435946], 6)}, **WORKED),
        Case("worked example, causal", "softmax", one("softmax"), causal=True, printed={
            "o": ([1, 0, .19557, .80443, .564054, .435946], 6)}, **WORKED),
    ] + shapes("softmax", lambda h: one("softmax", h))
    yield "l2norm", [
        Case("worked example", "l2norm", one("l2norm"), printed={"a": ([.876309, .432081, .213045], 3)}, **WORKED),
    ] + shapes("l2norm", lambda h: one("l2norm", h))
    yield "relu2", [
        Case("worked example", "relu2", one("relu2"), printed={
            "a": ([.166667, 0, 0, 0, .666667, .166667, .166667, .666667, 0], 9)}, **WORKED),
        Case("constant n", "relu2(n=7)", one("relu2", 2, {"n": 7}), n=4, m=6, causal=True),
    ] + shapes("relu2", lambda h: one("relu2", h))
    yield "scale", shapes("softmax scale(0.3)", lambda h: one("softmax", h, scale={"s": 0.3})) + [
        Case("of l2norm", "l2norm scale(1.5)", one("l2norm", 1, scale={"s": 1.5}), n=4),
        Case("of relu2", "relu2 scale(0.125)", one("relu2", 1, scale={"s": 0.125}), n=4, causal=True)]
    yield "cap", shapes("softmax cap(0.7)", lambda h: one("softmax", h, cap={"c": 0.7})) + [
        Case("preset", "softmax cap", one("softmax", 1, cap={"c": 30.0}), n=4),
        Case("over a bias", "softmax cap(1.5)", one("softmax", 2, cap={"c": 1.5}), n=3, m=4, bias=(1, 2)),
        Case("of l2norm", "l2norm cap(0.5)", one("l2norm", 1, cap={"c": 0.5}), n=4),
        Case("of relu2", "relu2 cap(0.5)", one("relu2", 1, cap={"c": 0.5}), n=4)]
    yield "logn", [
        Case("worked example", "softmax logn", one("softmax", 1, logn={}), printed={"a": ([.375593, .331617, .29279], 3)}, **WORKED),
    ] + shapes("softmax logn(n0=4)", lambda h: one("softmax", h, logn={"n0": 4})) + \
        shapes("softmax logn(n0=3, clamp=1)", lambda h: one("softmax", h, logn={"n0": 3, "clamp": 1}), ", clamped") + [
        Case("of l2norm", "l2norm logn(n0=3)", one("l2norm", 1, logn={"n0": 3}), n=4, causal=True)]
    yield "qknorm", shapes("softmax qknorm", lambda h: one("softmax", h, qknorm={})) + [
        Case("a zero query", "softmax qknorm", one("softmax", 1, qknorm={}), n=3, d=2, q=[0, 0, 1, 2, -1, 3]),
        Case("a zero key", "softmax qknorm", one("softmax", 1, qknorm={}), n=3, d=2, k=[0.5, 1, 0, 0, -1, 3])]
    yield "sink", shapes("softmax sink", lambda h: one("softmax", h, sink={}))
    yield "temper", shapes("softmax temper", lambda h: one("softmax", h, temper={})) + [
        Case("of relu2", "relu2 temper", one("relu2", 2, temper={}), n=4),
        Case("of l2norm", "l2norm temper", one("l2norm", 2, temper={}), n=4, causal=True)]
    yield from layers()
    yield from supports()
    yield from orders()
    yield from slots()
    yield from memories()
    yield from positions()
    yield from linears()
    yield "fixed", fixed_cases()
    yield from convolutions()
    yield from compressions()
    yield from externals()
    yield from dropouts()
    yield "problems", [
        Case("lengths", "softmax", one("softmax", 2), b=3, n=4, m=5, d=2, len_q=[2, 0, 4], len_k=[5, 3, 1]),
        Case("lengths, causal", "softmax", one("softmax", 2), b=3, n=4, m=5, d=2, len_q=[2, 4, 3], len_k=[5, 2, 0], causal=True),
        Case("key lengths alone", "relu2", one("relu2", 1), b=2, n=3, d=2, len_k=[1, 2]),
        Case("documents", "softmax logn(n0=3)", one("softmax", 2, logn={"n0": 3}), n=7, d=2, docs=[0, 3, 3, 4, 7]),
        Case("documents, causal", "l2norm", one("l2norm", 2), n=7, d=2, kv=1, docs=[0, 2, 6, 7], causal=True),
        Case("memory", "softmax", one("softmax", 2), b=2, n=3, m=5, d=2, kv=1, memory=2, causal=True),
        Case("mask", "softmax logn(n0=2)", one("softmax", 2, logn={"n0": 2}), b=2, n=4, d=2, mask=(1, 1)),
        Case("mask of each head, causal", "relu2", one("relu2", 2), b=2, n=4, d=2, mask=(2, 2), causal=True),
        Case("bias", "softmax", one("softmax", 2), b=2, n=3, m=4, d=2, bias=(2, 1)),
        Case("mask and bias", "l2norm", one("l2norm", 2), b=2, n=3, m=4, d=2, mask=(1, 2), bias=(1, 2)),
        case("bias of all, causal", "softmax", heads=4, b=2, n=4, d=2, kv=2, bias=(1, 1), causal=True),
        case("bias of each head", "relu2", heads=2, b=2, n=4, d=2, bias=(2, 2)),
        case("bias, documents", "softmax", heads=2, n=7, d=2, bias=(1, 1), docs=[0, 3, 3, 7], causal=True),
        case("bias, lengths", "l2norm", heads=2, b=3, n=4, m=5, d=2, bias=(1, 2), len_q=[2, 4, 3], len_k=[5, 2, 0], causal=True),
        case("bias, memory", "softmax", None, {"sink": {}, "cap": {"c": 1.0}}, b=2, n=3, m=5, d=2, bias=(2, 1), memory=2)]
    yield "mixes", [
        Case("modifiers together", "softmax qknorm temper sink cap(4) logn(n0=3)", one(
            "softmax", 2, qknorm={}, temper={}, sink={}, cap={"c": 4.0}, logn={"n0": 3}), n=4, d=3, causal=True),
        Case("groups", "2*softmax sink temper + 4*relu2 temper + l2norm", [
            Group(2, "softmax", sink={}, temper={}), Group(4, "relu2", temper={}), Group(2, "l2norm")],
            b=2, n=4, d=3, dv=2, kv=4, causal=True),
        mix("slopes by group", [Group(2, "local", {"window": 2}, alibi={}), Group(4, "softmax", alibi={}),
                                Group(2, "strided", {"stride": 3}, rope={})],
            n=7, d=2, kv=4, causal=True),
        mix("streams by group", [Group(1, "softmax"), Group(2, "bigbird", {"block": 1, "radius": 0, "random": 2}),
                                 Group(1, "bigbird", {"block": 1, "radius": 0, "random": 2})], n=10, d=2, seed=5),
        mix("lists by group", [Group(1, "block", {"block": 2}, {"layout": layout_of(2)(8)}),
                               Group(1, "global", {"window": 1}, {"global": [6, 3]}),
                               Group(1, "block", {"block": 3}, {"layout": layout_of(3, 1)(8)}, sink={})], n=8, d=2, causal=True),
        mix("orders", [Group(2, "lsh", {"buckets": 4, "rounds": 2, "shared": 1}), Group(2, "routing", {"clusters": 2}, rope={}),
                       Group(1, "lsh", {"hash": "floor", "width": 2.0})], n=8, d=4, dv=2, causal=True),
        mix("slots", [Group(1, "segmented", {"length": 2, "integrate": "summary"}, rope={}),
                      Group(2, "pooled", {"block": 2, "levels": 2}),
                      Group(1, "softmax", t5={"buckets": 4, "max_distance": 5})], n=9, d=2, causal=True),
        mix("routes beside others", [
            Group(1, "softmax", shaw={"clip": 2}), Group(2, "routed", {"routes": 2}, None, Group(2, "softmax", temper={})),
            Group(1, "routed", {"routes": 3}, None, Group(1, "global", {"window": 1}, {"global": [3]})), Group(1, "relu2")],
            n=5, d=2, dim_x=3, causal=True),
        mix("memory of some", [Group(1, "xl"), Group(1, "softmax", txl={}), Group(2, "xl", {"memory": 1})], n=3, m=6, d=2, causal=True),
        mix("dropout", [Group(2, "local", {"window": 2}), Group(1, "pooled", {"block": 2}), Group(1, "l2norm")], b=2, n=6, d=2,
            dropout=(0.4, 77)),
        mix("features", [Group(2, "softmax", rope={}), Group(2, "performer", {"features": 3}), Group(2, "retention", {"learn": 1}),
                         Group(4, "performer", {"kind": "hyp", "ortho": 0}), Group(2, "linear", rope={})],
            n=6, d=2, kv=6, causal=True, drawn=11),
        mix("features found in the data", [Group(1, "l2norm"), Group(2, "performer", {"kind": "favor++"}), Group(1, "efficient"),
                                           Group(2, "performer", {"kind": "aderf", "features": 3})], n=5, d=2, calibrated=True),
        mix("second", [Group(1, "segmented", {"length": 2, "integrate": "second"}), Group(2, "segmented", {"length": 3, "back": 1},
                                                                                          alibi={})],
            n=8, d=2, causal=True)] + mixtures()


def whole_layers():
    make = lambda name, groups, **kw: Layer(
        name, " + ".join(("%d*" % g.heads if len(groups) > 1 else "") + phrase(g) for g in groups), groups, **kw)
    alone = lambda name, heads, mech, mods=None, arg=None, **kw: make(name, [Group(heads, mech, arg, **(mods or {}))], **kw)
    frozen = lambda name, said, heads=2, **kw: alone(name, heads, "softmax", {"frozen": said}, **kw)
    return [
        alone("softmax", 2, "softmax", n=4, d=2),
        alone("biases, residual, causal", 2, "softmax", n=4, d=2, width=3, dv=1, biases=True, residual=True, causal=True),
        alone("grouped heads", 4, "softmax", b=2, n=3, d=2, kv=2, width=5, biases=True),
        alone("lengths", 2, "softmax", b=3, n=4, d=2, len_q=[4, 0, 2], len_k=[4, 0, 2], biases=True, residual=True),
        alone("documents", 2, "softmax", n=7, d=2, docs=[1, 3, 3, 6], biases=True, causal=True),
        alone("cross", 2, "softmax", b=2, n=3, d=2, source=(5, 3), biases=True, len_q=[3, 2], len_k=[5, 2]),
        alone("memory", 2, "softmax", n=3, d=2, before=2, biases=True, causal=True),
        alone("memory of xl", 2, "xl", {"txl": {}}, b=2, n=3, d=2, kv=1, before=4, biases=True, causal=True, len_q=[3, 1]),
        make("memory of a mix", [Group(1, "linear"), Group(1, "softmax", sink={})], n=3, d=2, before=3, biases=True),
        alone("dropped", 2, "softmax", b=2, n=4, d=2, drop=(0.4, 7), residual=True, biases=True),
        alone("distances", 2, "softmax", {"txl": {}}, n=4, d=2, causal=True),
        alone("modifiers", 2, "softmax", {"temper": {}, "sink": {}, "rope": {}}, n=4, d=2, causal=True),
        alone("shared rows", 2, "lsh", arg={"buckets": 2, "shared": 1}, n=4, d=2),
        alone("taps of hidden states", 2, "dynconv", arg={"width": 3}, n=4, d=2),
        alone("gates", 2, "synthesizer", arg={"kind": "dense", "max": 5, "hidden": 2}, n=4, d=2),
        make("routes", [Group(2, "routed", {"routes": 2}, None, Group(2, "softmax"))], n=4, d=2),
        make("fixed and softmax", [Group(1, "fixed"), Group(1, "softmax")], n=5, d=2, biases=True),
        make("three groups", [Group(1, "softmax"), Group(2, "fixed"), Group(1, "linear", rope={})], n=5, d=2, kv=4, width=3, causal=True),
        make("frozen beside learned", [Group(2, "softmax", frozen={}), Group(2, "softmax")], n=4, d=2, biases=True, seed=5),
        make("distances of a mix", [Group(1, "fixed"), Group(2, "softmax", txl={}, sink={})], n=4, d=2, causal=True),
        frozen("frozen", {}, n=4, d=2),
        frozen("frozen, another layer", {}, n=4, d=2, seed=3, index=2, biases=True),
        frozen("frozen, shared", {"shared": 1}, n=4, d=2, seed=3, index=2),
        frozen("frozen, block", {"sample": "block"}, n=4, d=2, seed=1),
        frozen("frozen, tied", {"tie": 1}, n=4, d=2, seed=1),
        frozen("frozen, gaussian", {"kind": "gaussian"}, n=4, d=2, seed=1),
        frozen("frozen, hadamard", {"kind": "hadamard"}, n=4, d=2, width=6, seed=1),
        frozen("frozen, hadamard, block", {"kind": "hadamard", "sample": "block"}, n=4, d=3, width=12, heads=4, seed=1),
        frozen("frozen, cross", {}, n=3, d=2, source=(4, 6), seed=1),
        alone("gau", 1, "relu2", n=4, d=3, dv=8, kind="gau"),
        alone("gau, biases", 1, "relu2", b=2, n=4, d=2, dv=3, width=3, kind="gau", biases=True, residual=True, causal=True,
              len_q=[4, 2], len_k=[4, 2]),
        alone("gau of softmax", 1, "softmax", {"temper": {}}, n=4, d=2, dv=3, width=3, kind="gau", drop=(0.3, 1)),
        alone("conv", 2, "lightconv", arg={"width": 3}, n=5, d=2, kind="conv"),
        alone("conv, biases", 2, "dynconv", arg={"width": 3}, b=2, n=4, d=2, kind="conv", biases=True, residual=True, causal=True),
        Sinusoid(0, 3, 4, 10000.0), Sinusoid(5, 4, 7, 10000.0), Sinusoid(1000, 2, 6, 100.0)]


def main(directory):
    for name, cases in itertools.chain(files(), [("layers", whole_layers()), ("draws", [draws]), ("tasks", [tasks]), ("training", training.cases())]):
        with open(os.path.join(directory, name + ".txt"), "w", encoding="utf-8") as f:
            f.write("# Made by make.py; README.md has the format.\n\n")
            for case in cases:
                f.write(case.text())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else HERE)
