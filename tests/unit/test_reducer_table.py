"""Users' reducers by dtype, width and message, against their own methods run edge by edge."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiga as tg
from tests.folding import DST, GRAPH, ROWS, SRC, Product, draw
from tests.merging import Chan, LogSumExp, Mixed, RunningMean, Stable
from tests.unit.test_torch_reducers import Affine, MatrixProduct, Mean


class Recurrence(tg.Reducer):
    """A small recurrent cell: no law at all."""

    def identity(self):
        return 0.1

    def combine(self, left, right):
        return torch.tanh(0.5 * left + right)


class Complex(tg.Reducer):
    """Products of complex numbers in pairs."""

    associative = commutative = True

    def identity(self):
        return 1.0, 0.0

    def lift(self, message):
        return message, torch.sin(message)

    def combine(self, left, right):
        (a, b), (c, d) = left, right
        return a * c - b * d, a * d + b * c

    def finalize(self, state):
        return state[0] + 2 * state[1]


class Both(tg.Reducer):
    """A product and a sum."""

    associative = commutative = True

    def identity(self):
        return 1.0, 0.0

    def lift(self, message):
        return message, message

    def combine(self, left, right):
        return left[0] * right[0], left[1] + right[1]

    def finalize(self, state):
        return state[0] * (1 + state[1])


REDUCERS = {
    "product": Product, "mean": Mean, "matrices": MatrixProduct, "logsumexp": LogSumExp,
    "stable": Stable, "running mean": RunningMean, "mixed": Mixed, "affine": Affine,
    "recurrence": Recurrence, "moments": Chan, "complex": Complex,
}  # fmt: skip
WIDTHS = [(), (17,)]
ONLY = {"matrices": [(2, 2), (3, 2, 2)], "affine": [(2,)]}
TABLE = [(name, shape) for name in REDUCERS for shape in ONLY.get(name, WIDTHS)]


class Sent(tg.MessagePassing):
    """A message of both ends and the edge, or the edge's field alone; masked if `keep` is there."""

    def __init__(self, reducer):
        self.reducer = reducer

    def edge(self, src, dst, edge):
        message = torch.sin(src.x) * edge.w - 0.5 * dst.x
        return tg.mask(message, edge.keep) if "keep" in edge else message


class Plain(Sent):
    def edge(self, src, dst, edge):
        return tg.mask(edge.w, edge.keep) if "keep" in edge else edge.w


def eager(reducer, messages, keep=None):
    """The rows as the reducer's own methods make them from messages, edge by edge."""
    rows = []
    for row in ROWS:
        kept = [e for e in row if keep is None or keep[e]]
        start = reducer.identity()
        state = broadcast(start, reducer.lift(messages[0]))
        for e in kept:
            state = reducer.combine(state, reducer.lift(messages[e]))
        rows.append(reducer.finalize(state))
    return torch.stack(torch.broadcast_tensors(*rows))


def broadcast(start, like):
    """The identity in the shape of lifted states."""
    if isinstance(like, dict):
        return {key: broadcast(start[key], like[key]) for key in like}
    if isinstance(like, tuple):
        return tuple(map(broadcast, start, like))
    whole = torch.as_tensor(start, dtype=torch.float64)
    return whole.expand(torch.broadcast_shapes(whole.shape, like.shape))


def sent(name, x, w, y):
    """What `Sent` sends along each edge."""
    return torch.sin(x[SRC]) * w - 0.5 * y[DST]


def fields(shape, dtype=torch.float64):
    drawn = draw(5, *shape), draw(11, *shape, seed=1), draw(6, *shape, seed=2)
    return [v.to(dtype).requires_grad_() for v in drawn]


def differentiated(y, values, order):
    finite = torch.isfinite(y) & (y.abs() < 1e20)
    found = [torch.where(finite, y, 0.0)]
    if order > 0:
        first = torch.autograd.grad(
            found[0].square().sum(), values, create_graph=order > 1, allow_unused=True
        )
        found += [g for g in first if g is not None]
    if order > 1:
        total = sum(g.square().sum() for g in found[1:])
        second = (
            torch.autograd.grad(total, values, allow_unused=True) if total.requires_grad else ()
        )
        found += [g for g in second if g is not None]
    return found


def check(name, shape, keep=None, dtype=torch.float64, order=2):
    reducer = REDUCERS[name]()
    tolerance = 1e-12 if dtype == torch.float64 else 40 * torch.finfo(dtype).eps
    kernel, values = Sent(reducer), fields(shape, dtype)
    wide = [v.detach().double().requires_grad_() for v in values]
    masks = {} if keep is None else {"keep": keep}
    x, w, y = values
    got = kernel(graph=GRAPH, src={"x": x}, dst={"x": y}, edge={"w": w, **masks})
    assert got.dtype == dtype
    assert not kernel.diagnostics
    want = eager(reducer, sent(name, *wide), keep)
    found = differentiated(got, values, order)
    for one, other in zip(found, differentiated(want, wide, order), strict=True):
        assert torch.isfinite(one).all()
        scale = other.abs().max().clamp(min=1)
        torch.testing.assert_close(one.double() / scale, other / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("name", "shape"), TABLE)
