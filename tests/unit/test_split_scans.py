"""Scans over rows of more edges than a chunk, against products and sums taken by hand."""

import pytest
import torch

import tiga as tg
from tiga.relations.walk import HUB_CHUNK, HUB_DEGREE

NODES = 12
HUBS = {3: 2 * HUB_DEGREE + 77, 7: HUB_DEGREE + 1, 8: HUB_CHUNK}
EYE = torch.eye(2, dtype=torch.float64)


def ends():
    generator = torch.Generator().manual_seed(0)
    dst = [torch.full((number,), row) for row, number in HUBS.items()]
    dst = torch.cat([*dst, torch.randint(0, NODES - 2, (40,), generator=generator)])
    return torch.randint(0, NODES, dst.shape, generator=generator), dst


SRC, DST = ends()
ROWS = [
    torch.argsort(DST, stable=True)[DST.sort(stable=True).values == row] for row in range(NODES)
]
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=NODES, num_dst=NODES)


class Matrices(tg.Reducer):
    """Products of 2x2 matrices with a rotation between them, which the class reads."""

    associative = True

    def __init__(self, angle=0.3):
        super().__init__()
        turn = torch.tensor(angle, dtype=torch.float64)
        self.turn = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()]).view(2, 2)

    def identity(self):
        return self.turn.T

    def combine(self, left, right):
        return left @ self.turn @ right


class Ordered(Matrices):
    """The same without the claim: edge after edge."""

    associative = False


class Near(tg.MessagePassing):
    """Matrices near one: node values of the source and a weight of the edge."""

    def __init__(self, reducer):
        self.reducer = reducer

    def edge(self, src, dst, edge):
        unit = torch.eye(2, dtype=edge.w.dtype)
        return unit + 1e-2 * src.m + edge.w[..., None, None] * dst.m


def product(matrices):
    """All matrices in order, by halves."""
    while len(matrices) > 1:
        if len(matrices) % 2:
            matrices = torch.cat([matrices, torch.eye(2, dtype=matrices.dtype)[None]])
        matrices = matrices[0::2] @ matrices[1::2]
    return matrices[0]


def by_hand(reducer):
    def function(m, w, d):
        each = EYE + 1e-2 * m[SRC] + w[:, None, None] * d[DST]
        turned = reducer.turn @ each
        return torch.stack(
            [reducer.turn.T @ product(turned[row]) if len(row) else reducer.turn.T for row in ROWS]
        )

    return function


def inputs(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    shapes = (NODES, 2, 2), (len(DST),), (NODES, 2, 2)
    drawn = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    m, w, d = drawn
    return [v.to(dtype).requires_grad_() for v in (m, 1e-3 * w, d)]


def call(kernel):
    return lambda m, w, d: kernel(graph=GRAPH, src={"m": m}, dst={"m": d}, edge={"w": w})


def to_second_order(function, values):
    y = function(*values)
    first = torch.autograd.grad(y.square().sum(), values, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), values)
    return [y, *first, *second]


