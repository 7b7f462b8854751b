"""Calls on graphs within compiled expressions: planned once for every graph, kept by none."""

import gc
from weakref import ref

import numpy as np
import pytest

import tiga as tg
from tests.sending import SendWeighted
from tiga import errors
from tiga.frontends.tensor import compiled

RNG = np.random.default_rng(3)
NODES, EDGES, WIDTH = 600, 2500, 64


kernel = SendWeighted(tg.sum())


def made(seed: int) -> tuple[tg.Graph, np.ndarray, np.ndarray]:
    """A graph, its edge weights, and the matrix of both."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NODES, (2, EDGES))
    weights = rng.standard_normal((EDGES, 1))
    matrix = np.zeros((NODES, NODES))
    np.add.at(matrix, (dst, src), weights[:, 0])
    return tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES), weights, matrix


def two_layers(first, second, x: tg.Tensor) -> tg.Tensor:
    hidden = kernel(graph=first[0], src={"x": x * 0.5}, edge={"w": tg.tensor(first[1])})
    hidden = tg.relu(hidden + 1.0)
    return tg.tanh(kernel(graph=second[0], src={"x": hidden}, edge={"w": tg.tensor(second[1])}))


def expected(first, second, x: np.ndarray) -> np.ndarray:
    return np.tanh(second[2] @ np.maximum(first[2] @ (x * 0.5) + 1.0, 0.0))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_plan_serves_every_graph(requires_grad: bool) -> None:
    compiled.PLANS.clear()
    graphs = [made(seed) for seed in range(3)]
    hits = []
    for first, second in ((0, 0), (1, 2), (2, 0)):
        x = RNG.standard_normal((NODES, WIDTH))
        given = tg.tensor(x, requires_grad=requires_grad)
        y = two_layers(graphs[first], graphs[second], given).realize()
        np.testing.assert_allclose(
            y.numpy(), expected(graphs[first], graphs[second], x), rtol=1e-10, atol=1e-10
        )
        hits.append(y.execution["cache_hit"])
        assert y.execution["library_calls"].count("graph_call") == 2
    assert hits == [False, True, True]


def test_gradients_of_calls_in_programs() -> None:
    for seeds in ((0, 1), (1, 0)):
        first, second = map(made, seeds)
        x = RNG.standard_normal((NODES, WIDTH))
        given = tg.tensor(x, requires_grad=True)
        dx = tg.autograd.grad(two_layers(first, second, given).sum(), given)
        inner = first[2] @ (x * 0.5) + 1.0
        outer = second[2] @ np.maximum(inner, 0.0)
        want = 0.5 * first[2].T @ ((second[2].T @ (1 - np.tanh(outer) ** 2)) * (inner > 0))
        np.testing.assert_allclose(dx.numpy(), want, rtol=1e-9, atol=1e-9)


def test_values_of_calls_that_are_known_are_read() -> None:
    first = made(4)
    x = RNG.standard_normal((NODES, WIDTH))
    call = kernel(graph=first[0], src={"x": tg.tensor(x, requires_grad=True)},
                  edge={"w": tg.tensor(first[1])})  # fmt: skip
    call.realize()
    y = (call * 2.0 + 1.0).realize()
    np.testing.assert_allclose(y.numpy(), first[2] @ x * 2.0 + 1.0, rtol=1e-10, atol=1e-10)
    assert "graph_call" not in y.execution["library_calls"]


def test_no_plan_keeps_a_graph_alive() -> None:
    first = made(5)
    y = two_layers(first, first, tg.tensor(RNG.standard_normal((NODES, WIDTH))))
    y.realize()
    graph = ref(first[0])
    del first, y
    gc.collect()
    assert graph() is None


def test_a_changed_graph_is_refused() -> None:
    src, dst = np.arange(NODES), np.arange(NODES)
    torch = pytest.importorskip("torch")
    row = torch.from_numpy(src)
    graph = tg.Graph.from_coo(row, torch.from_numpy(dst), num_src=NODES, num_dst=NODES)
    x, w = tg.ones((NODES, WIDTH)), tg.ones((NODES, 1))
    y = kernel(graph=graph, src={"x": x}, edge={"w": w}) + 1.0
    row[0] = 1
    with pytest.raises(errors.StaleTopology):
        y.realize()


def test_prepared_calls_of_kernels() -> None:
    """They read what their fields hold by then, and give the same tensors."""

    class Both(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return {"sum": tg.sum()(src.x), "max": tg.max()(src.x)}

    graph, x = tg.Graph.from_coo([0, 1], [1, 1]), tg.tensor([1.0, 2.0])
    launch = Both().prepare(graph=graph, ndata={"x": x})
    alone = Both()(graph=graph, ndata={"x": x})["max"].prepare()
    for number in (5.0, 6.0, 7.0):
        x.fill_(number)
        assert launch() is launch.outputs
        assert launch.outputs["sum"].tolist() == [0.0, 2 * number]
        assert launch.outputs["max"].tolist()[1] == number
        assert alone().tolist()[1] == number


def test_examples_and_second_derivatives_of_calls() -> None:
    graph, w, dense = made(6)
    weights = tg.tensor(w)

    def through(x: tg.Tensor) -> tg.Tensor:
        return kernel(graph=graph, src={"x": x}, edge={"w": weights})

    x = RNG.standard_normal((3, NODES, WIDTH))
    found = tg.autograd.vmap(through)(tg.tensor(x))
    np.testing.assert_allclose(found.numpy(), dense @ x, rtol=1e-12, atol=1e-12)
    scale = tg.tensor(RNG.standard_normal(WIDTH))
    given = tg.tensor(x[0])
    hessian = tg.autograd.hessian(lambda s: (through(given * s) ** 3).sum(), scale)
    y = dense @ (x[0] * scale.numpy())
    np.testing.assert_allclose(
        hessian.numpy(), np.diag((6 * y * (dense @ x[0]) ** 2).sum(0)), rtol=1e-9
    )
