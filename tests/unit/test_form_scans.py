"""Scans in plans: which loop carries them, what follows from them, and what cannot be fused."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.compiled import call, extents_of
from tests.unit.test_form import (
    DST,
    EDGE,
    EDGES,
    SRC,
    gather,
    plan_of,
    reduce,
    rows,
    shape_of,
    steps_of,
    value,
    walk,
)
from tests.unit.test_ir_round_trip import RULES, make_input
from tiga.backends.reference import EdgeList, evaluate
from tiga.compiler import compile_program
from tiga.errors import Unfusable
from tiga.ops import feature, functions, pointwise
from tiga.ops.scan import ScanAfter, ScanBefore
from tiga.passes.rows import ScanLoop
from tiga.passes.schedule import MAX_ELEMENTS
from tiga.passes.schedule_rows import ScheduleRows
from tiga.relations import Graph
from tiga.trace.derivatives import gradient, training
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL


def scan(
    start: Node,
    *elements: Node,
    side: str = "dst",
    reverse: bool = False,
    step: Callable[..., Node] = pointwise.mul,
) -> ScanLoop:
    """Both results of a scan by `step` of the carry and the elements."""
    holes = [
        make_input(f"r{i}", n.type.with_space(GLOBAL)) for i, n in enumerate((start, *elements))
    ]
    region = Program(tuple(holes), (step(*holes),))
    ops = (op(EDGES, side, reverse, region) for op in (ScanBefore, ScanAfter))
    return ScanLoop(*(op(start, *elements) for op in ops))


@pytest.fixture
def start() -> Node:
    return value("start", DST, 3)


@pytest.fixture
def element() -> Node:
    return value("element", EDGE, 3)


def test_a_scan_is_carried_by_a_walk_of_its_rows(start: Node, element: Node) -> None:
    loop = scan(start, element)
    (step,) = plan_of(loop.after, loop.before).steps
    assert shape_of(step) == walk("dst")
    assert [phase.scans for phase in step.phases] == [(loop,)]
    assert step.phases[0].stores == (loop.before,)
    assert step.stores == (loop.after,)


def test_scans_in_opposite_directions_have_phases_of_their_own(start: Node, element: Node) -> None:
    forward = scan(start, element)
    backward = scan(start, forward.before, reverse=True)
    (step,) = plan_of(backward.after).steps
    assert [phase.scans for phase in step.phases] == [(forward,), (backward,)]
    assert [phase.reverse for phase in step.phases] == [False, True]


def test_scans_in_one_direction_share_a_phase(start: Node, element: Node) -> None:
    first = scan(start, element)
    second = scan(start, first.before)
    (step,) = plan_of(second.after).steps
    assert [phase.scans for phase in step.phases] == [(first, second)]


def test_a_scan_that_starts_from_a_reduction_comes_a_phase_later(element: Node) -> None:
    total = reduce("dst", element)
    loop = scan(total, element)
    (step,) = plan_of(loop.after).steps
    assert [(phase.reductions, phase.scans) for phase in step.phases] == [
        ((total,), ()), ((), (loop,)),
    ]  # fmt: skip


def test_a_scan_is_repeated_in_each_walk_that_reads_it(start: Node, element: Node) -> None:
    loop = scan(start, element)
    there = reduce("src", gather("dst", loop.after))
    again = reduce("dst", pointwise.mul(loop.before, gather("src", there)))
    plan = plan_of(again)
    assert steps_of(plan) == [walk("dst"), walk("src"), walk("dst")]
    assert [step.scans for step in plan.steps] == [(loop,), (), (loop,)]
    assert loop.before not in plan.intermediates, "carries are not stored per edge"


def test_sums_at_the_other_ends_of_a_scan_are_scattered(start: Node, element: Node) -> None:
    loop = scan(start, element)
    there = reduce("src", functions.exp(loop.before))
    plan = plan_of(there)
    (step,) = plan.steps
    assert shape_of(step) == walk("dst")
    assert (step.scatters, step.phases[0].reductions) == ((there,), ())


def test_scattered_sums_are_complete_after_their_whole_step(start: Node, element: Node) -> None:
    there = reduce("src", scan(start, element).before)
    back = reduce("dst", gather("src", functions.exp(there)))
    plan = plan_of(back)
    assert steps_of(plan) == [walk("dst"), rows(SRC), walk("dst")]
    assert there in plan.intermediates


# What cannot be fused


def both_ends(start: Node, element: Node) -> Node:
    other = scan(value("other", SRC, 3), element, side="src")
    return reduce("dst", pointwise.add(scan(start, element).before, other.before))


def scan_over_the_other_end(start: Node, element: Node) -> Node:
    return scan(value("other", SRC, 3), scan(start, element).before, side="src").after


def scattered_maximum(start: Node, element: Node) -> Node:
    return reduce("src", scan(start, element).before, "max")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (both_ends, "scans of both its ends"),
        (scan_over_the_other_end, "a scan of one end over a scan of the other"),
        (scattered_maximum, "a max at one end over a scan of the other"),
    ],
)
def test_what_cannot_be_fused_is_said(make, message: str, start: Node, element: Node) -> None:
    with pytest.raises(Unfusable, match=message):
        plan_of(make(start, element))


def test_values_that_are_too_wide_are_refused() -> None:
    m = value("m", EDGE, MAX_ELEMENTS + 1)
    mixed = feature.take(m, 0, tuple(reversed(range(MAX_ELEMENTS + 1))))
    with pytest.raises(Unfusable, match=f"values of {MAX_ELEMENTS + 1} elements"):
        ScheduleRows()(plan_of(reduce("dst", mixed)))


# What plans compute


def compare(program: Program) -> None:
    """The plan's kernels against the oracle, on rows of different lengths."""
    rng = np.random.default_rng(5)
    dst = np.repeat(np.arange(6), [0, 1, 3, 17, 2, 0])
    src = rng.integers(0, 4, len(dst))
    graph = Graph.from_coo(src, dst, num_src=5, num_dst=6)
    sizes = extents_of([EDGES], graph)
    arrays = []
    for node in program.inputs:
        lead = () if node.type.space == GLOBAL else (sizes[node.type.space],)
        arrays.append(rng.uniform(-1, 1, (*lead, *node.type.shape)).astype(np.float32))
    wanted = evaluate(program, arrays, {EDGES: EdgeList(src, dst, 5, 6)})
    for got, want in zip(call(compile_program(program), graph, arrays), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def scans_of_every_kind(start: Node, element: Node) -> Program:
    """Two directions, a carry kept for a later phase, one repeated, and one scattered."""
    forward = scan(start, element, step=lambda c, e: functions.tanh(pointwise.add(c, e)))
    backward = scan(start, forward.before, reverse=True)
    there = reduce("src", pointwise.mul(forward.before, element))
    again = reduce("dst", pointwise.mul(forward.before, gather("src", there)))
    outputs = (backward.after, there, again, backward.before)
    return Program((start, element), outputs)


def test_plans_with_scans_compute_what_the_program_says(start: Node, element: Node) -> None:
    program = scans_of_every_kind(start, element)
    trained = training(program, (0, 1), RULES)
    compare(trained)
    compare(gradient(trained, (0, 1), range(len(program.outputs)), RULES).program)
