"""Rows of tables by integer fields: read where the table lies, added to at nodes."""

import numpy as np
import pytest
import torch

import tiga as tg
from tests.gpu import harness, paged_harness
from tests.gpu.harness import DST, RELATION, SRC
from tiga.backends.triton.executable import compile_program
from tiga.ops.feature import feature_sum, permute
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input, constant
from tiga.ops.lookup import index_sum, lookup
from tiga.ops.message import gather, sum_to
from tiga.ops.pointwise import add, mul
from tiga.passes.rows import LibraryCall
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, bfloat16, float32, float64, int64

EDGE, KINDS = RELATION.edge, 7


def table_of(shape, dtype=float32):
    return Input("table", Type(dtype, (KINDS, *shape), GLOBAL))()


def numbers(space, shape=()):
    return Input("kind", Type(int64, shape, space))()


def arrays_of(rng, program, where):
    """Random values; one index in some is none of the table's rows."""
    found = harness.fields(rng, where, program.inputs)
    for i, node in enumerate(program.inputs):
        if node.type.dtype == int64:
            found[i] = rng.integers(0, KINDS, found[i].shape)
            found[i].flat[:2] = -1, KINDS
    return found


def check(program, arrays, where, dtype=float32):
    executable = compile_program(program)
    found = harness.run(program, arrays, where, executable)
    for got, want in zip(found, harness.oracle(program, arrays, where), strict=True):
        harness.assert_close(got, want, dtype, "rows")
    return executable


def of_nodes(shape, dtype, rows=()):
    """A message of the source's row of a table, `rows` of them side by side, and a field."""
    table, kind = table_of(shape, dtype), numbers(SRC, rows)
    x = Input("x", Type(dtype, shape, DST))()
    row = lookup(table, gather(RELATION, "src", kind))
    row = feature_sum(row, 0) if rows else row
    out = sum_to(RELATION, "dst", mul(tanh(row), gather(RELATION, "dst", x)))
    return Program((table, kind, x), (out,))


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16], ids=repr)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (130,)], ids=repr)
def test_rows_by_a_field_of_nodes(rng, shape, dtype):
    program, where = of_nodes(shape, dtype), harness.problem(rng, 9, 11, rng.integers(0, 6, 11))
    check(program, arrays_of(rng, program, where), where, dtype)


def test_several_rows_of_an_entity(rng):
    program = of_nodes((6,), float32, (3,))
    where = harness.problem(rng, 9, 11, rng.integers(0, 6, 11))
    check(program, arrays_of(rng, program, where), where)


@pytest.mark.parametrize("shape", [(), (5,)], ids=repr)
def test_rows_by_a_field_of_edges(rng, shape):
    table, kind = table_of(shape), numbers(EDGE)
    x = Input("x", Type(float32, shape, SRC))()
    message = mul(lookup(table, kind), gather(RELATION, "src", x))
    program = Program((table, kind, x), (sum_to(RELATION, "dst", message),))
    where = harness.problem(rng, 9, 11, rng.integers(0, 6, 11))
    executable = check(program, arrays_of(rng, program, where), where)
    assert len(executable.steps) == 1


def test_a_table_that_is_rearranged_first(rng):
    table = Input("table", Type(float32, (4, KINDS), GLOBAL))()
    kind = numbers(SRC)
    row = lookup(permute(table, (1, 0)), gather(RELATION, "src", kind))
    program = Program((table, kind), (sum_to(RELATION, "dst", row),))
    where = harness.problem(rng, 9, 11, rng.integers(1, 6, 11))
    check(program, arrays_of(rng, program, where), where)


def check_derivative(rng, program, order, largest):
    """Compare a derivative of a program with the oracle's; indices are `largest` at most."""
    for _ in range(order):
        floats = tuple(i for i, n in enumerate(program.inputs) if n.type.dtype.is_float)
        full = training(program, floats, harness.RULES)
        present = tuple(i for i, n in enumerate(full.outputs) if n.type.dtype.is_float)
        program = gradient(full, floats, present, harness.RULES).program
    where = harness.problem(rng, 9, 11, rng.integers(0, 6, 11))
    arrays = arrays_of(rng, program, where)
    for array in arrays:
        if array.dtype == np.int64:
            array[...] = array.clip(0, largest)
    check(program, arrays, where, float64)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("rows", [(), (3,)], ids=repr)
def test_derivatives_to_tables_of_nodes(rng, rows, order):
    program = of_nodes((4,), float64, rows)
    check_derivative(rng, program, order, KINDS - 1)


def of_edges(shape, dtype, rows=(), start=0):
    """The same by a field of the edges, or by one that is computed of it."""
    table, kind = table_of(shape, dtype), numbers(EDGE, rows)
    x = Input("x", Type(dtype, shape, SRC))()
    index = add(kind, constant(start, kind.type)) if start else kind
    row = lookup(table, index)
    row = feature_sum(row, 0) if rows else row
    out = sum_to(RELATION, "dst", mul(tanh(row), gather(RELATION, "src", x)))
    return Program((table, kind, x), (out,))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("case", [((5,), (), 0), ((), (), 2), ((2, 3), (3,), 0)], ids=repr)
