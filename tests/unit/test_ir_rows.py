"""Plans and schedules written as modules and read back are the same plans."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.test_ir_round_trip import EDGES, REDUCERS, RULES, make_input
from tiga.ir.context import parse, text_of, verify
from tiga.ops import feature, functions, message, pointwise
from tiga.ops.contract import contract
from tiga.ops.scan import ScanAfter, ScanBefore
from tiga.passes.base import Form, ScheduledPlan
from tiga.passes.levels import new_context
from tiga.passes.pipeline import PIPELINE, run_pipeline
from tiga.passes.rows import LibraryCall, Plan
from tiga.passes.schedule_rows import ScheduleRows
from tiga.passes.text import forms_of, module_of
from tiga.reducers import Messages
from tiga.trace.derivatives import gradient, training
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, Type, float32

TO_PLAN = tuple(step for step in PIPELINE if not isinstance(step, ScheduleRows))


def round_trip(form: Form) -> None:
    context = new_context()
    module = module_of({"f": form}, context)
    verify(module)
    for again in (module, parse(text_of(module), context)):
        assert forms_of(again) == {"f": form}, text_of(again)


def _messages(*parts: Node) -> Messages:
    return Messages(EDGES, parts)


def _program(reducer) -> Program:
    of = Type(float32, (2, 3), EDGES.src)
    x, y = make_input("x", of), make_input("y", of.with_space(EDGES.dst))
    a, scale = (
        make_input("a", of.with_space(EDGES.edge)),
        make_input("s", Type(float32, (), GLOBAL)),
    )
    value = pointwise.sub(message.gather(EDGES, "src", x), message.gather(EDGES, "dst", y))
    value = pointwise.mul(functions.tanh(value), a)
    value = pointwise.mul(value, feature.broadcast(message.spread(scale, EDGES.edge), (2, 3)))
    parts = (feature.feature_sum(value, 1), value) if reducer.arguments == 2 else (value,)
    return Program((x, y, a, scale), (reducer.rows(_messages(*parts)),))


def _gradients(program: Program) -> tuple[Program, Program]:
    wanted = tuple(range(len(program.inputs)))
    trained = training(program, wanted, RULES)
    return trained, gradient(trained, wanted, (0,), RULES).program


@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_row_programs_of_every_reducer_survive(reducer) -> None:
    for program in _gradients(_program(reducer)):
        plan = run_pipeline(program, TO_PLAN)
        assert isinstance(plan, Plan)
        round_trip(plan)
        round_trip(ScheduleRows()(plan))


def test_library_calls_survive() -> None:
    x = make_input("x", Type(float32, (8,), EDGES.src))
    w = make_input("w", Type(float32, (8, 5), GLOBAL))
    hidden = message.gather(EDGES, "src", contract(functions.tanh(x), w))
    program = Program((x, w), (message.reduce(EDGES, "dst", "sum", hidden),))
    for form in map(run_pipeline, _gradients(program)):
        assert isinstance(form, ScheduledPlan)
        assert any(isinstance(step, LibraryCall) for step in form.plan.steps)
        round_trip(form)


def test_matrices_on_edges_survive() -> None:
    """A product on edges that cannot move, and the sum that is the gradient of its matrix."""
    of = Type(float32, (8,), EDGES.src)
    x, y = make_input("x", of), make_input("y", of.with_space(EDGES.dst))
    w = make_input("w", Type(float32, (8, 5), GLOBAL))
    ends = pointwise.sub(message.gather(EDGES, "src", x), message.gather(EDGES, "dst", y))
    hidden = functions.tanh(contract(functions.tanh(ends), w))
    program = Program((x, y, w), (message.reduce(EDGES, "dst", "sum", hidden),))
    forms = [run_pipeline(form) for form in _gradients(program)]
    summed = [step for step, _ in forms[1].schedules if step.outer_sums]
    assert summed, "the gradient of the matrix is a sum in a walk"
    for form in forms:
        round_trip(form)


def test_one_node_set_at_both_ends() -> None:
    """The places of a walk tell the two ends apart where the space cannot."""
    loops = Relation("bonds", Space("atom", "node"), Space("atom", "node"))
    x = make_input("x", Type(float32, (4,), loops.src))
    ends = (message.gather(loops, side, x) for side in ("src", "dst"))
    row = message.reduce(loops, "dst", "sum", functions.exp(pointwise.sub(*ends)))
    for form in map(run_pipeline, _gradients(Program((x,), (row,)))):
        round_trip(form)


def test_edge_outputs_and_concatenations_survive() -> None:
    """Operands of a concatenation differ in width."""
    x = make_input("x", Type(float32, (4,), EDGES.src))
    y = make_input("y", Type(float32, (2,), EDGES.dst))
    joined = feature.concat(0, message.gather(EDGES, "src", x), message.gather(EDGES, "dst", y))
    total = message.reduce(EDGES, "src", "sum", joined)
    program = Program((x, y), (joined, total, x))
    round_trip(program)
    round_trip(run_pipeline(program))


def test_rows_without_edges_and_global_rows_survive() -> None:
    x = make_input("x", Type(float32, (4,), EDGES.src))
    s = make_input("s", Type(float32, (4,), GLOBAL))
    total = message.reduce_all(functions.exp(x))
    outputs = (total, functions.exp(x), functions.tanh(s), pointwise.add(functions.exp(total), s))
    round_trip(run_pipeline(Program((x, s), outputs)))


def test_threads_do_not_share_contexts() -> None:
    forms = [run_pipeline(p) for reducer in REDUCERS for p in _gradients(_program(reducer))]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(round_trip, forms))


def _scan(step, *operands: Node) -> tuple[Node, Node]:
    carry, *elements = (
        make_input(f"r{i}", node.type.with_space(GLOBAL)) for i, node in enumerate(operands)
    )
    region = Program((carry, *elements), (step(carry, *elements),))
    before, after = (op(EDGES, "dst", False, region)(*operands) for op in (ScanBefore, ScanAfter))
    return before, after


def _scan_program() -> Program:
    """A recurrence over what the other ends have, and one over its own carries."""
    of = Type(float32, (4,), EDGES.src)
    x, start = make_input("x", of), make_input("start", of.with_space(EDGES.dst))
    before, after = _scan(pointwise.mul, start, message.gather(EDGES, "src", x))
    _, last = _scan(lambda c, b: functions.tanh(pointwise.add(c, b)), functions.exp(start), before)
    return Program((x, start), (pointwise.add(after, last), before))


def test_scans_and_scattered_sums_survive() -> None:
    """A gradient walks backwards, and scatters what belongs to the other ends."""
    forms = [run_pipeline(form) for form in _gradients(_scan_program())]
    for form in forms:
        assert isinstance(form, ScheduledPlan)
        assert any(step.scans for step, _ in form.schedules)
        round_trip(form.plan)
        round_trip(form)
    assert any(step.scatters for step, _ in forms[1].schedules)
    assert {phase.reverse for step, _ in forms[1].schedules for phase in step.phases} == {
        True,
        False,
    }


def test_facts_of_relations_survive() -> None:
    """What names a relation without a walk of it has the relation declared."""
    degree = message.degree(EDGES, "dst", float32)
    round_trip(run_pipeline(Program((), (functions.exp(degree),))))
