"""Small cases from public bug reports, each as its whole kind, on compiled kernels: the same for
torch tensors and for native ones, which are small enough for numpy unless told otherwise."""

import math

import numpy as np
import pytest

import tiga as tg
from tests.frontends import Native, OfTorch
from tests.sending import Send, SendEdge, SendWeighted

REDUCERS = {"sum": tg.sum, "mean": tg.mean, "max": tg.max, "min": tg.min, "prod": tg.prod}
EMPTY = {"sum": 0.0, "mean": 0.0, "max": 0.0, "min": 0.0, "prod": 1.0}


@pytest.fixture(params=["torch", "auto", "native"])
def of(request, monkeypatch):
    """Tensors and gradients of a frontend."""
    if request.param == "torch":
        return OfTorch
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", request.param)
    return Native


@pytest.mark.parametrize("name", REDUCERS)
def test_a_graph_without_edges(of, name):
    """Case 1: no NaN, the identity of empty rows, zero gradients."""
    graph = tg.Graph.from_coo([], [], num_src=2, num_dst=2)
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        x = of.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]], dtype, requires_grad=True)
        y = Send(REDUCERS[name]())(graph=graph, src={"x": x})
        assert str(y.dtype).endswith(dtype)
        assert y.tolist() == [[EMPTY[name]] * 4] * 2
        assert of.grad(y.sum(), x).tolist() == [[0.0] * 4] * 2


@pytest.mark.parametrize("empty", ["default", "identity"])
def test_max_of_negative_messages_with_isolated_nodes(of, empty):
    """Case 2."""
    graph = tg.Graph.from_coo([0, 1, 3], [0, 0, 2], num_src=4, num_dst=4)
    m = of.tensor([-0.5, -0.25, -3.0], requires_grad=True)
    y = SendEdge(tg.max(empty=empty))(graph=graph, edge={"m": m})
    none = 0.0 if empty == "default" else -math.inf
    assert y.tolist() == [-0.25, none, -3.0, none]
    assert of.grad(y.sum(), m).tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", ["max", "min"])
def test_selection_by_sign(of, name):
    """Case 2, both reducers, all signs."""
    sign = 1 if name == "max" else -1
    graph = tg.Graph.from_coo([0, 0, 0, 0], [0, 0, 1, 1], num_src=1, num_dst=3)
    m = sign * of.tensor([-7.0, -5.0, 2.0, 3.0])
    y = SendEdge(REDUCERS[name]())(graph=graph, edge={"m": m})
    assert (sign * y).tolist() == [-5, 3, 0]


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]])
def test_gradient_of_an_extremum_unique_and_tied(of, name, order):
    """Case 8: the winner takes it all, ties share evenly, in any order of the edges."""
    sign = 1 if name == "max" else -1
    graph = tg.Graph.from_coo([0] * 5, [0] * 5)
    for messages, want in (
        ([0.1, 0.2, 0.9, 0.3, 0.4], [0, 0, 1, 0, 0]),
        ([2.0, 2.0, 1.0, 2.0, 0.0], [1 / 3, 1 / 3, 0, 1 / 3, 0]),
    ):
        m = of.tensor([sign * messages[i] for i in order], requires_grad=True)
        y = SendEdge(REDUCERS[name]())(graph=graph, edge={"m": m})
        assert of.grad(y.sum(), m).tolist() == pytest.approx([want[i] for i in order])
        whole = getattr(tg, name)(m)  # the function of whole tensors has the same rule
        assert of.grad(whole, m).tolist() == pytest.approx([want[i] for i in order])


def test_standard_deviation_of_constant_groups(of):
    """Case 10: 0 with derivative 0."""
    graph = tg.Graph.from_coo([0] * 6, [0, 1, 1, 1, 2, 2], num_src=1, num_dst=4)
    m = of.tensor([5.0, 2.0, 2.0, 2.0, 1.0, 3.0], requires_grad=True)
    y = SendEdge(tg.std())(graph=graph, edge={"m": m})
    assert y.tolist() == pytest.approx([0, 0, 1, 0], abs=1e-12)
    assert of.grad(y.sum(), m).tolist() == pytest.approx([0, 0, 0, 0, -0.5, 0.5], abs=1e-12)


@pytest.mark.parametrize(
    ("dtype", "count"), [("float16", 10_000), ("float16", 70_000), ("bfloat16", 300)]
)
def test_half_precision_mean_and_sum_on_a_hub(of, dtype, count):
    """Case 16: accumulation in float32; a mean never overflows through its sum."""
    graph = tg.Graph.from_coo(np.zeros(count, int), np.zeros(count, int), num_src=1, num_dst=1)
    ones = of.tensor([1.0] * count, dtype)
    want = [math.inf if count > 65504 else float(count)]
    assert SendEdge(tg.mean())(graph=graph, edge={"m": ones}).tolist() == [1.0]
    assert SendEdge(tg.sum())(graph=graph, edge={"m": ones}).tolist() == want


def test_bipartite_with_isolated_destinations(of):
    """Case 22."""
    x = of.tensor([1.0, 2, 3, 4], requires_grad=True)
    graph = tg.Graph.from_coo([0, 1, 2, 3, 3], [0, 0, 1, 3, 1], num_src=4, num_dst=6)
    y = Send(tg.sum())(graph=graph, src={"x": x})
    assert y.tolist() == [3, 7, 0, 4, 0, 0]
    assert of.grad((of.tensor([1.0, 2, 3, 4, 5, 6]) * y).sum(), x).tolist() == [1, 1, 2, 6]


def test_bad_indices_are_refused_before_launch(of):
    """Case 23: the position, the value, the range; the next call works."""
    for src, dst, text in (([0, 2], [1, 3], r"(?s)1.*3.*0\.\.2"), ([0], [-1], r"(?s)0.*-1")):
        pair = of.tensor(src, "int64"), of.tensor(dst, "int64")
        with pytest.raises(IndexError, match=text):
            tg.Graph.from_coo(*pair, num_src=3, num_dst=3)
        with pytest.raises(IndexError, match=text):
            tg.Graph.from_coo(src, dst, num_src=3, num_dst=3)
    graph = tg.Graph.from_coo([0, 2], [1, 2], num_src=3, num_dst=3)
    y = Send(tg.sum())(graph=graph, src={"x": of.tensor([1.0, 2, 3])})
    assert y.tolist() == [0, 1, 3]


def test_parallel_edges_and_self_loops_are_kept(of):
    """Case 24."""
    x, w = of.tensor([5.0, 7.0]), of.tensor([2.0, 3.0, 1.0], requires_grad=True)
    graph = tg.Graph.from_coo([0, 0, 1], [1, 1, 1], num_src=2, num_dst=2)
    for name, want in {"sum": 32.0, "mean": 32 / 3, "max": 15.0}.items():
        y = SendWeighted(REDUCERS[name]())(graph=graph, src={"x": x}, edge={"w": w})
        assert y.tolist() == pytest.approx([0.0, want])
        if name == "sum":
            assert of.grad(y.sum(), w).tolist() == [5, 5, 7]
    count = Send(tg.sum())(graph=graph, src={"x": of.tensor([1.0, 1.0])})
    assert count.tolist() == [0, 3]
