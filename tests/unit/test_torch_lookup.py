"""Embeddings: rows of a table by an integer field, gathered in the walk; picks along an axis."""

import math

import pytest
import torch

import tiga as tg
from tiga import errors

N, E, V = 12, 60, 7
GENERATOR = torch.Generator().manual_seed(0)
SRC = torch.randint(0, N, (E,), generator=GENERATOR)
DST = torch.randint(0, N - 1, (E,), generator=GENERATOR)
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=N, num_dst=N)
KIND = torch.randint(0, V, (E,), generator=GENERATOR)
Z = torch.randint(0, V, (N,), generator=GENERATOR)


class Typed(tg.MessagePassing, torch.nn.Module):
    """A message scaled by an embedding of the edge's kind."""

    def __init__(self, width=5, **options):
        super().__init__()
        self.kinds = torch.nn.Embedding(V, width, dtype=torch.float64, **options)

    def edge(self, src, dst, edge):
        return torch.tanh(self.kinds(edge.kind)) * src.x


def features(*shape, dtype=torch.float64):
    return torch.randn(N, *shape, generator=GENERATOR, dtype=torch.float64).to(dtype)


def summed(messages):
    return messages.new_zeros(N, *messages.shape[1:]).index_add(0, DST, messages)


def agree(got, want, wrt):
    torch.testing.assert_close(got, want)
    found = torch.autograd.grad(got.square().sum(), wrt, create_graph=True)
    expected = torch.autograd.grad(want.square().sum(), wrt, create_graph=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    second = torch.autograd.grad(sum(f.square().sum() for f in found), wrt, retain_graph=True)
    for one, other in zip(
        second, torch.autograd.grad(sum(f.square().sum() for f in expected), wrt), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("width", [1, 5, 64, 200])
def test_an_embedding_of_edge_kinds_to_second_order(width, dtype):
    kernel, x = Typed(width), features(width).requires_grad_()
    got = kernel(graph=GRAPH, ndata={"x": x}, edge={"kind": KIND.to(dtype)})
    want = summed(torch.tanh(kernel.kinds(KIND)) * x[SRC])
    agree(got, want, (x, kernel.kinds.weight))
    assert not kernel.diagnostics
    assert "sums by index" in kernel.explain()


def test_padding_gets_no_gradient():
    kernel, x = Typed(padding_idx=2), features(5).requires_grad_()
    got = kernel(graph=GRAPH, ndata={"x": x}, edge={"kind": KIND})
    agree(got, summed(torch.tanh(kernel.kinds(KIND)) * x[SRC]), (x, kernel.kinds.weight))
    (gradient,) = torch.autograd.grad(got.sum(), kernel.kinds.weight, retain_graph=True)
    assert not gradient[2].any()


FORMS = {
    "index": lambda table, kind: table[kind],
    "index_select": lambda table, kind: torch.index_select(table, 0, kind),
    "functional": lambda table, kind: torch.nn.functional.embedding(
        kind, table.flatten(1)
    ).unflatten(1, (2, 3)),
    "from_the_end": lambda table, kind: table[kind - V],
    "doubled": lambda table, kind: (table * 2)[kind],
    "computed": lambda table, kind: table[(kind * 3 + 1) % V],
}


@pytest.mark.parametrize("name", FORMS)
def test_every_way_to_write_it(name):
    form = FORMS[name]

    class Kernel(tg.MessagePassing):
        table = torch.randn(V, 2, 3, dtype=torch.float64, requires_grad=True)

        def edge(self, src, dst, edge):
            return form(self.table, edge.kind) * src.x

    kernel, x = Kernel(), features(2, 3).requires_grad_()
    got = kernel(graph=GRAPH, ndata={"x": x}, edge={"kind": KIND})
    agree(got, summed(form(Kernel.table, KIND) * x[SRC]), (x, Kernel.table))
    assert not kernel.diagnostics


@pytest.mark.parametrize("pick", [torch.Tensor.__getitem__, lambda t, i: t.index_select(0, i)])
def test_a_table_of_integers_made_in_the_message(pick):
    class Kernel(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return pick(torch.arange(V) * 3, edge.kind) * src.x

    x = features()
    got = Kernel()(graph=GRAPH, ndata={"x": x}, edge={"kind": KIND})
    torch.testing.assert_close(got, summed(KIND * 3 * x[SRC]))


def test_fields_of_nodes_and_several_indices_per_edge():
    class Kernel(tg.MessagePassing):
        table = torch.randn(V, 3, dtype=torch.float64, requires_grad=True)

        def edge(self, src, dst, edge):
            return self.table[src.z] * self.table[dst.z] + self.table[edge.kinds].sum(1)

        def node(self, dst, aggregate):
            return aggregate * self.table[dst.z]

    kinds = torch.randint(0, V, (E, 4), generator=GENERATOR)
    kernel, t = Kernel(), Kernel.table
    got = kernel(graph=GRAPH, ndata={"z": Z}, edge={"kinds": kinds})
    want = summed(t[Z[SRC]] * t[Z[DST]] + t[kinds].sum(1)) * t[Z]
    agree(got, want, (t,))
    assert not kernel.diagnostics


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_narrow_tables_sum_in_float32(dtype):
    class Kernel(tg.MessagePassing):
        table = torch.ones(2, 1, dtype=dtype, requires_grad=True)

        def edge(self, src, dst, edge):
            return self.table[edge.kind]

    count = 3000
    graph = tg.Graph.from_coo(torch.zeros(count).long(), torch.zeros(count).long())
    y = Kernel()(graph=graph, edge={"kind": torch.arange(count) % 2})
    (gradient,) = torch.autograd.grad(y.sum(), Kernel.table)
    assert torch.equal(gradient, torch.full((2, 1), count / 2).to(dtype))
    assert gradient.dtype == dtype


def test_results_are_the_same_for_every_number_of_threads():
    kernel, x = Typed(8), features(8)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        y = kernel(graph=GRAPH, ndata={"x": x}, edge={"kind": KIND})
        found.append(torch.autograd.grad(y.sum(), kernel.kinds.weight)[0])
    assert torch.equal(*found)


def test_masked_edges_leave_no_trace_in_the_table():
    class Kernel(tg.MessagePassing):
        table = torch.tensor([0.0, 4.0], dtype=torch.float64, requires_grad=True)

        def edge(self, src, dst, edge):
            return tg.mask(torch.sqrt(self.table[edge.kind]), edge.kind == 1)

    kind = torch.arange(E) % 2
    y = Kernel()(graph=GRAPH, edge={"kind": kind})
    (gradient,) = torch.autograd.grad(y.sum(), Kernel.table)
    assert gradient.tolist() == [0.0, 0.25 * (E // 2)]


# what is out of range


def test_an_index_out_of_range_is_refused_and_the_next_call_works():
    kernel, x = Typed(), features(5)
    line = Typed.edge.__code__.co_firstlineno + 1
    wrong = KIND.clone()
    for value in (V, -1):
        wrong[31] = value
        with pytest.raises(
            errors.InvalidIndex,
            match=rf"lookup\.py:{line}: `edge\.kind` .* position 31 has value {value}, "
            rf"allowed range 0\.\.{V - 1}",
        ):
            kernel(graph=GRAPH, ndata={"x": x}, edge={"kind": wrong})
    wrong[31] = 0  # edited in place: seen
    kernel(graph=GRAPH, ndata={"x": x}, edge={"kind": wrong})


def test_a_computed_index_out_of_range_gives_nan():
    class Kernel(tg.MessagePassing):
        table = torch.ones(2, 3)

        def edge(self, src, dst, edge):
            return self.table[edge.kind + 1]

    graph = tg.Graph.from_coo([0, 0, 0], [0, 1, 2], num_src=1, num_dst=3)
    y = Kernel()(graph=graph, edge={"kind": torch.tensor([0, 1, 2**40])})
    assert y[0].tolist() == [1.0] * 3
    assert all(map(math.isnan, y[1:].flatten().tolist()))


class Large(tg.MessagePassing):
    """Messages scaled by two rows of a table of which no task has a copy, and by a small one."""

    def __init__(self):
        super().__init__()
        self.table = torch.randn(3000, 40, dtype=torch.float64, generator=GENERATOR)
        self.small = torch.randn(V, 40, dtype=torch.float64, generator=GENERATOR)
        self.table.requires_grad_()
        self.small.requires_grad_()

    def edge(self, src, dst, edge):
        return torch.sin(self.table[edge.kind]) * src.x * self.small[edge.of] * self.table[dst.z]


def large_case(src, dst, nodes):
    """A call of `Large`, its result by torch, and what both are differentiated by."""
    graph = tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)
    kernel = Large()
    kind = torch.randint(0, 3000, (len(src),), generator=GENERATOR)
    z = torch.randint(0, 3000, (nodes,), generator=GENERATOR)
    of = kind % V
    x = torch.randn(nodes, 40, dtype=torch.float64, generator=GENERATOR).requires_grad_()

    def ours():
        return kernel(graph=graph, ndata={"x": x, "z": z}, edge={"kind": kind, "of": of})

    def theirs():
        table, small = kernel.table, kernel.small
        sent = torch.sin(table[kind]) * x[src] * small[of] * table[z[dst]]
        return x.new_zeros(nodes, 40).index_add(0, dst, sent)

    return kernel, ours, theirs, (x, kernel.table, kernel.small)


HUBS = {"one": [9000], "two": [5000, 13000], "least": [4097]}
"""Edges of rows that are split; chunks of these are fewer and more than the groups of pieces."""


def hub_edges(degrees):
    dst = torch.cat([torch.full((n,), i + 2) for i, n in enumerate(degrees)])
    dst = torch.cat([dst, torch.randint(0, N, (400,), generator=GENERATOR)])
    return torch.randint(0, N, (len(dst),), generator=GENERATOR), dst


def test_large_tables_have_derivatives_of_second_order():
    kernel, ours, theirs, wrt = large_case(SRC, DST, N)
    agree(ours(), theirs(), wrt)
    assert not kernel.diagnostics


@pytest.mark.parametrize("name", HUBS)
def test_large_tables_read_by_rows_that_are_split(name):
    kernel, ours, theirs, wrt = large_case(*hub_edges(HUBS[name]), N)
    agree(ours(), theirs(), wrt)
    assert not kernel.diagnostics


def test_gradients_of_large_tables_are_the_same_for_every_number_of_threads():
    src, dst = hub_edges([9000])
    more = torch.randint(0, 3000, (2, 30000), generator=GENERATOR)
    _, ours, _, wrt = large_case(torch.cat([src, more[0]]), torch.cat([dst, more[1]]), 3000)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(torch.autograd.grad(ours().square().sum(), wrt))
    finally:
        torch.set_num_threads(before)
    assert all(
        torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True)
    )


def test_large_tables_over_a_graph_in_files(tmp_path):
    class Kernel(tg.MessagePassing):
        table = torch.randn(3000, 40, requires_grad=True)

        def edge(self, src, dst, edge):
            return self.table[edge.kind]

    graph = tg.Graph.open(GRAPH.save(tmp_path / "g"))
    kind = KIND[DST.argsort(stable=True)]
    found = Kernel()(graph=graph, edge={"kind": kind})
    want = summed(Kernel.table[KIND])
    torch.testing.assert_close(found, want)
    gradients = [torch.autograd.grad(y.square().sum(), Kernel.table)[0] for y in (found, want)]
    torch.testing.assert_close(*gradients)


def test_a_large_table_passes_gradgradcheck():
    class Kernel(tg.MessagePassing):
        def edge(self, src, dst, edge, table):
            return torch.tanh(table[edge.kind]) * src.x

    graph = tg.Graph.from_coo([0, 1, 1, 2], [0, 0, 1, 1], num_src=3, num_dst=2)
    kind = torch.tensor([1, 32767, 1, 5])
    few = torch.randn(4, 2, dtype=torch.float64, generator=GENERATOR).requires_grad_()
    x = torch.randn(3, 2, dtype=torch.float64, generator=GENERATOR).requires_grad_()

    def run(few, x):
        table = torch.zeros(32768 + 1, 2, dtype=torch.float64).index_copy(
            0, torch.tensor([1, 5, 32767, 32768]), few
        )
        return Kernel()(graph=graph, src={"x": x}, edge={"kind": kind}, table=table)

    assert torch.autograd.gradcheck(run, (few, x))
    assert torch.autograd.gradgradcheck(run, (few, x))


class Picked(tg.MessagePassing):
    """One of the sender's values, named by the edge."""

    def edge(self, src, dst, edge):
        return src.y.gather(1, edge.kind[:, None, None].expand(-1, 1, 3))[:, 0]


def test_picking_by_the_kind_of_an_edge():
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 6, (2, 40), generator=generator)
    kind = torch.randint(0, 5, (40,), generator=generator)
    y = torch.randn(6, 5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    graph = tg.Graph.from_coo(src, dst, num_src=6, num_dst=6)

    def call(y):
        return Picked()(graph=graph, src={"y": y}, dst={}, edge={"kind": kind})

    want = torch.zeros(6, 3).double().index_add(0, dst, y[src, kind])
    torch.testing.assert_close(call(y), want)
    assert torch.autograd.gradcheck(call, y)
    assert torch.autograd.gradgradcheck(call, y)
    kind[3] = 5
    with pytest.raises(errors.InvalidIndex, match=r"`edge.kind` .*position 3 .* 0\.\.4"):
        call(y)
