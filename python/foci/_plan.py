"""Plans: how to compute a spec on a problem, made once and executed often."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import numpy as np

from . import _c
from ._context import Context, aligned, default_context
from ._errors import ArgumentError, DTypeError
from ._params import GivenParams, Param, Params, given, table
from ._spec import check_spec
from ._tensors import (Array, Floats, address, array, bfloat16, dtype_code, dtype_of, float_array, floats, integers,
                       listed)

OPTIONS = ("x", "params", "mask", "bias", "lengths", "docs", "words", "dropout_seed")  # of executions
LAYOUTS = {4: "bhnd", 3: "hnd", 2: "nd"}

lib = _c.lib
_byref = ctypes.byref


def check_layout(layout: str, n_dims: int) -> None:
    """Refuse what does not name the axes of an array with so many."""
    if len(layout) != n_dims:
        raise ArgumentError(f'layout "{layout}" names {len(layout)} axes; the array has {n_dims}')
    if set(layout) not in ({*"bhnd"}, {*"hnd"}, {*"bnd"}, {*"nd"}) or len(set(layout)) != n_dims or layout[-1] != "d":
        raise ArgumentError(f'layout "{layout}": a layout is an order of b (batch), h (heads) and n (rows), of which b '
                            'and h may be missing, and then d, for instance "bhnd" or "bnhd"')


def arranged(layout: str, batch: int, rows: int, heads: int, dim: int) -> tuple[int, ...]:
    """The shape of an array of this layout."""
    sizes = {"b": batch, "n": rows, "h": heads, "d": dim}
    return tuple(sizes[axis] for axis in layout)


def strides_of(layout: str, found: Array) -> tuple[int, int, int]:
    """The distances, in elements, of batch entries, rows and heads of an array: those of a
    foci_layout."""
    size = found.itemsize
    strides: dict[str, int] = {}
    for axis, extent, stride in zip(layout, found.shape, found.strides):
        strides[axis] = int(found.shape[-1]) if extent <= 1 else stride // size or _c.BROADCAST
    default = int(found.shape[-1])
    return strides.get("b", default), strides["n"], strides.get("h", default)


def check_number(name: str, number: Any) -> None:
    """Refuse what a field of C would cut off."""
    if not 0 <= number < 2 ** (64 if name == "seed" else 63):
        raise ArgumentError(f"{name}={number}: it has to be 0 or more, and fit into 64 bits")


def whole_numbers(values: Any, name: str) -> Array:
    """A list of planning: int64, whatever its shape was."""
    found = listed(values, f"the list {name}")
    if found.size and found.dtype.kind not in "iub":
        raise DTypeError(f"the list {name} has dtype {found.dtype}: whole numbers are needed")
    return np.ascontiguousarray(found, np.int64).ravel()


def add_lists(p: Any, lists: Optional[Mapping[str, Any]]) -> Any:
    """Give a problem its lists, as long as what is returned lives."""
    if not lists:
        return None
    arrays = {name: whole_numbers(values, name) for name, values in lists.items()}
    structs = (_c.foci_list * len(arrays))(
        *(_c.foci_list(name.encode(), values.ctypes.data, values.size) for name, values in arrays.items()))
    p.lists = ctypes.addressof(structs)
    p.n_lists = len(arrays)
    return arrays, structs


class Gradients(NamedTuple):
    """Gradients of the inputs of an attention, arrays shaped as they are; None: there is no such
    input."""

    q: Any
    k: Any
    v: Any
    x: Any
    bias: Any
    params: Params


class Saved:
    """What a forward call keeps for backward calls of the same plan."""

    __slots__ = ("plan", "filled", "_start", "_owner")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.filled = False
        self._start, self._owner = aligned(plan.saved_bytes)

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.plan.saved_bytes

    def of(self, plan: Plan) -> int:
        """Where it lies; refused where it belongs to another plan."""
        if self.plan is not plan:
            raise ArgumentError("saved is that of another plan: each has its own, by Plan.saved()")
        return self._start


class Plan(_c.Handle):
    """How to compute a spec on a problem: made once, executed often, by any threads.

    >>> plan = foci.Plan("local(window=64) rope", heads=8, len_q=1024, dim=64, causal=True)
    >>> o = plan.forward(q, k, v)

    Arrays are laid out as `layout` says, packed; others of the same shape are copied first.
    ``strides`` says where rows lie in place of that: for "q", "k", "v", "o", "x" the
    distances in elements of batch entries, rows and heads.  ``train`` keeps what `backward`
    needs.  ``mask`` and ``bias`` say that one will be given: True, or its extents along
    batch and heads, such as (1, 8).
    """

    __slots__ = ("context", "problem", "layout", "dtype", "code", "tensors", "work_bytes", "saved_bytes",
                 "_drawn", "_shapes", "_strides", "_bytes", "_ways", "_n_floats")

    def __init__(self, spec: str = "softmax", *, len_q: int, dim: int, batch: int = 1, heads: int = 1,
                 kv_heads: int = 0, len_k: int = 0, dim_v: int = 0, dim_x: int = 0, dtype: Any = "float32",
                 causal: bool = False, train: bool = False, layout: str = "bhnd", fast: bool = False, mask: Any = False,
                 bias: Any = False, memory: int = 0, memory_grads: bool = False, max_docs: int = 0,
                 lists: Optional[Mapping[str, Any]] = None, seed: int = 0, dropout: float = 0.0,
                 strides: Optional[Mapping[str, tuple[int, int, int]]] = None,
                 context: Optional[Context] = None) -> None:
        check_layout(layout, len(layout))
        check_spec(spec)
        self.context = context or default_context()
        self.code = dtype_code(dtype)
        # tensors of bf16 have addresses also where NumPy has no such type
        self.dtype: np.dtype[Any] = np.dtype(np.uint16) if self.code == _c.BF16 and bfloat16 is None \
            else dtype_of(self.code)
        self.layout = layout
        flags = (_c.CAUSAL * causal | _c.TRAIN * train | _c.FAST * fast | _c.MASK * bool(mask) | _c.BIAS * bool(bias)
                 | _c.MEMORY_GRADS * memory_grads)
        extents = next((tuple(e) for e in (mask, bias) if isinstance(e, (tuple, list))), (0, 0))
        p = _c.foci_problem(dtype=self.code, flags=flags)
        numbers = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "len_q": len_q, "len_k": len_k, "dim_qk": dim,
                   "dim_v": dim_v, "dim_x": dim_x, "memory": memory, "max_docs": max_docs, "seed": seed,
                   "mask_batch": extents[0], "mask_heads": extents[1]}
        for name, number in numbers.items():
            check_number(name, number)
            setattr(p, name, number)
        p.dropout = dropout
        kept = add_lists(p, lists)
        if strides is None:
            strides = self._packed(p)
        for name, distances in strides.items():
            setattr(p, name, _c.foci_layout(*distances))
        handle = _c.created(lib.foci_plan_create, self.context.handle, self.context.handle, spec.encode(), _byref(p))
        del kept
        super().__init__(handle, lib.foci_plan_free, self.context)
        self.problem = _c.foci_problem()
        self._check(lib.foci_plan_get_problem(handle, _byref(self.problem)))
        self.work_bytes: int = lib.foci_plan_work_bytes(handle)
        self.saved_bytes: int = lib.foci_plan_saved_bytes(handle)
        self._n_floats: int = lib.foci_plan_param_floats(handle)
        self.tensors: tuple[Param, ...] = table(lib.foci_plan_param_count, lib.foci_plan_param, handle)
        self._drawn: Optional[Params] = None
        q = self.problem
        self._shapes = {
            "q": arranged(layout, q.batch, q.len_q, q.heads, q.dim_qk),
            "k": arranged(layout, q.batch, q.len_k, q.kv_heads, q.dim_qk),
            "v": arranged(layout, q.batch, q.len_k, q.kv_heads, q.dim_v),
            "o": arranged(layout, q.batch, q.len_q, q.heads, q.dim_v),
        }
        # by name: the distances that rows have, in elements, that of the elements of a row last
        self._strides = {name: self._expected(name) for name in self._shapes}
        self._bytes = {name: tuple(distance * self.dtype.itemsize for distance in distances)
                       for name, distances in self._strides.items()}
        self._ways: dict[str, Any] = {}

    def _packed(self, p: _c.foci_problem) -> dict[str, tuple[int, int, int]]:
        """Distances of rows in packed arrays of the plan's layout."""
        kv_heads = p.kv_heads or p.heads
        len_k = p.len_k or p.len_q
        sizes = {"q": (p.len_q, p.heads, p.dim_qk), "k": (len_k, kv_heads, p.dim_qk),
                 "v": (len_k, kv_heads, p.dim_v or p.dim_qk), "o": (p.len_q, p.heads, p.dim_v or p.dim_qk)}
        found: dict[str, tuple[int, int, int]] = {}
        if self.layout in ("bnhd", "nhd"):
            return found  # what the library takes by itself
        for name, (rows, heads, dim) in sizes.items():
            distances, step = {}, 1
            for axis, extent in reversed(list(zip(self.layout, arranged(self.layout, p.batch, rows, heads, dim)))):
                distances[axis] = step
                step *= max(extent, 1)
            found[name] = (distances.get("b", step), distances["n"], distances.get("h", dim))
        return found

    def _expected(self, name: str) -> tuple[int, ...]:
        distances = getattr(self.problem, name)
        by_axis = {"b": distances.batch, "n": distances.row, "h": distances.head, "d": 1}
        return tuple(0 if by_axis[axis] == _c.BROADCAST else by_axis[axis] for axis in self.layout)

    def _check(self, status: int) -> None:
        if status:
            _c.fail(status, self.context.handle)

    def __repr__(self) -> str:
        return f"foci.Plan({self.spec!r}, {self.problem_text!r})"

    @property
    def spec(self) -> str:
        """The spec with every argument spelled out."""
        return _c.text(lib.foci_plan_spec, self.handle)

    @property
    def problem_text(self) -> str:
        """The shapes as the command writes them, "b2h8n4096d64c"."""
        return _c.text(lib.foci_problem_print, _byref(self.problem))

    def describe(self) -> str:
        """A line for each stage, with kernels and cost."""
        return _c.text(lib.foci_plan_describe, self.handle)

    def cost(self) -> dict[str, Any]:
        """Flops, bytes, visible pairs and tiles of an execution, counted and not measured."""
        found = _c.foci_cost()
        self._check(lib.foci_plan_cost(self.handle, _byref(found)))
        return _c.fields(found)

    def params(self, seed: int = 0) -> Params:
        """Parameters as they are drawn from a seed."""
        found = Params(self.tensors, np.zeros(self._n_floats, np.float32))
        self._check(lib.foci_params_init(self.handle, seed, address(found.flat)))
        return found

    def _params_for(self, params: GivenParams) -> Optional[Params]:
        """The parameters of a call; those drawn from the problem's seed where none are given."""
        if not self._n_floats:
            if params:
                raise ArgumentError(f'there is no parameter "{next(iter(params))}": {self.spec} has none')
            return None
        if self._drawn is None:
            self._drawn = self.params(self.problem.seed)
        return given(params, self._drawn)

    # Execution

    def saved(self) -> Saved:
        """Memory for what `forward` keeps for `backward`."""
        if not self.problem.flags & _c.TRAIN:
            raise ArgumentError("the plan was made without train=True: it has no backward")
        return Saved(self)

    def execute(self, q: int, k: int, v: int, o: int, **fields: Any) -> None:
        """foci_forward() on addresses of memory; `fields` are others of foci_io.  The caller
        answers for what lies there, of the strides that the plan was made for."""
        block = self.context.take(self.work_bytes)
        io = _c.foci_io(q=q, k=k, v=v, o=o, work=block.address, **fields)
        status = lib.foci_forward(self.handle, _byref(io))
        self.context.give(block)
        if status:
            _c.fail(status, self.context.handle)

    def execute_backward(self, q: int, k: int, v: int, o: int, saved: int, grads: _c.foci_grads,
                         **fields: Any) -> None:
        """foci_backward() on addresses of memory, likewise."""
        block = self.context.take(self.work_bytes)
        io = _c.foci_io(q=q, k=k, v=v, o=o, saved=saved, work=block.address, **fields)
        status = lib.foci_backward(self.handle, _byref(io), _byref(grads))
        self.context.give(block)
        if status:
            _c.fail(status, self.context.handle)

    def _fit(self, value: Any, name: str, like: str) -> Array:
        """An array of the shape and strides that the plan has for `like`: the one given, or a
        copy of it where its strides differ."""
        if type(value) is np.ndarray and value.dtype == self.dtype and value.shape == self._shapes[like] \
                and value.strides == self._bytes[like] and value.flags.aligned:
            return value
        found = float_array(value, name)
        shape, strides = self._shapes[like], self._strides[like]
        if found.dtype != self.dtype:
            raise DTypeError(f"{name} has dtype {found.dtype}, the plan was made for {self.dtype}")
        if found.shape != shape:
            raise ArgumentError(f"{name} has shape {found.shape}, not {shape} ({self.layout})")
        size = found.itemsize
        same = all(extent == 1 or have == want * size for extent, have, want in zip(shape, found.strides, strides))
        if same and found.flags.aligned:
            return found
        if any(want == 0 and extent > 1 for want, extent in zip(strides, shape)):
            raise ArgumentError(f"{name} has strides {found.strides}: the plan was made for rows that are all the same")
        fitted = self.empty(like)
        fitted[...] = found
        return fitted

    def empty(self, like: str = "o") -> Array:
        """An array of the shape and strides that the plan has for "q", "k", "v" or "o"."""
        way = self._ways.get(like)
        if way is None:
            way = self._ways[like] = self._way(like)
        shape, back, strides = way
        found: Array = np.empty(shape, self.dtype)
        if strides is not None:
            return np.lib.stride_tricks.as_strided(found, self._shapes[like], strides)
        return found if back is None else found.transpose(back)

    def _way(self, like: str) -> Any:
        """How to make an array of these strides: a packed one whose axes are then put in order,
        or, where rows lie apart, a flat one with the strides in bytes."""
        shape, strides, size = self._shapes[like], self._strides[like], self.dtype.itemsize
        order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
        back = [order.index(axis) for axis in range(len(shape))]
        packed = np.empty([shape[axis] for axis in order], np.uint8).transpose(back)
        if all(e == 1 or s == w for e, s, w in zip(shape, packed.strides, strides)):
            return [shape[axis] for axis in order], None if back == sorted(back) else back, None
        return 1 + sum(w * (e - 1) for e, w in zip(shape, strides)), None, [w * size for w in strides]

    def _inputs(self, q: Any, k: Any, v: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """Fields of foci_io for what a call was given, and the arrays that they point to."""
        fields: dict[str, Any] = {}
        kept: list[Any] = []
        for name, value in (("q", q), ("k", k), ("v", v)):
            if value is not None:
                found = self._fit(value, name, name)
                fields[name] = address(found)
                kept.append(found)
        if self._n_floats or options.get("params"):
            params = self._params_for(options.get("params"))
            if params is not None:
                fields["params"] = address(params.flat)
                kept.append(params)
        if options or self.problem.flags & (_c.MASK | _c.BIAS):
            self._add_options(fields, kept, options)
        return fields, kept

    def _add_options(self, fields: dict[str, Any], kept: list[Any], options: Mapping[str, Any]) -> None:
        """What calls have beside q, k, v and parameters."""
        p = self.problem
        for name in options:
            if name not in OPTIONS:
                raise ArgumentError(f"there is no {name}=; there are {', '.join(OPTIONS)}")

        def put(name: str, found: Optional[Array]) -> None:
            if found is not None:
                fields[name] = address(found)
                kept.append(found)

        put("x", self._hidden(options.get("x")))
        lengths = options.get("lengths")
        if lengths is not None:
            pair = lengths if isinstance(lengths, tuple) and len(lengths) == 2 else (lengths, lengths)
            for name, value in zip(("len_q", "len_k"), pair):
                if value is not None:
                    put(name, integers(value, f"lengths ({name})", (p.batch,)))
        docs = options.get("docs")
        if docs is not None:
            found = integers(docs, "docs", (np.asarray(docs).size,))
            put("docs", found)
            fields["n_docs"] = found.size - 1
        if options.get("words") is not None:
            put("words", self._words(options["words"]))
        put("mask", self._pairs(options.get("mask"), "mask", _c.MASK))
        put("bias", self._pairs(options.get("bias"), "bias", _c.BIAS))
        fields["dropout_seed"] = options.get("dropout_seed", 0)

    def _words(self, value: Any) -> Array:
        p = self.problem
        found = listed(value, "words") if isinstance(value, list) else array(value, "words")
        if found.ndim == 1:
            found = found[None]
        return integers(found, "words", (p.batch, p.len_k))

    def _hidden(self, value: Any) -> Optional[Array]:
        """Hidden states, [batch][row][dim_x], packed."""
        if value is None:
            return None
        p = self.problem
        found = float_array(value, "x")
        if found.ndim == 2:
            found = found[None]
        want = (p.batch, p.len_q, p.dim_x)
        if found.shape != want:
            raise ArgumentError(f"x has shape {found.shape}, not {want}")
        if found.dtype != self.dtype:
            raise DTypeError(f"x has dtype {found.dtype}, q, k and v have {self.dtype}")
        return np.ascontiguousarray(found)

    def _pairs(self, value: Any, name: str, flag: int) -> Optional[Array]:
        """A mask or bias, [mask_batch][mask_heads][len_q][len_k], packed."""
        p = self.problem
        if (value is not None) != bool(p.flags & flag):
            raise ArgumentError(f"{name}={'given' if value is not None else None}: the plan was made "
                                f"{'with' if value is None else 'without'} {name}=True")
        if value is None:
            return None
        found = pairs(value, name)
        want = (p.mask_batch, p.mask_heads, p.len_q, p.len_k)
        if found.shape != want:
            raise ArgumentError(f"{name} has shape {found.shape}, not {want}")
        return found

    def _prepare(self, q: Any, k: Any, v: Any, out: Any,
                 options: Mapping[str, Any]) -> tuple[dict[str, Any], Array, list[Any]]:
        fields, kept = self._inputs(q, k, v, options)
        if out is None:
            found = self.empty("o")
        else:
            found = writable(out, "out")
            fitted = self._fit(found, "out", "o")
            if fitted is not found:
                raise ArgumentError(f"out has strides {found.strides}, the plan was made for others: nothing would be "
                                    "written there; Plan(..., strides={'o': ...}) says what they are")
        fields["o"] = address(found)
        return fields, found, kept

    def forward(self, q: Any, k: Any, v: Any, *, out: Any = None, saved: Optional[Saved] = None,
                lse: Optional[Floats] = None, **options: Any) -> Array:
        """Attend.  `out` is written where it is given; `saved` (from `Plan.saved`) is what
        `backward` reads; `lse` takes the logarithm of what weights were divided by, float32
        [batch][heads][len_q].  Options are those of `foci.attention` that executions have:
        x, params, mask, bias, lengths, docs, words, dropout_seed."""
        fields, found, kept = self._prepare(q, k, v, out, options)
        block = self.context.take(self.work_bytes)
        if saved is not None:
            fields["saved"] = saved.of(self)
        if lse is not None:
            fields["lse"] = address(self._lse(lse))
        io = _c.foci_io(work=block.address, **fields)
        status = lib.foci_forward(self.handle, _byref(io))
        self.context.give(block)
        self._check(status)
        if saved is not None:
            saved.filled = True
        return found

    def _lse(self, lse: Optional[Floats]) -> Optional[Floats]:
        p = self.problem
        if lse is not None and (not isinstance(lse, np.ndarray) or lse.dtype != np.float32
                                or lse.size != p.batch * p.heads * p.len_q or not lse.flags.c_contiguous
                                or not lse.flags.writeable):
            raise ArgumentError(f"lse has to be a packed NumPy array of float32, of shape {(p.batch, p.heads, p.len_q)}")
        return lse

    def backward(self, d_o: Any, q: Any, k: Any, v: Any, *, out: Array, saved: Saved, **options: Any) -> Gradients:
        """The gradients of the forward call that had these inputs and options, of which
        `out` and `saved` are what it left."""
        fields, _, kept = self._prepare(q, k, v, out, options)
        start = saved.of(self)
        if not saved.filled:
            raise ArgumentError("saved is empty: forward(..., saved=saved) of the same inputs comes first")
        return self._backward(lib.foci_backward, d_o, fields, start, options)

    def _backward(self, function: Any, d_o: Any, fields: dict[str, Any], saved: int,
                  options: Mapping[str, Any]) -> Gradients:
        made: dict[str, Array] = {name: self.empty(name) for name in "qkv" if name in fields}
        if "x" in fields:
            p = self.problem
            made["x"] = np.empty((p.batch, p.len_q, p.dim_x), self.dtype)
        if "bias" in fields:
            p = self.problem
            made["bias"] = np.empty((p.mask_batch, p.mask_heads, p.len_q, p.len_k), np.float32)
        params = Params(self.tensors, np.zeros(self._n_floats, np.float32))
        given_o = self._fit(d_o, "d_o", "o")
        grads = _c.foci_grads(d_o=address(given_o), dparams=address(params.flat) if self._n_floats else None,
                              **{f"d{name}": address(found) for name, found in made.items()})
        block = self.context.take(self.work_bytes)
        io = _c.foci_io(saved=saved, work=block.address, **fields)
        status = function(self.handle, _byref(io), _byref(grads))
        self.context.give(block)
        self._check(status)
        for name in ("x", "bias"):  # which may have been given with fewer axes
            if name in made:
                made[name] = made[name].reshape(np.shape(options[name]))
        return Gradients(**{name: made.get(name) for name in ("q", "k", "v", "x", "bias")}, params=params)

    def advance(self, q: Any, k: Any, params: Params, v: Any = None, **options: Any) -> None:
        """Move, in place, the parameters that a mechanism moves itself, once a training step."""
        self._move(lib.foci_params_advance, q, k, v, params, options)

    def calibrate(self, q: Any, k: Any, params: Params, v: Any = None, **options: Any) -> None:
        """Compute, in place, the parameters that are statistics of q and k; they then stay
        fixed, as causal problems need."""
        self._move(lib.foci_params_calibrate, q, k, v, params, options)

    def _move(self, function: Any, q: Any, k: Any, v: Any, params: Params, options: Mapping[str, Any]) -> None:
        fields, kept = self._inputs(q, k, v, {**options, "params": params})
        for name in ("v", "o"):  # neither is looked at, but has to be there
            kept.append(self.empty(name))
            fields.setdefault(name, address(kept[-1]))
        block = self.context.take(self.work_bytes)
        io = _c.foci_io(work=block.address, **fields)
        status = function(self.handle, _byref(io), address(params.flat))
        self.context.give(block)
        self._check(status)

    # The judge

    def reference(self, q: Any, k: Any, v: Any, *, out: Any = None, **options: Any) -> Array:
        """As `forward`, by the formulas as written, in double precision: slow."""
        fields, found, kept = self._prepare(q, k, v, out, options)
        self._check(lib.foci_ref_forward(self.handle, _byref(_c.foci_io(**fields))))
        return found

    def reference_vjp(self, d_o: Any, q: Any, k: Any, v: Any, **options: Any) -> Gradients:
        """The gradients that go with `reference`."""
        fields, found, kept = self._prepare(q, k, v, None, options)
        self._check(lib.foci_ref_forward(self.handle, _byref(_c.foci_io(**fields))))
        return self._backward(lib.foci_ref_backward, d_o, fields, 0, options)

    def weights(self, q: Any, k: Any, v: Any = None, **options: Any) -> Floats:
        """The matrix A with o = A v, [batch][heads][len_q][len_k]: slow, for analysis."""
        p = self.problem
        if v is None:
            v = self.empty("v")
            v[...] = 0
        fields, found, kept = self._prepare(q, k, v, None, options)
        weights = np.zeros((p.batch, p.heads, p.len_q, p.len_k), np.float32)
        self._check(lib.foci_ref_weights(self.handle, _byref(_c.foci_io(**fields)), address(weights)))
        return weights


def writable(value: Any, name: str) -> Array:
    """An array that may be written."""
    found = float_array(value, name)
    if not found.flags.writeable:
        raise ArgumentError(f"{name} is read-only")
    return found


def pairs(value: Any, name: str) -> Array:
    """A mask (bytes, 0: hidden) or a bias (float32) with four axes, packed."""
    found = array(value, name)
    if not 2 <= found.ndim <= 4:
        raise ArgumentError(f"{name} has shape {found.shape}: it is [len_q][len_k], with heads, or batch and heads, "
                            "before it")
    found = found.reshape((1,) * (4 - found.ndim) + found.shape)
    if name == "bias":
        return floats(found, name)
    if found.dtype == np.bool_:
        return np.ascontiguousarray(found).view(np.uint8)
    if found.dtype.kind not in "iu":
        raise DTypeError(f"mask has dtype {found.dtype}: a mask is bool, False where a key is hidden; what is added to "
                         "logits is a bias")
    return np.ascontiguousarray(found != 0).view(np.uint8)
