"""streams.py -- random numbers by hash: SplitMix64, in streams of a seed."""

import math

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
