"""What reducers claim of themselves, tried on random states, and the states that show it false."""

import re

import numpy as np
import pytest

import tiga as tg
from tests.frontends import Native, OfTorch
from tests.sending import SendEdge
from tiga import errors, knobs

SRC = np.array([0, 3, 1, 2, 2, 0, 4, 1, 3, 3, 2])
DST = np.array([1, 0, 1, 1, 3, 3, 0, 1, 3, 3, 4])
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=5, num_dst=6)
MESSAGES = np.random.default_rng(0).standard_normal((11, 3)).tolist()
GAIN = [0.5, 2.0, 1.0]


@pytest.fixture(params=[OfTorch, Native])
def of(request: pytest.FixtureRequest) -> type:
    """Tensors of a frontend."""
    if request.param is OfTorch:
        pytest.importorskip("torch")
    return request.param


class Averages(tg.Reducer):
    """Commutative, not associative."""

    associative = commutative = True

    def __init__(self, of: type) -> None:
        super().__init__()
        self.start = of.tensor([0.0] * 3, "float32")

    def identity(self):
        return self.start

    def combine(self, left, right):
        return (left + right) / 2


class Pair(tg.Reducer):
    """The second component depends on the order, by one part in ten thousand."""

    associative = commutative = True

    def identity(self):
        return {"sum": 0.0, "last": 0.0}

    def lift(self, message):
        return {"sum": message, "last": message}

    def combine(self, left, right):
        last = left["last"] + 1.0001 * right["last"]
        return {"sum": left["sum"] + right["sum"], "last": last}

    def finalize(self, state):
        return state["sum"] + state["last"]


class Scaled(tg.Reducer):
    """A sum whose lift reads a tensor of the reducer; with a `shift` it has no identity."""

    associative = commutative = True

    def __init__(self, of: type, shift: float = 0.0) -> None:
        super().__init__()
        self.gain, self.shift = of.tensor(GAIN), shift

    def identity(self):
        return 0.0

    def lift(self, message):
        return message * self.gain

    def combine(self, left, right):
        return left + right + self.shift


def sent(of: type, reducer: tg.Reducer, dtype: str = "float64") -> list[list[float]]:
    messages = of.tensor(MESSAGES, dtype)
    return SendEdge(reducer)(graph=GRAPH, edge={"m": messages}).tolist()


def refusal(of: type, reducer: tg.Reducer, dtype: str = "float64") -> str:
    with knobs.scope(verify=1), pytest.raises(errors.InvalidValue) as raised:
        sent(of, reducer, dtype)
    return str(raised.value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_vector_state_that_does_not_associate(of: type, dtype: str) -> None:
    text = refusal(of, Averages(of), dtype)
    assert "Averages says `associative = True`" in text
    values = dict(re.findall(r"([abc]) = \[([^\]]*)\]", text))
    a, b, c = (np.array([float(x) for x in values[n].split(",")]) for n in "abc")
    assert not np.allclose(((a + b) / 2 + c) / 2, (a + (b + c) / 2) / 2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_tuple_state_is_checked_in_float64(of: type, dtype: str) -> None:
    """In float32 the difference would pass for rounding."""
    text = refusal(of, Pair(), dtype)
    assert "Pair says `commutative = True`, but combine(a, b) == combine(b, a) fails" in text
    assert re.search(r"for a = \(\[.*\], \[.*\]\), b = \(\[.*\], \[.*\]\)\.", text)


def test_an_identity_that_adds_a_little(of: type) -> None:
    assert "Scaled says `identity`" in refusal(of, Scaled(of, shift=1e-6))


def test_claims_that_hold_change_nothing(of: type) -> None:
    with knobs.scope(verify=1):
        got = sent(of, Scaled(of))
    np.testing.assert_allclose(got, np.array(sent(of, tg.sum())) * GAIN, rtol=1e-12)


def test_nothing_is_tried_without_checks(of: type) -> None:
    with knobs.scope(verify=0):
        assert len(sent(of, Averages(of))) == 6
    assert "Averages says" in refusal(of, Averages(of))  # whatever was made without


def test_long_rows_of_associative_reducers_are_split() -> None:
    count = 9000
    graph = tg.Graph.from_coo(np.zeros(count, np.int64), np.zeros(count, np.int64), num_src=1,
                              num_dst=1)  # fmt: skip
    rng = np.random.default_rng(1)
    factors = rng.uniform(0.999, 1.001, (count, 1))

    class Gated(tg.Reducer):
        """A linear recurrence, which is no monoid that is recognised."""

        associative = True

        def identity(self):
            return {"a": 1.0, "b": 0.0}

        def lift(self, message):
            return {"a": message, "b": 1.0 - message * 0.5}

        def combine(self, left, right):
            return {"a": left["a"] * right["a"], "b": left["b"] * right["a"] + right["b"]}

        def finalize(self, state):
            return state["b"]

    got = SendEdge(Gated())(graph=graph, edge={"m": tg.tensor(factors)}).numpy()
    want = 0.0
    for factor in factors[:, 0]:
        want = want * factor + 1.0 - factor * 0.5
    np.testing.assert_allclose(got, [[want]], rtol=1e-10)
