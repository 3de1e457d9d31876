"""Exceptions, one class for each status of the library, with the library's sentence."""

from __future__ import annotations


class Error(Exception):
    """What foci refuses or fails to do; the text says what was wrong, what was seen, and
    what would be accepted."""


class ArgumentError(Error, ValueError):
    """An argument is out of range or contradicts another."""


class DTypeError(ArgumentError, TypeError):
    """An array has elements of a type, or lies on a device, that this call does not read."""


class SpecError(Error, ValueError):
    """The text of a mechanism does not parse, or asks for what there is not."""


class UnsupportedError(Error, NotImplementedError):
    """Well formed, but not offered."""


class OutOfMemoryError(Error, MemoryError):
    """An allocation failed."""


class DeviceError(Error, RuntimeError):
    """The device refused, or failed while executing."""


class FileError(Error, OSError):
    """A file is missing, unreadable, malformed or full."""


class PoolFullError(Error, RuntimeError):
    """A pool has too few pages left."""


# By foci_status.
CLASSES: dict[int, type[Error]] = {
    -1: ArgumentError,
    -2: SpecError,
    -3: UnsupportedError,
    -4: OutOfMemoryError,
    -5: DeviceError,
    -6: FileError,
    -7: PoolFullError,
}
