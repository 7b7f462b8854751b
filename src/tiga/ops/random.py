"""Random bits by counter: a pure function of a key and a position, the same wherever it is asked.

Philox 4x32-10 (J. K. Salmon and others, Parallel Random Numbers: As Easy as 1, 2, 3, 2011).
"""

from dataclasses import dataclass

import numpy as np

from tiga.ops.arithmetic import Arithmetic, Value
from tiga.ops.base import Pointwise

ROUNDS = 10
BITS = 32
_MASK = 2**BITS - 1
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def philox(b: Arithmetic, counter: list[Value], key: list[Value]) -> list[Value]:
    """Four words of 32 bits from four and a key of two, each in an int64."""

    def number(value: int) -> Value:
        return b.constant(_signed(value), counter[0])

    def low(x: Value) -> Value:
        return b.bit_and(x, number(_MASK))

    def high(x: Value) -> Value:
        return low(b.shift_right(x, number(BITS)))

    for _ in range(ROUNDS):
        first = b.mul(counter[0], number(_MULTIPLIERS[0]))
        second = b.mul(counter[2], number(_MULTIPLIERS[1]))
        counter = [
            b.bit_xor(b.bit_xor(high(second), counter[1]), key[0]),
            low(second),
            b.bit_xor(b.bit_xor(high(first), counter[3]), key[1]),
            low(first),
        ]
        key = [low(b.add(k, number(step))) for k, step in zip(key, _KEY_STEPS, strict=True)]
    return counter


class _Integers:
    """The closed arithmetic of int64 arrays, as far as the generator needs it; products wrap."""

    def constant(self, number, like):
        return np.int64(number)

    def add(self, a, b):
        return a + b

    def mul(self, a, b):
        return a * b

    def bit_and(self, a, b):
        return a & b

    def bit_xor(self, a, b):
        return a ^ b

    def shift_right(self, a, b):
        return a >> b


@dataclass(frozen=True)
class RandomBits(Pointwise, name="random_bits"):
    """32 random bits, as int64, from operands key, counter and lane, all int64.

    `stream` tells the draws of one program apart, `word` (0 to 3) those of one draw; no
    derivative.
    """

    stream: int
    word: int
    arity = 3
    exact = True
    cost = 100

    def reference(self, key, counter, lane):
        with np.errstate(over="ignore"):
            return self.lower(_Integers(), *np.broadcast_arrays(key, counter, lane))

    def lower(self, b, key, counter, lane):
        mask, shift = b.constant(_MASK, key), b.constant(BITS, key)

        def halves(x):
            return b.bit_and(x, mask), b.bit_and(b.shift_right(x, shift), mask)

        words = [*halves(counter), b.bit_and(lane, mask), b.constant(self.stream, key)]
        return philox(b, words, list(halves(key)))[self.word]

    def vjp(self, ct, out, *inputs):
        return (None,) * len(inputs)
