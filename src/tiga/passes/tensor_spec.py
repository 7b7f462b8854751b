"""Kernels of whole-tensor programs as data: what one computes, without any extent in it.

A kernel works on a domain of rows × columns, or (`flat`) on one run of elements. Values are

    full     one number per row and column, or per element of a flat domain
    row      one number per row
    scalar   one number

and results of reductions that end only after the kernel (`column`: over rows, `total`: over
everything). Extents, strides and most constants are arguments, so that programs which differ in
nothing else share their code.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tiga.ops.base import Op
from tiga.ops.tensor_scan import AxisScan
from tiga.passes.rows import LibraryCall
from tiga.trace.node import Node, reached
from tiga.types import DType

FULL, ROW, SCALAR, COLUMN, TOTAL = "full", "row", "scalar", "column", "total"


@dataclass(frozen=True)
class Instruction:
    """One value of a kernel, made of those that `inputs` number."""

    kind: str
    dtype: DType
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Constant(Instruction):
    """A number that stays in the code."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Argument(Instruction):
    """The number at a place among the kernel's arguments."""

    place: int


@dataclass(frozen=True, kw_only=True)
class Read(Instruction):
    """Elements of one of the kernel's arrays, with `dims` strides over the rows; `moves`: along
    columns too."""

    array: int
    dims: int
    moves: bool


@dataclass(frozen=True, kw_only=True)
class Load(Read):
    """A value in memory. Its inputs are the numbers that its `window` is about, if it has one."""

    window: "Frame | None" = None


class Gather(Read):
    """Elements at a position: its inputs are that, the extent that bounds it, and its step."""


class Position(Instruction):
    """The number of a column; or of a row along an axis, whose step and extent are its inputs."""


@dataclass(frozen=True, kw_only=True)
class Apply(Instruction):
    """A pointwise op."""

    op: Op


class Spread(Instruction):
    """A row's value, or a number, at its columns."""


@dataclass(frozen=True, kw_only=True)
class Reduce(Instruction):
    """A reduction; `combine` names the pointwise op that combines."""

    combine: str

    @property
    def adds(self) -> bool:
        """Whether it is a sum of floats, whose error depends on the order of additions."""
        return self.combine == "add" and (self.dtype.is_float or self.dtype.is_complex)


@dataclass(frozen=True, kw_only=True)
class RowScan(Instruction):
    """What a row carries from column to column: a scan along it."""

    op: AxisScan


Kind = TypeVar("Kind", bound=Instruction)


@dataclass(frozen=True)
class Frame:
    """What a load of a window knows besides its strides: the step between columns, how many bounds
    on rows there are (five inputs each: inner extent, extent, low, high, step in memory), and
    whether columns have one (low and high)."""

    step: int
    rows: int
    columns: bool


