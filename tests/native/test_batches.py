"""Batches of graphs with native tensors: readout for each graph, and its derivatives."""

import numpy as np

import tiga as tg

ag = tg.autograd


class Pairs(tg.MessagePassing):
    """A pair energy of positions, for each node."""

    def edge(self, src, dst, edge):
        return tg.exp(-tg.square(src.r - dst.r).sum(axis=-1)) * edge.w


class Total(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return src.energy


PAIRS, TOTAL = Pairs(), Total()


def ring(nodes):
    """Edges from each node to the next."""
    numbers = np.arange(nodes)
    return tg.Graph.from_coo(numbers, np.roll(numbers, -1), num_src=nodes, num_dst=nodes)


def fields(nodes):
    rng = np.random.default_rng(nodes)
    return rng.uniform(-1, 1, (nodes, 3)), rng.uniform(0.5, 1, nodes)


def energies(graph, members, r, w):
    nodes = PAIRS(graph=graph, ndata={"r": r}, edge={"w": w})
    return TOTAL(graph=members, src={"energy": nodes})


def force_loss(graph, members, r, w):
    """The squares of the forces, and their gradient: a second derivative of the energies."""
    force = ag.grad(energies(graph, members, r, w).sum(), r)
    loss = tg.square(force).sum()
    return loss, ag.grad(loss, r)


def test_each_graph_of_a_batch_is_what_it_is_alone():
    known = set()
    for sizes in ((3, 5, 4), (6, 0, 2), (1,)):
        parts, own = [ring(n) for n in sizes], [fields(n) for n in sizes]
        batch = tg.Graph.batch(parts)
        r = tg.tensor(np.concatenate([f[0] for f in own]), requires_grad=True)
        w = tg.tensor(np.concatenate([f[1] for f in own]))
        energy = energies(batch, batch.membership(), r, w)
        loss, slope = force_loss(batch, batch.membership(), r, w)
        alone, losses = [], []
        for graph, given in zip(parts, own, strict=True):
            one = tg.Graph.batch([graph])
            one_r, one_w = tg.tensor(given[0], requires_grad=True), tg.tensor(given[1])
            alone.append(energies(one, one.membership(), one_r, one_w).numpy())
            losses.append(force_loss(one, one.membership(), one_r, one_w))
        np.testing.assert_allclose(energy.numpy(), np.concatenate(alone), rtol=1e-12)
        np.testing.assert_allclose(loss.item(), sum(one.item() for one, _ in losses), rtol=1e-12)
        for piece, (_, wanted) in zip(batch.unbatch(slope), losses, strict=True):
            np.testing.assert_allclose(piece.numpy(), wanted.numpy(), rtol=1e-10, atol=1e-12)
        known.add((PAIRS.cache_info[1:], TOTAL.cache_info[1:]))
    assert len(known) == 1


def test_values_of_graphs_at_their_nodes():
    batch = tg.Graph.batch([ring(2), ring(3)])
    given = tg.tensor([1.0, 10.0])
    spread = TOTAL(graph=batch.membership().transpose(), src={"energy": given})
    assert [piece.tolist() for piece in batch.unbatch(spread)] == [[1.0, 1.0], [10.0, 10.0, 10.0]]
    assert tg.Graph.batch([]).unbatch(tg.zeros((0, 2))) == []


class Images(tg.MessagePassing):
    def edge(self, src, dst, edge, cell):
        apart = src.r + edge.shift @ cell - dst.r
        return tg.exp(-tg.square(apart).sum(axis=-1))


def test_near_points_of_native_tensors():
    rng = np.random.default_rng(0)
    r = tg.tensor(rng.uniform(0, 3, (9, 3)), requires_grad=True)
    cell, batch = tg.tensor(3 * np.eye(3)), tg.tensor(np.arange(9) // 5)
    near = tg.radius_graph(r, 1.5, cell=cell, periodic=(True, True, False), batch=batch)
    wanted = tg.radius_graph(r.numpy(), 1.5, cell=cell.numpy(), periodic=(True, True, False),
                             batch=batch.numpy())  # fmt: skip
    np.testing.assert_array_equal(near.graph.coo(), wanted.graph.coo())
    np.testing.assert_array_equal(near.shift.numpy(), wanted.shift)
    assert near.shift.dtype == tg.float64
    energy = Images()(graph=near.graph, ndata={"r": r}, edge={"shift": near.shift}, cell=cell)
    force = ag.grad(energy.sum(), r)
    np.testing.assert_allclose(force.numpy().sum(0), 0, atol=1e-12)
    half = tg.radius_graph(tg.tensor(np.zeros((2, 3), np.float32)), 1.0)
    assert half.shift.dtype == tg.float32


class Mixed(tg.MessagePassing):
    def edge(self, src, dst, edge, weight):
        return (tg.exp(-tg.square(src.r - dst.r)) @ weight)[:, 0]


def test_a_force_takes_no_gradient_of_weights():
    graph, kernel = ring(5), Mixed()
    r = tg.tensor(fields(5)[0], requires_grad=True)
    weight = tg.tensor(np.ones((3, 1)), requires_grad=True)
    energy = kernel(graph=graph, ndata={"r": r}, weight=weight).sum()
    force = ag.grad(energy, r).numpy()
    assert "writes output 0" in kernel.explain()
    assert "output 1" not in kernel.explain()
    both = ag.grad(energy, (r, weight))
    for one, other in zip((force, ag.grad(energy, weight).numpy()), both, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-12)
