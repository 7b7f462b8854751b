"""Small cases from public bug reports, each as its whole kind, on compiled kernels."""

import math

import pytest
import torch

import tiga as tg
from tests.sending import Send, SendEdge

REDUCERS = {"sum": tg.sum, "mean": tg.mean, "max": tg.max, "min": tg.min, "prod": tg.prod}
EMPTY = {"sum": 0.0, "mean": 0.0, "max": 0.0, "min": 0.0, "prod": 1.0}


class Weighted(Send):
    """The source's x times the edge's w."""

    def edge(self, src, dst, edge):
        return edge.w * src.x


@pytest.mark.parametrize("name", REDUCERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_graph_without_edges(name, dtype):
    """Case 1: no NaN, the identity of empty rows, zero gradients."""
    x = torch.arange(1.0, 9).reshape(2, 4).to(dtype).requires_grad_()
    graph = tg.Graph.from_coo([], [], num_src=2, num_dst=2)
    y = Send(REDUCERS[name]())(graph=graph, src={"x": x})
    assert torch.equal(y, torch.full((2, 4), EMPTY[name], dtype=dtype))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, torch.zeros(2, 4, dtype=dtype))


@pytest.mark.parametrize("empty", ["default", "identity"])
def test_max_of_negative_messages_with_isolated_nodes(empty):
    """Case 2."""
    graph = tg.Graph.from_coo([0, 1, 3], [0, 0, 2], num_src=4, num_dst=4)
    m = torch.tensor([-0.5, -0.25, -3.0], requires_grad=True)
    y = SendEdge(tg.max(empty=empty))(graph=graph, edge={"m": m})
    none = 0.0 if empty == "default" else -math.inf
    assert y.tolist() == [-0.25, none, -3.0, none]
    assert torch.autograd.grad(y.sum(), m)[0].tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", ["max", "min"])
def test_selection_by_sign(name):
    """Case 2, both reducers, all signs."""
    sign = 1 if name == "max" else -1
    graph = tg.Graph.from_coo([0, 0, 0, 0], [0, 0, 1, 1], num_src=1, num_dst=3)
    m = sign * torch.tensor([-7.0, -5.0, 2.0, 3.0])
    y = SendEdge(REDUCERS[name]())(graph=graph, edge={"m": m})
    assert (sign * y).tolist() == [-5, 3, 0]


@pytest.mark.parametrize("width", [1, 3, 5, 17, 33])
def test_tail_lanes_do_not_add(width):
    """Case 6: every number of edges up to 65 into one node."""

    class Half(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return edge.x + 0.5

    kernel = Half()
    for count in range(1, 66):
        x = torch.arange(1.0, count + 1)[:, None].expand(count, width)
        graph = tg.Graph.from_coo([0] * count, [0] * count)
        want = count * (count + 1) / 2 + count / 2
        assert kernel(graph=graph, edge={"x": x}).tolist() == [[want] * width]
    assert kernel.cache_info.variants == 1


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]])
def test_gradient_of_an_extremum_unique_and_tied(name, order):
    """Case 8: the winner takes it all, ties share evenly, in any order of the edges."""
    sign = 1 if name == "max" else -1
    kernel = SendEdge(REDUCERS[name]())
    values = {0: [0.1, 0.2, 0.9, 0.3, 0.4], 1: [2.0, 2.0, 1.0, 2.0, 0.0]}
    wants = {0: [0, 0, 1, 0, 0], 1: [1 / 3, 1 / 3, 0, 1 / 3, 0]}
    graph = tg.Graph.from_coo([0] * 5, [0] * 5)
    for case, messages in values.items():
        m = sign * torch.tensor([messages[i] for i in order])
        m.requires_grad_()
        y = kernel(graph=graph, edge={"m": m})
        (gradient,) = torch.autograd.grad(y, m, torch.ones(1))
        want = torch.tensor([float(wants[case][i]) for i in order])
        torch.testing.assert_close(gradient, want)


@pytest.mark.parametrize(
    ("dtype", "count"), [(torch.float16, 10_000), (torch.float16, 70_000), (torch.bfloat16, 300)]
)
def test_half_precision_mean_and_sum_on_a_hub(dtype, count):
    """Case 16: accumulation in float32; a mean never overflows through its sum."""
    graph = tg.Graph.from_coo(torch.zeros(count, dtype=torch.long), torch.zeros(count, dtype=int))
    ones = torch.ones(count, dtype=dtype)
    assert SendEdge(tg.mean())(graph=graph, edge={"m": ones}).tolist() == [1.0]
    total = SendEdge(tg.sum())(graph=graph, edge={"m": ones})
    assert torch.equal(total, torch.tensor([float(count)]).to(dtype))


def test_a_long_sum_in_float32():
    """Case 16 in float32: twenty million ones would stall at 2^24 one by one."""
    count = 20_000_000
    row_ptr = torch.tensor([0, count])
    graph = tg.Graph.from_csr(row_ptr, torch.zeros(count, dtype=torch.int32), num_src=1)
    y = Send(tg.sum())(graph=graph, src={"x": torch.ones(1)})
    assert y.tolist() == [float(count)]


def _power_law(nodes, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = 1.0 / torch.arange(1, nodes + 1, dtype=torch.float64)
    dst = torch.multinomial(weights, edges, replacement=True, generator=generator)
    src = torch.multinomial(weights, edges, replacement=True, generator=generator)
    return tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)


