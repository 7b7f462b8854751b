"""Built-in reducers where numbers end: whole rows masked, infinite scores, NaN, constant rows."""

import math

import pytest
import torch

import tiga as tg
from tests.folding import GRAPH, ROWS, draw
from tiga.relations.walk import HUB_DEGREE

INF, NAN = float("inf"), float("nan")


class Attend(tg.MessagePassing):
    """Per head, with a temperature; scores or the whole message masked."""

    def __init__(self, temperature=1.0, reducer=None):
        self.reducer = reducer or tg.softmax()
        self.temperature = temperature

    def edge(self, src, dst, edge):
        return self.reducer(tg.mask(edge.s / self.temperature, edge.keep), edge.m)


class Send(tg.MessagePassing):
    def __init__(self, reducer):
        self.reducer = reducer

    def edge(self, src, dst, edge):
        return tg.mask(edge.m, edge.keep)


def mask():
    """Per head; rows 0 and 1 keep nothing in some head, row 5 has no edge."""
    keep = torch.rand(11, 2, generator=torch.Generator().manual_seed(1)) > 0.4
    keep[[0, 2, 3, 7]] = False
    return keep


def by_heads(fold, empty):
    """The function of messages [11, 2, ...] and a mask that folds the kept ones of each head."""

    def function(*messages, keep):
        out = []
        for row in ROWS:
            kept = [[e for e in row if keep[e, h]] for h in range(2)]
            heads = [
                fold(*(m[kept[h], h] for m in messages)) if kept[h] else torch.tensor(empty)
                for h in range(2)
            ]
            like = messages[-1][0, 0]
            out.append(torch.stack([h.to(like.dtype).expand_as(like) for h in heads]))
        return torch.stack(out)

    return function


def attended(score, value):
    if bool((score == -INF).all()):
        return torch.zeros_like(value[0])
    return (torch.softmax(score, 0)[..., None] * value).sum(0)


def to_second_order(function, values):
    y = function(*values)
    finite = torch.isfinite(y)
    first = torch.autograd.grad(torch.where(finite, y, 0).square().sum(), values, create_graph=True)
    total = sum(torch.where(torch.isfinite(g), g, 0).square().sum() for g in first)
    return y, first, torch.autograd.grad(total, values)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
@pytest.mark.parametrize("special", [None, -INF])
@pytest.mark.parametrize("reducer", [tg.softmax, tg.online_softmax])
def test_softmax_per_head_to_second_order(reducer, special, temperature):
    s, m, keep = draw(11, 2), draw(11, 2, 3, seed=1), mask()
    if special is not None:
        s[4, 0] = s[1, 1] = special
        s[10] = special  # all of row 4
    values = [s.requires_grad_(), m.requires_grad_()]
    kernel = Attend(temperature, reducer())
    want = by_heads(attended, 0.0)
    got = to_second_order(
        lambda s, m: kernel(graph=GRAPH, edge={"s": s, "m": m, "keep": keep}), values
    )
    expected = to_second_order(lambda s, m: want(s / temperature, m, keep=keep), values)
    torch.testing.assert_close(got, expected)
    for one in (got[0], *got[1], *got[2]):
        assert torch.isfinite(one).all()


@pytest.mark.parametrize("special", [INF, NAN])
def test_softmax_of_no_finite_scores_is_what_torch_says(special):
    s, m, keep = draw(11, 2), draw(11, 2, 3, seed=1), mask()
    s[4, 0] = s[10] = special
    got = Attend()(graph=GRAPH, edge={"s": s, "m": m, "keep": keep})
    want = by_heads(attended, 0.0)(s, m, keep=keep)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert got.isnan().any()


@pytest.mark.parametrize("special", [None, -INF, INF, NAN])
def test_logsumexp_at_infinity(special):
    m, keep = draw(11, 2), mask()
    if special is not None:
        m[4, 0] = m[10] = special
    got = Send(tg.logsumexp())(graph=GRAPH, edge={"m": m, "keep": keep})
    want = by_heads(lambda m: torch.logsumexp(m, 0), -INF)(m, keep=keep)
    torch.testing.assert_close(got, want, equal_nan=True)


def test_logsumexp_of_masked_rows_to_second_order():
    m, keep = draw(11, 2), mask()
    m[10] = -INF
    kernel = Send(tg.logsumexp())
    _, first, second = to_second_order(
        lambda m: kernel(graph=GRAPH, edge={"m": m, "keep": keep}), [m.requires_grad_()]
    )
    finite = torch.where(m.isinf(), 0.0, m).detach().requires_grad_()
    want = by_heads(lambda m: torch.logsumexp(m, 0), -INF)
    still = keep & ~m.isinf()
    _, expected, again = to_second_order(lambda m: want(m, keep=still), [finite])
    torch.testing.assert_close((first, second), (expected, again))


