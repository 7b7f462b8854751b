"""Reducers that users write."""

import pytest
import torch

import tiga as tg
from tests.folding import DST, GRAPH, ZERO, Gated, Product, by_rows, call, draw, weighted
from tests.sending import SendEdge
from tiga import errors, knobs


class MatrixProduct(tg.Reducer):
    """Products of 2x2 matrices in edge order: no commutative law."""

    associative = True

    def identity(self):
        return torch.eye(2, dtype=torch.float64)

    def combine(self, left, right):
        return left @ right


class Mean(tg.Reducer):
    """A mean as a pair of sums."""

    associative = commutative = True

    def identity(self):
        return {"total": 0.0, "number": 0.0}

    def lift(self, message):
        return {"total": message, "number": torch.ones_like(message)}

    def combine(self, left, right):
        return {key: left[key] + right[key] for key in left}

    def finalize(self, state):
        return state["total"] / state["number"].clamp(min=1)


class OnlineSoftmax(tg.Reducer):
    """Maximum, shifted sum, and weighted sum in one pass."""

    associative = commutative = True

    def identity(self):
        return -1e30, 0.0, 0.0

    def lift(self, score, value):
        return score, torch.ones_like(score), value

    def combine(self, left, right):
        peak = torch.maximum(left[0], right[0])
        a, b = torch.exp(left[0] - peak), torch.exp(right[0] - peak)
        total = left[1] * a + right[1] * b
        return peak, total, left[2] * a.unsqueeze(-1) + right[2] * b.unsqueeze(-1)

    def finalize(self, state):
        _, total, weighted = state
        return weighted / torch.where(total > 0, total, 1.0).unsqueeze(-1)


def chained(m):
    result = m[0]
    for one in m[1:]:
        result = result @ one
    return result


class Attend(tg.MessagePassing):
    reducer = OnlineSoftmax()

    def edge(self, src, dst, edge):
        return self.reducer(edge.s, edge.m)


