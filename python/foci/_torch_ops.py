"""Attention as operators of PyTorch, and with its gradient.

torch.compile and whatever looks at operators sees foci::attention and
foci::attention_backward.  Plain eager calls go past the dispatcher, which takes longer over
so many arguments than all of the rest, straight to the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _torch_calls as calls
from ._errors import ArgumentError, DTypeError, UnsupportedError
from ._plan import LAYOUTS
from ._torch_calls import NOTHING, Extra, How

TWICE = ("the gradient of foci's attention cannot be differentiated again: foci computes no second derivatives; call "
         "backward() without create_graph")

_hows: dict[str, How] = {}
_known: dict[Any, How] = {}
KEPT = 256


def how_of(text: str, dropout: float = 0.0) -> How:
    """The `How` of a text, which the operators have without dropout: under torch.compile that
    may be a number that is not known."""
    if dropout:
        text = f"{text[:-1]}, {dropout!r})"
    found = _hows.get(text)
    if found is None:
        if len(_hows) >= KEPT:
            _hows.clear()
            _known.clear()
        found = _hows[text] = How(text)
    return found


# The operators

INPUTS = ("Tensor? q, Tensor? k, Tensor? v, Tensor? x, Tensor? bias, Tensor[] params, Tensor? mask, Tensor? len_q, "
          "Tensor? len_k, Tensor? docs, Tensor? words, Tensor? dropout_seed")


def check_packed(op: str, converts: str, bias: Optional[Tensor], extra: Any, **others: Optional[Tensor]) -> None:
    """Types and strides of what an operator that is called by itself may be given;
    `converts` is what converts."""
    whole_numbers = (torch.int32,)
    for name, t, dtypes in (("bias", bias, (torch.float32,)), ("mask", extra.mask, (torch.uint8, torch.bool)),
                            *((n, t, None) for n, t in others.items()),
                            *((n, t, whole_numbers) for n, t in zip(extra._fields[1:], extra[1:]))):
        if t is not None and (not t.is_contiguous() or dtypes is not None and t.dtype not in dtypes):
            raise ArgumentError(f"{name} is {t.dtype}, {'' if t.is_contiguous() else 'not '}packed: foci::{op} takes "
                                f"packed {dtypes[0] if dtypes else 'tensors'}; foci.torch.{converts} converts")


def _check_raw(how: How, q: Any, k: Any, v: Any, x: Any, bias: Any, extra: Extra) -> None:
    """What attention() sees to."""
    check_packed("attention", "attention()", bias, extra, x=x)
    if x is not None or extra is not NOTHING:
        _check_extra(extra, q, k, v, x, how.layout)


def _seed(t: Optional[Tensor]) -> int:
    return 0 if t is None else int(t.item()) % 2**64


def _extra(mask: Optional[Tensor], len_q: Optional[Tensor], len_k: Optional[Tensor], docs: Optional[Tensor],
           words: Optional[Tensor]) -> Extra:
    if mask is len_q is len_k is docs is words is None:
        return NOTHING
    return Extra(mask, len_q, len_k, docs, words)


@torch.library.custom_op("foci::attention", mutates_args=(), device_types="cpu",
                         schema=f"({INPUTS}, str how, float dropout, bool train) -> (Tensor, Tensor)")
def attention_op(q, k, v, x, bias, params, mask, len_q, len_k, docs, words, dropout_seed, how, dropout, train):  # type: ignore[no-untyped-def]
    extra = _extra(mask, len_q, len_k, docs, words)
    _check_raw(how_of(how, dropout), q, k, v, x, bias, extra)
    done = calls.forward(how_of(how, dropout), (q, k, v, x, bias), extra, params, train,
                         _seed(dropout_seed), torch.zeros)  # of the same bits in every run
    return done.o, done.o.new_empty(0, dtype=torch.uint8) if done.saved is None else done.saved


@torch.library.custom_op("foci::attention_backward", mutates_args=(), device_types="cpu",
                         schema=f"(Tensor d_o, {INPUTS}, Tensor o, Tensor saved, bool[] wanted, str how, float dropout) "
                                "-> Tensor[]")
def attention_backward_op(d_o, q, k, v, x, bias, params, mask, len_q, len_k, docs, words, dropout_seed, o, saved,  # type: ignore[no-untyped-def]
                          wanted, how, dropout):
    extra = _extra(mask, len_q, len_k, docs, words)
    _check_raw(how_of(how, dropout), q, k, v, x, bias, extra)
    return calls.backward(how_of(how, dropout), d_o, (q, k, v, x, bias), extra, params, o, saved, _seed(dropout_seed), wanted)


def _concrete(t: Optional[Tensor]) -> Optional[Tensor]:
    """A tensor without memory whose sizes are numbers: a symbolic size is fixed by it."""
    if t is None:
        return None
    return torch.empty_strided([int(n) for n in t.shape], [int(s) for s in t.stride()], dtype=t.dtype, device="meta")


@attention_op.register_fake
def _(q, k, v, x, bias, params, mask, len_q, len_k, docs, words, dropout_seed, how, dropout, train):  # type: ignore[no-untyped-def]
    made = how_of(how)
    first = v if q is None else q
    if train:  # what is kept for backward depends on the plan
        found = [_concrete(t) for t in (q, k, v, x, bias, mask, docs)]
        extra = _extra(found[5], None, None, found[6], None)
        _, entry = calls.prepared(how_of(how, float(dropout)), tuple(found[:5]), extra, True)
        shape, swap, saved = entry.shape, entry.swap, entry.saved
    else:
        shape = (*first.shape[:-1], (k if v is None else v).shape[-1])
        swap = calls.swapped(made.layout or LAYOUTS[first.ndim], first.shape, first.stride(), shape)
        saved = 0
    o = first.new_empty(shape) if swap is None else first.new_empty(swap[0]).permute(swap[1])
    return o, first.new_empty(saved, dtype=torch.uint8)


@attention_backward_op.register_fake
def _(d_o, q, k, v, x, bias, params, mask, len_q, len_k, docs, words, dropout_seed, o, saved, wanted, how, dropout):  # type: ignore[no-untyped-def]
    found = [_concrete(t) for t in (q, k, v, x, bias, mask, docs)]
    tensors, _ = calls.prepared(how_of(how, float(dropout)), tuple(found[:5]),
                                _extra(found[5], None, None, found[6], None), True)
    made = [d_o.new_empty(0) if t is None or not want else
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=d_o.device)
            for t, want in zip(tensors, wanted)]
    return made + [torch.empty(p.shape, dtype=p.dtype, device=d_o.device) for p in params]


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, x, bias, params, mask, len_q, len_k, docs, words, dropout_seed, how, dropout, train = inputs
    o, saved = output
    if not train:
        raise ArgumentError("an input requires grad, and foci::attention was called with train=False")
    ctx.save_for_backward(q, k, v, x, bias, mask, len_q, len_k, docs, words, dropout_seed, o, saved, *params)
    ctx.how, ctx.dropout = how, dropout
    ctx.mark_non_differentiable(saved)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, d_o: Optional[Tensor], _: Any) -> Any:
    *inputs, o, saved = ctx.saved_tensors[:13]
    params = list(ctx.saved_tensors[13:])
    if d_o is None:
        return (None,) * 5 + ([None] * len(params),) + (None,) * 9
    needs = ctx.needs_input_grad
    wanted = [bool(w) for w in needs[:5]] + [True] * len(params)
    found = torch.ops.foci.attention_backward(d_o, *inputs[:5], params, *inputs[5:], o, saved, wanted, ctx.how,
                                               ctx.dropout)
    grads = [g if want else None for g, want in zip(found, wanted)]
    return (*grads[:5], grads[5:], *(None,) * 9)


def _refuse(*_: Any) -> Any:
    raise UnsupportedError(TWICE)


attention_op.register_autograd(_differentiate, setup_context=_remember)
attention_backward_op.register_autograd(_refuse)


# The same without the dispatcher

class _Refused(torch.autograd.Function):
    """What has a gradient that is refused."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Any) -> Any:
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise UnsupportedError(TWICE)


