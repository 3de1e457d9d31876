"""attention() and attention_vjp(): plans are made when they are needed, and kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Optional

import numpy as np

from . import _c
from ._context import Context, default_context
from ._errors import ArgumentError, DTypeError
from ._params import GivenParams, Params
from ._plan import LAYOUTS, Gradients, Plan, arranged, check_layout, pairs, strides_of, whole_numbers, writable
from ._spec import check_spec
from ._tensors import Array, Floats, float_array, rows_adjacent

KEPT = 64  # plans

_plans: dict[Any, Plan] = {}


def clear_cache() -> None:
    """Free the plans and the scratch memory that attention() keeps from call to call."""
    with _c.lock:
        _plans.clear()
    default_context().release()


def _plan(key: Any, make: Callable[[], Plan]) -> Plan:
    """The plan of this key, made where there is none; the oldest of too many goes."""
    plan = _plans.get(key)
    if plan is None:
        plan = make()
        with _c.lock:
            while len(_plans) >= KEPT:
                del _plans[next(iter(_plans))]
            _plans[key] = plan
    return plan


def _extents(layout: str, found: Array) -> dict[str, int]:
    sizes = {"b": 1, "h": 1}
    sizes.update(zip(layout, found.shape))
    return sizes


def _lists_key(lists: Optional[Mapping[str, Any]]) -> Any:
    if not lists:
        return None
    return tuple((name, whole_numbers(values, name).tobytes()) for name, values in lists.items())


def apart(found: Array) -> Array:
    """An array whose gradient can be laid out as it is: no two of its rows overlap."""
    found = rows_adjacent(found)
    reach = 1
    for stride, extent in sorted(zip(found.strides, found.shape)):
        if extent > 1:
            if stride < reach:
                return np.ascontiguousarray(found)
            reach = stride * extent
    return found


def _options(**given: Any) -> dict[str, Any]:
    """Those that are given."""
    return {name: value for name, value in given.items() if value is not None}


def _alike(options: dict[str, Any]) -> tuple[Optional[Array], Optional[Array]]:
    """A mask and a bias, where they are given; of both, the one that heads or sequences share is
    written out where the other has some of its own."""
    for name in ("mask", "bias"):
        if name in options:
            options[name] = pairs(options[name], name)
    mask, bias = options.get("mask"), options.get("bias")
    if mask is not None and bias is not None and mask.shape != bias.shape:
        try:
            mask, bias = (np.ascontiguousarray(a) for a in np.broadcast_arrays(mask, bias))
        except ValueError:
            raise ArgumentError(f"mask has shape {mask.shape}, bias {bias.shape}: rows and keys have to agree") from None
        options.update(mask=mask, bias=bias)
    return mask, bias


class _Call:
    """The arrays of a call, and the plan that fits them."""

    __slots__ = ("q", "k", "v", "x", "layout", "plan", "options", "shape", "dtype", "empty")

    def __init__(self, q: Any, k: Any, v: Any, spec: str, layout: Optional[str], causal: bool, train: bool,
                 fast: bool, memory: int, seed: int, dropout: float, lists: Optional[Mapping[str, Any]],
                 context: Optional[Context], out: Optional[Array], options: dict[str, Any]) -> None:
        check_spec(spec)
        fit = apart if train else rows_adjacent
        arrays = {name: fit(float_array(value, name)) for name, value in (("q", q), ("k", k), ("v", v))
                  if value is not None}
        if "v" not in arrays and "q" not in arrays:
            raise ArgumentError("neither q nor v is given")
        first = arrays.get("q", arrays.get("v"))
        assert first is not None
        if layout is None:
            if first.ndim not in LAYOUTS:
                raise ArgumentError(f"q has shape {first.shape}: arrays have 2 (rows), 3 (heads, rows) or 4 axes "
                                    "(batch, heads, rows), elements last")
            layout = LAYOUTS[first.ndim]
        context = context or default_context()
        x = options.get("x")
        if x is not None:
            x = options["x"] = float_array(x, "x")
        mask, bias = _alike(options)
        docs = options.get("docs")
        key = (
            spec, layout, causal, train, fast, memory, seed, dropout, context,
            *[(name, a.dtype, a.shape, a.strides) for name, a in arrays.items()],
            None if x is None else x.shape,
            None if mask is None else mask.shape,
            None if bias is None else bias.shape,
            None if docs is None else len(docs),
            _lists_key(lists),
            None if out is None else (out.shape, out.strides),
        )
        self.q, self.k, self.v = arrays.get("q"), arrays.get("k"), arrays.get("v")
        self.layout, self.options, self.dtype = layout, options, first.dtype
        plan = _plans.get(key)
        if plan is None:
            problem = self._problem(arrays, layout)
            self.empty = 0 in problem.pop("sizes")
            self.shape = problem.pop("shape")
            if self.empty:
                self.plan: Any = None
                return
            if out is not None:
                if out.shape != self.shape:
                    raise ArgumentError(f"out has shape {out.shape}, not {self.shape}")
                problem["strides"]["o"] = strides_of(layout, out)
            else:
                problem["strides"]["o"] = strides_of(layout, np.empty(self.shape, np.uint8))
            extents = [None if a is None else a.shape[:2] for a in (mask, bias)]
            made = dict(problem, dtype=first.dtype, layout=layout, causal=causal, train=train, fast=fast,
                        memory=memory, seed=seed, dropout=dropout, lists=lists, context=context,
                        dim_x=0 if x is None else x.shape[-1], mask=extents[0] or False, bias=extents[1] or False,
                        max_docs=0 if docs is None else max(len(docs) - 1, 1))
            plan = _plan(key, lambda: Plan(spec, **made))
        self.plan = plan
        self.empty = False
        self.shape = plan._shapes["o"]

    @staticmethod
    def _problem(arrays: Mapping[str, Array], layout: str) -> dict[str, Any]:
        """Sizes and strides from arrays that have to agree."""
        sizes = {}
        first = next(iter(arrays.values()))
        for name, found in arrays.items():
            check_layout(layout, found.ndim)
            if found.dtype != first.dtype:
                raise DTypeError(f"{name} has dtype {found.dtype}, {next(iter(arrays))} has {first.dtype}: they have to "
                                 "be the same")
            sizes[name] = _extents(layout, found)
        q = sizes.get("q", sizes.get("v"))
        k, v = sizes.get("k", sizes.get("v", q)), sizes.get("v", sizes.get("k", q))
        assert q is not None and k is not None and v is not None
        for axis, word, pairs_of in (("b", "batch", ("q", "k", "v")), ("h", "heads", ("k", "v")),
                                     ("n", "rows", ("k", "v")), ("d", "elements in a row", ("q", "k"))):
            found_sizes = {name: sizes[name][axis] for name in pairs_of if name in sizes}
            if len(set(found_sizes.values())) > 1:
                told = ", ".join(f"{name} {size}" for name, size in found_sizes.items())
                raise ArgumentError(f"{word} differ: {told} (layout {layout})")
        return {
            "batch": q["b"], "heads": q["h"], "kv_heads": k["h"], "len_q": q["n"], "len_k": k["n"], "dim": q["d"],
            "dim_v": v["d"],
            "strides": {name: strides_of(layout, found) for name, found in arrays.items()},
            "sizes": (q["b"], q["h"], k["h"], q["n"], k["n"], v["d"]),
            "shape": arranged(layout, q["b"], q["n"], q["h"], v["d"]),
        }


def attention(q: Any, k: Any, v: Any, spec: str = "softmax", *, causal: bool = False, layout: Optional[str] = None,
              mask: Any = None, bias: Any = None, lengths: Any = None, docs: Any = None, words: Any = None,
              x: Any = None, params: GivenParams = None, seed: int = 0, dropout: float = 0.0, dropout_seed: int = 0,
              lists: Optional[Mapping[str, Any]] = None, memory: int = 0, fast: bool = False, out: Any = None,
              lse: Optional[Floats] = None, context: Optional[Context] = None) -> Array:
    """Attention of queries to keys and values, by any mechanism.

    >>> o = foci.attention(q, k, v, "local(window=256) rope", causal=True)
    >>> o = foci.attention(q, k, v, foci.local(window=256) | foci.rope(), causal=True)

    Arrays are NumPy's, or anything with ``__dlpack__`` on the CPU, of float32, bfloat16 (with
    ml_dtypes) or float16; they are read where they lie, with any strides, and copied only
    where the elements of a row are not adjacent.  The result is a NumPy array, or `out`.

    layout      the order of axes: "bhnd" (batch, heads, rows, elements; without batch "hnd",
                without heads "nd") by default, "bnhd" ...
    causal      query i sees keys up to i + len_k - len_q
    mask        bool, [len_q][len_k] with heads, or batch and heads, before it; False: hidden
    bias        likewise, float32, added to the logits
    lengths     valid rows of each sequence, or a pair of those of q and of k
    docs        offsets 0, ..., n of documents packed into one sequence
    words       the word of each token, where the spec reads them
    x           hidden states [batch][row][width], where the spec reads them
    params      parameters by name (`Plan.params`); those not given are drawn from `seed`
    dropout     share of the weights that are dropped, by a hash of `dropout_seed`
    lists       whole numbers that a spec asks for, by name
    memory      leading keys that take no gradient
    fast        products of float32 arrays in bfloat16
    lse         float32 [batch][heads][len_q] for the logarithm of what weights were divided by

    Plans are kept: a call with shapes that were seen before only computes.
    """
    target = None if out is None else writable(out, "out")
    if target is not None and target.size and target.ndim and target.strides[-1] != target.itemsize and target.shape[-1] != 1:
        raise ArgumentError(f"out has strides {target.strides}: elements of a row have to be adjacent")
    options = _options(mask=mask, bias=bias, lengths=lengths, docs=docs, words=words, x=x, params=params,
                       dropout_seed=dropout_seed or None)
    call = _Call(q, k, v, spec, layout, causal, False, fast, memory, seed, dropout, lists, context, target, options)
    if call.empty:
        return _nothing(call, target, lse)
    return call.plan.forward(call.q, call.k, call.v, out=target, lse=lse, **call.options)  # type: ignore[no-any-return]


def _nothing(call: _Call, target: Optional[Array], lse: Optional[Floats]) -> Array:
    """The result where there are no queries, or none sees a key: zeros."""
    found = np.empty(call.shape, call.dtype) if target is None else target
    if found.shape != call.shape:
        raise ArgumentError(f"out has shape {found.shape}, not {call.shape}")
    found[...] = 0
    if lse is not None:
        lse[...] = -np.inf
    return found


class Vjp:
    """The way back through an attention: ``vjp(d_o)`` gives its `Gradients`, as often as
    asked.  Inputs and the result must not change in between: they are read again."""

    __slots__ = ("_call", "_out", "_saved", "_bias")

    def __init__(self, call: _Call, out: Array, saved: Any, bias: Any) -> None:
        self._call = call
        self._out = out
        self._saved = saved
        self._bias = np.shape(bias)  # as it was given

    def __call__(self, d_o: Any) -> Gradients:
        call = self._call
        if call.empty:
            q, k, v = (None if a is None else np.zeros(a.shape, a.dtype) for a in (call.q, call.k, call.v))
            return Gradients(q, k, v, None, None, Params((), np.zeros(0, np.float32)))
        grads: Gradients = call.plan.backward(d_o, call.q, call.k, call.v, out=self._out, saved=self._saved,
                                              **call.options)
        return grads if grads.bias is None else grads._replace(bias=shared(grads.bias, self._bias))


def shared(found: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of a bias of this shape, from that of one that was written out for heads or
    sequences."""
    whole = (1,) * (4 - len(shape)) + shape
    axes = tuple(i for i in range(4) if whole[i] < found.shape[i])
    return np.asarray(found.sum(axes, keepdims=True) if axes else found).reshape(shape)


