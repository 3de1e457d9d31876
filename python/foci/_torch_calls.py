"""Attention on tensors of PyTorch: plans by the shapes and strides of tensors, and executions.

A call that was seen before costs a lookup: planning, checks and sizes are in its `_Entry`.
"""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from . import _c, _context
from ._attention import _Call
from ._context import Context, default_context
from ._errors import ArgumentError, DTypeError
from ._plan import LAYOUTS, Plan, strides_of
from ._tensors import ACCEPTED, dtype_code

KEPT = 64  # plans of one `How`

lib = _c.lib
_byref = ctypes.byref


class Extra(NamedTuple):
    """What a call reads beside q, k, v, x, bias and parameters: no gradients."""

    mask: Optional[Tensor] = None
    len_q: Optional[Tensor] = None
    len_k: Optional[Tensor] = None
    docs: Optional[Tensor] = None
    words: Optional[Tensor] = None


NOTHING = Extra()


class View(NamedTuple):
    """Type, shape and strides of a tensor: what planning looks at."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes, as NumPy has them
    itemsize: int

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> tuple[int, ...]:
        """The strides in elements."""
        return tuple(s // self.itemsize for s in self.strides)


def view(t: Tensor) -> View:
    size = t.element_size()
    return View(t.dtype, tuple(int(n) for n in t.shape), tuple(int(s) * size for s in t.stride()), size)


def overlaps(found: View) -> bool:
    """Whether elements may share memory, so that a gradient cannot be laid out alike."""
    reach = 0
    for stride, extent in sorted((s, n) for s, n in zip(found.elements, found.shape) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


class _Entry:
    """How a `How` is computed on tensors of certain shapes and strides."""

    __slots__ = ("plan", "handle", "work", "saved", "copies", "shape", "swap", "strides", "take", "give", "context",
                 "offsets")

    plan: Optional[Plan]  # None: there is nothing to compute
    context: Context
    handle: int
    work: int  # bytes
    saved: int
    take: Any
    give: Any
    shape: tuple[int, ...]  # of the output
    strides: tuple[int, ...]
    offsets: Any  # see `How._offsets`
    copies: tuple[bool, bool, bool]  # of q, k, v that cannot be read, or differentiated, where they lie
    swap: Optional[tuple[tuple[int, ...], tuple[int, ...]]]  # shape in memory and permutation of the output

    def out(self, like: Tensor) -> Tensor:
        """A tensor for the output, in the order of axes that the queries have in memory."""
        if self.swap is None:
            return torch.empty(self.shape, dtype=like.dtype)
        return torch.empty(self.swap[0], dtype=like.dtype).permute(self.swap[1])


class How:
    """What is computed, apart from tensors; its text, of which the last number is the dropout
    where there is some, is an argument of the operators."""

    __slots__ = ("text", "spec", "layout", "causal", "memory", "fast", "seed", "dropout", "lists", "names", "entries",
                 "context")

    def __init__(self, text: str) -> None:
        self.text = text
        fields = ast.literal_eval(text)
        self.spec: str
        self.layout: Optional[str]
        self.names: tuple[str, ...]
        self.spec, self.layout, self.causal, self.memory, self.fast, self.seed, self.lists, self.names = fields[:8]
        self.dropout: float = fields[8] if len(fields) > 8 else 0.0
        self.entries: dict[Any, _Entry] = {}
        self.context: Optional[Context] = None

    def entry(self, key: Any, tensors: Any, extra: Extra, train: bool) -> _Entry:
        """The entry of a key, made where it is new."""
        if self.context is not _context._default or self.context is None:
            with _c.lock:
                self.context, self.entries = default_context(), {}
        found = self.entries.get(key)
        if found is None:
            found = self._make(tensors, extra, train)
            with _c.lock:
                while len(self.entries) >= KEPT:
                    del self.entries[next(iter(self.entries))]
                self.entries[key] = found
        return found

    def _make(self, tensors: Any, extra: Extra, train: bool) -> _Entry:
        q, k, v, x, bias = tensors
        views = {name: view(t) for name, t in (("q", q), ("k", k), ("v", v)) if t is not None}
        if "q" not in views and "v" not in views:
            raise ArgumentError("neither q nor v is given")
        first = views.get("q", views.get("v"))
        assert first is not None
        for name, found in views.items():
            check_dtype(found.dtype, name)
        layout = self.layout or LAYOUTS.get(first.ndim)
        if layout is None:
            raise ArgumentError(f"q has shape {first.shape}: tensors have 2 (rows), 3 (heads, rows) or 4 axes (batch, "
                                "heads, rows), elements last")
        made = _Entry()
        made.copies = tuple(  # type: ignore[assignment]
            name in views and (views[name].elements[-1] != 1 < views[name].shape[-1] or train and overlaps(views[name]))
            for name in "qkv")
        if any(made.copies):
            made.plan = None
            return made
        problem = _Call._problem(views, layout)  # type: ignore[arg-type]
        made.shape, made.saved, made.offsets = problem.pop("shape"), 0, None
        made.swap = swapped(layout, first.shape, first.strides, made.shape)
        made.strides = packed(made.shape)
        if made.swap is not None:
            made.strides = tuple(packed(made.swap[0])[axis] for axis in made.swap[1])
        if 0 in problem.pop("sizes"):
            made.plan = None
            return made
        out = View(first.dtype, made.shape, tuple(s * first.itemsize for s in made.strides), first.itemsize)
        problem["strides"]["o"] = strides_of(layout, out)  # type: ignore[arg-type]
        extents = next((tuple(t.shape[:2]) for t in (extra.mask, bias) if t is not None), None)
        made.plan = plan = Plan(
            self.spec, dtype=first.dtype, layout=layout, causal=self.causal, train=train, fast=self.fast,
            memory=self.memory, seed=self.seed, dropout=self.dropout, lists=dict(self.lists), context=self.context,
            dim_x=0 if x is None else int(x.shape[-1]), mask=extra.mask is not None and extents,
            bias=bias is not None and extents, max_docs=0 if extra.docs is None else max(len(extra.docs) - 1, 1),
            **problem)
        made.handle, made.work, made.saved, made.context = plan.handle, plan.work_bytes, plan.saved_bytes, plan.context
        made.take, made.give = plan.context.take, plan.context.give
        self._check_pairs(made, extra.mask, bias)
        made.offsets = self._offsets(plan)
        return made

    @staticmethod
    def _check_pairs(made: _Entry, mask: Optional[Tensor], bias: Optional[Tensor]) -> None:
        assert made.plan is not None
        p = made.plan.problem
        for name, t in (("mask", mask), ("bias", bias)):
            want = (p.mask_batch, p.mask_heads, p.len_q, p.len_k)
            if t is not None and tuple(t.shape) != want:
                raise ArgumentError(f"{name} has shape {tuple(t.shape)}, not {want}")

    def _offsets(self, plan: Plan) -> Optional[tuple[tuple[int, tuple[int, ...]], ...]]:
        """Where each given parameter lies in the array of all, and its shape; None: all are
        given as one array, or none is."""
        if not self.names or self.names == ("",):
            return None
        known = {t.name: t for t in plan.tensors}
        for name in self.names:
            if name not in known:
                raise ArgumentError(f'there is no parameter "{name}"; {plan.spec} has {", ".join(known) or "none"}')
        return tuple((known[name].offset, known[name].shape) for name in self.names)


def check_dtype(dtype: Any, name: str) -> None:
    """Refuse what foci does not compute with."""
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise DTypeError(f"{name} has dtype {dtype}: {ACCEPTED}; {name}.float() converts it")
    dtype_code(dtype)


def check_device(t: Optional[Tensor], name: str) -> None:
    """Refuse tensors that are not in memory of the CPU, element by element."""
    if t is None:
        return
    if not t.is_cpu:
        raise DTypeError(f"{name} is on device {t.device}: foci.torch computes on the CPU; {name}.cpu() moves it there")
    if t.layout is not torch.strided:
        raise DTypeError(f"{name} has layout {t.layout}: foci.torch reads dense tensors; {name}.to_dense() makes one")


def swapped(layout: str, extents: Sequence[Any], strides: Sequence[Any], shape: Sequence[Any]) -> Any:
    """Shape in memory and permutation of an output whose heads lie inside rows, as those of
    the queries do, though the layout says otherwise, or the reverse; None: it is packed."""
    if "h" not in layout:
        return None
    n, h = layout.index("n"), layout.index("h")
    outer, inner = min(n, h), max(n, h)
    if extents[n] == 1 or extents[h] == 1 or strides[outer] >= strides[inner]:
        return None
    order = list(range(len(layout)))
    order[outer], order[inner] = inner, outer
    return tuple(shape[axis] for axis in order), tuple(order)


def pointer(t: Optional[Tensor]) -> Optional[int]:
    return None if t is None else t.data_ptr()


class Execution(NamedTuple):
    """An execution: its tensors, copied where they could not be read, and what it left."""

    tensors: Any
    entry: _Entry
    o: Tensor
    saved: Optional[Tensor]  # None without train


def signature(tensors: Any, extra: Extra, train: bool) -> Any:
    """What plans are found by."""
    q, k, v, x, bias = tensors
    if x is bias is extra.mask is extra.docs is None and q is not None and k is not None and v is not None:
        return train, q.dtype, k.dtype, v.dtype, q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride()
    return (train, *(None if t is None else (t.dtype, t.shape, t.stride()) for t in (q, k, v)),
            *(None if t is None else t.shape for t in (x, bias, extra.mask, extra.docs)))


def prepared(how: How, tensors: Any, extra: Extra, train: bool) -> tuple[Any, _Entry]:
    """The entry of a call, and its tensors with copies where they are needed."""
    entry = how.entry(signature(tensors, extra, train), tensors, extra, train)
    if entry.plan is None and any(entry.copies):
        tensors = (*(t.contiguous() if copy else t for t, copy in zip(tensors, entry.copies)), *tensors[3:])
        entry = how.entry(signature(tensors, extra, train), tensors, extra, train)
    return tensors, entry


def given_params(how: How, entry: _Entry, params: Sequence[Tensor]) -> Optional[Tensor]:
    """All parameters of an execution in one packed array; None: it reads none."""
    plan = entry.plan
    assert plan is not None
    n_floats = plan._n_floats
    if not n_floats:
        if params:
            raise ArgumentError(f"params are given, and {plan.spec} has none")
        return None
    if entry.offsets is None and params:
        flat = params[0].detach()
        if flat.numel() != n_floats:
            raise ArgumentError(f"params has {flat.numel()} numbers; {n_floats} are needed: they are those of another "
                                "spec or shape")
        return flat.to(torch.float32).contiguous()
    drawn = plan._params_for(None)
    assert drawn is not None
    flat = torch.from_numpy(drawn.flat)
    if not params:
        return flat
    assert entry.offsets is not None
    flat = flat.clone()
    for name, t, (offset, shape) in zip(how.names, params, entry.offsets):
        if tuple(t.shape) not in (shape, shape[1:]):
            raise ArgumentError(f"{name} has shape {tuple(t.shape)}, not {shape} (or {shape[1:]}, the same for all heads)")
        torch.as_strided(flat, shape, packed(shape), offset).copy_(t.detach())
    return flat


def packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a packed tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def filled(io: Any, extra: Extra, x: Optional[Tensor], bias: Optional[Tensor]) -> None:
    """Put the tensors into io that most calls do without."""
    io.x, io.bias = pointer(x), pointer(bias)
    io.mask, io.words = pointer(extra.mask), pointer(extra.words)
    io.len_q, io.len_k, io.docs = pointer(extra.len_q), pointer(extra.len_k), pointer(extra.docs)
    io.n_docs = 0 if extra.docs is None else len(extra.docs) - 1


def forward(how: How, tensors: Any, extra: Extra, params: Sequence[Tensor], train: bool,
            dropout_seed: int, reserve: Any = torch.empty) -> Execution:
    """Attend; `reserve` makes the memory of what is kept for backward."""
    tensors, entry = prepared(how, tensors, extra, train)
    q, k, v, x, bias = tensors
    first = v if q is None else q
    o = entry.out(first)
    if entry.plan is None:
        return Execution(tensors, entry, o.zero_(), o.new_empty(0, dtype=torch.uint8) if train else None)
    io = _c.foci_io(q=pointer(q), k=pointer(k), v=pointer(v), o=o.data_ptr(), dropout_seed=dropout_seed)
    saved = None
    if train:
        saved = reserve(entry.saved, dtype=torch.uint8)
        io.saved = saved.data_ptr()
    if x is not None or bias is not None or extra is not NOTHING:
        filled(io, extra, x, bias)
    flat = given_params(how, entry, params)
    if flat is not None:
        io.params = flat.data_ptr()
    block = entry.take(entry.work)
    io.work = block.address
    status = lib.foci_forward(entry.handle, _byref(io))
    entry.give(block)
    if status:
        _c.fail(status, entry.context.handle)
    return Execution(tensors, entry, o, saved)


def backward(how: How, d_o: Tensor, tensors: Any, extra: Extra, params: Sequence[Tensor], o: Tensor, saved: Tensor,
             dropout_seed: int, wanted: Sequence[bool]) -> list[Tensor]:
    """The gradients of q, k, v, x, bias and each parameter; empty where they are not wanted."""
    tensors, entry = prepared(how, tensors, extra, True)
    found = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) if want and t is not None else d_o.new_empty(0)
             for t, want in zip(tensors, wanted)]
    if entry.plan is None:
        return [g.zero_() for g in found] + [torch.zeros_like(p) for p in params]
    q, k, v, x, bias = tensors
    if saved.numel() < entry.saved or tuple(o.shape) != entry.shape or o.stride() != entry.strides or d_o.shape != o.shape:
        raise ArgumentError("o and saved are not what the forward call of these inputs gave")
    d_o = d_o.resolve_neg()
    if d_o.stride() != entry.strides or not d_o.numel():
        d_o = torch.empty_strided(entry.shape, entry.strides, dtype=d_o.dtype).copy_(d_o)
    io = _c.foci_io(q=pointer(q), k=pointer(k), v=pointer(v), o=o.data_ptr(), dropout_seed=dropout_seed,
                    saved=saved.data_ptr())
    filled(io, extra, x, bias)
    flat = given_params(how, entry, params)
    grads = _c.foci_grads(d_o=d_o.data_ptr())
    for name, g, t, want in zip(("dq", "dk", "dv", "dx", "dbias"), found, tensors, wanted):
        if want and t is not None:
            setattr(grads, name, g.data_ptr())
    dparams = None
    if flat is not None:
        io.params = flat.data_ptr()
        if any(wanted[5:]):
            dparams = torch.zeros_like(flat)
            grads.dparams = dparams.data_ptr()
    block = entry.take(entry.work)
    io.work = block.address
    status = lib.foci_backward(entry.handle, _byref(io), _byref(grads))
    entry.give(block)
    if status:
        _c.fail(status, entry.context.handle)
    return found + split(entry, dparams, params)


def split(entry: _Entry, dparams: Optional[Tensor], params: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of each parameter, from that of all."""
    if dparams is None:
        return [torch.zeros_like(p) for p in params]
    if entry.offsets is None:
        return [dparams.to(p.dtype).reshape(p.shape) for p in params]
    found = []
    for p, (offset, shape) in zip(params, entry.offsets):
        part = torch.as_strided(dparams, shape, packed(shape), offset)
        found.append((part if p.dim() == len(shape) else part.sum(0)).to(p.dtype, copy=True).contiguous())
    return found
