"""Parameters: the tensors that mechanisms and layers own, in one array, by name."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from . import _c
from ._errors import ArgumentError, DTypeError
from ._tensors import Floats, floats


class Param(NamedTuple):
    """A tensor: where it is in the array of all (-1: drawn from the seed, not stored), and
    whether it is "frozen", "trained", or "moved" by its mechanism."""

    name: str
    shape: tuple[int, ...]
    offset: int
    floats: int
    keep: str


def table(count: Any, get: Any, handle: int) -> tuple[Param, ...]:
    """The tensors that a pair of functions of the library lists."""
    found = []
    for i in range(count(handle)):
        p = _c.foci_param()
        status = get(handle, i, ctypes.byref(p))
        if status:
            _c.fail(status)
        found.append(Param(p.name.decode(), tuple(p.shape[: p.n_dims]), p.offset, p.count, _c.KEEPS[p.keep]))
    return tuple(found)


class Params(Mapping[str, Floats]):
    """Parameters by name; each is a view into `flat`, all of them in one array of float32.

    ``params["sink"][:] = 1`` and ``params["sink"] = 1`` change them in place.
    """

    __slots__ = ("tensors", "flat", "_views")

    def __init__(self, tensors: tuple[Param, ...], flat: Floats) -> None:
        self.tensors = tensors
        self.flat = flat
        self._views = {t.name: flat[t.offset : t.offset + t.floats].reshape(t.shape) for t in tensors if t.offset >= 0}

    def __getitem__(self, name: str) -> Floats:
        return self._views[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._views:
            raise ArgumentError(f'there is no parameter "{name}"; there are {", ".join(self) or "none"}')
        view = self._views[name]
        if not np.isscalar(value):
            value = floats(value, name)
            if value.shape not in (view.shape, view.shape[1:], ()):
                raise ArgumentError(f"{name} has shape {value.shape}, not {view.shape} (or {view.shape[1:]}, the same "
                                    "for all heads)")
        view[...] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def copy(self) -> Params:
        """The same numbers in an array of their own."""
        return Params(self.tensors, self.flat.copy())

    def zeros_like(self) -> Params:
        """As many zeros, for gradients."""
        return Params(self.tensors, np.zeros_like(self.flat))

    def update(self, values: Mapping[str, Any]) -> None:
        """Set those that are named."""
        for name, value in values.items():
            self[name] = value

    def __repr__(self) -> str:
        return f"foci.Params({', '.join(f'{name} {list(view.shape)}' for name, view in self.items())})"


GivenParams = Optional[Union[Params, Mapping[str, Any]]]


def given(params: GivenParams, drawn: Params) -> Params:
    """What a call reads: `drawn` with what is given in its place."""
    if params is None:
        return drawn
    if isinstance(params, Params):
        if params.flat.shape != drawn.flat.shape:
            raise ArgumentError(f"params has {params.flat.size} numbers; {drawn.flat.size} are needed: they are those "
                                "of another spec or shape")
        if params.flat.dtype != np.float32 or not params.flat.flags.c_contiguous:
            raise ArgumentError("params.flat has to be packed float32")
        return params
    if not isinstance(params, Mapping):
        raise DTypeError(f"params is a {type(params).__name__}: it has to be a mapping by name, or what params() gave")
    changed = drawn.copy()
    changed.update(params)
    return changed