def refuse_tangents(*tensors: Optional[Tensor]) -> None:
    """Refuse forward mode: its tangents would be lost on the way."""
    for t in tensors:
        if isinstance(t, Tensor) and forward_ad.unpack_dual(t).tangent is not None:
            raise UnsupportedError("an input has a tangent: foci computes no derivatives in forward mode (jvp, jacfwd), but "
                                   "gradients by backward()")


def refused(grads: Sequence[Any], *sources: Any) -> tuple[Any, ...]:
    """Gradients that depend on `sources`, which further differentiation refuses."""
    present = [g for g in grads if g is not None]
    made = iter(_Refused.apply(len(present), *present, *sources))
    return tuple(None if g is None else next(made) for g in grads)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: How, extra: Extra, dropout_seed: int, *tensors: Any) -> Any:
        done = calls.forward(how, tensors[:5], extra, tensors[5:], True, dropout_seed)
        ctx.save_for_backward(*tensors, *extra, done.o, done.saved)
        ctx.how, ctx.plain, ctx.seed = how, extra is NOTHING, dropout_seed
        return done.o

    @staticmethod
    def backward(ctx: Any, *d_o: Any) -> Any:
        *tensors, mask, len_q, len_k, docs, words, o, saved = ctx.saved_tensors
        extra = NOTHING if ctx.plain else Extra(mask, len_q, len_k, docs, words)
        wanted = ctx.needs_input_grad[3:]
        found = calls.backward(ctx.how, d_o[0].detach(), tensors[:5], extra, tensors[5:], o, saved, ctx.seed, wanted)
        grads: tuple[Any, ...] = tuple(g if want else None for g, want in zip(found, wanted))
        if torch.is_grad_enabled():  # create_graph
            grads = refused(grads, d_o[0], *(t for t in tensors if t is not None))
        return (None, None, None, *grads)


