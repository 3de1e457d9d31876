"""Contexts: threads, CPU level and device of the plans that are made on them."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from . import _c

Bytes = npt.NDArray[np.uint8]


def aligned(count: int) -> tuple[int, Bytes]:
    """So many bytes that begin at a multiple of 64: their address, and who owns them."""
    owner = np.empty(count + 64, np.uint8)
    return owner.ctypes.data + (-owner.ctypes.data) % 64, owner


class Block:
    """Scratch memory: of the device of a context, or of the host."""

    __slots__ = ("address", "count", "owner")

    def __init__(self, context: Context, count: int) -> None:
        self.count = count
        self.owner: Any
        if context.device is None:
            self.address, self.owner = aligned(count)
        else:
            self.owner = DeviceMemory(context, count)
            self.address = self.owner.handle


class DeviceMemory(_c.Handle):
    """Memory of a device, freed with its owner."""

    __slots__ = ()

    def __init__(self, context: Context, count: int) -> None:
        memory = ctypes.c_void_p()
        status = _c.lib.foci_device_alloc(context.handle, max(count, 1), ctypes.byref(memory))
        if status:
            _c.fail(status, context.handle)
        assert memory.value is not None
        where = context.handle

        def free(handle: int) -> None:
            _c.lib.foci_device_free(where, handle, max(count, 1))

        super().__init__(memory.value, free, context)


class Context(_c.Handle):
    """Threads, CPU level and device of what is made on it.

    ``threads`` 0 takes ``$FOCI_THREADS`` or one a core, ``cpu`` the highest level to use
    ("avx2", see `cpu_levels`), ``device`` "cuda" or "cuda:1"; plans then take addresses of
    memory there (`Plan.execute`).
    """

    __slots__ = ("device", "blocks")

    def __init__(self, threads: int = 0, cpu: Optional[str] = None, device: Optional[str] = None) -> None:
        options = _c.foci_options(threads=threads, cpu=cpu.encode() if cpu else None,
                                  device=device.encode() if device else None)
        handle = _c.created(_c.lib.foci_ctx_create, None, ctypes.byref(options))
        super().__init__(handle, _c.lib.foci_ctx_free)
        self.device = device
        self.blocks: list[Block] = []

    @property
    def threads(self) -> int:
        """Threads that executions use."""
        return int(_c.lib.foci_ctx_threads(self.handle))

    def cpu_levels(self) -> dict[str, str]:
        """CPU levels from the portable one up, each with "chosen", "available" or why it is
        not used."""
        levels = {}
        for i in range(_c.lib.foci_cpu_level_count(self.handle)):
            state = ctypes.c_char_p()
            name = _c.lib.foci_cpu_level(self.handle, i, ctypes.byref(state))
            levels[name.decode()] = (state.value or b"").decode()
        return levels

    def take(self, count: int) -> Block:
        """Scratch memory of so many bytes at least, to be given back by `give`.

        One block for each call that runs at a time, as large as any of them asked for."""
        try:
            block = self.blocks.pop()
        except IndexError:
            return Block(self, count)
        return block if block.count >= count else Block(self, count)

    def give(self, block: Block) -> None:
        """Give back what `take` gave."""
        self.blocks.append(block)

    def release(self) -> None:
        """Free the scratch memory that is kept from call to call."""
        self.blocks.clear()

    def __repr__(self) -> str:
        return f"foci.Context(threads={self.threads}{f', device={self.device!r}' if self.device else ''})"


_default: Optional[Context] = None


def default_context() -> Context:
    """The context of calls that name none."""
    global _default
    if _default is None:
        with _c.lock:
            if _default is None:
                _default = Context()
    return _default


def set_threads(threads: int) -> None:
    """Let calls that name no context use so many threads; 0: $FOCI_THREADS, or one a core.

    What was made before (plans, layers, models) keeps the number that it was made with."""
    global _default
    context = Context(threads)
    with _c.lock:
        _default = context


def get_threads() -> int:
    """How many threads calls use that name no context."""
    return default_context().threads


def version() -> str:
    """The version of the library."""
    return str(_c.lib.foci_version().decode())