@pytest.mark.parametrize("name", REDUCERS)
def test_bitwise_repeatability(name):
    """Case 19: the same bits in every run and for every number of threads."""
    graph = _power_law(2000, 60_000, 0)
    x = torch.randn(2000, 32, requires_grad=True)
    w = (torch.rand(60_000, 1) + 0.5).requires_grad_()
    kernel = Weighted(REDUCERS[name]())
    cotangent = torch.randn(2000, 32)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, threads, 1, 2, threads):
            torch.set_num_threads(count)
            y = kernel(graph=graph, src={"x": x}, edge={"w": w})
            results.append((y, *torch.autograd.grad(y, (x, w), cotangent)))
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        for one, other in zip(result, results[0], strict=True):
            assert torch.equal(one.view(torch.int32), other.view(torch.int32))


def test_sizes_that_include_0_and_1():
    """Case 20: one program, forward and backward, for every size."""

    class Double(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return 2 * src.x

    kernel = Double()
    generator = torch.Generator().manual_seed(0)
    sizes = [(5, 7), (6, 9), (50, 300), (1, 1), (2, 0), (1, 0), (3, 1), (0, 0)]
    for nodes, edges in sizes:
        src = torch.randint(0, max(nodes, 1), (edges,), generator=generator)
        dst = torch.randint(0, max(nodes, 1), (edges,), generator=generator)
        x = torch.randn(nodes, 4, generator=generator, requires_grad=True)
        graph = tg.Graph.from_coo(src, dst, num_src=nodes, num_dst=nodes)
        y = kernel(graph=graph, src={"x": x})
        want = torch.zeros(nodes, 4).index_add(0, dst, 2 * x[src])
        torch.testing.assert_close(y, want)
        cotangent = torch.randn(nodes, 4, generator=generator)
        (one,) = torch.autograd.grad(y, x, cotangent)
        (other,) = torch.autograd.grad(want, x, cotangent)
        torch.testing.assert_close(one, other)
    assert kernel.cache_info.variants == 1
    assert kernel.cache_info.compiled == 2


def test_bipartite_with_isolated_destinations():
    """Case 22."""
    x = torch.tensor([1.0, 2, 3, 4], requires_grad=True)
    graph = tg.Graph.from_coo([0, 1, 2, 3, 3], [0, 0, 1, 3, 1], num_src=4, num_dst=6)
    y = Send(tg.sum())(graph=graph, src={"x": x})
    assert y.tolist() == [3, 7, 0, 4, 0, 0]
    (gradient,) = torch.autograd.grad((torch.arange(1, 7) * y).sum(), x)
    assert gradient.tolist() == [1, 1, 2, 6]


def test_bad_indices_are_refused_before_launch():
    """Case 23: the position, the value, the range; the next call works."""
    with pytest.raises(IndexError, match=r"1.*3.*0\.\.2"):
        tg.Graph.from_coo([0, 2], [1, 3], num_src=3, num_dst=3)
    with pytest.raises(IndexError, match=r"0.*-1"):
        tg.Graph.from_coo([0], [-1], num_src=3, num_dst=3)
    graph = tg.Graph.from_coo([0, 2], [1, 2], num_src=3, num_dst=3)
    y = Send(tg.sum())(graph=graph, src={"x": torch.tensor([1.0, 2, 3])})
    assert y.tolist() == [0, 1, 3]


def test_parallel_edges_and_self_loops_are_kept():
    """Case 24."""
    x = torch.tensor([5.0, 7.0])
    w = torch.tensor([2.0, 3.0, 1.0], requires_grad=True)
    graph = tg.Graph.from_coo([0, 0, 1], [1, 1, 1])
    for name, want in {"sum": 32.0, "mean": 32 / 3, "max": 15.0}.items():
        y = Weighted(REDUCERS[name]())(graph=graph, src={"x": x}, edge={"w": w})
        torch.testing.assert_close(y, torch.tensor([0.0, want]))
        if name == "sum":
            assert torch.autograd.grad(y.sum(), w)[0].tolist() == [5, 5, 7]
    count = Send(tg.sum())(graph=graph, src={"x": torch.ones(2)})
    assert count.tolist() == [0, 3]


def test_the_first_torch_block_of_the_documentation():
    """Values and gradients of a weighted sum over a CSR graph with an isolated destination."""

    class WeightedSum(tg.MessagePassing):
        reducer = tg.sum()

        def edge(self, src, dst, edge):
            return src.x * edge.w

    row_ptr, col_idx = torch.tensor([0, 2, 3, 3]), torch.tensor([0, 1, 1])
    graph = tg.Graph.from_csr(row_ptr, col_idx, num_src=2, validate="full")
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    w = torch.tensor([4.0, 5.0, 2.0], requires_grad=True)
    out = WeightedSum()(graph=graph, src={"x": x}, dst={}, edge={"w": w})
    assert isinstance(out, torch.Tensor)
    torch.testing.assert_close(out, torch.tensor([23.0, 6.0, 0.0]))
    dx, dw = torch.autograd.grad(out.sum(), (x, w))
    torch.testing.assert_close(dx, torch.tensor([4.0, 7.0]))
    torch.testing.assert_close(dw, torch.tensor([2.0, 3.0, 3.0]))


def test_the_second_torch_block_of_the_documentation():
    """Rows of a CSR graph in int64."""

    class WeightedSum(tg.MessagePassing):
        reducer = tg.sum()

        def edge(self, src, dst, edge):
            return src.x * edge.w

    graph = tg.Graph.from_csr(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), num_src=2)
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    w = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    out = WeightedSum()(graph=graph, src={"x": x}, dst={}, edge={"w": w})
    assert out.tolist() == [8.0, 8.0]
    assert torch.autograd.grad(out.sum(), x)[0].tolist() == [5.0, 2.0]
