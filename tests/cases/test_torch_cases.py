"""Cases from public bug reports for which torch tensors have a form of their own; and the blocks of
the documentation on torch."""

import pytest
import torch

import tiga as tg
from tests.sending import Send, SendWeighted

REDUCERS = {"sum": tg.sum, "mean": tg.mean, "max": tg.max, "min": tg.min, "prod": tg.prod}


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
    kernel = SendWeighted(REDUCERS[name]())
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


def test_the_first_torch_block_of_the_documentation():
    """Values and gradients of a weighted sum over a CSR graph with an isolated destination."""
    row_ptr, col_idx = torch.tensor([0, 2, 3, 3]), torch.tensor([0, 1, 1])
    graph = tg.Graph.from_csr(row_ptr, col_idx, num_src=2, validate="full")
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    w = torch.tensor([4.0, 5.0, 2.0], requires_grad=True)
    out = SendWeighted(tg.sum())(graph=graph, src={"x": x}, dst={}, edge={"w": w})
    assert isinstance(out, torch.Tensor)
    torch.testing.assert_close(out, torch.tensor([23.0, 6.0, 0.0]))
    dx, dw = torch.autograd.grad(out.sum(), (x, w))
    torch.testing.assert_close(dx, torch.tensor([4.0, 7.0]))
    torch.testing.assert_close(dw, torch.tensor([2.0, 3.0, 3.0]))


def test_the_second_torch_block_of_the_documentation():
    """Rows of a CSR graph in int64."""
    graph = tg.Graph.from_csr(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), num_src=2)
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    w = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    out = SendWeighted(tg.sum())(graph=graph, src={"x": x}, dst={}, edge={"w": w})
    assert out.tolist() == [8.0, 8.0]
    assert torch.autograd.grad(out.sum(), x)[0].tolist() == [5.0, 2.0]
