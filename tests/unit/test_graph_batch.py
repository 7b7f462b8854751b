"""`Graph.batch`: graphs side by side, what their batch tells of each, and kernels over it."""

import copy
import pickle
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiga as tg
from benchmarks import batches
from tests.strategies import graphs
from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.torch.variants import state_of
from tiga.relations import Graph, GraphBatch
from tiga.relations.csr import count_rows
from tiga.relations.walk import HUB_DEGREE


def as_graph(coo, form, dtype=np.int64, kind=np.asarray):
    """The graph of some edges, given in one of the forms in which a user can."""
    src, dst, num_src, num_dst = coo
    src, dst = src.astype(dtype), dst.astype(dtype)
    if form == "coo":
        return Graph.from_coo(kind(src), kind(dst), num_src=num_src, num_dst=num_dst)
    if form == "turned":
        turned = Graph.from_coo(kind(dst), kind(src), num_src=num_dst, num_dst=num_src)
        return turned.transpose()
    order = np.argsort(dst, kind="stable")
    if form == "sorted":
        return Graph.from_coo(kind(src[order]), kind(dst[order]), num_src=num_src, num_dst=num_dst)
    rows = np.concatenate(([0], np.cumsum(np.bincount(dst, minlength=num_dst)))).astype(dtype)
    return Graph.from_csr(kind(rows), kind(src[order]), num_src=num_src)


FORMS = ("coo", "turned", "sorted", "csr")
PARTS = st.lists(
    st.tuples(graphs(8, 20), st.sampled_from(FORMS), st.sampled_from((np.int32, np.int64))),
    max_size=5,
)


def ends_of(parts):
    """Both ends of all edges, in the order of parts, and the counts of each part."""
    counts = [(g.num_src, g.num_dst, g.num_edges) for g in parts]
    sizes = np.array(counts, np.int64).reshape(-1, 3)
    first = np.cumsum(sizes, axis=0) - sizes
    ends = [g.coo() for g in parts]
    src = [np.asarray(e[0]) + f[0] for e, f in zip(ends, first, strict=True)]
    dst = [np.asarray(e[1]) + f[1] for e, f in zip(ends, first, strict=True)]
    none = np.empty(0, np.int64)
    return np.concatenate([none, *src]), np.concatenate([none, *dst]), sizes


@given(PARTS)
def test_a_batch_is_the_graph_of_all_edges(drawn):
    parts = [as_graph(*one) for one in drawn]
    batch = Graph.batch(parts)
    src, dst, sizes = ends_of(parts)
    num_src, num_dst, num_edges = sizes.sum(0).tolist()
    found = batch.num_graphs, batch.num_src, batch.num_dst, batch.num_edges
    assert found == (len(parts), num_src, num_dst, num_edges)
    for one, other in zip(batch.coo(), (src, dst), strict=True):
        np.testing.assert_array_equal(one, other)
    own = batch.csr()
    assert own.index_dtype == own.col_idx.dtype
    order = np.arange(num_edges) if own.permutation is None else own.permutation
    np.testing.assert_array_equal(own.row_ptr, count_rows(dst, num_dst))
    np.testing.assert_array_equal(own.col_idx, src[order])
    np.testing.assert_array_equal(own.destinations(np.int64), dst[order])
    assert batch.permutes_edges == any(g.permutes_edges for g in parts)
    whole = Graph.from_coo(src, dst, num_src=num_src, num_dst=num_dst)
    for side in ("src", "dst"):
        assert batch.degree_statistics(side) == whole.degree_statistics(side)
        ours, theirs = batch.walk(side), whole.walk(side)
        np.testing.assert_array_equal(ours.task_ptr, theirs.task_ptr)
        if all(form != "turned" for _, form, _ in drawn):  # others are sorted by destination alone
            np.testing.assert_array_equal(ours.index, theirs.index)
            np.testing.assert_array_equal(ours.edge_id, theirs.edge_id)


@given(PARTS)
def test_what_belongs_to_each_graph(drawn):
    parts = [as_graph(*one) for one in drawn]
    batch, sizes = Graph.batch(parts), ends_of(parts)[2]
    for place, of in enumerate(("src", "dst", "edge")):
        counts = sizes[:, place]
        np.testing.assert_array_equal(batch.counts(of), counts)
        members, total = batch.membership(of), counts.sum()
        assert (members.num_src, members.num_dst) == (total, len(parts))
        node, graph = members.coo()
        np.testing.assert_array_equal(node, np.arange(total))
        np.testing.assert_array_equal(graph, np.repeat(np.arange(len(parts)), counts))
        pieces = batch.unbatch(np.arange(total), of)
        assert [len(piece) for piece in pieces] == counts.tolist()
        np.testing.assert_array_equal(np.concatenate([*pieces, []]), np.arange(total))


