"""What reducers claim of themselves, tried on random states, and the states that show it false."""

import re

import pytest
import torch

import tiga as tg
from tests.folding import call, draw
from tests.sending import SendEdge
from tiga import errors, knobs


class Averages(tg.Reducer):
    """Commutative, not associative."""

    associative = commutative = True

    def identity(self):
        return torch.zeros(3)

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
        return {
            "sum": left["sum"] + right["sum"],
            "last": left["last"] + 1.0001 * right["last"],
        }

    def finalize(self, state):
        return state["sum"] + state["last"]


class Scaled(tg.Reducer):
    """A sum whose lift reads a tensor of the reducer."""

    associative = commutative = True

    def __init__(self):
        super().__init__()
        self.gain = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)

    def identity(self):
        return 0.0

    def lift(self, message):
        return message * self.gain

    def combine(self, left, right):
        return left + right


class Biased(Scaled):
    shift = 1e-6

    def combine(self, left, right):
        return left + right + self.gain * self.shift


def refusal(reducer, dtype=torch.float64):
    with knobs.scope(verify=1), pytest.raises(errors.InvalidValue) as raised:
        call(SendEdge(reducer))(draw(11, 3, dtype=dtype))
    return str(raised.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_vector_state_that_does_not_associate(dtype):
    text = refusal(Averages(), dtype)
    assert "Averages says `associative = True`" in text
    values = dict(re.findall(r"([abc]) = \[([^\]]*)\]", text))
    a, b, c = (torch.tensor([float(x) for x in values[n].split(",")]) for n in "abc")
    assert not torch.allclose(((a + b) / 2 + c) / 2, (a + (b + c) / 2) / 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_tuple_state_is_checked_in_float64(dtype):
    """In float32 the difference would pass for rounding."""
    text = refusal(Pair(), dtype)
    assert "Pair says `commutative = True`, but combine(a, b) == combine(b, a) fails" in text
    assert re.search(r"for a = \(\[.*\], \[.*\]\), b = \(\[.*\], \[.*\]\)\.", text)


def test_an_identity_that_adds_a_little():
    assert "Biased says `identity`" in refusal(Biased())


def test_a_lift_that_reads_tensors_is_checked():
    with knobs.scope(verify=1):
        m = draw(11, 3)
        kernel = SendEdge(Scaled())
        torch.testing.assert_close(
            call(kernel)(m), call(SendEdge(tg.sum()))(m * kernel.reducer.gain)
        )