@dataclass(frozen=True)
class Spec:
    """A kernel: its instructions, which of them are stored, and how many columns go together.

    `ordered`: sums add element after element. `streaming`: full values are stored past the
    caches, to whole cache lines. `block`: rows that are walked together, so that what they share
    is read once. `long`: rows have several stretches of columns, `tall`: tasks several of rows;
    what stretches add up to is added in a wider type.
    """

    flat: bool
    instructions: tuple[Instruction, ...]
    stores: tuple[int, ...]
    lanes: int
    stashed: tuple[int, ...] = ()
    ordered: bool = False
    streaming: bool = False
    block: int = 1
    long: bool = False
    tall: bool = False

    @property
    def common(self) -> frozenset[int]:
        """Full values that are the same in every row."""
        found: set[int] = set()
        for i, one in enumerate(self.instructions):
            if one.kind != FULL:
                continue
            fixed = isinstance(one, Load) and one.moves and not one.dims and not _is_bounded(one)
            inner = isinstance(one, Apply) and all(
                j in found or self.instructions[j].kind == SCALAR for j in one.inputs
            )
            if not self.flat and (fixed or inner):
                found.add(i)
        return frozenset(found)

    def read_of_rows(self, wanted: Iterable[int]) -> Iterator[int]:
        """The row values and single ones that values of a phase read, before its loop."""

        def is_of_rows(i: int) -> bool:
            return self.instructions[i].kind in (ROW, SCALAR)

        return filter(is_of_rows, reached(wanted, is_of_rows, self._inputs))

    def _inputs(self, number: int) -> tuple[int, ...]:
        return self.instructions[number].inputs

    def of(self, wanted: type[Instruction]) -> tuple[int, ...]:
        """The instructions of one class."""
        return tuple(i for i, one in enumerate(self.instructions) if isinstance(one, wanted))

    @property
    def reduced(self) -> set[str]:
        """The kinds of its reductions."""
        return {self.instructions[i].kind for i in self.of(Reduce)}

    @property
    def added(self) -> set[str]:
        """The kinds of its sums of floats."""
        return {self.instructions[i].kind for i in self.of(Reduce) if self.reduction(i).adds}

    def one(self, wanted: type[Kind], i: int) -> Kind:
        """An instruction of a class, by its number."""
        found = self.instructions[i]
        assert isinstance(found, wanted), f"{found} is no {wanted.__name__}"
        return found

    def load(self, i: int) -> Load:
        """A load by its number."""
        return self.one(Load, i)

    def reduction(self, i: int) -> Reduce:
        """A reduction by its number."""
        return self.one(Reduce, i)

    def full(self, wanted: Iterable[int]) -> set[int]:
        """The full instructions that values of a phase read, those values among them."""
        found = reached(wanted, lambda i: self.instructions[i].kind != FULL, self._inputs)
        return {i for i in found if self.instructions[i].kind == FULL}

    def reached(self, wanted: Iterable[int], among: type[Instruction]) -> tuple[int, ...]:
        """Those of one class, each after those that it reads."""
        full = self.full(wanted)
        return tuple(i for i in self.of(among) if i in full)

    @property
    def backwards(self) -> bool:
        """Whether rows are walked from their ends, as a scan asks for."""
        return any(isinstance(one, RowScan) and one.op.reverse for one in self.instructions)

    def level(self, index: int) -> int:
        """How many row reductions come before the value: the phase that computes it."""
        return self.levels[index]

    @property
    def levels(self) -> tuple[int, ...]:
        """The level of every instruction."""
        found: list[int] = []
        for instruction in self.instructions:
            below = max((found[i] for i in instruction.inputs), default=0)
            ends = isinstance(instruction, Reduce) and instruction.kind == ROW
            found.append(below + 1 if ends else below)
        return tuple(found)

    def ahead(self, phase: int) -> tuple[int, ...]:
        """The loads whose later rows a phase asks for: memory works while phases compute. A kernel
        of one phase reads its rows one after the other, which hardware sees by itself."""
        last = max(self.levels, default=0)
        if self.flat or not 0 < phase <= last:
            return ()
        loads = [
            i for i, one in enumerate(self.instructions)
            if isinstance(one, Load) and one.kind == FULL and one.moves and one.dims
        ]  # fmt: skip
        return tuple(loads[phase - 1 :: last])


def _is_bounded(one: Load) -> bool:
    """Whether rows differ in what there is of a load."""
    return one.window is not None and one.window.rows > 0


@dataclass(frozen=True)
class Operand:
    """A value that a kernel reads from its element `start` on, and its strides over the rows:
    (extent, step) from the last axis to the first. With other bounds it is another operand."""

    node: Node
    strides: tuple[tuple[int, int], ...]
    start: int = 0
    bounds: tuple[object, ...] = ()


@dataclass(frozen=True)
class KernelStep:
    """A kernel with what it works on. Reductions over rows add `group` neighbouring ones."""

    spec: Spec
    rows: int
    columns: int
    loads: tuple[Operand, ...]
    arguments: tuple[float | int, ...]
    outputs: tuple[Node, ...]
    group: int = 0
    gathers: tuple[Node, ...] = ()

    @property
    def reads(self) -> tuple[Node, ...]:
        """The arrays that it reads."""
        return tuple(load.node for load in self.loads)

    @property
    def writes(self) -> tuple[Node, ...]:
        """The arrays that it makes."""
        return self.outputs


TensorStep = KernelStep | LibraryCall


def last_reads(steps: Sequence[TensorStep], kept: Collection[Node]) -> list[list[Node]]:
    """After each step, what no later one reads, but for what is kept."""
    last: dict[Node, int] = {}
    for number, step in enumerate(steps):
        last.update(dict.fromkeys(step.reads, number))
    found: list[list[Node]] = [[] for _ in steps]
    for node, number in last.items():
        if node not in kept:
            found[number].append(node)
    return found