def test_kinds_and_types_of_indices():
    ring = (np.array([0, 1, 2]), np.array([1, 2, 0]), 3, 3)
    narrow = as_graph(ring, "coo", np.int32, torch.from_numpy)
    wide = as_graph(ring, "csr", np.int64, torch.from_numpy)
    for parts, dtype in (([narrow] * 2, torch.int32), ([narrow, wide], torch.int64)):
        batch = Graph.batch(parts)
        assert batch.device == "cpu"
        for array in (batch.col_idx, batch.row_ptr, *batch.coo()):
            assert array.dtype == dtype
    assert Graph.batch([narrow]).edge_permutation.dtype == torch.int64
    assert Graph.batch([wide, wide]).edge_permutation is None
    mixed = Graph.batch([as_graph(ring, "coo"), narrow])
    assert isinstance(mixed.col_idx, torch.Tensor)
    assert mixed.counts().dtype == torch.int64
    assert isinstance(Graph.batch([as_graph(ring, "coo")]).counts(), np.ndarray)


def test_rows_with_many_edges_are_cut_as_in_any_graph():
    hub = np.zeros(HUB_DEGREE + 7, np.int64)
    part = Graph.from_coo(np.arange(len(hub)), hub)
    batch = Graph.batch([part, part])
    assert batch.degree_statistics().num_hubs == 2
    whole = Graph.from_coo(*batch.coo(), num_src=batch.num_src, num_dst=batch.num_dst)
    for name in ("hub_rows", "hub_ptr", "chunk_row", "chunk_lo", "chunk_hi"):
        ours, theirs = getattr(batch.walk("dst"), name), getattr(whole.walk("dst"), name)
        np.testing.assert_array_equal(ours, theirs)


def test_graphs_are_copied_and_let_go():
    index = torch.tensor([[0, 1], [1, 0]])
    part = Graph.from_edge_index(index)
    batch, gone = Graph.batch([part, part]), weakref.ref(part)
    index[0, 0] = 1
    assert part.coo()[0].tolist() == [1, 1]
    assert batch.coo()[0].tolist() == [0, 1, 2, 3]
    del part
    assert gone() is None


def test_copies_and_pickles():
    parts = [as_graph((np.array([1, 0]), np.array([1, 0]), 2, 3), form) for form in FORMS]
    batch = Graph.batch(parts)
    for again in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert repr(again) == "GraphBatch(num_graphs=4, num_src=8, num_dst=12, num_edges=8)"
        np.testing.assert_array_equal(again.coo(), batch.coo())
        np.testing.assert_array_equal(again.counts(), batch.counts())
    flat = Graph.batch([batch, parts[0]])  # a batch is a graph as well
    assert (flat.num_graphs, flat.num_dst) == (2, 15)


def test_a_batch_moves_with_what_it_knows():
    batch = Graph.batch([Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))] * 2)
    assert batch.to("cpu") is batch
    moved = batch.to("meta")  # a device that every machine has
    assert isinstance(moved, GraphBatch)
    assert (moved.num_graphs, moved.num_edges, moved.device) == (2, 4, "meta")
    assert moved.counts().device.type == moved.membership().col_idx.device.type == "meta"


@pytest.mark.parametrize(
    ("error", "says", "make"),
    [
        (InvalidType, "got str at position 1", lambda g: Graph.batch([g, "g"])),
        (InvalidType, "graph 0 on cpu, graph 1 on meta", lambda g: Graph.batch([g, g.to("meta")])),
        (InvalidValue, '`of` must be "dst", "src" or "edge"', lambda g: Graph.batch([g]).counts(0)),
        (InvalidValue, "expected 2 values", lambda g: Graph.batch([g]).unbatch(torch.ones(3))),
        (InvalidValue, "one for each edge", lambda g: Graph.batch([g]).unbatch(5, "edge")),
    ],
)
def test_refusals(error, says, make):
    with pytest.raises(error, match=says):
        make(Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]])))


def test_a_graph_in_a_file_is_refused(tmp_path):
    path = Graph.from_coo([0], [0]).save(tmp_path / "g")
    with pytest.raises(InvalidType, match=r"graph 0 is in a file.*in_memory"):
        Graph.batch([Graph.open(path)])
    assert Graph.batch([Graph.open(path).in_memory()]).num_edges == 1


class Energies(tg.MessagePassing, torch.nn.Module):
    """The energy of each node, from edges' vectors and weights."""

    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(4, 1).double()

    def edge(self, src, dst, edge):
        apart = (src.r - dst.r).square().sum(-1, keepdim=True)
        return edge.w * self.mix(torch.exp(-apart * torch.arange(1, 5).double()))