def deviation(correction, root):
    def fold(m):
        squares = (m - m.mean()).square().sum()
        variance = squares / max(len(m) - correction, 1)
        if not root:
            return variance
        positive = variance > 0
        return torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)

    return fold


@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("reducer", [tg.std, tg.var])
@pytest.mark.parametrize("constant", [True, False])
def test_constant_rows_and_rows_of_one_edge_to_second_order(constant, reducer, correction):
    """Row 4 has one edge; with `constant`, all rows but the first are constant."""
    m = torch.full((11, 2), 1.7, dtype=torch.float64) if constant else draw(11, 2)
    m[1] = 2.5
    keep = mask()
    kernel = Send(reducer(correction=correction))
    values = [m.requires_grad_()]
    got = to_second_order(lambda m: kernel(graph=GRAPH, edge={"m": m, "keep": keep}), values)
    want = by_heads(deviation(correction, reducer is tg.std), 0.0)
    torch.testing.assert_close(got, to_second_order(lambda m: want(m, keep=keep), values))
    for one in (got[0], *got[1], *got[2]):
        assert torch.isfinite(one).all()


@pytest.mark.parametrize(("reducer", "best"), [(tg.argmax, max), (tg.argmin, min)])
def test_positions_of_extrema(reducer, best):
    """Among ties the first in the order of the user; -1 where nothing counts."""
    m, keep = draw(11, 2).round(), mask()
    got = Send(reducer())(graph=GRAPH, edge={"m": m, "keep": keep})
    assert got.dtype == torch.int64
    for row, edges in enumerate(ROWS):
        for head in range(2):
            kept = [e for e in edges if keep[e, head]]
            top = best((float(m[e, head]) for e in kept), default=None)
            first = next((e for e in kept if float(m[e, head]) == top), -1)
            assert int(got[row, head]) == first


def test_identities_for_empty_rows():
    m, keep = draw(11, 2).requires_grad_(), mask()
    for reducer, value in ((tg.max, -INF), (tg.min, INF)):
        y = Send(reducer(empty="identity"))(graph=GRAPH, edge={"m": m, "keep": keep})
        plain = Send(reducer())(graph=GRAPH, edge={"m": m, "keep": keep})
        some = torch.tensor([[any(keep[e, h] for e in row) for h in range(2)] for row in ROWS])
        torch.testing.assert_close(y, torch.where(some, plain, value))
        torch.testing.assert_close(plain, torch.where(some, y, 0.0))
        assert torch.isfinite(torch.autograd.grad(torch.where(some, y, 0).sum(), m)[0]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_deviation_of_equal_messages_has_no_derivative(dtype):
    """Their rounded mean differs from them: what remains is no direction. One row is in parts."""
    counts = torch.tensor([3, 7, HUB_DEGREE + 5])
    rows = torch.repeat_interleave(torch.arange(3), counts)
    graph = tg.Graph.from_coo(torch.zeros_like(rows), rows, num_src=1)
    x = torch.tensor([0.1, 0.3, 0.7]).to(dtype).requires_grad_()

    class Kernel(tg.MessagePassing):
        reducer = tg.std()

        def edge(self, src, dst, edge):
            return dst.x

    got = Kernel()(graph=graph, src={}, dst={"x": x})
    (first,) = torch.autograd.grad(got.sum(), x, create_graph=True)
    assert got.tolist() == first.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_rows_with_no_numbers(number):
    """They are seen: no deviation, and their position as torch tells it."""
    m = torch.tensor([1.0, number, 3.0, 2.0, 5.0], requires_grad=True)
    graph = tg.Graph.from_coo(torch.zeros(5).long(), torch.tensor([0, 0, 0, 1, 1]), num_src=1)

    class Kernel(tg.MessagePassing):
        reducer = tg.multi(tg.std(), tg.argmax(), tg.argmin())

        def edge(self, src, dst, edge):
            return edge.m

    deviation, largest, smallest = Kernel()(graph=graph, edge={"m": m})
    assert deviation[0].isnan()
    assert deviation[1] == 1.5
    assert largest.tolist() == [1, 4]
    assert smallest.tolist() == [int(m[:3].argmin()), 3]
