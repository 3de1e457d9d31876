"""Decoding: sequences that are read token by token, with what they have seen kept."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Sequence
from typing import Any, Optional, TypeVar, Union

import numpy as np

from . import _c
from ._errors import ArgumentError, DTypeError, PoolFullError
from ._params import GivenParams
from ._plan import Plan, arranged, check_number
from ._tensors import Array, address, dtype_of, float_array, integers

lib = _c.lib
PAGE = 64  # tokens


class _Pool(_c.Handle):
    """Memory that sequences share; it grows when it is full."""

    __slots__ = ("locked", "gone")

    def __init__(self, plan: int, owner: _c.Handle, context: _c.Handle, pages: int) -> None:
        self.locked = _c.Locked()
        self.gone: list[int] = []  # states of sequences that are no longer used
        handle = _c.created(lib.foci_pool_create, context.handle, plan, max(pages, 1))
        super().__init__(handle, owner=owner)

    def _release(self) -> None:
        self.sweep()
        lib.foci_pool_free(self.handle)

    def sweep(self) -> None:
        """Free what is no longer used, unless another thread is at work: it will."""
        lock = self.locked.lock
        if lock.acquire(blocking=False):
            try:
                while self.gone:
                    lib.foci_state_free(self.gone.pop())
            finally:
                lock.release()

    def grow(self, pages: int) -> None:
        status = lib.foci_pool_grow(self.handle, pages)
        if status:
            _c.fail(status)


class _Sequence(_c.Handle):
    """What one sequence has seen."""

    __slots__ = ()

    def __init__(self, pool: _Pool, handle: Optional[int] = None) -> None:
        if handle is None:
            handle = _c.created(lib.foci_state_create, None, pool.handle)
        super().__init__(handle, owner=pool)

    def _release(self) -> None:
        assert isinstance(self.owner, _Pool)
        self.owner.gone.append(self.handle)
        self.owner.sweep()


Kind = TypeVar("Kind", bound="Sequences")


class Sequences:
    """Sequences that share a pool: what states of plans and of layers have in common."""

    _pool: _Pool
    _sequences: list[_Sequence]

    def __len__(self) -> int:
        """How many sequences there are."""
        return len(self._sequences)

    @property
    def lengths(self) -> list[int]:
        """Tokens that each sequence has seen."""
        return [int(lib.foci_state_len(s.handle)) for s in self._sequences]

    @property
    def nbytes(self) -> int:
        """Bytes that the sequences hold, shared pages counted whole."""
        return sum(int(lib.foci_state_bytes(s.handle)) for s in self._sequences)

    def reset(self) -> None:
        """Forget all tokens."""
        with self._pool.locked.lock:
            for sequence in self._sequences:
                lib.foci_state_reset(sequence.handle)

    def truncate(self, length: Union[int, Sequence[int]]) -> None:
        """Forget tokens from `length` on, one for all or one for each sequence."""
        lengths = [length] * len(self) if isinstance(length, (int, np.integer)) else list(length)
        if len(lengths) != len(self):
            raise ArgumentError(f"{len(lengths)} lengths for {len(self)} sequences")
        for n in lengths:
            check_number("length", n)
        with self._pool.locked.lock:
            for sequence, n in zip(self._sequences, lengths):
                status = lib.foci_state_truncate(sequence.handle, n)
                if status:
                    _c.fail(status)

    def reserve(self, tokens: int) -> None:
        """Make room for so many more tokens of each sequence; their steps then allocate
        nothing of the library's."""
        check_number("tokens", tokens)
        with self._pool.locked.lock:
            for sequence in self._sequences:
                status = lib.foci_state_reserve(sequence.handle, tokens)
                if status:
                    _c.fail(status)
            pages = len(self) * (tokens // PAGE + 2)
            missing = pages - lib.foci_pool_free_count(self._pool.handle)
            if missing > 0:
                self._pool.grow(missing)

    def reorder(self, origins: Sequence[int]) -> None:
        """Let sequence i go on from sequence origins[i], as beam search needs; there may be
        more of them than before, or fewer.  Pages are shared, not copied."""
        origins = [int(i) for i in origins]
        for i in origins:
            if not 0 <= i < len(self):
                raise ArgumentError(f"sequence {i}: there are 0 to {len(self) - 1}")
        with self._pool.locked.lock:
            made, used = [], set()
            for i in origins:
                made.append(self._copy(self._sequences[i]) if i in used else self._sequences[i])
                used.add(i)
            self._sequences = made

    def _copy(self, sequence: _Sequence) -> _Sequence:
        return _Sequence(self._pool, _c.created(lib.foci_state_copy, None, sequence.handle))

    def copy(self: Kind) -> Kind:
        """A state that has seen the same tokens; the two share pages until one of them writes."""
        twin = copy.copy(self)
        with self._pool.locked.lock:
            twin._sequences = [self._copy(s) for s in self._sequences]
        return twin

    def save(self) -> list[bytes]:
        """Each sequence as bytes, for `restore`."""
        saved = []
        with self._pool.locked.lock:
            for sequence in self._sequences:
                count = lib.foci_state_save(sequence.handle, None, 0)
                buffer = ctypes.create_string_buffer(count)
                lib.foci_state_save(sequence.handle, buffer, count)
                saved.append(buffer.raw)
        return saved

    def restore(self, saved: Sequence[bytes]) -> None:
        """Go on from what `save` of a state of the same spec and shape gave."""
        with self._pool.locked.lock:
            self._sequences = [self._restored(data) for data in saved]

    def _restored(self, data: bytes) -> _Sequence:
        aligned = np.frombuffer(data, np.uint8).copy()
        while True:
            try:
                return _Sequence(self._pool, _c.created(lib.foci_state_restore, None, self._pool.handle,
                                                        address(aligned), aligned.size))
            except PoolFullError:
                self._grow(PAGE)

    def _grow(self, tokens: int) -> None:
        """Twice the pages, and those that so many tokens need."""
        self._pool.grow(lib.foci_pool_page_count(self._pool.handle) + 2 * (tokens // PAGE + len(self._sequences) + 1))

    def _tokens(self, tokens: Any, rows: int) -> tuple[Optional[Array], int, int]:
        """The new tokens of each sequence: int32 or None for one each, their sum, the longest
        sequence after them."""
        lengths = self.lengths
        if tokens is None:
            each, left = divmod(rows, max(len(self), 1))
            if left:
                raise ArgumentError(f"{rows} rows for {len(self)} sequences: tokens= says how many each has")
            counts = None if each == 1 else np.full(len(self), each, np.int32)
            return counts, rows, max(lengths, default=0) + each
        counts = integers(tokens, "tokens", (len(self),))
        if counts.size and counts.min() < 0:
            raise ArgumentError(f"tokens has {counts.min()}: 0 or more are added")
        if counts.sum() != rows:
            raise ArgumentError(f"tokens add up to {counts.sum()}, there are {rows} rows")
        return counts, rows, max((n + int(c) for n, c in zip(lengths, counts)), default=0)

    def _run(self, step: Any, work_bytes: Any, context: Any, io: Any, counts: Optional[Array], rows: int,
             longest: int) -> None:
        """Execute a step; the pool grows where it is full."""
        self._pool.sweep()
        states = (ctypes.c_void_p * len(self))(*(s.handle for s in self._sequences))
        need = work_bytes(len(self), rows, longest)
        if need == ctypes.c_size_t(-1).value:
            raise ArgumentError(f"a step of {rows} tokens of {len(self)} sequences is too large")
        block = context.take(need)
        io.states, io.n_states, io.work = ctypes.addressof(states), len(self), block.address
        io.tokens = address(counts)
        try:
            while True:
                status = step(io)
                if status != -7:
                    break
                self._grow(rows)
        finally:
            context.give(block)
        if status:
            _c.fail(status, context.handle)


class State(Sequences):
    """Sequences that are decoded together by a plan.

    >>> state = foci.State("local(window=64) rope", heads=8, dim=64, batch=2)
    >>> o = state.step(q, k, v)  # (2, 8, n, 64): n new tokens of each sequence

    Row i of a sequence comes out as the causal `foci.attention` over the whole sequence gives
    it, however its tokens are cut into steps.  In place of a spec a causal `Plan` may be given;
    otherwise keywords are those of `Plan`, of which ``len_q`` (default 1) is the length that
    tables by position have.  Nothing given to a step is kept: a state has copies.
    """

    def __init__(self, spec: Union[str, Plan], batch: int = 1, *, params: GivenParams = None, pages: int = 0,
                 **options: Any) -> None:
        if isinstance(spec, Plan):
            if options:
                raise ArgumentError(f"{next(iter(options))}= is said with a spec, not with a plan")
            self.plan = spec
        else:
            options.setdefault("len_q", 1)
            self.plan = Plan(spec, causal=True, **options)
        self.params = self.plan._params_for(params)
        self._pool = _Pool(self.plan.handle, self.plan, self.plan.context, pages or batch)
        self._sequences = [_Sequence(self._pool) for _ in range(batch)]

    def _rows(self, value: Any, name: str, heads: int, dim: int, packed: bool) -> Optional[Array]:
        """[row][head][dim], packed, from an array of the plan's layout, or of rows."""
        if value is None:
            return None
        found = float_array(value, name)
        if found.dtype != dtype_of(self.plan.code):
            raise DTypeError(f"{name} has dtype {found.dtype}, the state is of {dtype_of(self.plan.code)}")
        layout = "nhd" if packed else self.plan.layout
        if found.ndim != len(layout):
            raise ArgumentError(f"{name} has shape {found.shape}: {len(layout)} axes are needed ({layout})")
        sizes = dict(zip(layout, found.shape))
        if (sizes.get("h", 1), sizes["d"]) != (heads, dim) or ("b" in sizes and sizes["b"] != len(self)):
            want = {"b": len(self), "h": heads, "d": dim}
            raise ArgumentError(f"{name} has shape {found.shape}, not "
                                f"({', '.join(str(want.get(axis, 'n')) for axis in layout)})")
        order = sorted(range(len(layout)), key=lambda axis: "bnhd".index(layout[axis]))
        return np.ascontiguousarray(found.transpose(order)).reshape(-1, heads, dim)

    def step(self, q: Any, k: Any, v: Any, *, tokens: Any = None, x: Any = None, words: Any = None,
             params: GivenParams = None) -> Array:
        """Append tokens and attend: the output rows, laid out as q.

        Arrays have the plan's layout, with n new tokens of each sequence; with ``tokens``,
        how many each sequence has, they are rows one sequence after another, [row][head][dim].
        """
        p = self.plan.problem
        given, rows, fields = self._given(q, k, v, tokens, x, words, params)
        out = np.empty((rows, p.heads, p.dim_v), self.plan.dtype)
        self._append(given, rows, tokens, address(out), fields)
        return self._laid_out(out, tokens is not None)

    def append(self, q: Any, k: Any, v: Any, *, tokens: Any = None, x: Any = None, words: Any = None,
               params: GivenParams = None) -> None:
        """Append tokens and attend to nothing: q may be None but where keys are made of
        queries."""
        given, rows, fields = self._given(q, k, v, tokens, x, words, params)
        self._append(given, rows, tokens, 0, fields)

    def _given(self, q: Any, k: Any, v: Any, tokens: Any, x: Any, words: Any,
               params: GivenParams) -> tuple[dict[str, Optional[Array]], int, dict[str, Any]]:
        """Packed rows of q, k and v, how many there are, and other fields of a step with the
        arrays that they point to."""
        p = self.plan.problem
        packed = tokens is not None
        given = {"q": self._rows(q, "q", p.heads, p.dim_qk, packed),
                 "k": self._rows(k, "k", p.kv_heads, p.dim_qk, packed),
                 "v": self._rows(v, "v", p.kv_heads, p.dim_v, packed)}
        lengths = {name: len(found) for name, found in given.items() if found is not None}
        if not lengths:
            raise ArgumentError("none of q, k and v is given")
        if len(set(lengths.values())) > 1:
            raise ArgumentError(f"rows differ: {', '.join(f'{name} {rows}' for name, rows in lengths.items())}")
        rows = next(iter(lengths.values()))
        fields: dict[str, Any] = {}
        if x is not None:
            fields["x"] = np.ascontiguousarray(float_array(x, "x"))
            if fields["x"].dtype != self.plan.dtype or fields["x"].size != rows * p.dim_x:
                raise ArgumentError(f"x has shape {fields['x'].shape} of {fields['x'].dtype}, not {(rows, p.dim_x)} of "
                                    f"{self.plan.dtype}")
        if words is not None:
            fields["words"] = integers(np.asarray(words).reshape(-1), "words", (rows,))
        used = self.params if params is None else self.plan._params_for(params)
        if used is not None:
            fields["params"] = used.flat
        return given, rows, fields

    def _append(self, given: dict[str, Optional[Array]], rows: int, tokens: Any, o: int,
                fields: dict[str, Any]) -> None:
        with self._pool.locked.lock:
            counts, rows, longest = self._tokens(tokens, rows)
            if rows:
                more: dict[str, Any] = {name: address(found) for name, found in fields.items()}
                self.execute(address(given["q"]), address(given["k"]), address(given["v"]), o, counts, rows, longest,
                             **more)

    def execute(self, q: int, k: int, v: int, o: int, counts: Optional[Array], rows: int, longest: int,
                **fields: Any) -> None:
        """foci_step() on addresses of packed rows; `counts` int32 new tokens of each sequence
        (None: one), `rows` their sum, `longest` the longest sequence after them."""
        pool = self._pool.handle
        io = _c.foci_step_io(q=q, k=k, v=v, o=o, **fields)
        with self._pool.locked.lock:
            self._run(lambda given: lib.foci_step(pool, ctypes.byref(given)),
                      lambda *sizes: lib.foci_step_work_bytes(pool, *sizes), self.plan.context, io, counts, rows,
                      longest)

    def _laid_out(self, out: Array, packed: bool) -> Array:
        layout = self.plan.layout
        if packed or layout == "nhd":
            return out
        p = self.plan.problem
        rows = out.shape[0] // len(self) if "b" in layout else out.shape[0]
        shaped = out.reshape(arranged("".join(a for a in "bnhd" if a in layout), len(self), rows, p.heads, p.dim_v))
        have = [a for a in "bnhd" if a in layout]
        return np.transpose(shaped, [have.index(axis) for axis in layout])