def test_derivatives_to_tables_of_edges(rng, case, order):
    program = of_edges(case[0], float64, *case[1:])
    check_derivative(rng, program, order, KINDS - 1 - case[2])


def test_a_large_table_and_rows_that_are_split(rng):
    table = Input("table", Type(float32, (3000, 40), GLOBAL))()
    kind = numbers(EDGE)
    x = Input("x", Type(float32, (40,), SRC))()
    message = mul(lookup(table, kind), gather(RELATION, "src", x))
    program = Program((table, kind, x), (sum_to(RELATION, "dst", message),))
    full = training(program, (0, 2), harness.RULES)
    back = gradient(full, (0, 2), (0,), harness.RULES).program
    where = harness.problem(rng, 9, 3, np.array([4100, 0, 7]))
    arrays = harness.fields(rng, where, back.inputs)
    arrays[1][...] = rng.integers(0, 3000, arrays[1].shape)
    check(back, arrays, where)


@pytest.mark.parametrize("space", [EDGE, SRC], ids=lambda space: space.kind)
@pytest.mark.parametrize(("kinds", "shape"), [(20, (33,)), (3, (2, 150)), (32, ())], ids=repr)
def test_sums_into_tables_of_few_rows_need_no_sort(rng, space, kinds, shape):
    kind, x = numbers(space), Input("x", Type(float32, shape, space))()
    program = Program((kind, x), (index_sum(kinds, kind, x),))
    where = harness.problem(rng, 9, 1100, rng.integers(1, 6, 1100))
    arrays = harness.fields(rng, where, program.inputs)
    arrays[0][...] = rng.integers(-1, kinds + 1, arrays[0].shape)
    arrays[1][:7] = np.nan  # of no row of the table
    arrays[0][:7] = kinds
    executable = check(program, arrays, where)
    assert not any(isinstance(step, LibraryCall) for step in executable.steps)


class Picked(tg.MessagePassing, torch.nn.Module):
    """Of several rows of the source the one that the edge names, scaled by a number of its kind."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(5))

    def edge(self, src, dst, edge):
        place = edge.kind[:, None, None].expand(-1, 1, 6)
        return self.scale[edge.kind][:, None] * src.y.gather(1, place)[:, 0]


def test_rows_of_the_source_that_an_edge_names(where):
    src, dst = torch.randint(0, 12, (2, 60), device=where)
    kind = torch.randint(0, 5, (60,), device=where)
    graph, kernel = tg.Graph.from_coo(src, dst, num_src=12, num_dst=12), Picked().to(where)
    y = torch.randn(12, 5, 6, device=where, requires_grad=True)
    expected = torch.zeros(12, 6, device=where)
    expected = expected.index_add(0, dst, kernel.scale[kind][:, None] * y[src, kind])
    results = []
    for out in (kernel(graph=graph, src={"y": y}, dst={}, edge={"kind": kind}), expected):
        results.append((out, *torch.autograd.grad(out.square().sum(), (y, kernel.scale))))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    assert not kernel.diagnostics


class Typed(tg.MessagePassing, torch.nn.Module):
    """A message scaled by an embedding of the edge's kind."""

    def __init__(self, width=5):
        super().__init__()
        self.kinds = torch.nn.Embedding(KINDS, width)

    def edge(self, src, dst, edge):
        return torch.tanh(self.kinds(edge.kind)) * src.x


def test_an_embedding_of_edge_kinds_to_second_order(where):
    src, dst = torch.randint(0, 12, (2, 60), device=where)
    kind = torch.randint(0, KINDS, (60,), device=where)
    graph = tg.Graph.from_coo(src, dst, num_src=12, num_dst=12)
    kernel = Typed().to(where)
    x = torch.randn(12, 5, device=where, requires_grad=True)
    sent = torch.tanh(kernel.kinds(kind)) * x[src]
    calls = (
        kernel(graph=graph, ndata={"x": x}, edge={"kind": kind}),
        torch.zeros_like(x).index_add(0, dst, sent),
    )
    results = []
    for out in calls:
        leaves = x, kernel.kinds.weight
        first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
        results.append((out, *first, *second))
    torch.testing.assert_close(*results, rtol=2e-4, atol=2e-4)
    assert not kernel.diagnostics


@pytest.mark.parametrize("width", [2, 40])
def test_gradients_of_tables_that_edges_of_a_file_index(where, tmp_path, width):
    """Few numbers are summed page by page; more block by block, by torch."""
    graph, opened = paged_harness.saved(tmp_path, "sparse")
    kernel = Typed(width).to(where)
    x = torch.randn(opened.num_src, width, device=where)
    kind = torch.randint(0, KINDS, (opened.num_edges,), device=where)
    results = []
    for one in (graph, opened):
        out = kernel(graph=one, ndata={"x": x}, edge={"kind": kind})
        results += torch.autograd.grad(out.square().sum(), kernel.kinds.weight)
    in_memory, of_file = results
    assert (of_file - in_memory).abs().max() <= 1e-5 * in_memory.abs().max()