@pytest.mark.parametrize("reducer", [Matrices, Ordered])
def test_split_rows_to_second_order(reducer):
    reducer = reducer()
    kernel = Near(reducer)
    got, want = (to_second_order(f, inputs()) for f in (call(kernel), by_hand(reducer)))
    assert not kernel.diagnostics
    for one, other in zip(got, want, strict=True):
        scale = other.abs().max()
        torch.testing.assert_close(one / scale, other / scale, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("reducer", [Matrices, Ordered])
def test_split_rows_in_forward_mode(reducer):
    reducer = reducer()
    values = [v.detach() for v in inputs()]
    tangents = [v.flip(0) for v in values]
    for one, other in zip(
        torch.func.jvp(call(Near(reducer)), tuple(values), tuple(tangents)),
        torch.func.jvp(by_hand(reducer), tuple(values), tuple(tangents)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("reducer", [Matrices, Ordered])
def test_the_number_of_threads_changes_no_bit(reducer):
    kernel, threads, found = Near(reducer()), torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            found.append(to_second_order(call(kernel), inputs()))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


class Decay(tg.Reducer):
    """Half of what was, and a sum and a mean beside it."""

    def identity(self):
        return 0.0, 0.0, 0.0

    def lift(self, message):
        return message, message, torch.ones_like(message)

    def combine(self, left, right):
        return 0.5 * left[0] + right[0], left[1] + right[1], left[2] + right[2]

    def finalize(self, state):
        return state[0] + state[1] / state[2].clamp(min=1)


def decayed(m):
    rows = []
    for row in ROWS:
        factors = 0.5 ** torch.arange(len(row) - 1, -1, -1, dtype=m.dtype)
        one = m[row]
        rows.append((factors[:, None] * one).sum(0) + one.sum(0) / max(len(row), 1))
    return torch.stack(rows)


class Send(tg.MessagePassing):
    reducer = Decay()

    def edge(self, src, dst, edge):
        return torch.tanh(edge.m)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_fold_and_sums_over_split_rows(dtype):
    m = torch.randn(len(DST), 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    kernel = Send()
    one, other = (m.to(t).requires_grad_() for t in (dtype, torch.float64))
    got = kernel(graph=GRAPH, edge={"m": one})
    want = decayed(torch.tanh(other))
    tolerance = 50 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)
    found = torch.autograd.grad(got.square().sum(), one)[0]
    expected = torch.autograd.grad(want.square().sum(), other)[0]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


class Weights(tg.MessagePassing, torch.nn.Module):
    """A matrix inside the edge function: its gradient is a sum of outer products over edges."""

    def __init__(self):
        super().__init__()
        self.reducer = Matrices()
        self.weight = torch.nn.Parameter(torch.randn(4, 4, dtype=torch.float64) * 0.1)

    def edge(self, src, dst, edge):
        moved = torch.tanh(torch.tanh(edge.w[..., None] * src.m.flatten(-2)) @ self.weight)
        return torch.eye(2, dtype=torch.float64) + 1e-2 * moved.unflatten(-1, (2, 2))


def test_weights_within_split_rows():
    torch.manual_seed(0)
    kernel, (m, w, _) = Weights(), inputs()
    got = kernel(graph=GRAPH, src={"m": m}, edge={"w": w})
    moved = torch.tanh(torch.tanh(w[:, None] * m[SRC].flatten(-2)) @ kernel.weight)
    turn = kernel.reducer.turn
    each = turn @ (EYE + 1e-2 * moved.unflatten(-1, (2, 2)))
    rows = [turn.T @ product(each[row]) if len(row) else turn.T for row in ROWS]
    want = torch.stack(rows)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)
    assert not kernel.diagnostics
    wrt = (m, w, kernel.weight)
    for one, other in zip(
        torch.autograd.grad(got.square().sum(), wrt),
        torch.autograd.grad(want.square().sum(), wrt),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_split_rows_with_masked_edges():
    class Masked(Near):
        def edge(self, src, dst, edge):
            return tg.mask(super().edge(src, dst, edge), edge.w > -1e-3)

    reducer, values = Matrices(), inputs()

    def want(m, w, d):
        each = EYE + 1e-2 * m[SRC] + w[:, None, None] * d[DST]
        each = torch.where((w > -1e-3)[:, None, None], each, reducer.turn.T)
        turned = reducer.turn @ each
        return torch.stack(
            [reducer.turn.T @ product(turned[row]) if len(row) else reducer.turn.T for row in ROWS]
        )

    got, expected = (
        to_second_order(f, [v.clone() for v in values]) for f in (call(Masked(reducer)), want)
    )
    for one, other in zip(got, expected, strict=True):
        scale = other.abs().max()
        torch.testing.assert_close(one / scale, other / scale, rtol=1e-9, atol=1e-11)
