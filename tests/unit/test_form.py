"""Which walk computes what: each fact of the planner on the smallest program that shows it."""

import pytest

from tests.unit.test_ir_round_trip import REDUCERS, make_input
from tiga.ops import feature, functions, message, pointwise
from tiga.ops.contract import contract, outer_sum
from tiga.passes.expand import Expand
from tiga.passes.form_rows import FormRows
from tiga.passes.rows import LibraryCall, Plan, RowProgram, Step
from tiga.passes.verify import verify_form
from tiga.reducers import Messages
from tiga.trace.node import Node, topological
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, Type, float32

EDGES = Relation("edges", Space("sources", "node"), Space("destinations", "node"))
SRC, DST, EDGE = EDGES.src, EDGES.dst, EDGES.edge


def value(label: str, space: Space, *shape: int) -> Node:
    return make_input(label, Type(float32, shape, space))


def plan_of(*outputs: Node) -> Plan:
    """The plan of a program of these outputs, checked."""
    inputs = (node for node in topological(outputs) if node.op.name == "input")
    plan = FormRows()(Program(tuple(inputs), outputs))
    verify_form(plan)
    return plan


def walk(side: str) -> tuple[Relation, str]:
    return EDGES, side


def rows(space: Space) -> tuple[Space]:
    return (space,)


def shape_of(step: Step) -> object:
    """A step in short: the walk, the rows, or the op of a library call."""
    if isinstance(step, LibraryCall):
        return step.node.op.name
    return rows(step.space) if step.relation is None else walk(step.side)


def steps_of(plan: Plan) -> list[object]:
    return [shape_of(step) for step in plan.steps]


def gather(side: str, node: Node) -> Node:
    return message.gather(EDGES, side, node)


def reduce(side: str, node: Node, kind: str = "sum") -> Node:
    return message.reduce(EDGES, side, kind, node)


# Phases and walks


def test_what_the_same_rows_need_comes_one_phase_earlier() -> None:
    m = value("m", EDGE, 4)
    highest = reduce("dst", m, "max")
    total = reduce("dst", functions.exp(pointwise.sub(m, gather("dst", highest))))
    plan = plan_of(total)
    (step,) = plan.steps
    assert shape_of(step) == walk("dst")
    assert [phase.reductions for phase in step.phases] == [(highest,), (total,)]
    assert step.reads == (m,)
    assert plan.intermediates == (), "nothing is stored between the phases"


def test_independent_reductions_share_a_phase() -> None:
    m = value("m", EDGE)
    first, second = reduce("dst", m, "max"), reduce("dst", functions.exp(m))
    (step,) = plan_of(first, second).steps
    assert [phase.reductions for phase in step.phases] == [(first, second)]
    assert step.stores == (first, second)


def test_what_the_other_ends_need_is_stored_by_an_earlier_walk() -> None:
    m = value("m", EDGE, 4)
    at_dst = reduce("dst", m)
    at_src = reduce("src", gather("dst", at_dst))
    plan = plan_of(at_src)
    assert steps_of(plan) == [walk("dst"), walk("src")]
    assert plan.steps[0].stores == (at_dst,)
    assert at_dst in plan.steps[1].reads
    assert plan.intermediates == (at_dst,)


def test_both_ends_of_one_node_set_are_told_apart() -> None:
    """The same nodes at both ends: a walk knows its own rows only."""
    loops = Relation("bonds", Space("atom", "node"), Space("atom", "node"))
    x = make_input("x", Type(float32, (4,), loops.src))
    total = message.reduce(loops, "dst", "sum", message.gather(loops, "src", x))
    again = message.reduce(loops, "dst", "sum", message.gather(loops, "src", total))
    plan = plan_of(again)
    assert len(plan.steps) == 2
    assert plan.intermediates == (total,)


