"""A machine for straight PTX: all threads of a program take each instruction together.

It knows what `tiga.backends.triton.ranking` writes: whole numbers, shared memory, votes and
shuffles of a warp, predicates, and no jumps. It can't show a missing barrier.
"""

import re
from collections.abc import Iterable

import numpy as np

WARP = 32
SIZES = {"u16": np.uint16, "u32": np.uint32, "b64": np.uint64}


class Lockstep:
    """Threads with registers, and their shared memory; `run` takes the lines of a block."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.lane = np.arange(threads) % WARP
        self.memory = np.zeros(2**18, np.uint8)
        self.used = 0
        self.arrays: dict[str, int] = {}
        self.registers: dict[str, np.ndarray] = {
            "%tid.x": np.arange(threads),
            "%lanemask_lt": (1 << self.lane) - 1,
        }

    def run(self, lines: Iterable[str]) -> None:
        """Take one instruction after another."""
        for line in lines:
            for text in filter(None, (part.strip() for part in line.split(";"))):
                self._take(text)

    def _take(self, text: str) -> None:
        if text.startswith(".reg"):
            return
        if text.startswith(".shared"):
            self._reserve(text)
            return
        guard, text = self._guard(text)
        name, _, rest = text.partition(" ")
        operands = [part.strip() for part in rest.split(",")] if rest else []
        kind, *more = name.split(".")
        getattr(self, f"_{kind}")(guard, more, operands)

    def _reserve(self, text: str) -> None:
        bits = int(re.search(r"\.b(\d+)", text).group(1))  # type: ignore[union-attr]
        for name, count in re.findall(r"(\w+)\[(\d+)\]", text):
            self.used = -(-self.used // 8) * 8
            self.arrays[name] = self.used
            self.used += int(count) * bits // 8

    def _guard(self, text: str) -> tuple[np.ndarray, str]:
        found = re.match(r"@(!?)(\w+) (.*)", text)
        if found is None:
            return np.ones(self.threads, bool), text
        holds = self.registers[found[2]].astype(bool)
        return (~holds if found[1] else holds), found[3]

    def _value(self, operand: str) -> np.ndarray:
        if operand in self.arrays:
            return np.full(self.threads, self.arrays[operand], np.uint64)
        if operand in self.registers:
            return self.registers[operand].astype(np.uint64)
        return np.full(self.threads, int(operand, 0), np.uint64)

    def _set(self, guard: np.ndarray, name: str, value: np.ndarray) -> None:
        old = self.registers.get(name, np.zeros(self.threads, np.uint64))
        self.registers[name] = np.where(guard, value, old).astype(np.uint64)

    def _place(self, operand: str) -> np.ndarray:
        register, _, offset = operand.strip("[]").partition("+")
        return (self._value(register) + np.uint64(offset or 0)).astype(np.int64)

    def _ld(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        target, place = operands[0], self._place(operands[1])
        size = np.dtype(SIZES[more[-1]]).itemsize
        inside = np.where(guard, place, 0)
        raw = np.stack([self.memory[inside + byte] for byte in range(size)], 1)
        self._set(guard, target, raw.copy().view(SIZES[more[-1]])[:, 0])

    def _st(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        place, dtype = self._place(operands[0])[guard], SIZES[more[-1]]
        assert len(set(place)) == len(place), "two threads write to one place"
        assert (place % np.dtype(dtype).itemsize == 0).all()
        raw = self._value(operands[1])[guard].astype(dtype)[:, None].copy().view(np.uint8)
        for byte in range(raw.shape[1]):
            self.memory[place + byte] = raw[:, byte]

    def _red(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        words = self.memory.view(np.uint32)
        np.add.at(words, self._place(operands[0])[guard] // 4, np.uint32(int(operands[1])))

    def _mov(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        self._set(guard, operands[0], self._value(operands[1]))

    def _compute(self, guard: np.ndarray, operands: list[str], function: object) -> None:
        value = function(*map(self._value, operands[1:]))  # type: ignore[operator]
        self._set(guard, operands[0], value & np.uint64(2**32 - 1))

    def _add(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        self._compute(guard, operands, np.add)

    def _sub(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        self._compute(guard, operands, np.subtract)

    def _mul(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        self._compute(guard, operands, np.multiply)

    def _mad(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        self._compute(guard, operands, lambda a, b, c: a * b + c)

    def _shr(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        self._compute(guard, operands, np.right_shift)

    def _and(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        self._compute(guard, operands, np.bitwise_and)

    def _not(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        self._compute(guard, operands, np.bitwise_not)

    def _popc(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        ones = [bin(int(value)).count("1") for value in self._value(operands[1])]
        self._set(guard, operands[0], np.array(ones))

    def _setp(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        compare = {"lt": np.less, "gt": np.greater, "eq": np.equal, "ne": np.not_equal}[more[0]]
        self._set(guard, operands[0], compare(*map(self._value, operands[1:])))

    def _vote(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        holds = self.registers[operands[1]].reshape(-1, WARP).astype(np.uint64)
        ballots = (holds << np.arange(WARP, dtype=np.uint64)).sum(1)
        self._set(guard, operands[0], np.repeat(ballots, WARP))

    def _shfl(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        target, has = operands[0].split("|")
        step = int(operands[2])
        value = self._value(operands[1])
        self._set(guard, has, self.lane >= step)
        self._set(guard, target, np.where(self.lane >= step, np.roll(value, step), value))

    def _bar(self, guard: np.ndarray, more: list[str], operands: list[str]) -> None:
        assert guard.all(), "all threads meet at a barrier"
