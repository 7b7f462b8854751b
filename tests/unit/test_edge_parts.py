"""Edge values that are taken apart and joined, part by part, as the GPU computes them."""

import numpy as np
import pytest

from tests.gpu import harness
from tiga.backends.reference import EdgeList, evaluate
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.schedule import MANY_PRODUCTS, choose_tile, facts
from tiga.ops.contract import contract, is_contract, is_outer_sum
from tiga.ops.feature import Concat, Put, Take, broadcast, concat, feature_sum, reshape, take
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input
from tiga.ops.message import gather, spread, sum_to
from tiga.ops.pointwise import add, mul
from tiga.passes.canonicalize import Canonicalize
from tiga.passes.differentiate import RULES
from tiga.passes.edge_parts import EdgeParts, is_of_edges
from tiga.passes.rows import LibraryCall
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, float32, float64

SRC, DST, RELATION = harness.SRC, harness.DST, harness.RELATION
WIDTH = 16


def gated(dtype, width=WIDTH) -> Program:
    """Gates from a product, split in three: scalars, and vectors beside them, as in PaiNN."""
    x = Input("x", Type(dtype, (8,), DST))()
    z = Input("z", Type(dtype, (8,), SRC))()
    phi = Input("phi", Type(dtype, (3 * width,), SRC))()
    v = Input("v", Type(dtype, (3, width), SRC))()
    matrix = Input("matrix", Type(dtype, (8, 3 * width), GLOBAL))()
    bias = Input("bias", Type(dtype, (3 * width,), GLOBAL))()
    basis = tanh(mul(gather(RELATION, "dst", x), gather(RELATION, "src", z)))
    filters = add(contract(basis, matrix), spread(bias, RELATION.edge))
    gates = mul(gather(RELATION, "src", phi), filters)
    scalar, along, across = (
        take(gates, 0, tuple(range(i * width, (i + 1) * width))) for i in range(3)
    )
    moved = mul(gather(RELATION, "src", v), broadcast(across, (3, width)))
    beside = add(moved, broadcast(tanh(along), (3, width)))
    message = concat(0, reshape(scalar, (1, width)), beside)
    return Program((x, z, phi, v, matrix, bias), (sum_to(RELATION, "dst", message),))


def both_orders(dtype, width=WIDTH) -> list[Program]:
    """The training form, its gradient, and the gradient of that."""
    forward = training(gated(dtype, width), tuple(range(6)), RULES)
    first = gradient(forward, tuple(range(6)), (0,), RULES).program
    again = training(first, tuple(range(len(first.inputs))), RULES)
    second = gradient(again, tuple(range(len(first.inputs))), (0, 1), RULES).program
    return [Canonicalize()(program) for program in (forward, first, second)]


@pytest.mark.parametrize("order", [0, 1, 2])
def test_values_are_kept_and_nothing_is_taken_of_what_edges_make(order):
    rng = np.random.default_rng(order)
    where = harness.problem(rng, 6, 5, [3, 0, 2, 4, 1])
    program = both_orders(float64)[order]
    made = EdgeParts()(program)
    assert made != program
    for node in filter(is_of_edges, made.order):
        assert not isinstance(node.op, Put | Concat)
        if isinstance(node.op, Take):
            assert node.inputs[0].op.is_read, node
    widths = [n.type.shape[-1] for n in made.order if is_contract(n) and is_of_edges(n)]
    assert max(widths) == WIDTH
    arrays = harness.fields(rng, where, program.inputs)
    edges = {RELATION: EdgeList(where.edges.src, where.edges.dst, 6, 5)}
    for wanted, found in zip(*(evaluate(p, arrays, edges) for p in (program, made)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)


def test_programs_without_products_stay():
    x = Input("x", Type(float32, (64,), SRC))()
    half = take(gather(RELATION, "src", tanh(x)), 0, tuple(range(32)))
    program = Program((x,), (sum_to(RELATION, "dst", half),))
    assert EdgeParts()(program) is program


def test_narrow_parts_stay_joined():
    x = Input("x", Type(float32, (8,), SRC))()
    matrix = Input("matrix", Type(float32, (9, 32), GLOBAL))()
    sent = gather(RELATION, "src", x)
    joined = concat(0, sent, reshape(feature_sum(tanh(sent), 0), (1,)))
    program = Program((x, matrix), (sum_to(RELATION, "dst", contract(joined, matrix)),))
    assert EdgeParts()(program) == program


def test_walks_read_parts_of_matrices_where_they_lie():
    for program in both_orders(float32):
        executable = compile_program(program)
        calls = [step.node for step in executable.steps if isinstance(step, LibraryCall)]
        assert not [node for node in calls if isinstance(node.op, Take)]
        assert not any(is_contract(node) or is_outer_sum(node) for node in calls)
        for source in executable.sources(has_chunks=False):
            assert "[32, 2, 64]" not in source.text, "a value as wide as all gates"


def test_walks_with_many_products_of_wide_values_take_few_warps():
    second = compile_program(both_orders(float32, 64)[2])
    walks = [s.program for s in second.steps if isinstance(s, RowStep) and s.program.relation]
    facts_of = [(facts(walk), choose_tile(walk, 16)) for walk in walks]
    many = [tile for known, tile in facts_of if known.num_products >= MANY_PRODUCTS]
    assert many
    assert all((t.rows * t.edges, t.warps, t.stages) == (16, 4, 1) for t in many)
