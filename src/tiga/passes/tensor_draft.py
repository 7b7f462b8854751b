"""A kernel of a whole-tensor program while it is formed: what fits it, and what it reads."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tiga.ops import leaf
from tiga.passes.tensor_fusable import CPU, Role, Target, role_of
from tiga.passes.tensor_places import (
    Strides,
    accepts_gather,
    accepts_scan,
    join_gather,
    join_positions,
    place_kind,
)
from tiga.passes.tensor_spec import (
    COLUMN,
    FULL,
    ROW,
    SCALAR,
    TOTAL,
    Apply,
    Argument,
    Constant,
    Instruction,
    Load,
    Operand,
    Reduce,
    RowScan,
    Spread,
)
from tiga.passes.tensor_strides import boundary, fits, strides_of
from tiga.passes.tensor_windows import Window, load_window, reading
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import DType, Shape, int64

KEPT_TEXTS = ("0.0", "1.0", "-1.0", "2.0", "0.5", "inf", "-inf", "nan", "0", "1", "True", "False")
"""Constants that stay in the code; all others are arguments."""

MAX_INSTRUCTIONS = 200
"""A kernel with more takes no further op."""


@dataclass
class KernelDraft:
    """A kernel while it is formed. `group`: rows that reductions over rows add; 0: there are
    none. `direction` is that of its scans, `ordered` says that sums add element after element."""

    rows: int
    columns: int
    flat: bool
    target: Target = CPU
    instructions: list[Instruction] = field(default_factory=list)
    index: dict[Node, int] = field(default_factory=dict)
    loads: list[Operand] = field(default_factory=list)
    arguments: list[float | int] = field(default_factory=list)
    keys: dict[tuple, int] = field(default_factory=dict)
    group: int = 0
    direction: int | None = None
    ordered: bool = False
    gathers: dict[int, Node] = field(default_factory=dict)
    windows: Mapping[Node, Window] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def kind(self, node: Node) -> str | None:
        """The kind of a value inside the kernel; None: it is outside."""
        found = self.index.get(node)
        return None if found is None else self.instructions[found].kind

    def add(self, instruction: Instruction, *key: object) -> int:
        unique = (instruction, *key)
        if unique not in self.keys:
            self.keys[unique] = len(self.instructions)
            self.instructions.append(instruction)
        return self.keys[unique]

    # what fits

    def accepts(self, node: Node) -> bool:
        """Whether the node can join."""
        if len(self.instructions) > MAX_INSTRUCTIONS or not all(map(self._there, node.inputs)):
            return False
        if any(self.kind(child) in (COLUMN, TOTAL) for child in node.inputs):
            return False
        role = role_of(node, self.target)
        return role is not None and _MEMBERS[role].accepts(self, node)

    def _there(self, node: Node) -> bool:
        """Whether an operand is in the kernel, or in memory as the kernel can read it."""
        window = self.windows.get(node)
        if window is None or self.kind(node) is not None:
            return True
        full = self.is_full(node.type.shape)
        return full and reading(window, self.columns, self.flat) is not None

    def is_full(self, shape: Shape) -> bool:
        """Whether a value of this shape is one of the kernel's full values."""
        if math.prod(shape) != self.size:
            return False
        return self.flat or boundary(shape, self.columns) is not None

    def _readable(self, node: Node, kind: str) -> bool:
        """Whether an outside value can be read as one of this kind."""
        if node.op.origin is Origin.NUMBER:
            return True
        if node.op.origin is Origin.POSITION:
            return kind == FULL and place_kind(self, node.op) is not None
        if kind == FULL or node in self.windows:
            return kind == FULL and self.is_full(node.type.shape)
        return (kind == ROW and node.type.size == self.rows) or node.type.size == 1

    def _pointwise_kind(self, node: Node) -> str | None:
        kinds = {self.kind(child) for child in node.inputs} - {None, SCALAR}
        if len(kinds) > 1:
            return None
        read = (c for c in node.inputs if c.op.origin is not Origin.NUMBER)
        outside = [child for child in read if self.kind(child) is None]
        here = FULL if self.is_full(node.type.shape) else None
        kind = kinds.pop() if kinds else here
        if kind is None or not all(self._readable(child, kind) for child in outside):
            return None
        if kind == FULL and not self.is_full(node.type.shape):
            return None
        return kind

    def _accepts_view(self, node: Node) -> bool:
        (x,) = node.inputs
        kind, target = self.kind(x), node.type.shape
        if x.op.origin is Origin.NUMBER or (x in self.windows and kind is None):
            return False
        if kind == SCALAR:
            return True
        if node.op.reshapes:
            if kind is None:
                return False
            return kind == ROW or self.is_full(target)
        if kind is None:
            if not self.is_full(target):
                return False
            return x.type.size == 1 or (not self.flat and fits(x.type.shape, target, self.columns))
        return kind == ROW and self._spreads_row(x.type.shape, target)

    def _spreads_row(self, source: Shape, target: Shape) -> bool:
        """Whether a row value is broadcast along the columns, and only them."""
        if not self.is_full(target) or not fits(source, target, self.columns):
            return False
        strides, moves = strides_of(source, target, self.columns)
        return not moves and strides in (((self.rows, 1),), ()) and math.prod(source) == self.rows

    def _reduction_kind(self, node: Node) -> str | None:
        (x,) = node.inputs
        shape, axes = x.type.shape, node.op.axes
        if self.group not in (0, self.rows) and node.type.size == 1:
            return None
        if self.kind(x) == ROW:
            return TOTAL if node.type.size == 1 else None
        if self.kind(x) == SCALAR or not self.is_full(shape):
            return None
        if node.type.size == 1 and (self.flat or self.rows > 1):
            return TOTAL
        if self.flat:
            return None
        place = boundary(shape, self.columns)
        assert place is not None
        large = {axis for axis in axes if shape[axis] != 1}
        tail = {axis for axis in range(place, len(shape)) if shape[axis] != 1}
        if large == tail:
            return ROW
        return COLUMN if self._column_group(shape, axes) is not None else None

    def _column_group(self, shape: Shape, axes: Shape) -> int | None:
        """How many neighbouring rows a reduction adds; None if it adds others."""
        place = boundary(shape, self.columns)
        assert place is not None
        large = [axis for axis in range(len(shape)) if axis in axes and shape[axis] != 1]
        after = [axis for axis in range(large[0], place) if shape[axis] != 1] if large else []
        if not large or large != after:
            return None
        group = math.prod(shape[axis] for axis in large)
        if group == self.rows:
            return group if self.group in (0, group) else None
        totals = any(one.kind == TOTAL for one in self.instructions)
        grouped = self.target.grouped and not totals and self.group in (0, group)
        return group if grouped else None

    def _accepts_reduction(self, node: Node) -> bool:
        kind = self._reduction_kind(node)
        if self.ordered and self.direction:
            return False  # the rows are walked from their ends
        # A partial result per task: only sums of floats and integers, and extrema, have one.
        return kind is not None and not (kind == ROW and self.flat)

    # joining

    def join(self, node: Node) -> None:
        """Add the node, which is accepted."""
        role = role_of(node, self.target)
        assert role is not None
        _MEMBERS[role].join(self, node)

    def _join_pointwise(self, node: Node) -> None:
        kind = self._pointwise_kind(node)
        assert kind is not None
        inputs = tuple(self._operand(child, kind) for child in node.inputs)
        self.index[node] = self.add(Apply(kind, node.type.dtype, inputs, op=node.op))

    def _join_view(self, node: Node) -> None:
        (x,) = node.inputs
        kind = self.kind(x)
        if kind is None:
            self.index[node] = self._load(x, node.type.shape, FULL)
        elif kind == ROW and node.op.broadcasts:
            # The value of the row, at every column of it.
            spread = Spread(FULL, node.type.dtype, (self.index[x],))
            self.index[node] = self.add(spread)
        else:
            self.index[node] = self.index[x]

    def _join_reduction(self, node: Node) -> None:
        (x,) = node.inputs
        kind = self._reduction_kind(node)
        assert kind is not None
        if kind == COLUMN:
            self.group = self._column_group(x.type.shape, node.op.axes) or 0
        source = self._operand(x, FULL if self.kind(x) is None else str(self.kind(x)))
        if kind == TOTAL and self.instructions[source].kind == SCALAR:
            # A number counts once for every element, as full values do.
            source = self.add(Spread(FULL, x.type.dtype, (source,)))
        made = Reduce(kind, node.type.dtype, (source,), combine=node.op.combine)
        self.index[node] = self.add(made)

    def _join_scan(self, node: Node) -> None:
        self.direction = node.op.reverse
        inputs = tuple(self._operand(child, FULL) for child in node.inputs)
        op = replace(node.op, axis=0)
        self.index[node] = self.add(RowScan(FULL, node.type.dtype, inputs, op=op))

    def _operand(self, node: Node, kind: str) -> int:
        found = self.index.get(node)
        if found is not None:
            return found
        if node.op.origin is Origin.NUMBER:
            return self._constant(node.op)
        if node.op.origin is Origin.POSITION:
            return join_positions(self, node.op)
        return self._load(node, node.type.shape, kind)

    def _constant(self, op: leaf.Constant) -> int:
        dtype = op.of.dtype
        if dtype.is_complex or str(op.value) in KEPT_TEXTS:
            return self.add(Constant(SCALAR, dtype, text=op.text))
        assert not isinstance(op.value, complex)
        return self._argument(("argument", op.text, dtype), op.value, dtype)

    def number(self, number: int) -> int:
        """An extent or a step as an argument of the kernel."""
        return self._argument(("number", number), number, int64)

    def _argument(self, key: tuple, value: float | int, dtype: DType) -> int:
        if key not in self.keys:
            self.arguments.append(value)
        place = len(self.arguments) - 1
        return self.add_keyed(Argument(SCALAR, dtype, place=place), key)

    def add_keyed(self, instruction: Instruction, key: tuple) -> int:
        """Add an instruction under a key of its own."""
        if key not in self.keys:
            self.keys[key] = len(self.instructions)
            self.instructions.append(instruction)
        return self.keys[key]

    def _load(self, node: Node, target: Shape, kind: str) -> int:
        strides: tuple[tuple[int, int], ...]
        if node in self.windows:
            return load_window(self, node)
        if (node.type.size == 1 and math.prod(target) != 1) or kind == SCALAR:
            strides, moves, kind = (), False, SCALAR
        elif kind == ROW:
            strides, moves = ((self.rows, 1),), False
        elif self.flat:
            strides, moves = (), True
        else:
            strides, moves = strides_of(node.type.shape, target, self.columns)
        return self.load(node, strides, moves, kind)

    def load(self, node: Node, strides: Strides, moves: bool, kind: str) -> int:
        """A value in memory, read with these strides over the rows."""
        array = self.array_of(node, strides)
        dtype = node.type.dtype
        return self.add(Load(kind, dtype, array=array, dims=len(strides), moves=moves))

    def array_of(
        self, node: Node, strides: Strides, start: int = 0, bounds: tuple[object, ...] = ()
    ) -> int:
        """The number of an array that the kernel reads with these strides over the rows."""
        wanted = Operand(node, strides, start, bounds)
        if wanted not in self.loads:
            self.loads.append(wanted)
        return self.loads.index(wanted)


class Member(NamedTuple):
    """Whether a node of one role can join a kernel, and how it does."""

    accepts: Callable[[KernelDraft, Node], bool]
    join: Callable[[KernelDraft, Node], None]


_MEMBERS = {
    Role.VIEW: Member(KernelDraft._accepts_view, KernelDraft._join_view),
    Role.REDUCTION: Member(KernelDraft._accepts_reduction, KernelDraft._join_reduction),
    Role.GATHER: Member(accepts_gather, join_gather),
    Role.SCAN: Member(accepts_scan, KernelDraft._join_scan),
    Role.POINTWISE: Member(
        lambda draft, node: draft._pointwise_kind(node) is not None, KernelDraft._join_pointwise
    ),
}
