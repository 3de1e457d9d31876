"""foci.torch.Attention: a layer of any spec as a module of PyTorch."""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from . import _c, _context
from ._context import default_context
from ._errors import ArgumentError, DTypeError, UnsupportedError
from ._layer import KINDS, _Shaped
from ._params import Param, table
from ._plan import add_lists
from ._tensors import dtype_code
from ._torch_calls import check_device, check_dtype, packed, pointer
from ._torch_ops import TWICE, _told, cast, check_packed, joined, plain, refuse_tangents, refused, whole

lib = _c.lib
_byref = ctypes.byref
KEPT = 64  # shapes of one `LayerHow`
PROBE = 64  # rows of the layer that tells which tensors there are, where no length is known


class Inputs(NamedTuple):
    """What a layer reads beside x, source, bias and parameters: no gradients."""

    mask: Optional[Tensor] = None
    lens: Optional[Tensor] = None
    lens_source: Optional[Tensor] = None
    docs: Optional[Tensor] = None
    words: Optional[Tensor] = None


NOTHING = Inputs()


class _Entry:
    """A layer of one shape."""

    __slots__ = ("shaped", "handle", "work", "saved", "memory", "context")

    def __init__(self, shaped: _Shaped) -> None:
        self.shaped, self.handle, self.context = shaped, shaped.handle, shaped.context
        self.work: int = lib.foci_layer_work_bytes(self.handle)
        self.saved: int = lib.foci_layer_saved_bytes(self.handle)
        p = shaped.problem
        self.memory: int = p.batch * p.memory * p.width


