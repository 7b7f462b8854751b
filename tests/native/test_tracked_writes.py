"""Writes in place that derivatives pass through: values and gradients are torch's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiga as tg
from tiga import errors

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(3)
VIEWS = {
    "whole": lambda x: x,
    "row": lambda x: x[1],
    "columns": lambda x: x[:, 1:3],
    "turned": lambda x: x.transpose(0, 1),
    "stepped": lambda x: x[::2],
    "flat": lambda x: x.reshape(12),
}


def steps(draw: list, library, x, y):
    """A value that was written into through views, and a view of it made before the writes."""
    base = x * 1.5
    kept = base[:, 1:]
    squares = base * base  # reads the value before it is written
    for view, how, number in draw:
        part = VIEWS[view](base)
        shape = tuple(part.shape)
        picked = y.reshape(12)[: int(np.prod(shape))].reshape(shape)
        if how == "add":
            part.add_(picked)
        elif how == "mul":
            part.mul_(picked * number)
        elif how == "copy":
            part.copy_(picked)
        elif how == "fill":
            part.fill_(number)
        else:
            part[...] = picked * number
    return base, kept, squares


draws = st.lists(
    st.tuples(
        st.sampled_from(sorted(VIEWS)),
        st.sampled_from(["add", "mul", "copy", "fill", "set"]),
        st.sampled_from([0.5, 2.0, -1.0]),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=60)
@given(draws)
def test_writes_through_views(draw: list) -> None:
    a, b = RNG.uniform(0.5, 2, (3, 4)), RNG.uniform(0.5, 2, (3, 4))
    found = []
    for library, make in ((tg, tg.tensor), (torch, torch.tensor)):
        x, y = (make(array, requires_grad=True) for array in (a, b))
        base, kept, squares = steps(draw, library, x, y)
        loss = (base * base * base).sum() + (kept * 0.3).sum()
        if library is tg:
            loss = loss + squares.sum()
            slopes = tg.autograd.grad(loss, (x, y), allow_unused=True)
            slopes = [np.zeros((3, 4)) if s is None else s.numpy() for s in slopes]
            found.append((base.numpy(), kept.numpy(), *slopes))
        else:
            # torch cannot go back through a square of what was written since: by hand.
            slopes = torch.autograd.grad(loss, (x, y), allow_unused=True)
            slopes = [np.zeros((3, 4)) if s is None else s.numpy() for s in slopes]
            slopes[0] = slopes[0] + 2 * 1.5 * 1.5 * a
            found.append((base.detach().numpy(), kept.detach().numpy(), *slopes))
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_a_buffer_becomes_part_of_the_graph() -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    out = tg.zeros(5)
    view = out[3:]
    out[1:4] = x * x
    assert out.requires_grad
    assert not out.is_leaf
    assert out.version == view.version == 1
    assert out.tolist() == [0, 1, 4, 9, 0]
    assert view.tolist() == [9, 0]
    assert tg.autograd.grad((view * 2.0).sum(), x).tolist() == [0, 0, 12]
    assert tg.autograd.grad(out.sum(), x).tolist() == [2, 4, 6]
    out[tg.tensor([0, 4])] = x[:2]
    assert tg.autograd.grad(out.sum(), x).tolist() == [3, 5, 6]
    out.zero_()
    assert tg.autograd.grad(out.sum(), x, allow_unused=True) is None


def test_second_derivatives_pass_through_writes() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.mul_(x)
    first = tg.autograd.grad(y.sum(), x)
    assert first.tolist() == [3.0, 12.0]
    assert tg.autograd.grad(first.sum(), x).tolist() == [6.0, 12.0]


def test_a_part_that_was_not_written_stays_apart() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    out = tg.zeros(4)
    other = out[2:]
    out[:2] = x
    assert not other.requires_grad
    other.add_(1.0)
    assert out.tolist() == [1, 2, 1, 1]
    assert tg.autograd.grad(out.sum(), x).tolist() == [1, 1]


def test_a_freed_buffer_is_named() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    x.add_(1.0)
    y = (x * x).sum()
    x.add_(1.0)
    with pytest.raises(errors.InvalidValue, match=r"test_tracked_writes.py:\d+ was changed in"):
        tg.autograd.grad(y, x)


def test_a_write_through_a_view_of_a_view_keeps_what_was_built_before() -> None:
    """All three wait for their value when the write comes."""
    w = tg.tensor([[-2.0]], requires_grad=True)
    x = w * 1.0
    view = x.reshape(-1, 1)
    square = x * x
    inner = view.reshape(1, 1)
    inner.add_(-1.5)
    assert square.tolist() == [[4.0]]
    assert x.tolist() == view.tolist() == [[-3.5]]
    assert tg.autograd.grad((x * x).sum(), w).tolist() == [[-7.0]]
    assert tg.autograd.grad(square.sum(), w).tolist() == [[-4.0]]


def test_axes_of_one_element_leave_no_gaps() -> None:
    x = tg.arange(4).reshape(4, 1)
    turned = x.T
    assert turned.is_contiguous
    flat = turned.reshape(4)
    x.add_(1)
    assert flat.tolist() == [1, 2, 3, 4]
