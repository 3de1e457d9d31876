"""Products of matrices, with what follows them done in the same pass, and their gradients."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional

import numpy as np

from . import _c
from ._context import Context, default_context
from ._errors import ArgumentError
from ._tensors import CODES, Array, Floats, address, array, dtype_code, dtype_of, float_array, floats, refuse_dtype

lib = _c.lib
_byref = ctypes.byref
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
TRANSPOSE_B, FAST, GATED = 2, 8, 16


class ProductGradients(NamedTuple):
    """Gradients of a product; that of the residual is that of the output."""

    a: Array
    b: Floats
    bias: Floats


def _matrix(value: Any, name: str) -> tuple[Array, int]:
    """A matrix whose rows are as they are in memory, and how far apart they lie."""
    found = float_array(value, name)
    if found.ndim != 2:
        raise ArgumentError(f"{name} has shape {found.shape}: a matrix has two axes")
    size = found.itemsize
    if found.strides[1] == size and found.strides[0] % size == 0 and found.strides[0] >= size * found.shape[1] \
            and found.flags.aligned and found.shape[1]:
        return found, found.strides[0] // size
    return np.ascontiguousarray(found), max(found.shape[1], 1)


class _Product:
    """What a product and its gradients have in common."""

    def __init__(self, a: Any, b: Any, bias: Any, activation: str, gated: bool, residual: Any, fast: bool,
                 dropout: float, dropout_seed: int, dtype: Any, context: Optional[Context]) -> None:
        if activation not in ACTIVATIONS:
            raise ArgumentError(f'activation "{activation}": there are {", ".join(ACTIVATIONS)}')
        self.context = context or default_context()
        self.a, ld_a = _matrix(a, "a")
        read, flags = array(b, "b"), FAST * fast | GATED * gated
        if read.ndim == 2 and read.strides[0] == read.itemsize and read.shape[0] > 1 and read.shape[1] > 1:
            self.b, ld_b = _matrix(read.T, "b")  # stored as its transpose
            flags |= TRANSPOSE_B
        else:
            self.b, ld_b = _matrix(read, "b")
        k, columns = read.shape
        if self.a.shape[1] != k:
            raise ArgumentError(f"a has shape {self.a.shape}, b {read.shape}: the columns of a are the rows of b")
        if gated and columns % 2:
            raise ArgumentError(f"b has {columns} columns: with gated=True they are those of two factors")
        self.gated, self.n, self.m, self.k = gated, columns // (1 + gated), self.a.shape[0], k
        self.code = CODES[self.a.dtype] if dtype is None else dtype_code(dtype)
        self.bias = None if bias is None else floats(bias, "bias")
        if self.bias is not None and self.bias.shape != (columns,):
            raise ArgumentError(f"bias has shape {self.bias.shape}, not {(columns,)}")
        self.residual = None
        if residual is not None:
            self.residual = np.ascontiguousarray(float_array(residual, "residual"))
            if self.residual.shape != (self.m, self.n) or self.residual.dtype != dtype_of(self.code):
                raise ArgumentError(f"residual has shape {self.residual.shape} of {self.residual.dtype}, not "
                                    f"{(self.m, self.n)} of {dtype_of(self.code)}")
        self.c = np.empty((self.m, self.n), dtype_of(self.code))
        self.pre: Optional[Array] = None
        self.io = _c.foci_product_io(
            m=self.m, n=self.n, k=k, a=address(self.a), b=address(self.b), c=address(self.c), type_a=CODES[self.a.dtype],
            type_b=CODES[self.b.dtype], type_c=self.code, ld_a=ld_a, ld_b=ld_b, flags=flags, bias=address(self.bias),
            act=ACTIVATIONS.index(activation), residual=address(self.residual), dropout=dropout,
            dropout_seed=dropout_seed)

    def run(self, keep: bool) -> Array:
        if keep and (self.io.act or self.gated):
            self.pre = np.empty((self.m, self.n * (1 + self.gated)), dtype_of(self.code))
            self.io.pre = address(self.pre)
        need = lib.foci_product_work_bytes(self.context.handle, _byref(self.io))
        if need == ctypes.c_size_t(-1).value:
            _c.fail(-1, self.context.handle)
        block = self.context.take(need)
        self.io.work = block.address
        status = lib.foci_product(self.context.handle, _byref(self.io))
        self.context.give(block)
        if status:
            _c.fail(status, self.context.handle)
        return self.c

    def backward(self, dc: Any) -> ProductGradients:
        given = np.ascontiguousarray(float_array(dc, "dc"))
        if given.shape != self.c.shape or given.dtype != self.c.dtype:
            raise ArgumentError(f"dc has shape {given.shape} of {given.dtype}, not {self.c.shape} of {self.c.dtype}")
        da = np.empty(self.a.shape, self.a.dtype)
        db = np.zeros(self.b.shape, np.float32)
        dbias = np.zeros(self.n * (1 + self.gated), np.float32)
        grads = _c.foci_product_grads(dc=address(given), da=address(da), db=address(db), dbias=address(dbias))
        need = lib.foci_product_grads_work_bytes(self.context.handle, _byref(self.io), _byref(grads))
        if need == ctypes.c_size_t(-1).value:
            _c.fail(-1, self.context.handle)
        block = self.context.take(need)
        grads.work = block.address
        status = lib.foci_product_backward(self.context.handle, _byref(self.io), _byref(grads))
        self.context.give(block)
        if status:
            _c.fail(status, self.context.handle)
        return ProductGradients(da, db.T if self.io.flags & TRANSPOSE_B else db, dbias)


def product(a: Any, b: Any, *, bias: Any = None, activation: str = "none", gated: bool = False, residual: Any = None,
            fast: bool = False, dropout: float = 0.0, dropout_seed: int = 0, dtype: Any = None,
            context: Optional[Context] = None) -> Array:
    """residual + drop(activation(a b + bias)), a [m][k], b [k][n].

    ``gated`` takes two factors from the columns of b, activation(g) * u.  The result has
    `dtype`, by default that of a.  ``fast`` multiplies float32 in bfloat16.
    """
    return _Product(a, b, bias, activation, gated, residual, fast, dropout, dropout_seed, dtype, context).run(False)


def product_vjp(a: Any, b: Any, *, bias: Any = None, activation: str = "none", gated: bool = False,
                residual: Any = None, fast: bool = False, dropout: float = 0.0, dropout_seed: int = 0,
                dtype: Any = None, context: Optional[Context] = None) -> tuple[Array, Any]:
    """The same, and a function from the gradient of the result to `ProductGradients`."""
    made = _Product(a, b, bias, activation, gated, residual, fast, dropout, dropout_seed, dtype, context)
    return made.run(True), made.backward


def convert(values: Any, dtype: Any, context: Optional[Context] = None) -> Array:
    """An array as "float32", "bfloat16" or "float16": rounded to nearest, ties to even; what
    is too large becomes infinity."""
    found = array(values, "values")
    if found.dtype not in CODES:
        refuse_dtype(found, "values")
    found = np.ascontiguousarray(found)
    made = np.empty(found.shape, dtype_of(dtype_code(dtype)))
    context = context or default_context()
    status = lib.foci_convert(context.handle, CODES[made.dtype], address(made), CODES[found.dtype], address(found),
                              found.size)
    if status:
        _c.fail(status, context.handle)
    return made


def sinusoid(first: int, rows: int, width: int, base: float = 10000.0) -> Floats:
    """The sinusoidal encoding of positions first, first + 1, ..., [rows][width]."""
    made = np.empty((rows, width), np.float32)
    status = lib.foci_sinusoid(first, rows, width, base, address(made))
    if status:
        _c.fail(status)
    return made
