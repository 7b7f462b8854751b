"""Derivatives of every order and mode, by reducer and by what `edge` computes."""

import numpy as np
import pytest
import torch
from torch import func
from torch.autograd import forward_ad, functional, gradcheck, gradgradcheck

import tiga as tg
from tiga.errors import UnsupportedByBackend

NODES, EDGES, WIDTH = 4, 9, 2


def difference(src, dst, edge):
    return edge.w * torch.tanh(src.x - dst.x)


def distance(src, dst, edge):
    r = src.x - dst.x
    return torch.exp(-edge.w * r.norm(dim=-1, keepdim=True)) * r


def bilinear(src, dst, edge):
    return torch.nn.functional.silu(src.x @ torch.tensor([[1.0, -0.5], [0.3, 2.0]]).to(src.x.dtype)
                                    * dst.x + edge.w)  # fmt: skip


MESSAGES = {"difference": difference, "distance": distance, "bilinear": bilinear}
REDUCERS = {
    "sum": tg.sum(),
    "mean": tg.mean(),
    "max": tg.max(),
    "min": tg.min(),
    "prod": tg.prod(),
    "std": tg.std(),
    "var": tg.var(),
    "logsumexp": tg.logsumexp(),
}


class Kernel(tg.MessagePassing):
    def __init__(self, reducer, message):
        self.reducer, self.message = reducer, message

    def edge(self, src, dst, edge):
        return self.message(src, dst, edge)


class Attention(tg.MessagePassing):
    reducer = tg.softmax()

    def edge(self, src, dst, edge):
        return self.reducer((src.x * dst.x).sum(-1), edge.w * src.x)


def problem(kernel):
    """A function of node and edge fields, and a point at which no two messages tie. The last node
    has no edge; its logsumexp is infinite and has no derivatives to compare."""
    generator = torch.Generator().manual_seed(4)
    src = torch.tensor([1, 2, 3, 0, 2, 3, 1, 0, 2])
    dst = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 1])
    graph = tg.Graph.from_coo(src, dst, num_src=NODES, num_dst=NODES)
    x = torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64)
    w = torch.rand(EDGES, 1, generator=generator, dtype=torch.float64) + 0.5

    rows = 3 if isinstance(kernel.reducer, type(tg.logsumexp())) else NODES

    def compute(x, w):
        return kernel(graph=graph, ndata={"x": x}, edge={"w": w})[:rows]

    return compute, x, w


KERNELS = {
    **{name: Kernel(reducer, difference) for name, reducer in REDUCERS.items()},
    "distance": Kernel(tg.sum(), distance),
    "bilinear": Kernel(tg.mean(), bilinear),
    "softmax": Attention(),
}


@pytest.fixture(params=KERNELS)
def case(request):
    return problem(KERNELS[request.param])


def test_first_order_in_every_mode(case):
    compute, x, w = case
    leaves = x.requires_grad_(), w.requires_grad_()
    assert gradcheck(compute, leaves, check_forward_ad=True, check_batched_grad=True)


def test_second_order_backward_and_forward_over_backward(case):
    compute, x, w = case
    leaves = x.requires_grad_(), w.requires_grad_()
    assert gradgradcheck(compute, leaves, check_fwd_over_rev=True)


@pytest.mark.slow
@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("reducer", REDUCERS)
def test_every_reducer_on_every_message(reducer, message):
    compute, x, w = problem(Kernel(REDUCERS[reducer], MESSAGES[message]))
    leaves = x.requires_grad_(), w.requires_grad_()
    assert gradcheck(compute, leaves, check_forward_ad=True)
    assert gradgradcheck(compute, leaves)


def test_transforms_of_torch_func(case):
    compute, x, w = case

    def energy(x):
        return compute(x, w).pow(2).sum()

    jacobian = functional.jacobian(lambda x: compute(x, w), x)
    hessian = functional.hessian(energy, x)
    v = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(energy(leaf), leaf)
    assert torch.allclose(func.grad(energy)(x), gradient)
    assert torch.allclose(func.vjp(energy, x)[1](x.new_ones(()))[0], gradient)
    tangent = torch.einsum("abcd,cd->ab", jacobian, v)
    assert torch.allclose(func.jvp(lambda x: compute(x, w), (x,), (v,))[1], tangent)
    for mode in (func.jacrev, func.jacfwd):
        assert torch.allclose(mode(lambda x: compute(x, w))(x), jacobian)
        for outer in (func.jacrev, func.jacfwd):
            assert torch.allclose(outer(mode(energy))(x), hessian)
    product = torch.einsum("abcd,cd->ab", hessian, v)
    assert torch.allclose(functional.hvp(energy, x, v)[1], product)
    assert torch.allclose(functional.vhp(energy, x, v)[1], product)


def test_vectorized_jacobian_equals_row_by_row():
    compute, x, w = problem(KERNELS["mean"])
    plain = functional.jacobian(compute, (x, w))
    for vectorized, expected in zip(
        functional.jacobian(compute, (x, w), vectorize=True), plain, strict=True
    ):
        assert torch.allclose(vectorized, expected)


