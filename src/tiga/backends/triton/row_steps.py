"""Steps over the rows of a space, and where what they make is cut so that matrices stay in shared
memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from tiga.backends.triton.schedule import is_product
from tiga.passes.rows import Phase, RowProgram
from tiga.passes.schedule import cone
from tiga.trace.node import Node, reached, topological
from tiga.types import GLOBAL, Space

KEPT = 3 * 4096
"""Elements of the matrices of a step: their thirds take 72 KiB of shared memory."""


@dataclass(frozen=True)
class Rows:
    """Steps over the rows of a space that read some arrays."""

    space: Space
    arrays: frozenset[Node]

    def step(self, stores: tuple[Node, ...], totals: tuple[Node, ...] = ()) -> RowProgram:
        return self._reading(RowProgram(self.space, None, "dst", (), stores, totals, ()))

    def summed(self, sums: Sequence[Node], totals: Sequence[Node]) -> RowProgram:
        phase = Phase((), outer_sums=tuple(sums))
        made = RowProgram(self.space, None, "dst", (phase,), (), tuple(totals), ())
        return self._reading(made)

    def _reading(self, program: RowProgram) -> RowProgram:
        needed = cone(replace(program, reads=tuple(self.arrays)), self._below)
        return replace(program, reads=tuple(n for n in needed if n in self.arrays))

    def _below(self, node: Node) -> Sequence[Node]:
        return () if node in self.arrays else node.inputs

    def with_arrays(self, more: Iterable[Node]) -> "Rows":
        return replace(self, arrays=self.arrays.union(more))

    def has_products(self, node: Node) -> bool:
        """Whether a value is made of products rather than of arrays alone."""
        return any(
            n not in self.arrays and is_product(n) for n in reached([node], below=self._below)
        )

    def read_by(self, value: Node) -> frozenset[Node]:
        """The arrays of rows that a value is made of."""
        return frozenset(n for n in self.step((value,)).reads if n.type.space == self.space)

    def widest(self, program: RowProgram) -> int:
        values = [n for n in cone(program) if n.type.space == self.space]
        return max((n.type.size for n in values), default=1)


@dataclass(frozen=True)
class Cuts:
    """Cuts what makes some values of rows into steps whose matrices stay in shared memory, so that
    a step goes from tile to tile with them, where the fewest values go from one to the next."""

    rows: Rows
    goals: tuple[Node, ...]

    @cached_property
    def order(self) -> tuple[Node, ...]:
        """What is made of products, each value after what it is made of."""
        return tuple(n for n in topological(self.goals) if self.rows.has_products(n))

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Where a product stands in the order, and its end."""
        found = [i for i, n in enumerate(self.order) if is_product(n)]
        return (*found, len(self.order))

    @cached_property
    def last_use(self) -> dict[Node, int]:
        return {child: i for i, node in enumerate(self.order) for child in node.inputs}

    @cached_property
    def steps(self) -> list[RowProgram]:
        """The steps, one after another."""
        found, rows = list[RowProgram](), self.rows
        starts = self._starts()
        for first, stop in pairwise([*starts, len(self.order)]):
            made = self.order[first:stop]
            left = [n for n in made if n in self.goals or self.last_use.get(n, 0) >= stop]
            last = stop == len(self.order)
            left += [n for n in self.goals if last and n not in self.order]
            found.append(rows.step(tuple(left)))
            rows = rows.with_arrays(left)
        return found

    def _starts(self) -> list[int]:
        """The places where steps start that together write and read the fewest arrays."""
        count = len(self.places) - 1
        best: list[tuple[int, list[int]]] = [(0, [])]
        for stop in range(1, count + 1):
            ways = [
                (best[i][0] + self._cost(i, stop), [*best[i][1], self.places[i]])
                for i in range(stop)
                if i == stop - 1 or self._elements(i, stop) <= KEPT
            ]
            best.append(min(ways))
        return best[count][1] or [0]

    def _cost(self, number: int, stop: int) -> int:
        """The arrays that a step of some products reads, and what it writes for other steps."""
        first, end = self.places[number], self.places[stop]
        arrays = {*self.rows.arrays, *self.order[:first]}
        nodes = reached(self.order[first:end], lambda n: n in arrays or n.type.space == GLOBAL)
        read = [n for n in nodes if n in arrays and n.type.space != GLOBAL]
        made = [n for n in self.order[first:end] if self.last_use.get(n, 0) >= end]
        return len(read) + len([n for n in made if n not in self.goals])

    def _elements(self, first: int, stop: int) -> int:
        """The elements of the matrices of some products one after another."""
        products = [self.order[place] for place in self.places[first:stop]]
        return sum(matrix.type.size for matrix in {n.inputs[1] for n in products})