def plain(*tensors: Optional[Tensor]) -> bool:
    """Whether nothing but the CPU is to see these tensors: no tracing, no other kinds of
    tensors, no views whose numbers are negated when they are read, no modes that record
    operators."""
    for t in tensors:
        if t is not None and (type(t) is not Tensor and type(t) is not torch.nn.Parameter or t.is_neg()):
            return False
    return (not torch._C._len_torch_dispatch_stack() and torch._C._functorch.peek_interpreter_stack() is None
            and not torch._C._get_tracing_state())


# What users call

def cast(t: Any) -> Any:
    """A floating-point tensor as autocast wants it."""
    if isinstance(t, Tensor) and t.is_floating_point():
        return t.to(torch.get_autocast_dtype("cpu"))
    return t


def pairs(t: Any, name: str, rows: Any, columns: Any) -> Any:
    """A mask or bias with four axes, packed; axes of batch and heads that were expanded have
    extent 1."""
    if not isinstance(t, Tensor):
        raise DTypeError(f"{name} is a {type(t).__name__}: it has to be a tensor")
    if not 2 <= t.dim() <= 4:
        raise ArgumentError(f"{name} has shape {tuple(t.shape)}: it is (len_q, len_k), with heads, or batch and heads, "
                            "before it")
    t = t.reshape((1,) * (4 - t.dim()) + tuple(t.shape))
    if t.stride(0) == 0:
        t = t[:1]
    if t.stride(1) == 0:
        t = t[:, :1]
    if t.shape[2] != rows or t.shape[3] != columns:
        if t.shape[2] not in (1, rows) or t.shape[3] not in (1, columns):
            raise ArgumentError(f"{name} has shape {tuple(t.shape)}, not (batch, heads, {rows}, {columns}), of which the first "
                                "two may be 1 or missing")
        t = t.expand(t.shape[0], t.shape[1], rows, columns)
    if name == "bias":
        return t.to(torch.float32).contiguous()
    if t.dtype != torch.bool:
        raise DTypeError(f"mask has dtype {t.dtype}: a mask is bool, False where a key is hidden; what is added to logits "
                         "is a bias")
    return t.contiguous().view(torch.uint8)


def whole(value: Any, name: str) -> Any:
    """Whole numbers as the library reads them: packed int32."""
    if value is None:
        return None
    if not isinstance(value, Tensor):
        value = torch.tensor(value) if np.size(value) else torch.empty(0, dtype=torch.int32)
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise DTypeError(f"{name} has dtype {value.dtype}: whole numbers are needed, for instance torch.int32")
    if value.dtype == torch.int64:  # what does not fit stays out of range
        value = value.clamp(-(2**31), 2**31 - 1)
    return value.to(torch.int32).contiguous()


def text_of(spec: str, layout: Optional[str], causal: bool, memory: int, fast: bool, seed: int, lists: Any,
            names: Sequence[str]) -> str:
    """The text of a `How` without dropout."""
    return repr((str(spec), layout, bool(causal), int(memory), bool(fast), int(seed), lists, tuple(names)))