def test_vmap_over_fields_alone_and_inside_and_outside_of_grad(case):
    compute, x, w = case
    batch = torch.stack([x, x * 0.5, x + 0.25])
    expected = torch.stack([compute(sample, w) for sample in batch])
    assert torch.allclose(func.vmap(lambda x: compute(x, w))(batch), expected)
    moved = func.vmap(lambda x: compute(x, w), in_dims=1, out_dims=1)(batch.movedim(0, 1))
    assert torch.allclose(moved.movedim(1, 0), expected)

    def energy(x):
        return compute(x, w).pow(2).sum()

    gradients = torch.stack([func.grad(energy)(sample) for sample in batch])
    assert torch.allclose(func.vmap(func.grad(energy))(batch), gradients)
    total = func.grad(lambda batch: func.vmap(energy)(batch).sum())(batch)
    assert torch.allclose(total, gradients)


def test_vmap_over_parameters_and_an_empty_batch():
    class Layer(tg.MessagePassing, torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(WIDTH, 3)

        def edge(self, src, dst, edge):
            return torch.relu(self.lin(src.x)) * edge.w

    layer = Layer().double()
    compute, x, w = problem(layer)
    del compute
    graph = tg.Graph.from_coo([0, 1, 2, 0], [1, 1, 3, 3], num_src=NODES, num_dst=NODES)
    call = {"graph": graph, "ndata": {"x": x}, "edge": {"w": w[:4]}}
    states = [{n: p.detach() * s for n, p in layer.named_parameters()} for s in (1.0, 2.0)]
    stacked = {n: torch.stack([s[n] for s in states]) for n in states[0]}

    def run(state):
        return func.functional_call(layer, state, (), call)

    assert torch.allclose(func.vmap(run)(stacked), torch.stack([run(s) for s in states]))
    empty = {n: p[:0] for n, p in stacked.items()}
    assert func.vmap(run)(empty).shape == (0, NODES, 3)


def test_third_order_of_a_polynomial():
    class Cube(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x**3

    graph = tg.Graph.from_coo([0, 1, 2], [1, 2, 2])
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    third = func.grad(lambda x: func.grad(lambda x: func.grad(
        lambda x: Cube()(graph=graph, ndata={"x": x}).sum())(x).sum())(x).sum())(x)  # fmt: skip
    assert third.tolist() == [6.0, 6.0, 6.0]


def test_the_published_second_derivative():
    class Square(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return src.x**2

    graph = tg.Graph.from_coo([0, 1, 2], [1, 2, 2])
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    v = torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)

    def run(x):
        return Square()(graph=graph, ndata={"x": x})

    def energy(x):
        return run(x).pow(2).sum()

    assert run(x).tolist() == [0, 1, 13]
    assert func.grad(energy)(x).tolist() == [4, 104, 156]
    assert functional.hvp(energy, x, v)[1].tolist() == [12, 12, 200]
    assert func.jvp(run, (x,), (v,))[1].tolist() == [0, 2, 8]
    assert func.jvp(func.grad(energy), (x,), (v,))[1].tolist() == [12, 12, 200]


def test_dual_numbers_through_permuted_edge_fields():
    compute, x, w = problem(KERNELS["mean"])
    v = torch.ones_like(w)
    with forward_ad.dual_level():
        y = compute(x, forward_ad.make_dual(w, v))
        tangent = forward_ad.unpack_dual(y).tangent
    step = 1e-6
    numeric = (compute(x, w + step * v) - compute(x, w - step * v)) / (2 * step)
    assert torch.allclose(tangent, numeric, atol=1e-8)


def test_norms_at_zero_have_finite_derivatives_of_both_orders():
    class Length(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return torch.linalg.vector_norm(src.x - dst.x, dim=-1)

    graph = tg.Graph.from_coo([0, 1], [1, 1])
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(Length()(graph=graph, ndata={"x": x}).sum(), x, create_graph=True)
    assert np.array_equal(g.detach(), np.zeros((2, 2)))
    (h,) = torch.autograd.grad((g * g).sum(), x)
    assert torch.isfinite(h).all()


class Unfused(tg.MessagePassing):
    def edge(self, src, dst, edge):
        return torch.special.i0e(src.x)


def test_blocks_have_every_order_and_take_part_in_no_transform():
    graph = tg.Graph.from_coo([0, 1], [1, 1])
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = Unfused()(graph=graph, ndata={"x": x})
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum() + (x**2).sum(), x)
    torch.testing.assert_close(h, torch.func.hessian(lambda x: torch.special.i0e(x).sum())(
        x.detach()).diagonal() + 2 * x.detach())  # fmt: skip
    with pytest.raises(UnsupportedByBackend, match="takes part in no transform"):
        func.grad(lambda x: Unfused()(graph=graph, ndata={"x": x}).sum())(x.detach())


def test_gradients_need_the_edges_of_the_forward_in_every_mode():
    dst = torch.tensor([1, 1, 0])
    graph = tg.Graph.from_coo(torch.tensor([0, 1, 2]), dst, num_src=3, num_dst=3)
    kernel = Kernel(tg.sum(), lambda src, dst, edge: src.x * src.x)
    x = torch.tensor([1.0, 2.0, 3.0])
    _, pull = func.vjp(lambda x: kernel(graph=graph, ndata={"x": x}), x)
    dst[0] = 2
    with pytest.raises(tg.errors.StaleTopology):
        pull(torch.ones(3))
