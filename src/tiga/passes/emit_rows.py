"""Write plans as modules of `gf_iter`, or of `gf_kernel` when they have schedules.

`read_rows` is the inverse. A node of a row program is written once per place where it is needed:
at the row, at the edge or at the edge's other end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import func

from tiga.ir.encoding import FIELD_KINDS
from tiga.ir.module import new_module
from tiga.passes import iteration, kernel
from tiga.passes.emit import Writer
from tiga.passes.roles import EDGE, OTHER, ROW
from tiga.passes.rows import Phase, Plan, RowProgram, Step
from tiga.passes.schedule import Schedule
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space

EVERYWHERE = "everywhere"
"""Where a global value is computed."""

Place = tuple[Node, str]


@dataclass
class WalkWriter:
    """Writes the body of one walk. `arrays` holds what it reads, `values` what the row knows."""

    writer: Writer
    program: RowProgram
    arrays: dict[Node, ir.Value]
    values: dict[Place, ir.Value] = field(default_factory=dict)

    def sources(self, place: Place) -> list[Place]:
        """The operands of a node, each with where it is needed."""
        node, at = place
        if node in self.arrays or node.op.origin is Origin.ROW:
            return []
        if node.op.origin is Origin.END:
            at = ROW if node.op.side == self.program.side else OTHER
        if node.op.carries:
            return self.scan_sources(node)
        return [self._settled(child, at) for child in node.inputs]

    def scan_sources(self, node: Node) -> list[Place]:
        """A scan starts at the row, and goes on with what each edge has."""
        initial, *elements = node.inputs
        return [self._settled(initial, ROW), *(self._settled(e, EDGE) for e in elements)]

    def _settled(self, node: Node, at: str) -> Place:
        """Where a node's own space says that it is, or else `at`."""
        if node.type.space == GLOBAL:
            return node, EVERYWHERE
        relation = self.program.relation
        return node, EDGE if relation is not None and node.type.space == relation.edge else at

    def value(self, node: Node, at: str, phase: "PhaseWriter | None" = None) -> ir.Value:
        """The value of `node` at a place, written with all that it needs and that is missing."""
        stack = [(self._settled(node, at), False)]
        while stack:
            place, ready = stack.pop()
            scope = self._scope(place[1], phase)
            if place in scope.values:
                continue
            missing = [] if ready else self.sources(place)
            if missing:
                stack.append((place, True))
                stack.extend((source, False) for source in reversed(missing))
                continue
            scope.values[place] = self._write(place, scope, phase)
        place = self._settled(node, at)
        return self._scope(place[1], phase).values[place]

    def _scope(self, at: str, phase: "PhaseWriter | None") -> "WalkWriter | PhaseWriter":
        """What is at the row is computed once, before the loop over its edges."""
        if at in (ROW, EVERYWHERE):
            return self
        assert phase is not None, f"a value at {at!r} outside of a phase"
        return phase

    def _write(
        self, place: Place, scope: "WalkWriter | PhaseWriter", phase: "PhaseWriter | None"
    ) -> ir.Value:
        node, at = place
        with scope.point if scope is phase else _before(phase):
            if node in self.arrays:
                return self._read(node, at)
            assert node.op.origin is not Origin.ROW, f"{node!r} is read before its phase"
            known = [self._scope(p[1], phase).values[p] for p in self.sources(place)]
            return self.writer.op(node, known, one=True)

    def _read(self, node: Node, at: str) -> ir.Value:
        array = self.arrays[node]
        if at == EVERYWHERE:
            return array
        return ir.Operation.create(
            iteration.READ,
            results=[self.writer.type(node.type, one=True)],
            operands=[array],
            attributes={"at": ir.StringAttr.get(at)},
        ).result


@dataclass
class PhaseWriter:
    """Writes the body of one phase at `point`; `values` holds what one turn of its loop knows."""

    operation: ir.Operation
    point: ir.InsertionPoint
    values: dict[Place, ir.Value] = field(default_factory=dict)


def _before(phase: PhaseWriter | None) -> ir.InsertionPoint:
    """Before the loop that is being written, or at the current place of the row."""
    return ir.InsertionPoint.current if phase is None else ir.InsertionPoint(phase.operation)


def _fill(name: str, value: ir.Value, slot: int) -> None:
    attributes = {"slot": FIELD_KINDS[int].encode(slot)}
    ir.Operation.create(name, operands=[value], attributes=attributes)


def _take(done: ir.Operation, slot: int, type: ir.Type) -> ir.Value:
    """What a finished walk or phase has in a slot."""
    attributes = {"slot": FIELD_KINDS[int].encode(slot)}
    return ir.Operation.create(
        iteration.RESULT, results=[type], operands=[done.result], attributes=attributes
    ).result