def test_values_and_derivatives_to_second_order(name, shape):
    check(name, shape)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["mean", "mixed", "moments", "stable"])
def test_other_dtypes_to_first_order(name, dtype):
    check(name, (3,), dtype=dtype, order=1)


@pytest.mark.parametrize("name", ["mixed", "recurrence", "moments", "complex", "running mean"])
def test_masked_edges_are_no_edges_in_every_derivative(name):
    keep = torch.arange(11) % 3 != 1
    keep[[1, 6]] = False
    check(name, (3,), keep=keep)


@pytest.mark.parametrize("zeros", [2, 3])
def test_zeros_among_factors_of_a_state_to_second_order(zeros):
    m = draw(11)
    m[[0, 2, 3][:zeros]] = 0
    m.requires_grad_()
    for reducer in (Both(), Complex()):
        got = Plain(reducer)(graph=GRAPH, edge={"w": m})
        for one, other in zip(
            differentiated(got, [m], 2), differentiated(eager(reducer, m), [m], 2), strict=True
        ):
            torch.testing.assert_close(one, other)


# states of any make

KINDS = {
    "sum": lambda a, b, state, i: a + b,
    "product": lambda a, b, state, i: a * b,
    "largest": lambda a, b, state, i: torch.maximum(a, b),
    "smallest": lambda a, b, state, i: torch.minimum(b, a),
    "halved": lambda a, b, state, i: 0.5 * a + b,
    "shifted": lambda a, b, state, i: shifted(a, b, state),
    "crossed": lambda a, b, state, i: a + b * torch.tanh(state[0][i - 1]),
}
STARTS = {"product": 1.0, "largest": -1e30, "smallest": 1e30}


def shifted(a, b, state):
    """A sum scaled by the first component, whatever that is; made finite by a bound."""
    left, right, out = (s[0] for s in state)
    left, right, out = (torch.tanh(s) for s in (left, right, out))
    return a * torch.exp(left - out) + b * torch.exp(right - out)


class Made(tg.Reducer):
    """Components of the kinds that it is given."""

    def __init__(self, kinds):
        super().__init__()
        self.kinds = tuple(kinds)

    def identity(self):
        return tuple(STARTS.get(kind, 0.0) for kind in self.kinds)

    def lift(self, message):
        return tuple(message * (1 - 0.25 * i) for i in range(len(self.kinds)))

    def combine(self, left, right):
        out = []
        for i, kind in enumerate(self.kinds):
            states = (left, right, out or left)
            out.append(KINDS[kind](left[i], right[i], states, i))
        return tuple(out)

    def finalize(self, state):
        return sum(torch.tanh(0.5 * one) for one in state)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4),
    width=st.sampled_from([(), (2,), (9,)]),
)
def test_states_of_any_make(kinds, width):
    m = draw(11, *width).requires_grad_()
    reducer = Made(kinds)
    got = Plain(reducer)(graph=GRAPH, edge={"w": m})
    for one, other in zip(
        differentiated(got, [m], 2), differentiated(eager(reducer, m), [m], 2), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


# several outputs


class Several(tg.MessagePassing):
    """Different reducers for different outputs of one edge function."""

    def __init__(self):
        self.reducer = tg.sum()
        self.matrices, self.moments, self.heavy = MatrixProduct(), Chan(), tg.softmax()

    def edge(self, src, dst, edge):
        turned = torch.stack([src.x, edge.w, -edge.w, src.x], -1).unflatten(-1, (2, 2))
        return {
            "total": src.x * edge.w,
            "turned": self.matrices(turned),
            "spread": (self.moments(edge.w), tg.mask(self.moments(src.x), edge.keep)),
            "mean": self.heavy(edge.w, src.x),
        }


def test_different_reducers_for_different_outputs():
    kernel, (x, w) = Several(), (draw(5).requires_grad_(), draw(11, seed=1).requires_grad_())
    keep = torch.arange(11) % 2 == 0
    got = kernel(graph=GRAPH, src={"x": x}, edge={"w": w, "keep": keep})
    turned = torch.stack([x[SRC], w, -w, x[SRC]], -1).unflatten(-1, (2, 2))
    softmax = [torch.softmax(w[row], 0) @ x[SRC][row] if row else x.sum() * 0 for row in ROWS]
    want = {
        "total": torch.zeros(6).double().index_add(0, DST, x[SRC] * w),
        "turned": eager(kernel.matrices, turned),
        "spread": (eager(kernel.moments, w), eager(kernel.moments, x[SRC], keep)),
        "mean": torch.stack(softmax),
    }
    assert not kernel.diagnostics

    def flat(tree):
        return [tree["total"], tree["turned"], *tree["spread"], tree["mean"]]

    for one, other in zip(flat(got), flat(want), strict=True):
        torch.testing.assert_close(one, other)
    results = [sum(y.square().sum() for y in flat(tree)) for tree in (got, want)]
    for one, other in zip(*(torch.autograd.grad(r, (x, w)) for r in results), strict=True):
        torch.testing.assert_close(one, other)
