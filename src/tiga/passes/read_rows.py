"""Read plans, and their schedules, back from modules of `gf_iter` and `gf_kernel`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch_mlir import ir

from tiga.errors import InvalidValue
from tiga.ir.encoding import Relations, relations_of
from tiga.passes import iteration, kernel
from tiga.passes.domain import DOMAIN, place, read_op
from tiga.passes.iteration import slot_of
from tiga.passes.read import functions, read_inputs
from tiga.passes.rows import LibraryCall, Phase, Plan, RowProgram, ScanLoop, Step
from tiga.passes.schedule import Schedule
from tiga.trace.node import Node
from tiga.trace.origin import Origin

Stores = dict[int, Node]


@dataclass
class WalkReader:
    """Reads the body of one walk into nodes of the program. `values` begins as its arrays."""

    relations: Relations
    values: dict[ir.Value, Node]
    reads: list[Node] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    stores: Stores = field(default_factory=dict)
    sums: Stores = field(default_factory=dict)
    scatters: Stores = field(default_factory=dict)

    def read(self, operation: ir.Operation) -> None:
        _READERS.get(operation.name, WalkReader._read_op)(self, operation)

    def _read_op(self, operation: ir.Operation) -> None:
        node = read_op(operation, self.values.__getitem__, self.relations)
        self.values[operation.result] = node

    def _read_store(self, operation: ir.Operation) -> None:
        node = self.values[operation.operands[0]]
        stores = self._stores_of(operation.operands[0].owner, node)
        stores[slot_of(operation)] = node

    def _read_array(self, operation: ir.Operation) -> None:
        self.reads.append(self.values[operation.operands[0]])
        self._read_read(operation)

    def _read_read(self, operation: ir.Operation) -> None:
        self.values[operation.result] = self.values[operation.operands[0]]

    def _read_result(self, operation: ir.Operation) -> None:
        phase = self.phases[self._position(operation.operands[0].owner.operation)]
        self.values[operation.result] = phase.row_results[slot_of(operation)]

    def _position(self, phase: ir.Operation) -> int:
        siblings = iteration.body_of(phase.parent.operation)
        return [inner for inner in siblings if inner.name == iteration.PHASE].index(phase)

    def _read_phase(self, operation: ir.Operation) -> None:
        inside = WalkReader(self.relations, self.values)
        carried: Stores = {}
        for inner in iteration.body_of(operation):
            if inner.name == iteration.CARRY:
                carried[slot_of(inner)] = self.values[inner.operands[0]]
            else:
                inside.read(inner)
        results = _in_order(carried)
        reductions = tuple(node for node in results if not node.op.carries)
        scans = tuple(ScanLoop.of(node) for node in results if node.op.carries)
        self.phases.append(
            Phase(
                reductions, _in_order(inside.stores), _in_order(inside.sums), scans,
                _in_order(inside.scatters),
            )
        )  # fmt: skip
        self._check_scans(operation)

    def _check_scans(self, operation: ir.Operation) -> None:
        """What a phase reads of scans is carried by a phase up to here."""
        carried = {scan.before for phase in self.phases for scan in phase.scans}
        for inner in iteration.body_of(operation):
            if inner.name == SCAN_BEFORE and self.values[inner.result] not in carried:
                raise InvalidValue(f"{place(inner)}: no phase up to here carries this scan")

    def _stores_of(self, owner: ir.Operation | ir.Block, node: Node) -> Stores:
        """The stores that a stored value is among, by where it is computed."""
        if node.op.origin in _SUMS:
            return self.sums
        return self.scatters if iteration.is_scattered(owner.operation) else self.stores


_READERS: dict[str, Callable[[WalkReader, ir.Operation], None]] = {
    iteration.PHASE: WalkReader._read_phase,
    iteration.STORE: WalkReader._read_store,
    iteration.ARRAY: WalkReader._read_array,
    iteration.READ: WalkReader._read_read,
    iteration.RESULT: WalkReader._read_result,
}
"""Operations of walks; others are ops of `gf`."""

SCAN_BEFORE = f"{DOMAIN.prefix}scan_before"
_SUMS = (Origin.TOTAL, Origin.OUTER)
"""Where values come from that are complete only after the last turn of their loop."""


def _in_order(stores: Stores) -> tuple[Node, ...]:
    return tuple(stores[slot] for slot in sorted(stores))


def _read_walk(
    operation: ir.Operation, values: Mapping[ir.Value, Node], relations: Relations
) -> RowProgram:
    reader = WalkReader(relations, dict(values))
    for inner in iteration.body_of(operation):
        reader.read(inner)
    space, relation, side = iteration.rows_of(operation)
    return RowProgram(
        space, relation, side, tuple(reader.phases), _in_order(reader.stores),
        _in_order(reader.sums), tuple(reader.reads),
    )  # fmt: skip


@dataclass
class PlanReader:
    """Reads the body of one function: walks, launches, library calls, and what they write."""

    relations: Relations
    values: dict[ir.Value, Node]
    steps: list[Step] = field(default_factory=list)
    schedules: dict[Step, Schedule] = field(default_factory=dict)
    written: dict[ir.Value, tuple[Node, ...]] = field(default_factory=dict)

    def read(self, operation: ir.Operation) -> None:
        if operation.name == iteration.RESULT:
            writes = self.written[operation.operands[0]]
            self.values[operation.result] = writes[slot_of(operation)]
        elif operation.name in (iteration.WALK, iteration.ROWS, iteration.LAUNCH):
            step = _read_walk(iteration.walk_of(operation), self.values, self.relations)
            self.written[operation.result] = step.writes
            self.steps.append(step)
            if operation.name == iteration.LAUNCH:
                self.schedules[step] = kernel.decode_schedule(operation)
        else:
            node = read_op(operation, self.values.__getitem__, self.relations)
            self.values[operation.result] = node
            self.steps.extend(() if operation.name == DOMAIN.part else (LibraryCall(node),))


def _read_plan(function: ir.OpView, relations: Relations, schedules: dict[Step, Schedule]) -> Plan:
    inputs = read_inputs(function)
    reader = PlanReader(relations, dict(zip(function.arguments, inputs, strict=True)))
    *steps, last = (view.operation for view in function.entry_block.operations)
    for operation in steps:
        reader.read(operation)
    schedules.update(reader.schedules)
    outputs = tuple(reader.values[value] for value in last.operands)
    return Plan(inputs, outputs, tuple(reader.steps))


def read_rows(module: ir.Module) -> tuple[dict[str, Plan], dict[Step, Schedule]]:
    """The plans of a verified module by function name, and the schedules of their launches.

    Raises:
        InvalidValue: a function or a walk holds an op of another dialect.
    """
    relations = relations_of(module.operation)
    schedules: dict[Step, Schedule] = {}
    plans = {name: _read_plan(body, relations, schedules) for name, body in functions(module)}
    return plans, schedules