def _open(name: str, attributes: Mapping[str, ir.Attribute] | None = None) -> ir.Operation:
    """A walk, a phase or a launch, with an empty body."""
    operation = ir.Operation.create(
        name, results=[ir.Type.parse(iteration.DONE)], attributes=attributes, regions=1
    )
    operation.regions[0].blocks.append()
    return operation


def _body(operation: ir.Operation) -> ir.InsertionPoint:
    return ir.InsertionPoint(operation.regions[0].blocks[0])


def _write_phase(walk: WalkWriter, phase: Phase, slots: Mapping[Node, int]) -> None:
    operation = _open(iteration.PHASE)
    inside = PhaseWriter(operation, _body(operation))

    def fill(name: str, node: Node, slot: int, sources: Sequence[Place] | None = None) -> None:
        places = [(child, EDGE) for child in node.inputs] if sources is None else sources
        values = [walk.value(*place, inside) for place in places]
        with inside.point:
            _fill(name, walk.writer.op(node, values, one=True), slot)

    carried = phase.row_results
    for slot, node in enumerate(carried):
        sources = walk.scan_sources(node) if node.op.carries else None
        fill(iteration.CARRY, node, slot, sources)
    for node in phase.stores:
        value = walk.value(node, EDGE, inside)
        with inside.point:
            _fill(iteration.STORE, value, slots[node])
    for node in (*phase.outer_sums, *phase.scatters):
        fill(iteration.STORE, node, slots[node])
    for slot, node in enumerate(carried):
        walk.values[node, ROW] = _take(operation, slot, walk.writer.type(node.type, one=True))


def _write_body(walk: WalkWriter) -> None:
    program = walk.program
    slots = {node: slot for slot, node in enumerate(program.writes)}
    for phase in program.phases:
        _write_phase(walk, phase, slots)
    for node in program.stores:
        _fill(iteration.STORE, walk.value(node, ROW), slots[node])
    for node in program.totals:
        values = [walk.value(child, ROW) for child in node.inputs]
        _fill(iteration.STORE, walk.writer.op(node, values, one=True), slots[node])


def _walk_attributes(program: RowProgram) -> tuple[str, dict[str, ir.Attribute]]:
    if program.relation is None:
        return iteration.ROWS, {"space": FIELD_KINDS[Space].encode(program.space)}
    return iteration.WALK, {
        "relation": FIELD_KINDS[Relation].encode(program.relation),
        "side": ir.StringAttr.get(program.side),
    }


def _write_walk(writer: Writer, program: RowProgram, operands: Sequence[ir.Value]) -> ir.Operation:
    name, attributes = _walk_attributes(program)
    operation = _open(name, attributes)
    with _body(operation):
        arrays = {
            node: ir.Operation.create(
                iteration.ARRAY, results=[array.type], operands=[array]
            ).result
            for node, array in zip(program.reads, operands, strict=True)
        }
        _write_body(WalkWriter(writer, program, arrays))
    return operation


def _write_launch(
    writer: Writer, program: RowProgram, schedule: Schedule, operands: Sequence[ir.Value]
) -> ir.Operation:
    operation = _open(iteration.LAUNCH, kernel.encode_schedule(schedule))
    with _body(operation):
        _write_walk(writer, program, operands)
    return operation


def _write_step(
    writer: Writer, step: Step, operands: Sequence[ir.Value], schedule: Schedule | None
) -> list[ir.Value]:
    """The arrays that a step writes."""
    if not isinstance(step, RowProgram):
        return [writer.op(step.node, operands)]
    if schedule is None:
        done = _write_walk(writer, step, operands)
    else:
        done = _write_launch(writer, step, schedule, operands)
    types = (writer.type(node.type) for node in step.writes)
    return [_take(done, slot, type) for slot, type in enumerate(types)]


def _write_plan(writer: Writer, name: str, plan: Plan, schedules: Mapping[Step, Schedule]) -> None:
    function = writer.function(name, plan.inputs, plan.outputs)
    values: dict[Node, ir.Value] = dict(zip(plan.inputs, function.arguments, strict=True))
    with ir.InsertionPoint(function.entry_block):
        for step in plan.steps:
            operands = [values[node] for node in step.reads]
            results = _write_step(writer, step, operands, schedules.get(step))
            values.update(zip(step.writes, results, strict=True))
        func.ReturnOp([values[output] for output in plan.outputs])


def emit_rows(
    plans: Mapping[str, Plan], context: ir.Context, schedules: Mapping[Step, Schedule] | None = None
) -> ir.Module:
    """The `gf_iter` module of named plans; row programs with a schedule become launches."""
    with new_module(context) as module:
        writer = Writer()
        programs = (Program(plan.inputs, plan.outputs) for plan in plans.values())
        writer.relations(r for program in programs for r in program.relations)
        for name, plan in plans.items():
            _write_plan(writer, name, plan, schedules or {})
    return module
