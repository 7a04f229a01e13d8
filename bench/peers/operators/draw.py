"""Parameters of cases: those that tables list, or others drawn from a seed.

A builder of cases calls `pick(table, draw)` and makes a case of each parameter it gets. `Fixed` returns the table. `Drawn` calls `draw` with itself some times,
so that both censuses share the builders.
"""

import math
import random

import numpy as np

FLOATS = (np.float32, np.float64, np.float16)
SIGNED = (np.int8, np.int16, np.int32, np.int64)
UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
WHOLE = SIGNED + UNSIGNED
TYPES = FLOATS + WHOLE + (np.bool_,)


class Fixed:
    """Takes the parameters of tables."""

    def of(self, name):
        return self

    def __call__(self, table, draw, count=None):
        return table


class Drawn:
    """Draws parameters. Draws depend on the seed and the builder's name alone."""

    def __init__(self, seed, name=""):
        self.seed, self.random = seed, random.Random(f"{seed} {name}")

    def of(self, name):
        return Drawn(self.seed, name)

    def __call__(self, table, draw, count=None):
        """Returns `count` parameters; by default as many as the table has, but from 3 to 8."""
        count = count or min(max(len(list(table)), 3), 8)
        return [draw(self) for _ in range(count)]

    def one(self, *values):
        return self.random.choice(values)

    def uniform(self, low, high):
        return round(self.random.uniform(low, high), 3)

    def whole(self, low, high):
        """A number from `low` to `high`, both included."""
        return self.random.randint(low, high)

    def chance(self, share):
        return self.random.random() < share

    def log(self, low, high):
        """A number from `low` to `high`, equally likely in each power of two."""
        return min(high, max(low, round(math.exp(self.random.uniform(math.log(low), math.log(high))))))

    def length(self, most=1000):
        """A length of an axis: a prime, near a power of two, short, or any."""
        number = self.log(1, most)
        kind = self.whole(0, 3)
        if kind == 0:
            number = next((prime for prime in range(number, 1, -1) if is_prime(prime)), 2)
        elif kind == 1:
            number = (1 << number.bit_length() - 1) + self.whole(-1, 1)
        elif kind == 2:
            number = self.whole(1, 8)
        return min(most, max(1, number))

    def shape(self, least=1, most=5, elements=1 << 20, scalars=True):
        """A shape with `least` to `most` axes and at most about `elements` elements; rarely that of a scalar."""
        if scalars and least < 2 and self.chance(0.03):
            return ()
        left = self.log(256, elements)
        lengths = []
        for _ in range(self.whole(least, most) - 1):
            lengths.append(min(self.length(), left))
            left //= lengths[-1]
        lengths.append(max(1, left + self.whole(-1, 1)))
        self.random.shuffle(lengths)
        return tuple(lengths)

    def axis(self, shape):
        """An axis, counted from either end."""
        return self.whole(-len(shape), len(shape) - 1)

    def axes(self, rank):
        """Some axes, in order."""
        return sorted(self.random.sample(range(rank), self.whole(1, rank)))

    def parted(self, length, most=5):
        """Lengths of 1 to `most` parts of a length."""
        cuts = sorted(self.random.sample(range(1, length), min(length - 1, self.whole(0, most - 1))))
        return [end - begin for begin, end in zip([0, *cuts], [*cuts, length])]

    def broadcast(self, count, first_whole=False):
        """Shapes that go together: of a common shape, without its first axes, with ones, or scalars."""
        common = self.shape(elements=1 << 18, scalars=not first_whole)
        shapes = []
        for number in range(count):
            kind = "whole" if number == 0 and first_whole else self.one("whole", "whole", "without", "ones", "channels", "scalar")
            if kind == "without":
                shapes.append(common[self.whole(0, len(common)) :])
            elif kind == "ones":
                shapes.append(tuple(self.one(1, length) for length in common))
            elif kind == "channels" and len(common) > 1:
                shapes.append((common[1],) + (1,) * (len(common) - 2))
            elif kind == "scalar":
                shapes.append(self.one((), (1,)))
            else:
                shapes.append(common)
        return shapes

    def type(self, types=TYPES):
        """Returns f32 more often than not if it is among the types."""
        return np.float32 if np.float32 in types and self.chance(0.6) else self.one(*types)

    def options(self, choices):
        """Some attributes, each from a range (a tuple) or one of a list."""
        kept = {name: values for name, values in choices.items() if self.chance(0.6)}
        return {name: self.one(*values) if isinstance(values, list) else self.uniform(*values) for name, values in kept.items()}

    def shuffled(self, values):
        """Values in another order and number."""
        return np.array(self.random.choices(values.tolist(), k=self.length(100)), values.dtype)


def is_prime(number):
    return number > 1 and all(number % of for of in range(2, math.isqrt(number) + 1))


def by(shape):
    """The text of a shape."""
    return " × ".join(map(str, shape)) or "scalar"


def told(dtype):
    """The text of a type."""
    name = np.dtype(dtype).name
    return {"float32": "f32", "float64": "f64", "float16": "f16"}.get(name, name)


def also(options):
    """The text of attributes behind others."""
    return "".join(f", {name} {value}" for name, value in options.items())