FOLDS = {
    "matrices": (SendEdge(MatrixProduct()), by_rows(chained, torch.eye(2).double()), [(11, 2, 2)]),
    "product": (SendEdge(Product()), by_rows(lambda m: m.prod(0), ZERO + 1), [(11, 3)]),
    "mean": (SendEdge(Mean()), by_rows(lambda m: m.mean(0), ZERO), [(11, 2)]),
    "softmax": (Attend(), by_rows(weighted, ZERO), [(11,), (11, 3)]),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_users_reducer_to_second_order(name):
    kernel, want, shapes = FOLDS[name]
    values = [draw(*s, seed=i).requires_grad_() for i, s in enumerate(shapes)]
    torch.testing.assert_close(call(kernel)(*values), want(*values))
    assert not kernel.diagnostics
    assert torch.autograd.gradcheck(call(kernel), values)
    assert torch.autograd.gradgradcheck(call(kernel), values)


@pytest.mark.parametrize("name", ["product", "mean"])
def test_known_monoids_are_recognised(name):
    kernel, _, shapes = FOLDS[name]
    call(kernel)(draw(*shapes[0]))
    assert "scan" not in kernel.ir("domain")


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_a_product_with_exact_zeros_to_second_order(zeros):
    m = draw(11)
    m[[0, 2, 3][:zeros]] = 0
    m.requires_grad_()
    for kernel in (SendEdge(Product()), SendEdge(tg.prod())):
        assert torch.autograd.gradcheck(call(kernel), m)
        assert torch.autograd.gradgradcheck(call(kernel), m)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_messages_fold_in_float32_and_round_once(dtype):
    m = (1 + 0.01 * draw(11, 3)).to(dtype).requires_grad_()
    y = SendEdge(Mean())(graph=GRAPH, edge={"m": m})
    want = by_rows(lambda m: m.mean(0), torch.zeros(()))(m.float()).to(dtype)
    assert y.dtype == dtype
    torch.testing.assert_close(y, want)
    assert torch.autograd.grad(y.sum(), m)[0].dtype == dtype


class Affine(tg.Reducer):
    """Composes x -> a x + b; the step reads a tensor of the reducer."""

    def __init__(self):
        super().__init__()
        self.gain = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
        self.offset = 0.25

    def identity(self):
        return torch.zeros(2, dtype=torch.float64)

    def combine(self, left, right):
        return left * self.gain + right + self.offset


def test_a_step_may_read_tensors_and_numbers_of_its_reducer():
    reducer, m = Affine(), draw(11, 2).requires_grad_()
    kernel = SendEdge(reducer)

    def want(m):
        def row(edges):
            state = torch.zeros(2, dtype=torch.float64)
            for one in edges:
                state = state * reducer.gain + one + reducer.offset
            return state

        return by_rows(row, torch.zeros(2, dtype=torch.float64))(m)

    for offset in (0.25, -1.0):
        reducer.offset = offset
        got = call(kernel)(m)
        torch.testing.assert_close(got, want(m))
        wrt = (m, reducer.gain)
        for one, other in zip(
            torch.autograd.grad(got.square().sum(), wrt),
            torch.autograd.grad(want(m).square().sum(), wrt),
            strict=True,
        ):
            torch.testing.assert_close(one, other)
    assert not kernel.diagnostics


def test_methods_of_a_reducer_are_guarded():
    reducer = Product()
    kernel, m = SendEdge(reducer), draw(11)
    call(kernel)(m)
    reducer.combine = lambda left, right: left + right
    reducer.associative = False
    want = torch.ones(6).double().index_add(0, DST, m)
    torch.testing.assert_close(call(kernel)(m), want)


class Scaled(Product):
    """An op that no trace holds."""

    def lift(self, message):
        return torch.special.i0(message)


@pytest.mark.parametrize("bound", [2**20, 200])
def test_a_reducer_that_no_program_holds_runs_in_blocks(bound):
    kernel, m = SendEdge(Scaled()), draw(11, 2).requires_grad_()
    want = by_rows(lambda m: torch.special.i0(m).prod(0), ZERO + 1)
    with knobs.scope(memory_bound=bound):
        got = call(kernel)(m)
        torch.testing.assert_close(got, want(m))
        torch.testing.assert_close(
            torch.autograd.grad(got.sum(), m), torch.autograd.grad(want(m).sum(), m)
        )
    assert "i0" in kernel.diagnostics[0].message


def test_users_reducers_on_the_bounded_path_are_compiled():
    kernel, m = Gated(), draw(11, 2, 2).requires_grad_()
    kernel.reducer = MatrixProduct()
    want = by_rows(chained, torch.eye(2).double())
    with knobs.scope(memory_bound=300):
        torch.testing.assert_close(call(kernel)(m), want(torch.special.i0(m)))
        assert torch.autograd.gradcheck(call(kernel), m)


# masks and empty rows


def test_masked_edges_contribute_the_identity():
    class Masked(tg.MessagePassing):
        reducer = MatrixProduct()

        def edge(self, src, dst, edge):
            return tg.mask(torch.sqrt(edge.m), edge.keep)

    keep = torch.arange(11) % 3 != 0
    m = torch.where(keep[:, None, None], draw(11, 2, 2).abs() + 0.1, 0.0).requires_grad_()
    got = Masked()(graph=GRAPH, edge={"m": m, "keep": keep})
    kept = torch.where(keep[:, None, None], m, 1.0).sqrt()
    one = torch.where(keep[:, None, None], kept, torch.eye(2).double())
    want = by_rows(chained, torch.eye(2).double())(one)
    torch.testing.assert_close(got, want)
    found = torch.autograd.grad(got.sum(), m)[0]
    torch.testing.assert_close(found, torch.autograd.grad(want.sum(), m)[0])
    assert not found[~keep].any()


# claims and mistakes


class Difference(tg.Reducer):
    associative = True

    def identity(self):
        return 0.0

    def combine(self, left, right):
        return left - right


class First(tg.Reducer):
    """Associative, not commutative."""

    associative = commutative = True

    def identity(self):
        return 0.0

    def combine(self, left, right):
        return torch.where(left == 0, right, left)


class Biased(tg.Reducer):
    associative = True

    def identity(self):
        return 1.0

    def combine(self, left, right):
        return left + right


@pytest.mark.parametrize(
    ("reducer", "claim"),
    [(Difference, "associative = True"), (First, "commutative = True"), (Biased, "identity")],
)
def test_false_claims_are_reported_when_asked_for(reducer, claim):
    line = reducer.combine.__code__.co_firstlineno
    with (
        knobs.scope(verify=1),
        pytest.raises(errors.InvalidValue, match=rf"reducers\.py:{line}: .*`{claim}`, but"),
    ):
        call(SendEdge(reducer()))(draw(11))
    with knobs.scope(verify=0):
        call(SendEdge(reducer()))(draw(11))


@pytest.mark.parametrize("name", FOLDS)
def test_true_claims_pass(name):
    kernel, _, shapes = FOLDS[name]
    again = type(kernel)(kernel.reducer) if name != "softmax" else Attend()
    with knobs.scope(verify=1):
        call(again)(*(draw(*s) for s in shapes))


class Grows(Product):
    def combine(self, left, right):
        return torch.stack([left, right], -1).sum(-1, keepdim=True).squeeze(-1).unsqueeze(-1)


class Widens(Product):
    def combine(self, left, right):
        return (left * right).double()


class Loses(Mean):
    def combine(self, left, right):
        return left["total"] + right["total"]


class NoIdentity(tg.Reducer):
    def combine(self, left, right):
        return left


class NoCombine(tg.Reducer):
    def identity(self):
        return 0.0


@pytest.mark.parametrize(
    ("reducer", "text"),
    [
        (Grows, r"expected float32\[2\], got float32\[2, 1\]"),
        (Widens, r"expected float32\[2\], got float64\[2\]"),
        (Loses, "expected a dict of total, number, got one value"),
        (NoIdentity, "has no `identity`: define `def identity"),
        (NoCombine, "has no `combine`: define `def combine"),
    ],
)
def test_reducers_that_cannot_be(reducer, text):
    with pytest.raises(errors.InvalidType, match=text):
        call(SendEdge(reducer()))(draw(11, 2, dtype=torch.float32))


# several reducers, several outputs, positions