def attention_vjp(q: Any, k: Any, v: Any, spec: str = "softmax", *, causal: bool = False,
                  layout: Optional[str] = None, mask: Any = None, bias: Any = None, lengths: Any = None,
                  docs: Any = None, words: Any = None, x: Any = None, params: GivenParams = None, seed: int = 0,
                  dropout: float = 0.0, dropout_seed: int = 0, lists: Optional[Mapping[str, Any]] = None,
                  memory: int = 0, fast: bool = False, context: Optional[Context] = None) -> tuple[Array, Vjp]:
    """The result of `attention` on these arguments, and the way back.

    >>> o, vjp = foci.attention_vjp(q, k, v, "softmax sink", causal=True)
    >>> grads = vjp(d_o)
    >>> grads.q, grads.k, grads.v, grads.params["sink"]
    """
    options = _options(mask=mask, bias=bias, lengths=lengths, docs=docs, words=words, x=x, params=params,
                       dropout_seed=dropout_seed or None)
    call = _Call(q, k, v, spec, layout, causal, True, fast, memory, seed, dropout, lists, context, None, options)
    if call.empty:
        return _nothing(call, None, None), Vjp(call, np.empty(0), None, bias)
    saved = call.plan.saved()
    out = call.plan.forward(call.q, call.k, call.v, saved=saved, **call.options)
    return out, Vjp(call, out, saved, bias)
