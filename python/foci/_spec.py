"""Specs put together by calls: what the generated functions of mechanisms return."""

from __future__ import annotations

from typing import Any, SupportsIndex, Union

from ._errors import DTypeError, SpecError


class Spec(str):
    """The text of a spec, which every call takes as it takes a string.

    >>> foci.local(window=64) | foci.rope()
    'local(window=64) rope'
    >>> 4 * foci.softmax() + 4 * foci.relu2(n=1)
    '4*softmax + 4*relu2(n=1)'

    ``|`` puts a modifier behind a mechanism, ``*`` says how many heads, ``+`` puts groups of
    heads side by side.
    """

    __slots__ = ()

    def __or__(self, modifier: str) -> Spec:
        return Spec(f"{self} {modifier}")

    def __add__(self, other: str) -> Spec:
        return Spec(f"{str(self)} + {str(other)}")

    def __radd__(self, other: str) -> Spec:
        return Spec(f"{str(other)} + {str(self)}")

    def __mul__(self, heads: SupportsIndex) -> Spec:
        return Spec(f"{heads.__index__()}*{str(self)}")

    __rmul__ = __mul__


class Modifier(str):
    """The text of a modifier, to be put behind a mechanism by ``|``."""

    __slots__ = ()

    def __or__(self, modifier: str) -> Modifier:
        return Modifier(f"{self} {modifier}")


def check_spec(spec: Any) -> None:
    """Refuse what is no text, or has a byte that C's strings end at."""
    if not isinstance(spec, str):
        raise DTypeError(f"spec is a {type(spec).__name__}: it has to be text, for instance 'local(window=256) rope'")
    if "\0" in spec:
        raise SpecError(f"column {spec.index(chr(0)) + 1}: a zero byte")
    try:
        spec.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"column {error.start + 1}: half a character") from None


def written(value: Any) -> str:
    """A value of an argument as specs write it."""
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, (int, float)) else str(value)


def text(name: str, arguments: dict[str, Any], defaults: dict[str, Any]) -> str:
    """NAME(ARGUMENT=VALUE, ...) without what has its default."""
    said = ", ".join(f"{key}={written(value)}" for key, value in arguments.items() if value != defaults.get(key))
    return f"{name}({said})" if said else name


Number = Union[int, float]
