"""foci.torch.DecodeState: sequences that are generated token by token."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor

from . import _c
from ._errors import ArgumentError, DTypeError
from ._params import Params
from ._plan import Plan, arranged, check_layout
from ._state import Sequences, _Pool, _Sequence
from ._tensors import floats
from ._torch_calls import check_device, check_dtype, pointer
from ._torch_layer import NOTHING, Attention, flat_of, key_of
from ._torch_ops import cast, whole

lib = _c.lib


def _params_of(plan: Plan, params: Any) -> Optional[Params]:
    """Copies of parameters: by name, or all in one tensor."""
    if isinstance(params, Tensor):
        if params.numel() != plan._n_floats:
            raise ArgumentError(f"params has {params.numel()} numbers; {plan.spec} has {plan._n_floats}")
        return Params(plan.tensors, floats(params.detach().flatten(), "params").copy())
    return plan._params_for(params and {name: t.detach() if isinstance(t, Tensor) else t for name, t in params.items()})


class DecodeState(Sequences):
    """What sequences that are generated together have seen, by a spec or by a layer.

    >>> state = foci.torch.DecodeState("local(window=64) rope", batch=2, heads=8, dim=64)
    >>> o = state.step(q, k, v)  # (2, 8, n, 64): n new tokens of each sequence
    >>> state = foci.torch.DecodeState(attn, batch=2)  # a causal foci.torch.Attention
    >>> y = state.step(x)        # (2, n, width)

    Row i of a sequence comes out as the causal attention over the whole sequence gives it,
    however its tokens are cut into steps.  Steps have no gradients.  Nothing given to a step
    is kept: a state has copies.  For a spec, keywords are those of `foci.Plan`; ``max_len``
    is the length that tables by position have.  A layer's parameters are read by each step.
    """

    def __init__(self, of: Union[str, Attention], batch: int = 1, *, dtype: torch.dtype = torch.float32,
                 layout: str = "bhnd", max_len: int = 1, params: Any = None, **options: Any) -> None:
        check_dtype(dtype, "the state")
        self.dtype, self.layout = dtype, layout
        self.module: Optional[Attention] = None
        if isinstance(of, Attention):
            if options or params is not None:
                raise ArgumentError(f"{next(iter(options), 'params')}= is said with a spec, not with a layer")
            self._of_layer(of, batch)
        else:
            check_layout(layout, len(layout))
            plan = Plan(of, causal=True, dtype=dtype, layout=layout, len_q=max_len, **options)
            self._plan, self._context = plan, plan.context
            self._params = _params_of(plan, params)
            self._pool = _Pool(plan.handle, plan, plan.context, batch)
        self._sequences = [_Sequence(self._pool) for _ in range(batch)]

    def _of_layer(self, module: Attention, batch: int) -> None:
        if not module.causal:
            raise ArgumentError("the layer is not causal: a state reads sequences from left to right")
        self.module = module
        like = torch.empty(1, module.max_len or 1, module.embed_dim, dtype=self.dtype, device="meta")
        self._entry = module._how.entry(key_of(like, None, None, NOTHING, False, True, False))
        self._context = self._entry.context
        self._packed: Any = (None, None)
        self._pool = _Pool(lib.foci_layer_plan(self._entry.handle), self._entry.shaped, self._context, batch)

    def __len__(self) -> int:
        return len(self._sequences)

    def append(self, q: Optional[Tensor], k: Tensor, v: Tensor, *, tokens: Any = None) -> None:
        """Append tokens and attend to nothing: q is needed where keys are made of it only."""
        if self.module is not None:
            raise ArgumentError("append() is of states of a spec; those of a layer have step()")
        self.step(q, k, v, tokens=tokens, attend=False)

    @torch.no_grad()
    def step(self, *tensors: Any, tokens: Any = None, x: Any = None, words: Any = None,
             attend: bool = True) -> Tensor:
        """Append tokens and attend: q, k and v of a spec, x of a layer, with n new tokens of
        each sequence; the output is laid out alike.  With ``tokens``, how many each sequence
        has, they are rows one sequence behind the other."""
        if torch.is_autocast_enabled("cpu"):
            tensors = tuple(cast(t) for t in tensors)
        tensors = tuple(t if t is None else t.resolve_neg() for t in tensors)
        for name, t in zip(("x",) if self.module is not None else ("q", "k", "v"), tensors):
            if t is not None:
                check_device(t, name)
                if t.dtype != self.dtype:
                    raise DTypeError(f"{name} has dtype {t.dtype}, the state is of {self.dtype}")
        words = whole(words, "words")
        counts = None if tokens is None else whole(tokens, "tokens").numpy()
        if self.module is None:
            if len(tensors) != 3:
                raise ArgumentError(f"step() of a spec takes q, k and v; {len(tensors)} tensors are given")
            return self._step_heads(tensors, counts, x, words, attend)
        if len(tensors) != 1:
            raise ArgumentError(f"step() of a layer takes x; {len(tensors)} tensors are given")
        return self._step_layer(tensors[0], counts, words)

    def _execute(self, call: Any, sizes: Any, io: Any, counts: Any, rows: int, words: Optional[Tensor]) -> None:
        if words is not None and words.numel() != rows:
            raise ArgumentError(f"words has shape {tuple(words.shape)}; there are {rows} rows")
        io.words = pointer(words)
        with self._pool.locked.lock:
            counts, rows, longest = self._tokens(counts, rows)
            if rows:
                self._run(call, sizes, self._context, io, counts, rows, longest)

    def _step_heads(self, tensors: Sequence[Any], counts: Any, x: Optional[Tensor], words: Optional[Tensor],
                    attend: bool) -> Tensor:
        p = self._plan.problem
        layout = self.layout if counts is None else "nhd"
        widths = {"q": (p.heads, p.dim_qk), "k": (p.kv_heads, p.dim_qk), "v": (p.kv_heads, p.dim_v)}
        rows = {name: self._rows(t, name, layout, *widths[name]) for name, t in zip("qkv", tensors) if t is not None}
        lengths = {name: len(t) for name, t in rows.items()}
        if len(set(lengths.values())) != 1:
            raise ArgumentError("rows differ: " + (", ".join(f"{name} {n}" for name, n in lengths.items()) or "none is given"))
        count = next(iter(lengths.values()))
        if x is not None:
            x = x.contiguous()
            if x.dtype != self.dtype or x.numel() != count * p.dim_x:
                raise ArgumentError(f"x has shape {tuple(x.shape)} of {x.dtype}, not {(count, p.dim_x)} of {self.dtype}")
        o = torch.empty(count if attend else 0, p.heads, p.dim_v, dtype=self.dtype)
        io = _c.foci_step_io(o=o.data_ptr() if attend else None, x=pointer(x),
                             **{name: t.data_ptr() for name, t in rows.items()})
        if self._params is not None:
            io.params = self._params.flat.ctypes.data
        pool = self._pool.handle
        self._execute(lambda given: lib.foci_step(pool, ctypes.byref(given)),
                      lambda *sizes: lib.foci_step_work_bytes(pool, *sizes), io, counts, count, words)
        if layout == "nhd" or not attend:
            return o
        have = [axis for axis in "bnhd" if axis in layout]
        n = count // len(self) if "b" in layout else count
        return o.view(arranged("".join(have), len(self), n, p.heads, p.dim_v)).permute([have.index(a) for a in layout])

    def _rows(self, t: Tensor, name: str, layout: str, heads: int, dim: int) -> Tensor:
        """[row][head][dim], packed."""
        sizes = dict(zip(layout, t.shape))
        if t.dim() != len(layout) or (sizes.get("h", 1), sizes["d"]) != (heads, dim) or sizes.get("b", len(self)) != len(self):
            want = {"b": len(self), "h": heads, "d": dim}
            raise ArgumentError(f"{name} has shape {tuple(t.shape)}, not "
                                f"({', '.join(str(want.get(axis, 'n')) for axis in layout)})")
        order = sorted(range(len(layout)), key=lambda axis: "bnhd".index(layout[axis]))
        return t.permute(order).reshape(-1, heads, dim).contiguous()

    def _precomputed(self, params: list[Tensor]) -> tuple[Optional[Tensor], Optional[Tensor]]:
        """The parameters, and what follows from them alone, computed anew where they changed."""
        module = self.module
        assert module is not None
        flat = flat_of(module._how, params)
        if flat is None:
            return None, None
        # tensors of inference mode do not count their changes
        seen: Any = None if params[0].is_inference() else tuple((t.data_ptr(), t._version) for t in params)
        if seen is None or self._packed[0] != seen:
            need = lib.foci_layer_precompute_bytes(self._entry.handle)
            packed = torch.empty(need, dtype=torch.uint8) if need else None
            if packed is not None:
                self._entry.shaped.check(lib.foci_layer_precompute(self._entry.handle, flat.data_ptr(), packed.data_ptr()))
            self._packed = seen, packed
        return flat, self._packed[1]

    def _step_layer(self, x: Tensor, counts: Any, words: Optional[Tensor]) -> Tensor:
        module = self.module
        assert module is not None
        batched = x.dim() == 3 and counts is None
        rows = x if module.batch_first or not batched else x.transpose(0, 1)
        if x.shape[-1] != module.embed_dim or x.dim() not in (2, 3) or batched and rows.shape[0] != len(self):
            raise ArgumentError(f"x has shape {tuple(x.shape)}, not ({len(self)}, n, {module.embed_dim})")
        flat = rows.reshape(-1, module.embed_dim).contiguous()
        params, packed = self._precomputed(module._tensors())
        y = torch.empty(flat.shape, dtype=flat.dtype)
        io = _c.foci_layer_step_io(x=flat.data_ptr(), y=y.data_ptr(), params=pointer(params), precomputed=pointer(packed))
        handle, pool = self._entry.handle, self._pool.handle
        self._execute(lambda given: lib.foci_layer_step(handle, pool, ctypes.byref(given)),
                      lambda *sizes: lib.foci_layer_step_work_bytes(handle, pool, *sizes), io, counts, len(flat), words)
        y = y.view(rows.shape)
        return y if module.batch_first or not batched else y.transpose(0, 1)
