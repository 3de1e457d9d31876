"""Layers: from hidden states to hidden states, with the projections that their heads read."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from . import _c
from ._attention import _alike, _options, shared
from ._context import Block, Context, aligned, default_context
from ._errors import ArgumentError, DTypeError, UnsupportedError
from ._params import GivenParams, Params, given, table
from ._plan import add_lists, check_number, writable
from ._spec import check_spec
from ._state import Sequences, _Pool, _Sequence
from ._tensors import Array, Floats, address, dtype_code, dtype_of, float_array, floats, integers

lib = _c.lib
_byref = ctypes.byref
KINDS = ("attention", "gau", "conv")
KEPT = 16  # shapes


class LayerGradients(NamedTuple):
    """Gradients of what a layer read, arrays shaped as it is; None: there is no such input."""

    x: Array
    source: Any
    bias: Any
    params: Params


class _Shaped(_c.Handle):
    """A layer of the library: one shape of batch and lengths."""

    __slots__ = ("context", "problem")

    def __init__(self, context: Context, spec: Optional[str], problem: _c.foci_layer_problem) -> None:
        self.context = context
        handle = _c.created(lib.foci_layer_create, context.handle, context.handle,
                            None if spec is None else spec.encode(), _byref(problem))
        super().__init__(handle, lib.foci_layer_free, context)
        self.problem = _c.foci_layer_problem()
        lib.foci_layer_get_problem(handle, _byref(self.problem))

    def check(self, status: int) -> None:
        if status:
            _c.fail(status, self.context.handle)


class Layer:
    """Attention from hidden states to hidden states, by any spec.

    >>> layer = foci.Layer("4*softmax rope + 4*local(window=64)", width=512, heads=8, causal=True)
    >>> y = layer(x)                      # x (batch, rows, width)
    >>> y, vjp = layer.vjp(x)
    >>> grads = vjp(dy)                   # grads.x, grads.params["0.Wq"]

    ``params`` are those of the layer, drawn from ``seed``, by name; the calls read them, and
    take others by ``params=``.  ``longest`` is the length that arguments and tables follow
    from, by default that of the first call.  ``kind`` is "attention", "gau" or "conv";
    ``weight_dropout`` and ``output_dropout`` drop in every call, by its ``dropout_seed``.
    ``width_source`` above 0 makes it a cross-attention, which reads ``source``.  Frozen
    projections are in `frozen`; they follow from ``seed + index``.
    """

    def __init__(self, spec: Optional[str] = None, *, width: int, heads: int = 0, kv_heads: int = 0, head_dim: int = 0,
                 value_dim: int = 0, kind: str = "attention", causal: bool = False, dtype: Any = "float32",
                 width_source: int = 0, longest: int = 0, memory: int = 0, biases: bool = False,
                 weight_dropout: float = 0.0, output_dropout: float = 0.0, seed: int = 0, index: int = 0,
                 lists: Optional[Mapping[str, Any]] = None, fast: bool = False,
                 context: Optional[Context] = None) -> None:
        if kind not in KINDS:
            raise ArgumentError(f'kind "{kind}": there are {", ".join(KINDS)}')
        if spec is not None:
            check_spec(spec)
        self._context = context or default_context()
        self.code = dtype_code(dtype)
        self.cross = width_source > 0
        self._spec = spec
        self._lists = dict(lists or {})
        self._flags = _c.CAUSAL * causal | _c.FAST * fast
        self._fields = {
            "kind": KINDS.index(kind), "dtype": self.code, "width": width, "width_source": width_source,
            "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "value_dim": value_dim, "memory": memory,
            "biases": int(biases), "weight_dropout": weight_dropout, "output_dropout": output_dropout, "seed": seed,
            "index": index}
        for name, number in self._fields.items():
            if not isinstance(number, float):
                check_number(name, number)
        check_number("longest", longest)
        self.width = width
        self._shapes: dict[Any, _Shaped] = {}
        self._first: Optional[_Shaped] = None
        self._params: Optional[Params] = None
        self._replaced: dict[int, Floats] = {}
        if longest:
            self._shape(1, longest, longest if self.cross else 0)

    # Shapes

    def _shape(self, batch: int, rows: int, rows_source: int, *, train: bool = False, mask: Any = None,
               bias: Any = None, docs: int = 0, memory: Optional[int] = None) -> _Shaped:
        """The layer of this shape, made where it is new."""
        extents = next((a.shape[:2] for a in (mask, bias) if a is not None), (0, 0))
        key = (batch, rows, rows_source, train, mask is not None, bias is not None, extents, docs, memory)
        found = self._shapes.get(key)
        if found is None:
            with _c.lock:  # one thread makes the first, which the others follow
                found = self._shapes.get(key) or self._make(key)
                while len(self._shapes) >= KEPT:
                    del self._shapes[next(iter(self._shapes))]
                self._shapes[key] = found
        return found

    def _make(self, key: Any) -> _Shaped:
        batch, rows, rows_source, train, mask, bias, extents, docs, memory = key
        flags = self._flags | _c.TRAIN * train | _c.MASK * mask | _c.BIAS * bias
        problem = _c.foci_layer_problem(flags=flags, batch=batch, len=rows, len_source=rows_source, max_docs=docs,
                                        mask_batch=extents[0], mask_heads=extents[1], **self._fields)
        if memory is not None:
            problem.memory = memory
        kept = add_lists(problem, self._lists)
        spec = self._spec
        if self._first is not None:  # arguments that followed from its length stay
            spec = _c.text(lib.foci_plan_spec, lib.foci_layer_plan(self._first.handle))
        made = _Shaped(self._context, spec, problem)
        del kept
        tensors = table(lib.foci_layer_param_count, lib.foci_layer_param, made.handle)
        if self._first is None:
            self._first, self.tensors = made, tensors
        elif [t[:4] for t in tensors] != [t[:4] for t in self.tensors]:
            raise UnsupportedError(f"{self.spec} has tensors that depend on the length: the layer was made for "
                                   f"{self._first.problem.len} rows and cannot read {rows}; longest= says how many it is "
                                   "made for")
        for tensor, data in self._replaced.items():
            made.check(lib.foci_layer_frozen_set(made.handle, tensor, address(data)))
        return made

    def _any(self) -> _Shaped:
        if self._first is None:
            raise ArgumentError("the layer has not read anything yet, and its length is not known: say longest=")
        return self._first

    @property
    def spec(self) -> str:
        """The spec, with every argument spelled out once the length is known."""
        if self._first is None:
            return self._spec or "softmax"
        return _c.text(lib.foci_plan_spec, lib.foci_layer_plan(self._first.handle))

    def describe(self) -> str:
        """The projections and the plan of the heads, line by line, with kernels and cost."""
        return _c.text(lib.foci_layer_describe, self._any().handle)

    def cost(self, batch: int, rows: int, rows_source: int = 0, train: bool = False) -> dict[str, Any]:
        """Flops and bytes of an execution, counted and not measured."""
        shaped = self._shape(batch, rows, rows_source, train=train)
        found = _c.foci_cost()
        shaped.check(lib.foci_layer_cost(shaped.handle, _byref(found)))
        return _c.fields(found)

    def __repr__(self) -> str:
        return f"foci.Layer({self.spec!r}, width={self.width})"

    # Parameters

    def init(self, seed: int) -> Params:
        """Parameters as they are drawn from a seed."""
        shaped = self._any()
        found = Params(self.tensors, np.zeros(lib.foci_layer_param_floats(shaped.handle), np.float32))
        shaped.check(lib.foci_layer_params_init(shaped.handle, seed, address(found.flat)))
        return found

    @property
    def params(self) -> Params:
        """The parameters that calls read, by name; to be changed in place."""
        if self._params is None:
            with _c.lock:
                if self._params is None:
                    self._params = self.init(int(self._fields["seed"]))
        return self._params

    @property
    def frozen(self) -> dict[str, Floats]:
        """Copies of the frozen projections, by name."""
        shaped = self._any()
        found = {}
        for i, tensor in enumerate(self.tensors):
            if tensor.offset < 0:
                found[tensor.name] = np.empty(tensor.shape, np.float32)
                shaped.check(lib.foci_layer_frozen_get(shaped.handle, i, address(found[tensor.name])))
        return found

    def set_frozen(self, name: str, value: Any) -> None:
        """Put another frozen projection in the place of the one that was drawn."""
        self._any()
        for i, tensor in enumerate(self.tensors):
            if tensor.name == name and tensor.offset < 0:
                data = floats(value, name)
                if data.size != tensor.floats:
                    raise ArgumentError(f"{name} has shape {data.shape}, not {tensor.shape}")
                self._replaced[i] = data.copy()
                for shaped in {id(s): s for s in (self._any(), *self._shapes.values())}.values():
                    shaped.check(lib.foci_layer_frozen_set(shaped.handle, i, address(data)))
                return
        raise ArgumentError(f"{name} is not a frozen projection; there are {', '.join(self.frozen) or 'none'}")

    # Execution

    def _hidden(self, value: Any, name: str, width: int) -> Array:
        found = float_array(value, name)
        if found.dtype != dtype_of(self.code):
            raise DTypeError(f"{name} has dtype {found.dtype}, the layer was made for {dtype_of(self.code)}")
        if found.ndim == 2:
            found = found[None]
        if found.ndim != 3 or found.shape[-1] != width:
            raise ArgumentError(f"{name} has shape {found.shape}, not (batch, rows, {width})")
        return np.ascontiguousarray(found)

    def _call(self, x: Any, options: Mapping[str, Any], train: bool) -> _Bound:
        return _Bound(self, x, dict(options), train)

    def __call__(self, x: Any, *, out: Any = None, **options: Any) -> Array:
        """The output, shaped as x (batch, rows, width); without batch (rows, width) too.

        Options: source (batch, rows, width_source) and lengths_source, lengths, mask, bias,
        docs, words as `foci.attention` takes them; residual, added to the output; memory,
        rows before x, with `memory_next` to be filled for the next call; params, dropout_seed.
        """
        bound = self._call(x, options, False)
        return bound.forward(lib.foci_layer_forward, out)

    def vjp(self, x: Any, **options: Any) -> tuple[Array, Callable[[Any], LayerGradients]]:
        """The output, and a function from its gradient to those of x, source, bias and
        parameters.  The gradient of a residual is that of the output."""
        bound = self._call(x, options, True)
        y = bound.forward(lib.foci_layer_forward, None)
        return y, lambda dy: bound.backward(lib.foci_layer_backward, dy)

    def reference(self, x: Any, **options: Any) -> Array:
        """As a call, by the formulas as written, in double precision: slow."""
        return self._call(x, options, False).forward(lib.foci_ref_layer_forward, None)

    def weights(self, x: Any, **options: Any) -> Floats:
        """The weights of the heads on these hidden states, [batch][heads][rows][rows of the
        keys]: slow, for analysis."""
        bound = self._call(x, options, False)
        shaped = bound.shaped
        y = np.empty_like(bound.x)
        bound.io.y = address(y)
        plan = lib.foci_layer_plan(shaped.handle)
        problem = _c.foci_problem()
        shaped.check(lib.foci_plan_get_problem(plan, _byref(problem)))
        found = np.zeros((problem.batch, problem.heads, problem.len_q, problem.len_k), np.float32)
        with bound.work() as io:
            heads = _c.foci_io()
            shaped.check(lib.foci_layer_heads(shaped.handle, _byref(io), _byref(heads)))
            o = np.empty(problem.batch * problem.len_q * problem.heads * problem.dim_v, dtype_of(problem.dtype))
            heads.o = heads.o or address(o)
            shaped.check(lib.foci_ref_weights(plan, _byref(heads), address(found)))
        return found

    def advance(self, x: Any, **options: Any) -> None:
        """Move, in place, the parameters that mechanisms move themselves, once a training
        step."""
        self._move(lib.foci_layer_params_advance, x, options)

    def calibrate(self, x: Any, **options: Any) -> None:
        """Compute, in place, the parameters that are statistics of queries and keys."""
        self._move(lib.foci_layer_params_calibrate, x, options)

    def _move(self, function: Any, x: Any, options: Mapping[str, Any]) -> None:
        bound = self._call(x, options, False)
        with bound.work() as io:
            bound.shaped.check(function(bound.shaped.handle, _byref(io), io.params))

    def state(self, batch: int = 1, *, fixed: bool = False) -> LayerState:
        """Sequences to be decoded token by token.  ``fixed``: parameters stay as they are now,
        and what follows from them alone is computed once, not in every step."""
        return LayerState(self, batch, fixed)


class _Bound:
    """A layer of one shape with what it was called with."""

    def __init__(self, layer: Layer, x: Any, options: dict[str, Any], train: bool) -> None:
        take = options.pop
        self.layer = layer
        self.flat = getattr(x, "ndim", 3) == 2
        self.x = layer._hidden(x, "x", layer.width)
        source = take("source", None)
        if (source is not None) != layer.cross:
            raise ArgumentError("source is missing: the layer is a cross-attention" if layer.cross else
                                "source is given: width_source= makes a layer a cross-attention")
        self.source = None if source is None else layer._hidden(source, "source", layer._fields["width_source"])  # type: ignore[arg-type]
        given_pairs = _options(mask=take("mask", None), bias=take("bias", None))
        self.shapes = np.shape(source), np.shape(given_pairs.get("bias", ()))  # as they were given
        mask, bias = _alike(given_pairs)
        docs, memory = take("docs", None), take("memory", None)
        batch, rows = self.x.shape[:2]
        rows_source = 0 if self.source is None else self.source.shape[1]
        if self.source is not None and len(self.source) != batch:
            raise ArgumentError(f"x has {batch} sequences, source {len(self.source)}")
        self.shaped = layer._shape(batch, rows, rows_source, train=train, mask=mask, bias=bias,
                                   docs=0 if docs is None else max(len(docs) - 1, 1),
                                   memory=None if memory is None else np.shape(memory)[-2])
        self.kept: list[Any] = [self.x, self.source]
        self.bias = bias
        self.params = given(take("params", None), layer.params)
        self.io = _c.foci_layer_io(x=address(self.x), source=address(self.source),
                                   params=address(self.params.flat) or None,
                                   dropout_seed=take("dropout_seed", 0))
        problem = self.shaped.problem
        if problem.memory and memory is None:
            memory = np.zeros((batch, problem.memory, layer.width), self.x.dtype)
        for name, value in (("memory", memory), ("residual", take("residual", None)),
                            ("memory_next", take("memory_next", None))):
            if value is not None:
                self._put_hidden(name, value, problem)
        want = (problem.mask_batch, problem.mask_heads, rows, problem.memory + (rows_source or rows))
        for name, found in (("mask", mask), ("bias", bias)):
            if found is not None:
                if found.shape != want:
                    raise ArgumentError(f"{name} has shape {found.shape}, not {want}")
                self._put(name, found)
        for name, field in (("lengths", "lens"), ("lengths_source", "lens_source")):
            value = take(name, None)
            if value is not None:
                self._put(field, integers(value, name, (batch,)))
        if docs is not None:
            self._put("docs", integers(docs, "docs", (len(docs),)))
            self.io.n_docs = len(docs) - 1
        words = take("words", None)
        if words is not None:
            self._put("words", integers(np.atleast_2d(np.asarray(words)), "words", (batch, rows)))
        if options:
            raise ArgumentError(f"a layer takes no {next(iter(options))}=")
        self.saved: Optional[Array] = None
        if train:
            start, owner = aligned(lib.foci_layer_saved_bytes(self.shaped.handle))
            self.saved, self.io.saved = owner, start

    def _put(self, name: str, found: Array) -> None:
        setattr(self.io, name, address(found))
        self.kept.append(found)

    def _put_hidden(self, name: str, value: Any, problem: Any) -> None:
        found = self.layer._hidden(value, name, self.layer.width)
        if name == "memory_next" and (not found.flags.writeable or found.base is None and found is not value and found.base is not value):
            raise ArgumentError("memory_next has to be packed, and not read-only: it is written")
        rows = self.x.shape[1] if name == "residual" else problem.memory
        if found.shape[:2] != (self.x.shape[0], rows):
            raise ArgumentError(f"{name} has shape {found.shape}, not {(self.x.shape[0], rows, self.layer.width)}")
        self._put(name, found)

    def work(self) -> _Work:
        return _Work(self)

    def forward(self, function: Any, out: Any) -> Array:
        y = np.empty_like(self.x)
        if out is not None:
            y = writable(out, "out")
            if y.shape != self.x.shape[self.flat :] or not y.flags.c_contiguous or y.dtype != self.x.dtype:
                raise ArgumentError(f"out has shape {y.shape} and strides {y.strides} of {y.dtype}; it has to be packed "
                                    f"{self.x.dtype} of shape {self.x.shape[self.flat :]}")
            y = y.reshape(self.x.shape)
        self._put("y", y)
        with self.work() as io:
            self.shaped.check(function(self.shaped.handle, _byref(io)))
        return y[0] if self.flat else y

    def backward(self, function: Any, dy: Any) -> LayerGradients:
        given_dy = self.layer._hidden(dy, "dy", self.layer.width)
        if given_dy.shape != self.x.shape:
            raise ArgumentError(f"dy has shape {given_dy.shape}, not {self.x.shape}")
        dx = np.empty_like(self.x)
        dsource = None if self.source is None else np.empty_like(self.source)
        dbias = None if self.bias is None else np.empty_like(self.bias)
        params = self.params.zeros_like()
        grads = _c.foci_layer_grads(dy=address(given_dy), dx=address(dx), dsource=address(dsource),
                                    dbias=address(dbias), dparams=address(params.flat) or None)
        with self.work() as io:
            self.shaped.check(function(self.shaped.handle, _byref(io), _byref(grads)))
        return LayerGradients(dx[0] if self.flat else dx, None if dsource is None else dsource.reshape(self.shapes[0]),
                              None if dbias is None else shared(dbias, self.shapes[1]), params)


class _Work:
    """Scratch memory of a layer while it executes, in arguments of its own: several threads may
    go the way back of one call."""

    def __init__(self, bound: _Bound) -> None:
        self.bound = bound
        self.block: Optional[Block] = None

    def __enter__(self) -> _c.foci_layer_io:
        shaped = self.bound.shaped
        self.block = shaped.context.take(lib.foci_layer_work_bytes(shaped.handle))
        io = _c.foci_layer_io.from_buffer_copy(self.bound.io)
        io.work = self.block.address
        return io

    def __exit__(self, *_: Any) -> None:
        assert self.block is not None
        self.bound.shaped.context.give(self.block)


class LayerState(Sequences):
    """Sequences that are decoded together by a layer.

    >>> state = layer.state(batch=2)
    >>> y = state.step(x)        # (2, n, width): n new tokens of each sequence
    """

    def __init__(self, layer: Layer, batch: int = 1, fixed: bool = False) -> None:
        self.layer = layer
        self._fixed: Optional[tuple[int, Any, Params]] = None
        first = layer._first
        if first is None or first.problem.flags & (_c.MASK | _c.BIAS):  # which states cannot have
            first = layer._shape(1, 1 if first is None else first.problem.len, 0)
        self._shaped = first
        plan = lib.foci_layer_plan(self._shaped.handle)
        self._pool = _Pool(plan, self._shaped, self._shaped.context, batch)
        self._sequences = [_Sequence(self._pool) for _ in range(batch)]
        if fixed:
            params = layer.params.copy()
            start, owner = aligned(lib.foci_layer_precompute_bytes(self._shaped.handle))
            self._fixed = start, owner, params
            self._shaped.check(lib.foci_layer_precompute(self._shaped.handle, address(params.flat) or None, start))

    def step(self, x: Any, *, tokens: Any = None, residual: Any = None, words: Any = None,
             params: GivenParams = None) -> Array:
        """Append tokens: the rows of the output, shaped as x, (batch, n, width); with
        ``tokens``, how many each sequence has, x is rows one sequence after another."""
        layer = self.layer
        found = layer._hidden(x, "x", layer.width)
        if tokens is None and found.shape[0] != len(self) and np.ndim(x) == 3:
            raise ArgumentError(f"x has {found.shape[0]} sequences, the state {len(self)}")
        flat = found.reshape(-1, layer.width)
        added = None
        if residual is not None:
            added = layer._hidden(residual, "residual", layer.width).reshape(-1, layer.width)
            if added.shape != flat.shape:
                raise ArgumentError(f"residual has {len(added)} rows, x {len(flat)}")
        told = None if words is None else integers(np.asarray(words).reshape(-1), "words", (len(flat),))
        if self._fixed is not None and params is not None:
            raise ArgumentError("params= is given, and the state was made with those of then (fixed=True)")
        used = given(params, layer.params if self._fixed is None else self._fixed[2])
        y = np.empty_like(flat)
        io = _c.foci_layer_step_io(x=address(flat), y=address(y), residual=address(added), words=address(told),
                                   params=address(used.flat) or None,
                                   precomputed=None if self._fixed is None else self._fixed[0])
        handle, pool = self._shaped.handle, self._pool.handle
        with self._pool.locked.lock:
            counts, rows, longest = self._tokens(tokens, len(flat))
            if rows:
                self._run(lambda given_io: lib.foci_layer_step(handle, pool, _byref(given_io)),
                          lambda *sizes: lib.foci_layer_step_work_bytes(handle, pool, *sizes),
                          self._shaped.context, io, counts, rows, longest)
        shape: tuple[int, ...] = np.shape(x)
        return y.reshape(shape)
