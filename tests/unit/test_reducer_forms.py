"""What is recognised in reducers that users write, and that it computes what they wrote."""

import math

import pytest
import torch

import tiga as tg
from tests.folding import GRAPH, by_rows, call, draw
from tests.merging import (
    INF,
    Chan,
    Gap,
    Guarded,
    LogSumExp,
    Merge,
    Mixed,
    Online,
    Plain,
    PowersOfTwo,
    RunningMean,
    Stable,
    Tempered,
    Welford,
)
from tests.sending import SendEdge
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input, constant
from tiga.ops.pointwise import add
from tiga.reducers import Fold
from tiga.reducers.recognise import Lifted, recognise
from tiga.trace.program import Program
from tiga.types import GLOBAL, Space, Type, float64


def attended(temperature=1.0):
    def weigh(score, value):
        return (torch.softmax(score / temperature, 0)[..., None] * value).sum(0)

    return by_rows(weigh, torch.zeros((), dtype=torch.float64))


def decayed(m):
    state = torch.zeros_like(m[0])
    for one in m:
        state = state * 0.5 + one
    return torch.stack([m.sum(0), m.prod(0), m.amax(0), m.amin(0), state], -1)


def variance(m):
    return (m - m.mean(0)).square().mean(0)


class Attend(tg.MessagePassing):
    def __init__(self, reducer):
        self.reducer = reducer

    def edge(self, src, dst, edge):
        return self.reducer(edge.s, edge.m)


START = torch.tensor([0, 1, -INF, INF, 0], dtype=torch.float64)
SCALED = ["max", "sum scaled by component 0", "sum scaled by component 0"]
MEAN = torch.zeros((), dtype=torch.float64)
MOMENTS = ["sum", "sum scaled by component 0", "squared deviations from component 1"]
HEADS = [(11, 2), (11, 2, 3)]
ORDERED = "folded in edge order, each row by one thread: `associative` is not claimed"


def logs(start):
    return by_rows(lambda m: torch.logsumexp(m, 0), torch.tensor(start, dtype=torch.float64))


CASES = {
    "online": (Attend(Online()), attended(), HEADS, SCALED),
    "tempered": (Attend(Tempered()), attended(0.5), HEADS, SCALED),
    "powers of two": (Attend(PowersOfTwo()), attended(1 / math.log(2)), HEADS, SCALED),
    "guarded": (Attend(Guarded()), attended(), HEADS, SCALED),
    "logaddexp": (SendEdge(LogSumExp()), logs(-INF), [(11, 3)], ["logsumexp"]),
    "stable": (SendEdge(Stable()), logs(-1e30), [(11, 3)], ["logsumexp"]),
    "gap": (SendEdge(Gap()), logs(-1e30), [(11, 3)], ["logsumexp"]),
    "plain": (SendEdge(Plain()), logs(-INF), [(11, 3)], ["logsumexp"]),
    "merge": (Attend(Merge()), attended(), HEADS, ["logsumexp", "sum scaled by component 0"]),
    "mean": (
        SendEdge(RunningMean()), by_rows(lambda m: m.mean(0), MEAN), [(11, 3)],
        ["sum", "sum scaled by component 0"],
    ),
    "chan": (SendEdge(Chan()), by_rows(variance, MEAN), [(11, 3)], MOMENTS),
    "welford": (SendEdge(Welford()), by_rows(variance, MEAN), [(11, 3)], MOMENTS),
    "mixed": (
        SendEdge(Mixed()), by_rows(decayed, START), [(11, 3)],
        ["sum", "prod", "max", "min", ORDERED],
    ),
}  # fmt: skip


def told(kernel):
    """What `explain()` says of each component."""
    (line,) = (t for t in kernel.explain().splitlines() if ": reducer " in t)
    text = line.split(": reducer ")[1].split(": ", 1)[1]
    parts = text.split("; ")
    return [p.split(": ", 1)[1] for p in parts] if len(parts) > 1 else parts


@pytest.mark.parametrize("name", CASES)
def test_recognised_reducers_to_second_order(name):
    kernel, want, shapes, forms = CASES[name]
    values = [draw(*s, seed=i).requires_grad_() for i, s in enumerate(shapes)]
    torch.testing.assert_close(call(kernel)(*values), want(*values))
    assert told(kernel) == forms
    assert not kernel.diagnostics
    finite = torch.isfinite(want(*values)) & (want(*values) > -1e29)

    def some(function):
        return lambda *v: torch.where(finite, function(*v), 0.0)

    assert torch.autograd.gradcheck(some(call(kernel)), values)
    assert torch.autograd.gradgradcheck(some(call(kernel)), values)


