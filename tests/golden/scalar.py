"""scalar.py -- numbers that know their gradients, and random numbers by hash.

Every operation leaves a node behind with the derivatives by its operands;
backward() goes through them once.  Slow, and short enough to be believed.
"""

import math


class Tie(Exception):
    """A choice that rounding could turn, or a divisor that could be 0: other data has to
    be drawn."""


MARGIN = 1e-3


class Num:
    """A number that remembers what it was made of, for its gradient."""

    __slots__ = ("value", "of", "grad")

    def __init__(self, value, of=()):
        self.value = float(value)
        self.of = of  # pairs (operand, derivative by it)
        self.grad = 0.0

    def __add__(self, other):
        other = num(other)
        return Num(self.value + other.value, ((self, 1.0), (other, 1.0)))

    def __mul__(self, other):
        other = num(other)
        return Num(self.value * other.value, ((self, other.value), (other, self.value)))

    def __truediv__(self, other):
        other = num(other)
        q = self.value / other.value
        return Num(q, ((self, 1.0 / other.value), (other, -q / other.value)))

    __radd__ = __add__
    __rmul__ = __mul__


def num(x):
    return x if isinstance(x, Num) else Num(x)


def exp(x):
    y = math.exp(x.value)
    return Num(y, ((x, y),))


def log(x):
    return Num(math.log(x.value), ((x, 1.0 / x.value),))


def sqrt(x):
    y = math.sqrt(x.value)
    return Num(y, ((x, 0.5 / y),))


def tanh(x):
    y = math.tanh(x.value)
    return Num(y, ((x, 1.0 - y * y),))


def cos(x):
    return Num(math.cos(x.value), ((x, -math.sin(x.value)),))


def sin(x):
    return Num(math.sin(x.value), ((x, math.cos(x.value)),))


def size(x):
    """|x|"""
    return Num(abs(x.value), ((x, -1.0 if x.value < 0 else 1.0),))


def elu1(x):
    """elu(x) + 1"""
    return x + 1.0 if x.value > 0 else exp(x)


def relu(x):
    return Num(max(x.value, 0.0), ((x, 1.0 if x.value > 0 else 0.0),))


def power(x, n):
    y = num(1.0)
    for _ in range(n):
        y = y * x
    return y


def total(xs):
    sum_ = Num(0.0)
    for x in xs:
        sum_ = sum_ + x
    return sum_


def dot(a, b):
    return total(x * y for x, y in zip(a, b))


def plus(a, b):
    return [x + y for x, y in zip(a, b)]


def times(a, x):
    return [t * x for t in a]


def mean(rows):
    sums = rows[0]
    for row in rows[1:]:
        sums = plus(sums, row)
    return [x / float(len(rows)) for x in sums]


def constant(xs):
    """The same values, to which no gradient flows."""
    return [Num(x.value) for x in xs]


def backward(result):
    order, seen, stack = [], set(), [(result, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((operand, False) for operand, _ in node.of)
    result.grad = 1.0
    for node in reversed(order):
        for operand, slope in node.of:
            operand.grad += node.grad * slope


# SplitMix64.

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


class Stream:
    """Stream number `stream` of a seed."""

    def __init__(self, seed, stream):
        self.state = (seed ^ (stream + 1) * 0xD1342543DE82EF95) & WORD
        self.kept = None  # the second normal of a pair

    def word(self):
        self.state = (self.state + GOLDEN) & WORD
        return mix(self.state)

    def uniform(self):
        return ((self.word() >> 11) + 0.5) * 2.0 ** -53

    def normal(self):
        """Box and Muller, in pairs."""
        if self.kept is not None:
            found, self.kept = self.kept, None
            return found
        u1, u2 = self.uniform(), self.uniform()
        length = math.sqrt(-2.0 * math.log(u1))
        self.kept = length * math.sin(2.0 * math.pi * u2)
        return length * math.cos(2.0 * math.pi * u2)

    def choose(self, count, things):
        """`count` of them, without replacement: Fisher and Yates from the front."""
        things = list(things)
        count = min(count, len(things))
        for t in range(count):
            left = len(things) - t
            j = t + min(int(self.uniform() * left), left - 1)
            things[t], things[j] = things[j], things[t]
        return things[:count]


def dropout_uniform(seed, b, h, i, j):
    """In [0, 1), of the weight that row i of head h of batch entry b gives to j."""
    key = seed
    for index in (b, h, i, j):
        key = mix((key + GOLDEN * (index + 1)) & WORD)
    return (key >> 11) * 2.0 ** -53


assert [Stream(1, 5).word(), Stream(0, 0).word()] == [0xEC1AE5FB49E6E2E5, 0xF4A90164C4749E1A]
assert Stream(0, 0).uniform() == 0.9557038184179469
assert [round(Stream.normal(s), 12) for s in (Stream(0, 0),) for _ in range(4)] == \
    [-0.002491127061, -0.301012041108, 0.243157365443, -0.562757278471]