def test_edge_values_are_stored_in_their_order_where_a_walk_can() -> None:
    """Over the transpose they are scattered: a walk by destination takes them, wherever it is."""
    x, ct, w = value("x", SRC, 4), value("ct", DST, 4), value("w", EDGE, 4)
    there = reduce("src", pointwise.mul(w, gather("dst", ct)))
    per_edge = pointwise.mul(gather("src", x), gather("dst", ct))
    (alone,) = plan_of(there, per_edge).steps
    assert (shape_of(alone), alone.phases[0].stores) == (walk("src"), (per_edge,))
    here = reduce("dst", pointwise.mul(w, gather("src", there)))
    last, first = plan_of(there, per_edge, here).steps[::-1]
    assert [shape_of(first), shape_of(last)] == [walk("src"), walk("dst")]
    assert last.phases[0].stores == (per_edge,)


def test_a_walk_is_shared_across_other_steps() -> None:
    """Reductions that need nothing of each other go to one walk, whatever lies between them."""
    m = value("m", EDGE)
    there = reduce("src", gather("dst", reduce("dst", m)))
    plan = plan_of(there, reduce("dst", functions.exp(m)))
    assert steps_of(plan) == [walk("dst"), walk("src")]


# Free values


def test_cheap_free_values_are_recomputed_where_they_are_read() -> None:
    x = value("x", SRC, 4)
    plan = plan_of(reduce("dst", gather("src", pointwise.neg(x))))
    assert steps_of(plan) == [walk("dst")]
    assert plan.steps[0].reads == (x,)


def test_costly_free_values_are_stored_before_they_are_read_across_edges() -> None:
    x = value("x", SRC, 4)
    costly = functions.exp(x)
    plan = plan_of(reduce("dst", gather("src", costly)))
    assert steps_of(plan) == [rows(SRC), walk("dst")]
    assert plan.steps[1].reads == (costly,)


def test_free_values_of_more_bytes_than_they_have_are_stored() -> None:
    x, y = value("x", SRC, 4), value("y", SRC, 4)
    total = pointwise.add(x, y)
    plan = plan_of(reduce("dst", gather("src", total)))
    assert steps_of(plan) == [rows(SRC), walk("dst")]
    assert plan.steps[1].reads == (total,)


def test_costly_free_values_of_the_rows_are_not_stored() -> None:
    """Once per row is what storing would cost as well."""
    x, y = value("x", SRC, 4), value("y", DST, 4)
    message_ = pointwise.mul(gather("src", x), gather("dst", functions.exp(y)))
    assert steps_of(plan_of(reduce("dst", message_))) == [walk("dst")]


def test_free_values_that_later_steps_store_are_recomputed_before() -> None:
    p, y, m = value("p", GLOBAL, 4), value("y", DST, 4), value("m", EDGE, 4)
    costly = functions.exp(p)
    rows_ = reduce("dst", gather("dst", pointwise.mul(message.spread(costly, DST), y)))
    edges = reduce("dst", pointwise.mul(message.spread(costly, EDGE), m))
    plan = plan_of(rows_, edges)
    assert steps_of(plan) == [walk("dst"), rows(GLOBAL), walk("dst")]
    assert plan.steps[0].reads == (p, y)


def test_global_values_are_read_by_rows_as_they_are() -> None:
    x, w = value("x", GLOBAL, 8), value("w", GLOBAL, 8, 5)
    product = contract(x, w)
    plan = plan_of(reduce("dst", gather("dst", message.spread(product, DST))))
    assert steps_of(plan) == ["contract", walk("dst")]
    assert plan.steps[1].reads == (product,)


def test_library_calls_read_arrays_even_of_what_is_cheap() -> None:
    x, total = value("x", DST, 8), reduce("dst", value("m", EDGE, 1))
    wide = feature.broadcast(total, (8,))
    plan = plan_of(outer_sum(x, wide))
    assert steps_of(plan) == [walk("dst"), "outer_sum"]
    assert plan.steps[0].stores == (wide,)


def test_dead_values_are_not_formed() -> None:
    m = value("m", EDGE)
    kept, _ = reduce("dst", m), reduce("src", m)
    assert steps_of(plan_of(kept)) == [walk("dst")]