class SkipsNaN(tg.Reducer):
    """A sum of the numbers among the messages."""

    associative = commutative = True

    def identity(self):
        return 0.0

    def combine(self, left, right):
        return left + torch.where(torch.isnan(right), 0.0, right)


class Rounds(SkipsNaN):
    """A sum that is rounded to 16 bits at every step."""

    associative = False

    def combine(self, left, right):
        return (left + right).bfloat16().to(left.dtype)


class Saturates(SkipsNaN):
    """A sum that stays at 50."""

    def combine(self, left, right):
        total = left + right
        return torch.where(total > 50, torch.full_like(total, 50.0), total)


class Finite(SkipsNaN):
    """A sum of the finite messages."""

    def combine(self, left, right):
        return left + torch.where(torch.isinf(right), 0.0, right)


class Crossed(Online):
    """Weights that read one axis of the peak on the left, and the other on the right."""

    associative = commutative = False

    def lift(self, message):
        return {"peak": message[..., 0], "total": message[..., 0] + 1, "mean": message}

    def combine(self, left, right):
        peak = torch.maximum(left["peak"], right["peak"])

        def scaled(side):
            return torch.exp(side["peak"][..., None] - peak[..., None, :]) * side["mean"]

        return {
            "peak": peak,
            "total": left["total"] + right["total"],
            "mean": scaled(left) + scaled(right),
        }

    def finalize(self, state):
        return state["mean"]


@pytest.mark.parametrize("reducer", [SkipsNaN, Saturates, Finite, Rounds])
def test_guards_that_change_values_are_kept(reducer):
    m = torch.full((11, 2), 20.0, dtype=torch.float64)
    m[3] = torch.nan
    m[4] = INF
    kernel, own = SendEdge(reducer()), reducer()

    def folded(rows):
        state = torch.zeros(2, dtype=torch.float64)
        for one in rows:
            state = own.combine(state, one)
        return state

    torch.testing.assert_close(
        call(kernel)(m), by_rows(folded, torch.zeros(2).double())(m), equal_nan=True
    )
    assert told(kernel)[0].startswith("folded in edge order")


def test_combinations_too_deep_to_read_are_folded():
    of = Type(float64, (), Space("dst", "node"))
    left, right = Input("left", of)(), Input("right", of)()
    out = right
    for _ in range(600):
        out = tanh(out)
    rule = Fold(Program((left, right), (add(left, out),)), (constant(0, of.with_space(GLOBAL)),))
    assert recognise(rule, Lifted()) == {}


def test_a_weight_that_does_not_compose_is_no_weight():
    kernel = SendEdge(Crossed())
    call(kernel)(draw(11, 2, 2))
    assert told(kernel) == [ORDERED, "sum", ORDERED]


class Masking(tg.MessagePassing):
    def __init__(self, reducer):
        self.reducer = reducer

    def edge(self, src, dst, edge):
        return self.reducer(tg.mask(edge.s, edge.keep), edge.m)


@pytest.mark.parametrize("reducer", [Online, Guarded, Merge])
def test_masks_per_head_are_those_of_softmax(reducer):
    """Rows without a kept edge among them; scores of -inf are as good as masked."""
    keep = torch.rand(11, 2, generator=torch.Generator().manual_seed(1)) > 0.4
    keep[[0, 2, 3, 7]] = False
    found = []
    for each in (tg.softmax(), reducer()):
        s, m = draw(11, 2).requires_grad_(), draw(11, 2, 3, seed=1).requires_grad_()
        y = Masking(each)(graph=GRAPH, edge={"s": s, "m": m, "keep": keep})
        first = torch.autograd.grad(y.square().sum(), (s, m), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (s, m))
        found.append((y, *first, *second))
    for one, other in zip(*found, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_online_softmax_is_as_accurate_as_softmax(dtype):
    s, m = draw(11, 2), draw(11, 2, 3, seed=1)
    want = attended()(s.to(dtype).double(), m.to(dtype).double())
    tolerance = 4 * torch.finfo(dtype).eps
    for reducer in (tg.softmax(), Online()):
        got = call(Attend(reducer))(s.to(dtype), m.to(dtype))
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


def test_an_online_softmax_is_one_pass_on_gpus_as_well():
    pytest.importorskip("triton")
    texts = []
    for reducer in (tg.softmax(), Online()):
        kernel = Attend(reducer)
        call(kernel)(*(draw(*s, dtype=torch.float32) for s in HEADS))
        texts.append(kernel.code("triton").split("\n\n\n")[0])
    loops = [text.count("for start in range") for text in texts]
    assert loops == [1, 1]