def attention(q: Optional[Tensor], k: Optional[Tensor], v: Optional[Tensor], spec: str = "softmax", *,
              causal: bool = False, layout: Optional[str] = None, mask: Optional[Tensor] = None,
              bias: Optional[Tensor] = None, lengths: Any = None, docs: Any = None, words: Any = None,
              x: Optional[Tensor] = None, params: Any = None, seed: int = 0, dropout: float = 0.0,
              dropout_seed: Optional[int] = None, lists: Optional[Mapping[str, Any]] = None, memory: int = 0,
              fast: bool = False) -> Tensor:
    """Attention of queries to keys and values, by any mechanism, differentiable.

    >>> o = foci.torch.attention(q, k, v, "local(window=256) rope", causal=True)

    Tensors are of float32, bfloat16 or float16, in memory of the CPU; they are read where they
    lie, with any strides, and copied only where the elements of a row are not adjacent.  The
    output lies in memory as the queries do.  Under torch.autocast q, k, v and x are cast.
    Gradients reach q, k, v, x, bias and params, not their own gradients.

    layout      the order of axes: "bhnd" (batch, heads, rows, elements; without batch "hnd",
                without heads "nd") by default, "bnhd" ...
    causal      query i sees keys up to i + len_k - len_q
    mask        bool, (len_q, len_k) with heads, or batch and heads, before it; False: hidden
    bias        likewise, added to the logits
    lengths     valid rows of each sequence, or a pair of those of q and of k
    docs        offsets 0, ..., n of documents packed into one sequence
    words       the word of each token, where the spec reads them
    x           hidden states (batch, row, width), where the spec reads them
    params      parameters by name, or all in one tensor; those not given are drawn from `seed`
    dropout     share of the weights that are dropped, by a hash of `dropout_seed`, which is
                drawn from PyTorch's generator where it is not given
    lists       whole numbers that a spec asks for, by name
    memory      leading keys that take no gradient
    fast        products of float32 tensors in bfloat16
    """
    if not isinstance(spec, str):
        raise DTypeError(f"spec is a {type(spec).__name__}: it has to be text, for instance 'local(window=256) rope'")
    if torch.is_autocast_enabled("cpu"):
        q, k, v, x = cast(q), cast(k), cast(v), cast(x)
    names: tuple[str, ...] = ()
    given: tuple[Tensor, ...] = ()
    if params is not None:
        names, given = _named(params)
    extra = NOTHING
    if mask is not None or bias is not None:
        mask, bias = _both(mask, bias, q, k, v, layout)
    if mask is not None or lengths is not None or docs is not None or words is not None:
        pair = lengths if isinstance(lengths, tuple) and len(lengths) == 2 else (lengths, lengths)
        extra = Extra(mask, whole(pair[0], "lengths"), whole(pair[1], "lengths"), whole(docs, "docs"),
                      whole(words, "words"))
    if x is not None:
        x = x.reshape(1, *x.shape) if x.dim() == 2 else x
        x = x.contiguous()
    if forward_ad._current_level >= 0:
        refuse_tangents(q, k, v, x, bias, *given)
    chosen: Any = dropout_seed
    if dropout and dropout_seed is None:
        chosen = torch.randint(2**62, ())
    if torch.compiler.is_compiling() or not plain(q, k, v, x, bias, *extra, *given):
        return _dispatched(q, k, v, x, bias, given, extra, chosen, dropout,
                           text_of(spec, layout, causal, memory, fast, seed, _told(lists), names))
    key = (spec, layout, causal, memory, fast, seed, dropout, names)
    how = None if lists else _known.get(key)
    if how is None:
        how = how_of(text_of(spec, layout, causal, memory, fast, seed, _told(lists), names), dropout)
        if not lists:
            _known[key] = how
    drop = 0 if chosen is None else int(chosen)
    grad = False
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t is not None:
            if not t.is_cpu or t.layout is not torch.strided:
                calls.check_device(t, name)
            grad = grad or t.requires_grad
    if x is not None or bias is not None or given or extra is not NOTHING:
        for name, t in (("x", x), ("bias", bias), *zip(names, given), *zip(Extra._fields, extra)):
            calls.check_device(t, name)
            grad = grad or (t is not None and t.requires_grad)
        _check_extra(extra, q, k, v, x, layout)
    if grad and torch.is_grad_enabled():
        return _Attention.apply(how, extra, drop, q, k, v, x, bias, *given)  # type: ignore[no-any-return]
    return calls.forward(how, (q, k, v, x, bias), extra, given, False, drop).o