# What else steps write


def test_edge_outputs_are_stored_in_the_walk_that_has_them() -> None:
    m = value("m", EDGE, 4)
    total = reduce("dst", functions.exp(m))
    share = pointwise.div(functions.exp(m), gather("dst", total))
    plan = plan_of(share)
    (step,) = plan.steps
    assert [phase.stores for phase in step.phases] == [(), (share,)]


def test_edge_outputs_alone_make_a_walk() -> None:
    x, y = value("x", SRC, 4), value("y", DST, 4)
    difference = pointwise.sub(gather("src", x), gather("dst", y))
    (step,) = plan_of(difference).steps
    assert (shape_of(step), step.writes) == (walk("dst"), (difference,))


def test_totals_are_accumulated_by_the_rows_that_have_them() -> None:
    row = functions.exp(reduce("dst", value("m", EDGE, 4)))
    total = message.reduce_all(row)
    (step,) = plan_of(total).steps
    assert (step.totals, step.stores) == ((total,), ())


def test_totals_of_free_values_need_no_walk() -> None:
    total = message.reduce_all(functions.exp(value("x", SRC, 4)))
    plan = plan_of(total)
    assert steps_of(plan) == [rows(SRC)]
    assert plan.steps[0].totals == (total,)


def test_what_a_total_makes_comes_after_its_whole_step() -> None:
    row = reduce("dst", value("m", EDGE, 4))
    total = message.reduce_all(row)
    share = pointwise.div(row, message.spread(total, DST))
    plan = plan_of(share)
    assert steps_of(plan) == [walk("dst"), rows(DST)]
    assert set(plan.intermediates) == {row, total}


def test_products_of_node_values_go_to_a_library() -> None:
    x, w = value("x", SRC, 8), value("w", GLOBAL, 8, 5)
    product = contract(functions.tanh(x), w)
    plan = plan_of(reduce("dst", gather("src", product)))
    assert steps_of(plan) == [rows(SRC), "contract", walk("dst")]


def test_products_and_their_gradients_stay_in_the_walk_on_edges() -> None:
    x, w, ct = value("x", EDGE, 8), value("w", GLOBAL, 8, 5), value("ct", DST, 5)
    hidden = reduce("dst", contract(functions.tanh(x), w), "max")
    matrix = outer_sum(functions.tanh(x), gather("dst", pointwise.mul(ct, hidden)))
    plan = plan_of(hidden, matrix)
    (step,) = plan.steps
    assert shape_of(step) == walk("dst")
    assert step.outer_sums == (matrix,)
    assert [phase.outer_sums for phase in step.phases] == [(), (matrix,)]


def test_large_global_values_are_rearranged_by_a_library() -> None:
    w, x = value("w", GLOBAL, 32, 8), value("x", SRC, 8)
    plan = plan_of(contract(x, feature.permute(w, (1, 0))))
    assert steps_of(plan) == ["permute", "contract"]
    small = value("v", GLOBAL, 4, 4)
    plan = plan_of(contract(value("y", SRC, 4), feature.permute(small, (1, 0))))
    assert steps_of(plan) == [rows(GLOBAL), "contract"]


@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda reducer: type(reducer).__name__)
def test_plans_of_reducers_need_one_walk_forward(reducer) -> None:
    """Whatever a reducer does in phases, its forward pass goes over the edges' rows once."""
    x, y = value("x", SRC, 4), value("y", DST, 4)
    m = functions.tanh(pointwise.add(gather("src", x), gather("dst", y)))
    parts = (feature.feature_sum(m, 0), m) if reducer.arguments == 2 else (m,)
    program = Program((x, y), (reducer.rows(Messages(EDGES, parts)),))
    plan = plan_of(*Expand()(program).outputs)
    walks = [step for step in plan.steps if isinstance(step, RowProgram) and step.relation]
    assert [shape_of(step) for step in walks] == [walk("dst")]
    assert all(node.type.space.kind != "edge" for node in plan.intermediates)
