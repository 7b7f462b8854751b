"""Moves of values, drawn at random: as windows, in kernels, and by numpy they are the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiga as tg
from tiga.backends.reference.dense import apply_op
from tiga.ops.base import Op
from tiga.ops.feature import Broadcast, Permute, Reshape
from tiga.ops.leaf import Input
from tiga.ops.tensor_views import Slice, Unslice
from tiga.passes.tensor_windows import Window, window_of
from tiga.trace.node import Node
from tiga.types import GLOBAL, Shape, Type, float32

EXTENTS = st.sampled_from([1, 2, 3, 5])


@st.composite
def moves(draw: Any, shape: Shape) -> Op:
    """A move of values of a shape."""
    axis = draw(st.integers(0, len(shape) - 1))
    extent = shape[axis]
    kind = draw(st.sampled_from(["slice", "permute", "unslice", "broadcast", "join", "part"]))
    if kind == "slice":
        start, step = draw(st.integers(0, extent - 1)), draw(st.sampled_from([1, 1, 2, -1, -2]))
        room = (extent - 1 - start) // step if step > 0 else start // -step
        return Slice(axis, start, draw(st.integers(1, room + 1)), step)
    if kind == "permute":
        return Permute(tuple(draw(st.permutations(range(len(shape))))))
    if kind == "unslice":
        before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        return Unslice(axis, before, 1, before + extent + after)
    if kind == "broadcast":
        wide = tuple(draw(EXTENTS) if e == 1 else e for e in shape)
        return Broadcast((2, *wide) if draw(st.booleans()) else wide)
    if kind == "part" and extent % 2 == 0:
        return Reshape((*shape[:axis], extent // 2, 2, *shape[axis + 1 :]))
    if axis + 1 < len(shape):
        return Reshape((*shape[:axis], extent * shape[axis + 1], *shape[axis + 2 :]))
    return Reshape((*shape, 1))


def elements(window: Window, memory: np.ndarray) -> np.ndarray:
    """The elements of a window, one by one."""
    found = np.zeros(window.shape, memory.dtype)
    for place in np.ndindex(*window.shape):
        if all(b.low <= place[b.axis] < b.high for b in window.bounds):
            offset = sum(p * s for p, s in zip(place, window.steps, strict=True))
            found[place] = memory.reshape(-1)[window.start + offset]
    return found


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_windows_are_what_their_moves_say(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(EXTENTS, min_size=1, max_size=3)))
    node: Node = Input("x", Type(float32, shape, GLOBAL))()
    memory = np.arange(1.0, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    values, known = {node: memory}, {}
    for _ in range(data.draw(st.integers(1, 5))):
        made = data.draw(moves(node.type.shape))(node)  # perhaps of what `node` is made of
        if made in values:
            continue
        values[made] = np.asarray(apply_op(made, [values[made.inputs[0]][None]]))[0]
        window = window_of(made, known)
        if window is None:
            return
        known[made] = window
        node = made
        np.testing.assert_array_equal(elements(window, memory), values[made])


Step = Callable[[tg.Tensor], tg.Tensor]

STEPS: dict[str, Step] = {
    "later": lambda x: x[..., 1:] * 2.0 - x[..., :-1],
    "first": lambda x: x[1:] - x[:-1],
    "inner": lambda x: x[..., 1:-1],
    "backwards": lambda x: tg.flip(x, axis=-1),
    "upside down": lambda x: x[::-1],
    "halves": lambda x: x[..., ::2] + 0.0,
    "padded": lambda x: tg.pad(x, [(1, 2), *[(0, 0)] * (x.ndim - 2), (2, 1)][-x.ndim :]),
    "filled": lambda x: tg.pad(-x, [(0, 0)] * (x.ndim - 1) + [(3, 0)], value=0.5),
    "rolled": lambda x: tg.roll(x, 3, axis=-1) + tg.roll(x, -1, axis=0),
    "turned": lambda x: tg.permute_dims(x, tuple(reversed(range(x.ndim)))) * 0.5,
    "joined": lambda x: tg.concat([x, -x[..., :1], x * x], axis=-1),
    "stacked": lambda x: tg.stack([x, x + 1.0], axis=0)[0],
    "halved": lambda x: tg.concat([-x[..., 2:], x[..., :2]], axis=-1),
    "on top": lambda x: tg.concat([x[:1], x, x[-1:]], axis=0),
    "sum": lambda x: x - x.sum(axis=-1, keepdims=True),
    "mean": lambda x: x - x.mean(axis=0, keepdims=True),
    "flat": lambda x: x.reshape(-1)[1:-1].reshape(1, -1),
    "exp": lambda x: tg.exp(-tg.abs(x)),
    "running": lambda x: tg.cumulative_sum(x[..., 1:], axis=-1),
    "picked": lambda x: tg.take(x[..., 1:], tg.tensor([0, -1]), axis=-1),
}  # fmt: skip
DTYPES = ("float32", "float64", "complex64", "bfloat16", "int32")
NEED_FLOATS = ("exp", "mean", "halves", "turned", "filled", "later")


def ran(steps: list[str], array: np.ndarray, backend: str) -> np.ndarray:
    x = tg.tensor(array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIGA_TENSOR_BACKEND", backend)
        for name in steps:
            if min(x.shape) < 4:
                break
            x = STEPS[name](x)
        return x.numpy()


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    st.sampled_from([(40,), (9, 33), (33, 9), (5, 6, 70), (4, 33, 8)]),
    st.sampled_from(DTYPES),
)
@settings(max_examples=60, deadline=None)
def test_kernels_read_moves_where_they_lie(
    steps: list[str], shape: Shape, dtype: str
) -> None:  # fmt: skip
    kinds = [s for s in steps if dtype != "int32" or s not in NEED_FLOATS]
    rng = np.random.default_rng(len(steps))
    array = rng.integers(-4, 5, shape).astype(getattr(tg, dtype).numpy)
    if dtype == "complex64":
        array = array + 1j * rng.integers(-4, 5, shape).astype(np.float32)
        array = array.astype(np.complex64)
    got, want = ran(kinds, array, "native"), ran(kinds, array, "python")
    assert got.dtype == want.dtype
    width = {"bfloat16": 2e-2, "float64": 1e-12}.get(dtype, 1e-5)
    wide = np.complex128 if dtype == "complex64" else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=width, atol=width)


@pytest.mark.parametrize("name", sorted(STEPS))
@pytest.mark.parametrize("shape", [(6, 70), (67, 5), (4, 5, 40)])
def test_every_move_in_a_kernel(name: str, shape: Shape) -> None:
    array = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(
        ran([name, "exp"], array, "native"), ran([name, "exp"], array, "python"), rtol=1e-12
    )


@pytest.mark.parametrize(
    "name",
    ["later", "first", "inner", "backwards", "padded", "rolled", "joined", "halved", "on top"],
)
def test_moves_are_no_calls_of_a_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")
    y = tg.exp(STEPS[name](tg.ones((8, 64)) * 1.0)).realize()
    assert y.execution is not None
    assert y.execution["library_calls"] == ()


def test_a_gradient_of_differences_is_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")
    x = tg.tensor(np.random.default_rng(0).normal(size=(40, 50)), requires_grad=True)
    energy = ((x[1:] - x[:-1]) ** 2).sum() + ((x[:, 1:] - x[:, :-1]) ** 2).sum()
    g = tg.autograd.grad(energy, x).realize()
    assert g.execution is not None
    assert g.execution["kernels"] == 1
    a = x.numpy()
    want = np.zeros_like(a)
    for axis in (0, 1):
        d = 2 * np.diff(a, axis=axis)
        cut = [(0, 0), (0, 0)]
        cut[axis] = (1, 0)
        want += np.pad(d, cut)
        cut[axis] = (0, 1)
        want -= np.pad(d, cut)
    np.testing.assert_allclose(g.numpy(), want, rtol=1e-12, atol=1e-12)


def test_other_extents_need_no_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGA_TENSOR_BACKEND", "native")

    def compiled(rows: int, columns: int) -> bool:
        x = tg.tensor(np.random.default_rng(0).normal(size=(rows, columns)))
        y = tg.tanh(x[1:-1, 2:-2] * 1.25 - x[2:, :-4] + x[:-2, 4:]).realize()
        assert y.execution is not None
        return bool(y.execution["compile_ms"] > 1.0)

    compiled(40, 50)
    assert not compiled(41, 53)
    assert not compiled(77, 64)