class LayerHow:
    """What a layer computes, apart from tensors; its text is an argument of the operators."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: dict[str, Any] = dict(ast.literal_eval(text))
        self.spec: Optional[str] = self.fields.pop("spec")
        self.max_len: int = self.fields.pop("max_len")
        self.dropouts = {name: self.fields.pop(name) for name in ("weight_dropout", "output_dropout")}
        self.causal: bool = self.fields.pop("causal")
        self.fast: bool = self.fields.pop("fast")
        self.lists = dict(self.fields.pop("lists"))
        self.cross: bool = self.fields["width_source"] > 0
        self.context = default_context()
        self.entries: dict[Any, _Entry] = {}
        rows = self.max_len or PROBE
        first = self.make((torch.float32, False, self.causal, False, 1, rows, rows if self.cross else 0, None, None, 0))
        self.first = first
        if self.max_len:  # arguments that follow from the length stay
            self.spec = _c.text(lib.foci_plan_spec, lib.foci_layer_plan(first.handle))
        self.tensors = table(lib.foci_layer_param_count, lib.foci_layer_param, first.handle)
        self.stored = tuple(t for t in self.tensors if t.offset >= 0)
        self.n_floats: int = lib.foci_layer_param_floats(first.handle)

    def make(self, key: Any) -> _Entry:
        dtype, train, causal, dropping, batch, rows, rows_source, mask, bias, docs = key
        flags = (_c.CAUSAL * causal | _c.TRAIN * train | _c.FAST * self.fast | _c.MASK * (mask is not None)
                 | _c.BIAS * (bias is not None))
        extents = mask or bias or (0, 0)
        problem = _c.foci_layer_problem(
            flags=flags, dtype=dtype_code(dtype), batch=batch, len=rows, len_source=rows_source, max_docs=docs,
            mask_batch=extents[0], mask_heads=extents[1], **self.fields,
            **(self.dropouts if dropping else {}))
        kept = add_lists(problem, self.lists)
        made = _Shaped(self.context, self.spec, problem)
        del kept
        return _Entry(made)

    def entry(self, key: Any) -> _Entry:
        """The layer of a shape, made where it is new."""
        if self.context is not _context._default:
            with _c.lock:
                self.context, self.entries = default_context(), {}
        found = self.entries.get(key)
        if found is None:
            found = self.make(key)
            self._check_tensors(found)
            with _c.lock:
                while len(self.entries) >= KEPT:
                    del self.entries[next(iter(self.entries))]
                self.entries[key] = found
        return found

    def _check_tensors(self, found: _Entry) -> None:
        tensors = table(lib.foci_layer_param_count, lib.foci_layer_param, found.handle)
        if [t[:4] for t in tensors] != [t[:4] for t in self.tensors]:
            raise UnsupportedError(f"{self.spec or 'softmax'} has tensors that depend on the length: the layer was made "
                                   f"for {self.max_len or PROBE} rows and cannot read {found.shaped.problem.len}; "
                                   "max_len= says how many it is made for")


_hows: dict[str, LayerHow] = {}


def how_of(text: str) -> LayerHow:
    """The `LayerHow` of a text."""
    found = _hows.get(text)
    if found is None:
        if len(_hows) >= 1024:
            _hows.clear()
        found = _hows[text] = LayerHow(text)
    return found


def key_of(x: Tensor, source: Optional[Tensor], bias: Optional[Tensor], extra: Inputs, train: bool, causal: bool,
           dropping: bool) -> Any:
    mask, docs = extra.mask, extra.docs
    return (x.dtype, train, causal, dropping, int(x.shape[0]), int(x.shape[1]),
            0 if source is None else int(source.shape[1]), None if mask is None else tuple(map(int, mask.shape[:2])),
            None if bias is None else tuple(map(int, bias.shape[:2])), 0 if docs is None else max(len(docs) - 1, 1))


def flat_of(how: LayerHow, params: Sequence[Tensor]) -> Optional[Tensor]:
    """All parameters in one array: the memory that they lie in, where they lie one behind the
    other, as those of a new module do; a copy elsewhere."""
    if len(params) != len(how.stored):
        raise ArgumentError(f"{len(params)} parameters are given; the layer has {len(how.stored)}")
    if not params:
        return None
    return params[0] if adjacent(how, params) else gathered(how, params)


def adjacent(how: LayerHow, params: Sequence[Tensor]) -> bool:
    """Whether the parameters lie in one array as the library has them."""
    base = params[0].data_ptr()
    for t, tensor in zip(params, how.stored):
        if t.data_ptr() != base + 4 * tensor.offset or t.dtype != torch.float32 or t.shape != tensor.shape or \
                not t.is_contiguous():
            return False
    return True


def gathered(how: LayerHow, params: Sequence[Tensor]) -> Tensor:
    """A copy of all parameters in one array."""
    flat = torch.zeros(how.n_floats)
    with torch.no_grad():
        for t, tensor in zip(params, how.stored):
            part(flat, tensor).copy_(t)
    return flat


def part(flat: Tensor, tensor: Param) -> Tensor:
    """A tensor in the array of all."""
    return torch.as_strided(flat, tensor.shape, packed(tensor.shape), flat.storage_offset() + tensor.offset)


def _io(entry: _Entry, x: Tensor, source: Optional[Tensor], bias: Optional[Tensor], params: Optional[Tensor],
        extra: Inputs, dropout_seed: int) -> tuple[Any, Any]:
    """The arguments of an execution, and tensors that have to live as long."""
    io = _c.foci_layer_io(x=x.data_ptr(), source=pointer(source), params=pointer(params), bias=pointer(bias),
                          dropout_seed=dropout_seed)
    memory = None
    if extra is not NOTHING:
        for name, t in zip(Inputs._fields, extra):
            setattr(io, name, pointer(t))
        io.n_docs = 0 if extra.docs is None else len(extra.docs) - 1
    if entry.memory:
        memory = torch.zeros(entry.memory, dtype=x.dtype)
        io.memory = memory.data_ptr()
    return io, (params, memory)


def _execute(entry: _Entry, function: Any, io: Any, *more: Any) -> None:
    block = entry.context.take(entry.work)
    io.work = block.address
    status = function(entry.handle, _byref(io), *more)
    entry.context.give(block)
    if status:
        _c.fail(status, entry.context.handle)


def forward(how: LayerHow, x: Tensor, source: Optional[Tensor], bias: Optional[Tensor], params: Sequence[Tensor],
            extra: Inputs, train: bool, causal: bool, dropping: bool, dropout_seed: int,
            reserve: Any = torch.empty) -> tuple[Tensor, Any]:
    """The output, and with `train` what backward needs, in memory that `reserve` makes."""
    y = torch.empty(x.shape, dtype=x.dtype)
    if not x.numel():
        return y, torch.empty(0, dtype=torch.uint8)
    entry = how.entry(key_of(x, source, bias, extra, train, causal, dropping))
    io, kept = _io(entry, x, source, bias, flat_of(how, params), extra, dropout_seed)
    io.y = y.data_ptr()
    saved = reserve(entry.saved if train else 0, dtype=torch.uint8)
    if train:
        io.saved = saved.data_ptr()
    _execute(entry, lib.foci_layer_forward, io)
    return y, saved


def backward(how: LayerHow, dy: Tensor, x: Tensor, source: Optional[Tensor], bias: Optional[Tensor],
             params: Sequence[Tensor], extra: Inputs, saved: Tensor, y: Tensor, causal: bool, dropping: bool,
             dropout_seed: int, wanted: Sequence[bool]) -> list[Tensor]:
    """The gradients of x, source, bias and all parameters; empty where they are not wanted."""
    made = [torch.empty_like(t) if want and t is not None else dy.new_empty(0)
            for t, want in zip((x, source, bias), wanted)]
    dparams = torch.zeros(how.n_floats if wanted[3] else 0)
    if not x.numel():
        return [*(g.zero_() for g in made), dparams]
    entry = how.entry(key_of(x, source, bias, extra, True, causal, dropping))
    if saved.numel() < entry.saved or y.shape != x.shape or dy.shape != x.shape or dy.dtype != x.dtype:
        raise ArgumentError("y and saved are not what the forward call of these inputs gave")
    io, kept = _io(entry, x, source, bias, flat_of(how, params), extra, dropout_seed)
    io.y, io.saved = y.data_ptr(), saved.data_ptr()
    dy = dy.resolve_neg().contiguous()
    grads = _c.foci_layer_grads(dy=dy.data_ptr(), dparams=pointer(dparams) if wanted[3] else None)
    for name, g, want, t in zip(("dx", "dsource", "dbias"), made, wanted, (x, source, bias)):
        if want and t is not None:
            setattr(grads, name, g.data_ptr())
    _execute(entry, lib.foci_layer_backward, io, _byref(grads))
    return [*made, dparams]


# Operators

INPUTS = ("Tensor x, Tensor? source, Tensor? bias, Tensor[] params, Tensor? mask, Tensor? lens, Tensor? lens_source, "
          "Tensor? docs, Tensor? words, Tensor? dropout_seed, str how")


def _extra(*tensors: Optional[Tensor]) -> Inputs:
    return NOTHING if all(t is None for t in tensors) else Inputs(*tensors)


def check_sizes(x: Tensor, source: Optional[Tensor], extra: Inputs) -> None:
    """Sizes of what the library reads without looking at them."""
    batch, rows = x.shape[:2]
    if source is not None and (source.shape[0] != batch or source.dtype != x.dtype):
        raise ArgumentError(f"query has {batch} sequences of {x.dtype}, key {source.shape[0]} of {source.dtype}")
    if extra is NOTHING:
        return
    for name, t in (("lengths", extra.lens), ("lengths_source", extra.lens_source)):
        if t is not None and tuple(t.shape) != (batch,):
            raise ArgumentError(f"{name} has shape {tuple(t.shape)}, not {(batch,)}")
    if extra.words is not None and extra.words.numel() != batch * rows:
        raise ArgumentError(f"words has shape {tuple(extra.words.shape)}, not {(batch, rows)}")
    if extra.docs is not None and (extra.docs.dim() != 1 or not len(extra.docs)):
        raise ArgumentError(f"docs has shape {tuple(extra.docs.shape)}: it is offsets 0, ..., n")


def _check_raw(how: LayerHow, x: Tensor, source: Optional[Tensor], bias: Optional[Tensor], extra: Inputs) -> None:
    """What Attention sees to, and an operator that is called by itself, or compiled, may be given."""
    if (source is not None) != how.cross:
        raise ArgumentError(f"source is {'missing' if how.cross else 'given'}: the layer was made "
                            f"with{'' if how.cross else 'out'} cross=True")
    for name, t in (("x", x), ("source", source)):
        width = how.fields["width" if name == "x" else "width_source"]
        if t is not None and (t.dim() != 3 or t.shape[2] != width):
            raise ArgumentError(f"{name} has shape {tuple(t.shape)}, not (batch, rows, {width})")
    check_packed("layer", "Attention", bias, extra, x=x, source=source)
    check_sizes(x, source, extra)
    want = (x.shape[1], x.shape[1] if source is None else source.shape[1])
    for name, t in (("mask", extra.mask), ("bias", bias)):
        if t is not None and (t.dim() != 4 or tuple(t.shape[2:]) != want):
            raise ArgumentError(f"{name} has shape {tuple(t.shape)}, not (batch, heads, {want[0]}, {want[1]})")
    if extra.mask is not None and bias is not None and extra.mask.shape != bias.shape:
        raise ArgumentError(f"mask has shape {tuple(extra.mask.shape)}, bias {tuple(bias.shape)}: they have to agree")


@torch.library.custom_op("foci::layer", mutates_args=(), device_types="cpu",
                         schema=f"({INPUTS}, bool train, bool causal, bool dropping) -> (Tensor, Tensor)")
def layer_op(x, source, bias, params, mask, lens, lens_source, docs, words, dropout_seed, how, train, causal, dropping):  # type: ignore[no-untyped-def]
    made, extra = how_of(how), _extra(mask, lens, lens_source, docs, words)
    _check_raw(made, x, source, bias, extra)
    return forward(made, x, source, bias, params, extra, train, causal, dropping, 0 if dropout_seed is None else int(dropout_seed), torch.zeros)


@torch.library.custom_op(
    "foci::layer_backward", mutates_args=(), device_types="cpu",
    schema=f"(Tensor dy, {INPUTS}, Tensor saved, Tensor y, bool causal, bool dropping, bool[] wanted) -> Tensor[]")
def layer_backward_op(dy, x, source, bias, params, mask, lens, lens_source, docs, words, dropout_seed, how, saved, y,  # type: ignore[no-untyped-def]
                      causal, dropping, wanted):
    made, extra = how_of(how), _extra(mask, lens, lens_source, docs, words)
    _check_raw(made, x, source, bias, extra)
    return backward(made, dy, x, source, bias, params, extra, saved, y, causal, dropping, 0 if dropout_seed is None else int(dropout_seed), wanted)


@layer_op.register_fake
def _(x, source, bias, params, mask, lens, lens_source, docs, words, dropout_seed, how, train, causal, dropping):  # type: ignore[no-untyped-def]
    saved = 0
    if train:  # what is kept for backward depends on the plan, so that sizes are fixed by it
        extra = _extra(mask, lens, lens_source, docs, words)
        saved = how_of(how).entry(key_of(x, source, bias, extra, True, causal, dropping)).saved
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), x.new_empty(saved, dtype=torch.uint8)


@layer_backward_op.register_fake
def _(dy, x, source, bias, params, mask, lens, lens_source, docs, words, dropout_seed, how, saved, y, causal, dropping,  # type: ignore[no-untyped-def]
      wanted):
    made = [torch.empty_like(t) if want and t is not None else dy.new_empty(0)
            for t, want in zip((x, source, bias), wanted)]
    return [*made, dy.new_empty(how_of(how).n_floats if wanted[3] else 0, dtype=torch.float32)]


def _split(how: LayerHow, dparams: Tensor, params: Sequence[Tensor], wanted: Sequence[bool]) -> list[Optional[Tensor]]:
    """The gradient of each parameter."""
    found: list[Optional[Tensor]] = []
    for t, tensor, want in zip(params, how.stored, wanted):
        grad = dparams[tensor.offset : tensor.offset + tensor.floats].view(tensor.shape) if want else None
        found.append(grad if grad is None else grad.to(t.dtype))
    return found


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    x, source, bias, params, mask, lens, lens_source, docs, words, dropout_seed, how, train, causal, dropping = inputs
    y, saved = output
    if not train:
        raise ArgumentError("an input requires grad, and foci::layer was called with train=False")
    ctx.save_for_backward(x, source, bias, mask, lens, lens_source, docs, words, dropout_seed, saved, y, *params)
    ctx.how, ctx.causal, ctx.dropping = how, causal, dropping
    ctx.wants = [p.requires_grad for p in params]
    ctx.mark_non_differentiable(saved)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dy: Optional[Tensor], _: Any) -> Any:
    x, source, bias, *more, saved, y = ctx.saved_tensors[:11]
    params = list(ctx.saved_tensors[11:])
    if dy is None:
        return (None,) * 3 + ([None] * len(params),) + (None,) * 10
    wanted = [bool(w) for w in ctx.needs_input_grad[:3]] + [any(ctx.wants)]
    *found, dparams = torch.ops.foci.layer_backward(dy, x, source, bias, params, *more, ctx.how, saved, y, ctx.causal,
                                                    ctx.dropping, wanted)
    grads = [g if want else None for g, want in zip(found, wanted)]
    return (*grads, _split(how_of(ctx.how), dparams, params, ctx.wants), *(None,) * 10)


def _refuse(*_: Any) -> Any:
    raise UnsupportedError(TWICE)


layer_op.register_autograd(_differentiate, setup_context=_remember)
layer_backward_op.register_autograd(_refuse)


class _Layer(torch.autograd.Function):
    """The same without the dispatcher."""

    @staticmethod
    def forward(ctx: Any, how: LayerHow, extra: Inputs, causal: bool, dropping: bool, dropout_seed: int,
                x: Tensor, source: Optional[Tensor], bias: Optional[Tensor], *params: Tensor) -> Tensor:
        y, saved = forward(how, x, source, bias, params, extra, True, causal, dropping, dropout_seed)
        ctx.save_for_backward(x, source, bias, *params, *extra, saved, y)
        ctx.told = how, extra is NOTHING, causal, dropping, dropout_seed
        return y

    @staticmethod
    def backward(ctx: Any, *dy: Any) -> Any:
        how, nothing, causal, dropping, dropout_seed = ctx.told
        x, source, bias, *params, mask, lens, lens_source, docs, words, saved, y = ctx.saved_tensors
        extra = NOTHING if nothing else Inputs(mask, lens, lens_source, docs, words)
        needs = ctx.needs_input_grad[5:]
        wanted = [*needs[:3], any(needs[3:])]
        *found, dparams = backward(how, dy[0].detach(), x, source, bias, params, extra, saved, y, causal, dropping,
                                   dropout_seed, wanted)
        grads: tuple[Any, ...] = (*(g if want else None for g, want in zip(found, needs)),
                                  *_split(how, dparams, params, needs[3:] if wanted[3] else [False] * len(params)))
        if torch.is_grad_enabled():  # create_graph
            grads = refused(grads, dy[0], x, *params)
        return (None,) * 5 + grads


# The module

class Attention(nn.Module):
    """A multi-head attention layer of any spec, with the signature of nn.MultiheadAttention.

    >>> attn = foci.torch.Attention(512, 8, spec="4*softmax rope + 4*local(window=64)", causal=True,
    ...                             batch_first=True)
    >>> y, _ = attn(x)

    It owns the projections that its heads read and no others.  Parameters have the names and
    the layout that the command and the library give them (`foci run --params`): vectors are
    rows and weights stand on their right, "Wq" is (embed_dim, heads times their width), and in
    a mix the tensors of a group are "0.Wq", "1.Wq".  Frozen projections are buffers that
    `state_dict` leaves out: they follow from ``seed + index``.  Learned tensors are drawn from
    PyTorch's generator; `reset_parameters` takes a seed, and draws as the command does.

    dropout       of the attention weights, and output_dropout of the output, while training
    bias          whether every projection adds one
    kdim          width of `key` where it is another than that of `query`; with
                  ``cross=True`` keys and values come from another sequence
    batch_first   (batch, rows, embed_dim) in place of (rows, batch, embed_dim)
    causal        what `forward` does where it is not told
    kind          "attention", "gau" or "conv"
    max_len       the length that arguments and tables follow from; without it each call
                  takes its own, and tensors by position cannot be
    lists, fast   as in `attention`

    What is left of nn.MultiheadAttention's arguments must have its default: keys and values
    come from one tensor (vdim), and nothing is added to them (add_bias_kv, add_zero_attn).
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: Optional[int] = None,
                 vdim: Optional[int] = None, batch_first: bool = False, device: Any = None, dtype: Any = None, *,
                 spec: Optional[str] = None, causal: bool = False, cross: bool = False, kind: str = "attention",
                 kv_heads: int = 0, head_dim: int = 0, value_dim: int = 0, output_dropout: float = 0.0, seed: int = 0,
                 index: int = 0, max_len: int = 0, lists: Optional[Mapping[str, Any]] = None, fast: bool = False) -> None:
        super().__init__()
        if add_bias_kv or add_zero_attn:
            raise UnsupportedError("add_bias_kv and add_zero_attn: foci adds nothing to keys and values; the modifier "
                                   "sink absorbs weight as a zero key would")
        if vdim is not None and vdim != (kdim or embed_dim):
            raise UnsupportedError(f"vdim={vdim}, kdim={kdim or embed_dim}: keys and values are projected from one tensor")
        if device is not None and torch.device(device).type != "cpu":
            raise DTypeError(f"device={device}: foci.torch computes on the CPU")
        if kind not in KINDS:
            raise ArgumentError(f'kind "{kind}": there are {", ".join(KINDS)}')
        cross = cross or (kdim is not None and kdim != embed_dim)
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.causal, self.cross, self.max_len = causal, cross, max_len
        self._text = repr([
            ("spec", None if spec is None else str(spec)), ("max_len", int(max_len)), ("weight_dropout", float(dropout)),
            ("causal", bool(causal)), ("fast", bool(fast)), ("lists", _told(lists)), ("kind", KINDS.index(kind)),
            ("width", int(embed_dim)), ("width_source", int(kdim or embed_dim) if cross else 0),
            ("heads", int(num_heads)), ("kv_heads", int(kv_heads)), ("head_dim", int(head_dim)),
            ("value_dim", int(value_dim)), ("biases", int(bias)), ("output_dropout", float(output_dropout)),
            ("seed", int(seed)), ("index", int(index))])
        self._how = how_of(self._text)
        self._register()
        self.reset_parameters()
        if dtype is not None:
            check_dtype(dtype, "the module")
            self.to(dtype)

    @property
    def spec(self) -> str:
        """The spec, with every argument spelled out where `max_len` is known."""
        return self._how.spec or "softmax"

    def _place(self, name: str) -> tuple[nn.Module, str]:
        """The module that owns a tensor, and its name there: groups of a mix are modules."""
        group, _, last = name.rpartition(".")
        if not group:
            return self, last
        if group not in self._modules:
            self.add_module(group, nn.Module())
        return self._modules[group], last  # type: ignore[return-value]

    def _register(self) -> None:
        """Make parameters and buffers, all stored ones in one array."""
        how = self._how
        flat = torch.zeros(how.n_floats)
        for i, tensor in enumerate(how.tensors):
            owner, name = self._place(tensor.name)
            if tensor.offset < 0:
                data = torch.empty(tensor.shape)
                how.first.shaped.check(lib.foci_layer_frozen_get(how.first.handle, i, data.data_ptr()))
                owner.register_buffer(name, data, persistent=False)
            elif tensor.keep == "trained":
                owner.register_parameter(name, nn.Parameter(part(flat, tensor)))
            else:
                owner.register_buffer(name, part(flat, tensor))

    def _tensors(self) -> list[Tensor]:
        """The stored tensors, in the order of the library."""
        return [getattr(*self._place(tensor.name)) for tensor in self._how.stored]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self.flatten()
        return self

    def flatten(self) -> None:
        """Lay the parameters out in one array again, after something else was put in their
        places: calls that find them elsewhere copy them."""
        tensors = self._tensors()
        if tensors and all(t.is_cpu and t.dtype == torch.float32 for t in tensors) and not adjacent(self._how, tensors):
            flat = gathered(self._how, tensors)
            for t, tensor in zip(tensors, self._how.stored):
                t.data = part(flat, tensor)

    @torch.no_grad()
    def reset_parameters(self, seed: Optional[int] = None) -> None:
        """Draw all stored tensors: from a seed, as the command does, or from PyTorch's
        generator."""
        how = self._how
        if seed is None:
            seed = int(torch.randint(2**62, ()))
        flat = torch.zeros(how.n_floats)
        how.first.shaped.check(lib.foci_layer_params_init(how.first.handle, seed, flat.data_ptr()))
        for t, tensor in zip(self._tensors(), how.stored):
            t.copy_(part(flat, tensor))

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["_how"] = how_of(state["_text"])
        super().__setstate__(state)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_how")
        return state

    def __deepcopy__(self, memo: Any) -> Attention:
        import copy

        twin = self.__class__.__new__(self.__class__)
        memo[id(self)] = twin
        twin.__setstate__({name: copy.deepcopy(value, memo) for name, value in self.__getstate__().items()})
        twin.flatten()
        return twin

    def forward(self, query: Tensor, key: Optional[Tensor] = None, value: Optional[Tensor] = None,
                key_padding_mask: Optional[Tensor] = None, need_weights: bool = False,
                attn_mask: Optional[Tensor] = None, average_attn_weights: bool = True, is_causal: bool = False, *,
                lengths: Any = None, lengths_source: Any = None, docs: Any = None, words: Any = None,
                dropout_seed: Optional[int] = None) -> tuple[Tensor, Optional[Tensor]]:
        """The output, shaped as `query`, and None, or with ``need_weights`` (slow, for
        analysis) the weights.

        `key` and `value` are the same tensor: `query` for attention to itself (or None), the
        other sequence where the layer was made with ``cross=True``.  In `attn_mask` and
        `key_padding_mask` True hides, as in nn.MultiheadAttention; a floating-point
        `attn_mask` is added to the logits.  ``is_causal`` stands for a causal mask, which then
        is not read.  `lengths`, `docs` and `words` are those of `attention`.
        """
        source = None if key is None or key is query else key
        if value is not None and value is not (query if key is None else key):
            raise UnsupportedError("value is another tensor than key: a layer of foci projects both from one")
        if (source is not None) != self.cross:
            raise ArgumentError("key is missing: the layer was made for cross-attention" if self.cross else
                                "key is another tensor than query: say cross=True when the layer is made")
        x, batched = query, query.dim() == 3
        if torch.is_autocast_enabled("cpu"):
            x, source = cast(x), cast(source)
        x, source = self._arranged(x, "query"), None if source is None else self._arranged(source, "key")
        causal = self.causal or is_causal
        mask, bias = self._masks(x, source, key_padding_mask, None if is_causal else attn_mask)
        extra = NOTHING
        if not mask is lengths is lengths_source is docs is words is None:
            extra = Inputs(mask, whole(lengths, "lengths"), whole(lengths_source, "lengths_source"), whole(docs, "docs"),
                           whole(words, "words"))
        dropping = self.training and any(self._how.dropouts.values())
        y = self._attend(x, source, bias, extra, causal, dropping, dropout_seed)
        weights = self._weights(x, source, bias, extra, causal) if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return y.squeeze(0), None if weights is None else weights.squeeze(0)
        return y if self.batch_first else y.transpose(0, 1), weights

    def _arranged(self, t: Tensor, name: str) -> Tensor:
        """(batch, rows, width), packed."""
        check_dtype(t.dtype, name)
        width = self._how.fields["width_source"] if name == "key" else self.embed_dim
        if t.dim() not in (2, 3) or t.shape[-1] != width:
            raise ArgumentError(f"{name} has shape {tuple(t.shape)}: it is (batch, rows, {width}) or (rows, {width})"
                                + ("" if self.batch_first else ", or (rows, batch, width) as batch_first is False"))
        if t.dim() == 2:
            t = t.unsqueeze(0)
        elif not self.batch_first:
            t = t.transpose(0, 1)
        return t.resolve_neg().contiguous()

    def _masks(self, x: Tensor, source: Optional[Tensor], padding: Optional[Tensor],
               given: Optional[Tensor]) -> tuple[Optional[Tensor], Optional[Tensor]]:
        """What is hidden and what is added, as the library reads them."""
        rows, columns = x.shape[1], x.shape[1] if source is None else source.shape[1]
        mask = bias = None
        if given is not None and given.dim() == 3:
            if given.shape[0] % max(x.shape[0], 1) or tuple(given.shape[1:]) != (rows, columns):
                raise ArgumentError(f"attn_mask has shape {tuple(given.shape)}, not {(rows, columns)} or, sequences times "
                                    f"heads, {(x.shape[0] * self.num_heads, rows, columns)}")
            given = given.reshape(x.shape[0], -1, rows, columns)
        if padding is not None:
            want = (x.shape[0], columns)
            if tuple(padding.shape) != want and not (x.shape[0] == 1 and tuple(padding.shape) == want[1:]):
                raise ArgumentError(f"key_padding_mask has shape {tuple(padding.shape)}, not {want}")
            padding = padding.reshape(x.shape[0], 1, 1, columns)
        for t in (given, padding):
            if t is None:
                continue
            if t.dtype == torch.bool:
                mask = ~t if mask is None else mask & ~t
            else:
                bias = t if bias is None else bias + t
        return joined(mask, bias, rows, columns)

    def _attend(self, x: Tensor, source: Optional[Tensor], bias: Optional[Tensor], extra: Inputs, causal: bool,
                dropping: bool, dropout_seed: Any) -> Tensor:
        params = self._tensors()
        if forward_ad._current_level >= 0:
            refuse_tangents(x, source, bias, *params)
        if dropping and dropout_seed is None:
            dropout_seed = torch.randint(2**62, ())
        grad = torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in (x, source, bias, *params))
        if torch.compiler.is_compiling() or not plain(x, source, bias, *params, *extra):
            if dropout_seed is not None and not isinstance(dropout_seed, Tensor):
                dropout_seed = torch.tensor(dropout_seed)
            y, _ = torch.ops.foci.layer(x, source, bias, params, *extra, dropout_seed, self._text, grad, causal, dropping)
            return y  # type: ignore[no-any-return]
        for name, t in (("query", x), ("key", source), ("bias", bias), *zip(Inputs._fields, extra),
                        *((tensor.name, p) for tensor, p in zip(self._how.stored, params))):
            check_device(t, name)
        check_sizes(x, source, extra)
        seed = 0 if dropout_seed is None else int(dropout_seed)
        if grad:
            return _Layer.apply(self._how, extra, causal, dropping, seed, x, source, bias, *params)  # type: ignore[no-any-return]
        return forward(self._how, x, source, bias, params, extra, False, causal, dropping, seed)[0]

    @torch.no_grad()
    def _weights(self, x: Tensor, source: Optional[Tensor], bias: Optional[Tensor], extra: Inputs,
                 causal: bool) -> Tensor:
        """The weights of the heads, (batch, heads, rows, rows of the keys)."""
        how = self._how
        x, source = x.float(), None if source is None else source.float()
        entry = how.entry(key_of(x, source, bias, extra, False, causal, False))
        flat = flat_of(how, self._tensors())
        io, kept = _io(entry, x, source, bias, flat, extra, 0)
        y = torch.empty_like(x)
        io.y = y.data_ptr()
        plan, problem, heads = lib.foci_layer_plan(entry.handle), _c.foci_problem(), _c.foci_io()
        entry.shaped.check(lib.foci_plan_get_problem(plan, _byref(problem)))
        found = torch.zeros(problem.batch, problem.heads, problem.len_q, problem.len_k)
        o = torch.empty(problem.batch * problem.len_q * problem.heads * problem.dim_v)
        block = entry.context.take(entry.work)
        io.work = block.address
        status = lib.foci_layer_heads(entry.handle, _byref(io), _byref(heads))
        heads.o = heads.o or o.data_ptr()
        status = status or lib.foci_ref_weights(plan, _byref(heads), found.data_ptr())
        entry.context.give(block)
        entry.shaped.check(status)
        return found

    @torch.no_grad()
    def advance(self, x: Tensor) -> None:
        """Move the tensors that mechanisms move themselves (centroids), once a training step."""
        self._move(lib.foci_layer_params_advance, x)

    @torch.no_grad()
    def calibrate(self, x: Tensor) -> None:
        """Compute the tensors that are statistics of queries and keys; they then stay fixed."""
        self._move(lib.foci_layer_params_calibrate, x)

    def _move(self, function: Any, x: Tensor) -> None:
        how, x = self._how, self._arranged(x, "x").float()
        entry = how.entry(key_of(x, None, None, NOTHING, False, self.causal, False))
        params = self._tensors()
        flat = gathered(how, params)
        io, kept = _io(entry, x, None, None, flat, NOTHING, 0)
        y = torch.empty_like(x)
        io.y = y.data_ptr()
        _execute(entry, function, io, flat.data_ptr())
        for t, tensor in zip(params, how.stored):
            t.copy_(part(flat, tensor))

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, spec={self.spec!r}, causal={self.causal}"
