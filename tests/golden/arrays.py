"""arrays.py -- NumPy arrays that know their gradients.

Every operation leaves a node behind with what its operands' gradients are made of;
backward() goes through the nodes once.  Operations are those of NumPy, on float64, with
NumPy's shapes and broadcasting.
"""

import numpy as np


class Tie(Exception):
    """A choice that rounding could turn, or a divisor that could be 0: other data has to
    be drawn."""


MARGIN = 1e-3


class Array:
    """An array that remembers what it was made of, for its gradient."""

    __array_ufunc__ = None  # what NumPy's arrays have on their left comes here

    def __init__(self, value, of=()):
        self.value = np.asarray(value, dtype=np.float64)
        self.of = of  # pairs (operand, function from this gradient to the operand's)
        self.grad = np.zeros(self.value.shape)

    shape = property(lambda self: self.value.shape)
    T = property(lambda self: Array(self.value.T, ((self, np.transpose),)))

    def __len__(self):
        return len(self.value)

    def __add__(self, other):
        other = array(other)
        return Array(self.value + other.value, ((self, fitting(self)), (other, fitting(other))))

    def __mul__(self, other):
        other = array(other)
        return Array(self.value * other.value, ((self, fitting(self, other.value)), (other, fitting(other, self.value))))

    def __truediv__(self, other):
        other = array(other)
        q = self.value / other.value
        return Array(q, ((self, fitting(self, 1.0 / other.value)), (other, fitting(other, -q / other.value))))

    def __matmul__(self, other):
        """Of matrices."""
        other = array(other)
        return Array(self.value @ other.value, ((self, lambda g: g @ other.value.T), (other, lambda g: self.value.T @ g)))

    def __getitem__(self, index):
        def scattered(g):
            found = np.zeros(self.shape)
            np.add.at(found, index, g)
            return found

        return Array(self.value[index], ((self, scattered),))

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + -array(other)

    def __rsub__(self, other):
        return -self + other

    def __rmatmul__(self, other):
        return array(other) @ self

    def __pow__(self, n):
        """Whole powers; 0 ** 0 is 1."""
        slope = n * self.value ** np.maximum(n - 1, 0)
        return Array(self.value ** n, ((self, fitting(self, slope)),))

    def reshape(self, *shape):
        return Array(self.value.reshape(*shape), ((self, lambda g: g.reshape(self.shape)),))

    def sum(self, axis=None, keepdims=False):
        def spread(g):
            return np.broadcast_to(g if keepdims or axis is None else np.expand_dims(g, axis), self.shape)

        return Array(self.value.sum(axis=axis, keepdims=keepdims), ((self, spread),))

    def mean(self, axis, keepdims=False):
        return self.sum(axis, keepdims) / float(self.shape[axis])


def array(x):
    return x if isinstance(x, Array) else Array(x)


def constant(x):
    """The same values, to which no gradient flows."""
    return Array(array(x).value)


def fitting(operand, slope=1.0):
    """Gradients times slope, summed over what the operand was broadcast along."""
    def back(g):
        g = g * slope
        g = g.sum(axis=tuple(range(g.ndim - operand.value.ndim)))
        along = tuple(t for t, size in enumerate(operand.shape) if size == 1 and g.shape[t] != 1)
        return g.sum(axis=along, keepdims=True) if along else g

    return back


def each(x, y, slope):
    """y is a function of every element of x by itself."""
    return Array(y, ((x, lambda g: g * slope),))


def exp(x):
    y = np.exp(x.value)
    return each(x, y, y)


def sqrt(x):
    y = np.sqrt(x.value)
    return each(x, y, 0.5 / y)


def tanh(x):
    y = np.tanh(x.value)
    return each(x, y, 1.0 - y * y)


def cos(x):
    return each(x, np.cos(x.value), -np.sin(x.value))


def sin(x):
    return each(x, np.sin(x.value), np.cos(x.value))


def size(x):
    """|x|"""
    return each(x, np.abs(x.value), np.where(x.value < 0, -1.0, 1.0))


def relu(x):
    return each(x, np.maximum(x.value, 0.0), np.where(x.value > 0, 1.0, 0.0))


def elu1(x):
    """elu(x) + 1"""
    y = np.where(x.value > 0, x.value + 1.0, np.exp(np.minimum(x.value, 0.0)))
    return each(x, y, np.where(x.value > 0, 1.0, y))


def sigmoid(x):
    """1/(1 + e^-x), however large x is."""
    y = np.where(x.value > -700.0, 1.0 / (1.0 + np.exp(-np.maximum(x.value, -700.0))), 0.0)
    return each(x, y, y * (1.0 - y))


def where(choice, x, y):
    """x where choice, else y; what is not chosen takes no gradient, whatever it is."""
    x, y = array(x), array(y)
    return Array(np.where(choice, x.value, y.value),
                 ((x, lambda g: fitting(x)(np.where(choice, g, 0.0))), (y, lambda g: fitting(y)(np.where(choice, 0.0, g)))))


def concatenate(parts, axis=0):
    parts = [array(x) for x in parts]
    ends = np.cumsum([x.shape[axis] for x in parts])

    def part(t):
        return lambda g: np.split(g, ends[:-1], axis=axis)[t]

    return Array(np.concatenate([x.value for x in parts], axis=axis), tuple((x, part(t)) for t, x in enumerate(parts)))


def placed(x, index, shape):
    """Zeros of a shape, with x at an index."""
    y = np.zeros(shape)
    y[index] = x.value
    return Array(y, ((x, lambda g: g[index]),))


def stack(parts):
    """Arrays of one shape along a new first axis."""
    parts = [array(x) for x in parts]
    return Array(np.stack([x.value for x in parts]), tuple((x, lambda g, t=t: g[t]) for t, x in enumerate(parts)))


def inverse(x):
    y = np.linalg.inv(x.value)
    return Array(y, ((x, lambda g: -y.T @ g @ y.T),))


def softmax(x, seen=True):
    """Over the last axis, of what is seen."""
    x = array(x)
    seen = np.broadcast_to(seen, x.shape)
    top = np.max(np.where(seen, x.value, -np.inf), axis=-1, keepdims=True, initial=-np.inf)
    e = where(seen, exp(where(seen, x - np.where(np.isfinite(top), top, 0.0), 0.0)), 0.0)
    s = e.sum(-1, True)
    return e / where(s.value > 0, s, 1.0)


def backward(result):
    order, seen, stack_ = [], set(), [(result, False)]
    while stack_:
        node, done = stack_.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack_.append((node, True))
            stack_.extend((operand, False) for operand, _ in node.of)
    result.grad = np.ones(result.shape)
    for node in reversed(order):
        for operand, back in node.of:
            operand.grad = operand.grad + back(node.grad)
