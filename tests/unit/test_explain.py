"""What `explain` says of plans: word for word on small ones, and its bytes against the plan's."""

import numpy as np
import pytest

from tests.compiled import call
from tests.unit.test_buffers import NODE, both_sums
from tests.unit.test_form import DST, EDGE, EDGES, SRC, gather, plan_of, reduce, value
from tests.unit.test_form_scans import scan
from tiga.compiler import compile_program
from tiga.ops import feature, functions, message, pointwise
from tiga.ops.contract import contract, outer_sum
from tiga.passes.explain import allocated_bytes, explain
from tiga.passes.schedule_rows import ScheduleRows
from tiga.relations import Graph
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, bfloat16, float64


def told(*outputs: Node) -> str:
    return explain(ScheduleRows()(plan_of(*outputs)))


def test_phases_of_one_kernel() -> None:
    m = value("m", EDGE, 4)
    shifted = pointwise.sub(m, gather("dst", reduce("dst", m, "max")))
    powers = functions.exp(shifted, where="softmax.py:7")
    share = pointwise.div(powers, gather("dst", reduce("dst", powers)))
    assert told(share).splitlines() == [
        "1 kernel, 0 library calls",
        "step 0: walk of edges, rows = dst, features across lanes",
        "  reads m float32[4]@edges",
        "  phase 0: max of float32[4]@destinations",
        "  phase 1: sum of float32[4]@destinations (softmax.py:7)",
        "  phase 2: edge value float32[4]@edges stored",
        "  fuses div, exp, sub",
        "  writes output 0 float32[4]@edges",
        "stores nothing between steps",
    ]


def test_library_calls_and_what_is_stored_for_them() -> None:
    product = contract(functions.tanh(value("x", SRC, 8)), value("w", GLOBAL, 8, 5))
    assert told(reduce("dst", gather("src", product))).splitlines() == [
        "2 kernels, 1 library call",
        "step 0: rows of sources, features across lanes",
        "  reads x float32[8]@sources",
        "  fuses tanh",
        "  writes stored value float32[8]@sources",
        "step 1: library call: contract of float32[8]@sources by float32[8,5]@global",
        "step 2: walk of edges, rows = dst, features across lanes",
        "  reads stored value float32[5]@sources",
        "  phase 0: sum of float32[5]@destinations",
        "  fuses nothing else",
        "  writes output 0 float32[5]@destinations",
        "stores between steps: 52 B per sources row",
        "  float32[8]@sources, step 0 to 1, an array",
        "  float32[5]@sources, step 1 to 2, an array",
    ]


def test_scans_scattered_sums_and_totals() -> None:
    loop = scan(value("start", DST, 3), value("element", EDGE, 3))
    outputs = (
        loop.after,
        reduce("src", functions.exp(loop.before)),
        message.reduce_all(loop.after),
    )
    assert told(*outputs).splitlines()[3:] == [
        "  phase 0: scan of float32[3]@edges; scattered sum of float32[3]@sources",
        "  fuses exp",
        "  writes output 0 float32[3]@destinations, output 2 float32[3]@global, "
        "output 1 float32[3]@sources",
        "stores nothing between steps",
    ]


def outer_products() -> Node:
    return outer_sum(functions.tanh(value("a", EDGE, 8)), gather("dst", value("c", DST, 5)))


def twice_the_same_op() -> Node:
    m = functions.exp(functions.exp(value("m", EDGE, 4)))
    return reduce("dst", feature.feature_sum(m, 0))


@pytest.mark.parametrize(
    ("outputs", "line"),
    [
        (lambda: reduce("dst", value("s", EDGE)), "rows = dst, 16 edges across lanes"),
        (lambda: reduce("dst", value("w", EDGE, 512)), "across lanes, 128 of 512 at a time"),
        (lambda: functions.tanh(value("g", GLOBAL, 4)), "step 0: rows of global, features"),
        (lambda: reduce("src", value("s", EDGE, 4)), "walk of edges, rows = src"),
        (outer_products, "phase 0: sum of outer products float32[8,5]@global"),
        (twice_the_same_op, "fuses 2 exp, feature_sum"),
    ],
)
def test_schedules_and_ops_are_told(outputs, line: str) -> None:
    assert line in told(outputs())


def test_nothing_to_compute() -> None:
    x = value("x", SRC, 4)
    assert told(x) == "0 kernels, 0 library calls\nstores nothing between steps"


def test_bytes_are_those_of_the_last_call() -> None:
    """Before a call only bytes per row are known."""
    x = value("x", SRC, 4)
    wide = Type(float64, (4,), SRC)
    total = reduce("dst", gather("src", functions.exp(pointwise.cast(x, wide.dtype))))
    compiled = compile_program(Program((x,), (total,)))
    assert "stores between steps: 32 B per sources row" in compiled.explain()
    graph = Graph.from_coo(np.array([0, 1]), np.array([0, 0]), num_src=50, num_dst=1)
    call(compiled, graph, [np.zeros((50, 4), np.float32)])
    assert compiled.explain().endswith("at the last call: 1,600 B between steps")
    extents = {SRC: 50, DST: 1, EDGES.edge: 2, GLOBAL: 1}
    assert allocated_bytes(compiled.executable.placed, extents) == 50 * 32
    assert "float64[4]@sources, step 0 to 1, an array of 1,600 B" in compiled.explain()


def test_values_without_an_array_are_told_with_where_they_are() -> None:
    into, out = both_sums(value("x", NODE, 4))
    total = pointwise.add(into, out)
    lines = told(pointwise.cast(total, bfloat16)).splitlines()
    assert (
        lines[1]
        == "step 0: walk of loop, rows = dst, features across lanes, together with the next"
    )
    assert lines[-2:] == [
        "stores between steps: nothing in memory of its own",
        "  float32[4]@node, step 0 to 1, a block of rows at a time",
    ]
    assert told(total).endswith("step 0 to 1, in the memory of output 0 float32[4]@node")