class Total(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return src.energy


class Highest(Total):
    reducer = tg.max()


def molecule(seed):
    """A graph without loops, its nodes' positions and edges' weights; some have no edges."""
    generator = torch.Generator().manual_seed(seed)
    nodes, edges = seed % 5, 7 * seed if seed % 5 > 1 else 0
    src = torch.randint(0, max(nodes, 1), (edges,), generator=generator)
    step = torch.randint(1, max(nodes, 2), (edges,), generator=generator)
    ends = torch.stack([src, (src + step) % max(nodes, 1)])
    r = torch.randn(nodes, 3, generator=generator, dtype=torch.float64)
    w = torch.rand(edges, 1, generator=generator, dtype=torch.float64)
    return tg.Graph.from_edge_index(ends, num_nodes=nodes), r, w


def forces(run, kernels, batch, r, w):
    """Energies of graphs, and the gradient of a loss of their gradient: a second derivative."""
    energy = run(kernels, batch, r, w)
    (force,) = torch.autograd.grad(energy.sum(), r, create_graph=True)
    loss = energy.square().sum() + force.square().sum()
    return energy, force, *torch.autograd.grad(loss, (r, w, *kernels[0].parameters()))


def fused(kernels, batch, r, w):
    nodes = kernels[0](graph=batch, ndata={"r": r}, edge={"w": w})
    return kernels[1](graph=batch.membership(), src={"energy": nodes[:, 0]})


def plain(kernels, batch, r, w):
    src, dst = batch.coo()
    apart = (r[src] - r[dst]).square().sum(-1, keepdim=True)
    message = w * kernels[0].mix(torch.exp(-apart * torch.arange(1, 5).double()))
    nodes = torch.zeros(batch.num_dst, 1).double().index_add(0, dst, message)[:, 0]
    owner = batch.membership().coo()[1]
    return torch.zeros(batch.num_graphs).double().index_add(0, owner, nodes)


def test_readout_and_its_second_derivatives_compile_nothing_for_other_batches():
    kernels, known = (Energies(), Total()), set()
    for first, count in ((0, 6), (3, 2), (5, 9), (0, 1), (7, 4)):
        parts, r, w = zip(*(molecule(seed) for seed in range(first, first + count)), strict=True)
        batch = tg.Graph.batch(parts)
        r, w = (torch.cat(values).requires_grad_() for values in (r, w))
        ours = forces(fused, kernels, batch, r, w)
        theirs = forces(plain, kernels, batch, r, w)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other)
        known.add(tuple(kernel.cache_info[1:] for kernel in kernels))
    assert len(known) == 1
    assert [len(state_of(kernel).all()) for kernel in kernels] == [1, 1]


def test_other_readouts_and_values_of_graphs_at_nodes():
    parts, r, _ = zip(*(molecule(seed) for seed in range(6)), strict=True)
    batch, r = tg.Graph.batch(parts), torch.cat(r).requires_grad_()
    highest = Highest()(graph=batch.membership(), src={"energy": r})
    wanted = [p.max(0).values if len(p) else torch.zeros(3).double() for p in batch.unbatch(r)]
    torch.testing.assert_close(highest, torch.stack(wanted))
    spread = Total()(graph=batch.membership().transpose(), src={"energy": highest})
    torch.testing.assert_close(spread, highest[batch.membership().coo()[1]])
    apart = sum(piece.square().sum() for piece in batch.unbatch(spread))
    torch.testing.assert_close(apart, spread.square().sum())


def test_inside_torchs_compiler():
    parts, r, w = zip(*(molecule(seed) for seed in range(3, 9)), strict=True)
    batch, kernels = tg.Graph.batch(parts), (Energies(), Total())
    r, w = (torch.cat(values) for values in (r, w))

    def step(graph, members, r, w):
        nodes = kernels[0](graph=graph, ndata={"r": r}, edge={"w": w})
        return kernels[1](graph=members, src={"energy": nodes[:, 0]})

    run = torch.compile(step, fullgraph=True, backend="eager")
    found = run(batch, batch.membership(), r, w)
    torch.testing.assert_close(found, plain(kernels, batch, r, w))
    with pytest.raises(Exception, match="make the batch outside"):
        torch.compile(lambda: tg.Graph.batch(parts), fullgraph=True, backend="eager")()


def test_the_benchmark_compares_answers_first():
    torch.manual_seed(0)
    generator, pairs = torch.Generator().manual_seed(0), batches.Pairs()
    parts = [batches.Molecule.of(4, 3, ordered, generator) for ordered in (False, True)]
    assert batches.made_anew(parts).num_edges == batches.ways(parts)["Graph.batch"]().num_edges
    wanted = batches.step(copy.deepcopy(batches.Plain(pairs)).double(), parts)
    for model in (batches.Ours(pairs), batches.Plain(pairs)):
        batches.check(model, parts, wanted)
    pairs.energy.weight.data += 1
    with pytest.raises(SystemExit, match="Ours: wrong"):
        batches.check(batches.Ours(pairs), parts, wanted)
