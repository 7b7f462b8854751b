"""What reducers on native tensors claim of themselves, tried on random states."""

import re

import numpy as np
import pytest

import tiga as tg
from tests.sending import SendEdge
from tiga import errors, knobs

SRC = np.array([0, 3, 1, 2, 2, 0, 4, 1, 3, 3, 2])
DST = np.array([1, 0, 1, 1, 3, 3, 0, 1, 3, 3, 4])
GRAPH = tg.Graph.from_coo(SRC, DST, num_src=5, num_dst=6)


class Averages(tg.Reducer):
    """Commutative, not associative."""

    associative = commutative = True

    def identity(self):
        return tg.zeros(3)

    def combine(self, left, right):
        return (left + right) / 2


class Last(tg.Reducer):
    """The last message: it depends on the order."""

    associative = commutative = True

    def identity(self):
        return {"sum": 0.0, "last": 0.0}

    def lift(self, message):
        return {"sum": message, "last": message}

    def combine(self, left, right):
        return {"sum": left["sum"] + right["sum"], "last": 0.0 * left["last"] + right["last"]}

    def finalize(self, state):
        return state["sum"] + state["last"]


class Scaled(tg.Reducer):
    """A sum whose lift reads a tensor of the reducer."""

    associative = commutative = True
    shift = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.gain = tg.tensor([0.5, 2.0, 1.0], dtype=tg.float64)

    def identity(self):
        return 0.0

    def lift(self, message):
        return message * self.gain

    def combine(self, left, right):
        return left + right + self.shift


def sent(reducer: tg.Reducer, dtype: object = tg.float64) -> tg.Tensor:
    m = tg.tensor(np.random.default_rng(0).standard_normal((11, 3))).astype(dtype)
    return SendEdge(reducer)(graph=GRAPH, edge={"m": m})


def refusal(reducer: tg.Reducer, dtype: object = tg.float64) -> str:
    with knobs.scope(verify=1), pytest.raises(errors.InvalidValue) as raised:
        sent(reducer, dtype)
    return str(raised.value)


@pytest.mark.parametrize("dtype", [tg.float16, tg.float32, tg.float64], ids=str)
def test_a_vector_state_that_does_not_associate(dtype: object) -> None:
    text = refusal(Averages(), dtype)
    assert "Averages says `associative = True`" in text
    values = dict(re.findall(r"([abc]) = \[([^\]]*)\]", text))
    a, b, c = (np.array([float(x) for x in values[n].split(",")]) for n in "abc")
    assert not np.allclose(((a + b) / 2 + c) / 2, (a + (b + c) / 2) / 2)


def test_a_state_that_does_not_commute() -> None:
    text = refusal(Last())
    assert "Last says `commutative = True`, but combine(a, b) == combine(b, a) fails" in text


def test_an_identity_that_adds_a_little() -> None:
    reducer = Scaled()
    reducer.shift = 1e-6
    assert "Scaled says `identity`" in refusal(reducer)


def test_claims_that_hold_change_nothing() -> None:
    with knobs.scope(verify=1):
        got = sent(Scaled()).numpy()
    np.testing.assert_allclose(got, sent(tg.sum()).numpy() * [0.5, 2.0, 1.0], rtol=1e-12)


def test_nothing_is_tried_without_checks() -> None:
    with knobs.scope(verify=0):
        assert sent(Averages()).shape == (6, 3)


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