def _named(params: Any) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
    """Names and tensors of parameters; the name "" is that of all in one."""
    if isinstance(params, Tensor):
        return ("",), (params,)
    if not hasattr(params, "values"):
        raise DTypeError(f"params is a {type(params).__name__}: it has to be a mapping of tensors by name, or all in one "
                         "tensor")
    for name, t in params.items():
        if not isinstance(t, Tensor):
            raise DTypeError(f"params: {name} is a {type(t).__name__}: it has to be a tensor")
    return tuple(params), tuple(params.values())


def _told(lists: Optional[Mapping[str, Any]]) -> Any:
    if not lists:
        return ()
    return tuple((name, tuple(int(i) for i in np.ravel(np.asarray(values)))) for name, values in lists.items())


def _axis(layout: Optional[str], t: Tensor, axis: str) -> Any:
    layout = layout or LAYOUTS.get(t.dim(), "bhnd")
    at = layout.find(axis)
    return t.shape[at] if 0 <= at < t.dim() else 1


def _both(mask: Any, bias: Any, q: Any, k: Any, v: Any, layout: Optional[str]) -> tuple[Any, Any]:
    """Mask and bias of such tensors."""
    return joined(mask, bias, _axis(layout, q if q is not None else v, "n"),
                  _axis(layout, k if k is not None else v if v is not None else q, "n"))


def joined(mask: Any, bias: Any, rows: Any, columns: Any) -> tuple[Any, Any]:
    """Mask and bias as the library reads them."""
    mask = None if mask is None else pairs(mask, "mask", rows, columns)
    bias = None if bias is None else pairs(bias, "bias", rows, columns)
    if mask is not None and bias is not None and mask.shape != bias.shape:
        try:
            shape = torch.broadcast_shapes(mask.shape, bias.shape)
        except RuntimeError:
            raise ArgumentError(f"mask has shape {tuple(mask.shape)}, bias {tuple(bias.shape)}: batch and heads have to "
                                "agree, or be 1") from None
        mask, bias = mask.expand(shape).contiguous(), bias.expand(shape).contiguous()
    return mask, bias


def _check_extra(extra: Extra, q: Any, k: Any, v: Any, x: Any, layout: Optional[str]) -> None:
    """Sizes of what the library reads without looking at them."""
    first = q if q is not None else v
    if first is None:
        return
    batch = _axis(layout, first, "b")
    for name, t in (("lengths (of q)", extra.len_q), ("lengths (of k)", extra.len_k)):
        if t is not None and tuple(t.shape) != (batch,):
            raise ArgumentError(f"{name} has shape {tuple(t.shape)}, not {(batch,)}")
    rows = _axis(layout, first, "n")
    columns = _axis(layout, k if k is not None else first, "n")
    if extra.words is not None and extra.words.numel() != batch * columns:
        raise ArgumentError(f"words has shape {tuple(extra.words.shape)}, not {(batch, columns)}")
    if extra.docs is not None and (extra.docs.dim() != 1 or not len(extra.docs)):
        raise ArgumentError(f"docs has shape {tuple(extra.docs.shape)}: it is offsets 0, ..., n")
    if x is not None and (x.dim() != 3 or tuple(x.shape[:2]) != (batch, rows)):
        raise ArgumentError(f"x has shape {tuple(x.shape)}, not {(batch, rows)} and its width")
    if x is not None and x.dtype != first.dtype:
        raise DTypeError(f"x has dtype {x.dtype}, q, k and v have {first.dtype}")


def _dispatched(q: Any, k: Any, v: Any, x: Any, bias: Any, params: Any, extra: Extra, chosen: Any, dropout: float,
                how: str) -> Tensor:
    """The call as an operator."""
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t is not None and not isinstance(t, Tensor):
            raise DTypeError(f"{name} is a {type(t).__name__}: it has to be a tensor; foci.attention takes arrays")
    given = (q, k, v, x, bias, *params)
    train = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given)
    if chosen is not None and not isinstance(chosen, Tensor):
        chosen = torch.tensor(chosen)
    o, _ = torch.ops.foci.attention(q, k, v, x, bias, list(params), *extra, chosen, how, dropout, train)
    return o  # type: ignore[no-any-return]
