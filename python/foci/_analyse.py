"""What a mechanism does with numbers, looked at from outside."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from . import _c
from ._attention import _Call, _options
from ._context import default_context
from ._errors import ArgumentError
from ._layer import Layer
from ._params import GivenParams
from ._plan import Plan
from ._tensors import Floats, address, array, floats

lib = _c.lib
_byref = ctypes.byref
Doubles = npt.NDArray[np.float64]
LAWS = ("exp", "relu2", "identity", "linear", "decay")
FIGURES = ("gram", "smallest", "largest", "condition", "gaussian_smallest", "gaussian_largest", "gaussian_condition",
           "overlap", "length_mean", "length_variance", "tied_mean", "tied_variance", "untied_mean", "untied_variance",
           "gradient", "gradient_spread", "parameters", "file_bytes", "training_bytes")


def _doubles(value: Any, name: str) -> Doubles:
    found = np.asarray(value) if isinstance(value, (list, tuple)) else array(value, name)
    if found.dtype.kind not in "fiu":
        found = floats(found, name)
    return np.ascontiguousarray(found, np.float64)


def _check(status: int) -> None:
    if status:
        _c.fail(status)


def weights(q: Any, k: Any, v: Any = None, spec: str = "softmax", *, causal: bool = False,
            layout: Optional[str] = None, mask: Any = None, bias: Any = None, lengths: Any = None, docs: Any = None,
            words: Any = None, x: Any = None, params: GivenParams = None, seed: int = 0) -> Floats:
    """The weights with which queries see keys, [batch][heads][len_q][len_k], by the formulas
    as written: slow, for analysis and pictures."""
    options = _options(mask=mask, bias=bias, lengths=lengths, docs=docs, words=words, x=x, params=params)
    call = _Call(q, k, k if v is None else v, spec, layout, causal, False, False, 0, seed, 0.0, None, None, None, options)
    if call.empty:
        raise ArgumentError("there are no weights: an array is empty")
    plan: Plan = call.plan
    return plan.weights(call.q, call.k, call.v, **call.options)


def head_figures(values: Any, *, causal: bool = False, top: int = 8, rank: int = 512) -> list[dict[str, float]]:
    """What the weights of heads do, [heads][len_q][len_k] or with a batch before it: of each head
    the means over rows of its concentration, entropy, distance, likeness to fixed patterns, and
    its ranks.  NaN: does not apply.

    ``causal``: a row has as many weights as there are keys up to its own.  ``top`` weights are
    those of "top"; ranks are computed of up to ``rank`` rows.
    """
    found = floats(values, "weights")
    if found.ndim not in (3, 4) or 0 in found.shape:
        raise ArgumentError(f"weights has shape {found.shape}: [heads][len_q][len_k] is needed, or a batch before it")
    context = default_context()
    count, len_q, len_k = found.shape[-3:]
    options = _c.foci_heads_options(heads=count, top=top, rank=rank)
    heads = _c.Handle(_c.created(lib.foci_heads_create, context.handle, context.handle, _byref(options)),
                      lib.foci_heads_free, context)
    for one in found.reshape(-1, count, len_q, len_k):
        status = lib.foci_heads_add_weights(heads.handle, address(one), len_q, len_k, int(causal))
        if status:
            _c.fail(status, context.handle)
    told = []
    for i in range(count):
        head = _c.foci_head()
        _check(lib.foci_heads_get(heads.handle, i, _byref(head)))
        told.append({lib.foci_head_figure_name(f).decode(): head.figures[f] for f in range(len(head.figures))})
    return told


def softmax_errors(q: Any, k: Any, v: Any, spec: str, *, causal: bool = False, layout: Optional[str] = None,
                   x: Any = None, params: GivenParams = None, seed: int = 0) -> Doubles:
    """How far each head's output is from that of softmax on the same arrays: root of the sum
    of squared differences over that of squares."""
    call = _Call(q, k, v, spec, layout, causal, False, False, 0, seed, 0.0, None, None, None,
                 _options(x=x, params=params))
    if call.empty:
        raise ArgumentError("there are no outputs: an array is empty")
    plan: Plan = call.plan
    fields, out, kept = plan._prepare(call.q, call.k, call.v, None, call.options)
    errors = np.zeros(plan.problem.heads)
    block = plan.context.take(plan.work_bytes)
    io = _c.foci_io(work=block.address, **fields)
    status = lib.foci_softmax_errors(plan.handle, _byref(io), address(errors))
    plan.context.give(block)
    plan._check(status)
    return errors


def _of_layer(function: Any, layer: Layer, x: Any, options: dict[str, Any]) -> Doubles:
    bound = layer._call(x, options, False)
    y = np.empty_like(bound.x)
    bound.io.y = address(y)
    problem = _c.foci_problem()
    _check(lib.foci_plan_get_problem(lib.foci_layer_plan(bound.shaped.handle), _byref(problem)))
    found = np.zeros(problem.heads)
    with bound.work() as io:
        bound.shaped.check(function(bound.shaped.handle, _byref(io), address(found)))
    return found


def layer_softmax_errors(layer: Layer, x: Any, **options: Any) -> Doubles:
    """The same of the heads of a layer on hidden states, modifiers on both sides; NaN: heads
    that do not read what softmax reads."""
    return _of_layer(lib.foci_layer_softmax_errors, layer, x, options)


def concentration(values: Any) -> Any:
    """How evenly weights are spread, along the last axis: |a|_1 / (sqrt(n) |a|_2), from
    1 / sqrt(n) where one of them is not zero to 1 where all have the same size."""
    found = floats(values, "weights")
    if found.ndim == 0:
        raise ArgumentError("weights is a number: there are weights of a row")
    n = found.shape[-1]
    rows = found.reshape(-1, n) if found.size else found.reshape(int(np.prod(found.shape[:-1])), n)
    spread = np.array([lib.foci_concentration(address(row), n) for row in rows])
    return float(spread[0]) if found.ndim == 1 else spread.reshape(found.shape[:-1])


def layer_concentration(layer: Layer, x: Any, **options: Any) -> Doubles:
    """The mean of `concentration` over the rows of each head of a layer: slow."""
    return _of_layer(lib.foci_layer_concentration, layer, x, options)


class Sampled(NamedTuple):
    """A number from random draws, and its standard error."""

    value: float
    error: float


def _law(kind: str, options: dict[str, Any]) -> tuple[_c.foci_concentration_law, list[Any]]:
    if kind not in LAWS:
        raise ArgumentError(f'kind "{kind}": there are {", ".join(LAWS)}')
    law, kept = _c.foci_concentration_law(kind=LAWS.index(kind)), []
    known = {"beta", "gamma", "dim", "q", "mean", "covariance", "ratio", "decay", "n"}
    for name, value in options.items():
        if name not in known:
            raise ArgumentError(f"there is no {name}=; there are {', '.join(sorted(known))}")
        if name in ("q", "mean", "covariance"):
            if value is None:
                continue
            found = _doubles(value, name)
            dim = int(options.get("dim", 0)) or law.dim or len(found)
            if found.shape != ((dim, dim) if name == "covariance" else (dim,)):
                raise ArgumentError(f"{name} has shape {found.shape}, with dim {dim}")
            law.dim = dim
            kept.append(found)
            setattr(law, name, address(found))
        else:
            setattr(law, "lambda" if name == "decay" else name, value)
    return law, kept


def concentration_theory(kind: str, **options: float) -> float:
    """The concentration of the weights of infinitely many random keys, in closed form.

    "exp", "relu2", "identity": weights of normal logits with mean ``beta`` and deviation
    ``gamma``; "linear": of ``dim`` features with ``ratio``, or ``mean`` and ``covariance``;
    "decay": ``decay``^(n-1), ..., 1 of ``n`` keys.
    """
    law, kept = _law(kind, options)
    found = ctypes.c_double()
    _check(lib.foci_concentration_theory(_byref(law), _byref(found)))
    return found.value


def concentration_quadrature(kind: str, **options: float) -> float:
    """The same number by numerical integration, which knows no closed form."""
    law, kept = _law(kind, options)
    found = ctypes.c_double()
    _check(lib.foci_concentration_quadrature(_byref(law), _byref(found)))
    return found.value


def concentration_sample(kind: str, draws: int = 100000, seed: int = 0, **options: float) -> Sampled:
    """The same number from random draws, and its standard error."""
    law, kept = _law(kind, options)
    found, error = ctypes.c_double(), ctypes.c_double()
    _check(lib.foci_concentration_sample(_byref(law), draws, seed, _byref(found), _byref(error)))
    return Sampled(found.value, error.value)


class Estimate(NamedTuple):
    """Of each pair: the kernel, mean and variance of its estimates, and the same in closed
    form with the second moment of one row; NaN where there is no formula."""

    exact: Doubles
    mean: Doubles
    variance: Doubles
    expected: Doubles
    predicted: Doubles
    second: Doubles


def estimator(spec: str, x: Any, y: Any, *, draws: int = 1000, seed: int = 0, params: GivenParams = None,
              calibrated: bool = False) -> Estimate:
    """How good the random features of a performer are: estimates of the kernel of pairs
    x, y [n][dim], which have the scale in them.  Statistics are found in x and y unless
    `calibrated` parameters have them."""
    given_x, given_y = _doubles(x, "x"), _doubles(y, "y")
    if given_x.ndim != 2 or given_x.shape != given_y.shape:
        raise ArgumentError(f"x and y have shapes {given_x.shape} and {given_y.shape}: they have to be alike, [n][dim]")
    n, dim = given_x.shape
    plan = Plan(spec, len_q=1, dim=dim)
    used = plan._params_for(params) if calibrated or params is not None else None
    found = Estimate(*(np.full(n, np.nan) for _ in Estimate._fields))
    io = _c.foci_estimator_io(n=n, x=address(given_x), y=address(given_y),
                              params=None if used is None else address(used.flat), draws=draws, seed=seed,
                              **{name: address(values) for name, values in found._asdict().items()})
    plan._check(lib.foci_estimator_run(plan.handle, _byref(io)))
    return found


class Figure(NamedTuple):
    """A number that was measured, its standard error, and its expectation by theory."""

    measured: float
    error: float
    expected: float


def orthogonality(spec: str, width: int, heads: int = 1, head_dim: int = 0, *, draws: int = 32, seed: int = 0,
                  x: Any = None) -> dict[str, Figure]:
    """What frozen projections of a spec keep of hidden states of this width: figures by name,
    measured over draws, with what theory expects."""
    head_dim = head_dim or width // max(heads, 1)
    plan = Plan(spec, len_q=1, dim=head_dim, heads=heads)
    hidden = None if x is None else floats(x, "x")
    if hidden is not None and (hidden.ndim != 2 or hidden.shape[1] != width):
        raise ArgumentError(f"x has shape {hidden.shape}, not (rows, {width})")
    figures = (_c.foci_figure * len(FIGURES))()
    io = _c.foci_orthogonality_io(group=0, width=width, seed=seed, draws=draws, x=address(hidden),
                                  rows=0 if hidden is None else len(hidden), figures=ctypes.addressof(figures))
    plan._check(lib.foci_orthogonality_run(plan.handle, _byref(io)))
    return {name: Figure(f.measured, f.error, f.expected) for name, f in zip(FIGURES, figures)}
