"""Arrays under any sequence of functions, views, writes and looks: the elements are numpy's.

Among them are values without memory, of which expressions are folded, and expressions that wait
while what they read is written. All numbers are quarters, which functions of 16-bit floats too give
exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiga as tg
from tiga.frontends.tensor import evaluate

Pair = tuple[tg.Tensor, np.ndarray]
Both = tuple[Callable[..., Any], Callable[..., Any]]

SHAPES = ((), (4,), (1, 4), (2, 3), (2, 0))
DTYPES = ("float16", "float64")


def _linear(x: tg.Tensor) -> tg.Tensor:
    """Twos: the gradient of what is linear, which is a number."""
    leaf = tg.tensor(x.detach(), requires_grad=True)
    return tg.autograd.grad((leaf * 2.0).sum(), leaf)


COMPUTED: dict[str, Both] = {
    "negative": (lambda x: -x, np.negative),
    "abs": (tg.abs, np.abs),
    "floor": (tg.floor, np.floor),
    "relu": (tg.relu, lambda x: np.maximum(x, 0)),
    "half": (lambda x: x * 0.5, lambda x: x * x.dtype.type(0.5)),
    "positive": (lambda x: tg.where(x > 0, x, 1.0), lambda x: np.where(x > 0, x, x.dtype.type(1))),
    "zeros": (tg.imag, np.zeros_like),
    "twos": (_linear, lambda x: np.full_like(x, 2)),
    "flip": (tg.flip, np.flip),
    "roll": (lambda x: tg.roll(x, 1), lambda x: np.roll(x, 1)),
    "same": (lambda x: +x, np.copy),
    "backwards": (lambda x: x[..., ::-1] if x.ndim else x * 1.0, lambda x: np.flip(x, -1).copy()
                  if x.ndim else x.copy()),
    "sum": (lambda x: tg.sum(x, keepdims=True), lambda x: np.sum(x, keepdims=True)),
    "sum of columns": (lambda x: x.sum(0) if x.ndim else x * 1.0,
                       lambda x: x.sum(0) if x.ndim else x.copy()),
    "running sum": (lambda x: tg.cumulative_sum(x, axis=-1) if x.ndim else x * 1.0,
                    lambda x: np.cumsum(x, axis=-1) if x.ndim else x.copy()),
    "sorted": (lambda x: tg.sort(x) if x.ndim else x * 1.0,
               lambda x: np.sort(x, kind="stable") if x.ndim else x.copy()),
    "largest": (lambda x: tg.max(x) if x.size else x * 1.0,
                lambda x: np.max(x) if x.size else x.copy()),
    "where it is": (lambda x: tg.argmax(x).astype(x.dtype) if x.size else x * 1.0,
                    lambda x: np.argmax(x).astype(x.dtype) if x.size else x.copy()),
}  # fmt: skip
JOINED: dict[str, Both] = {
    "add": (tg.add, np.add),
    "subtract": (tg.subtract, np.subtract),
    "multiply": (tg.multiply, np.multiply),
    "maximum": (tg.maximum, np.maximum),
    "choice": (lambda x, y: tg.where(x < y, x, y), lambda x, y: np.where(x < y, x, y)),
}
VIEWS: dict[str, Both] = {
    "turned": (lambda x: x.permute(*range(x.ndim)[::-1]), np.transpose),
    "row": (lambda x: x[:1] if x.ndim else x[...], lambda x: x[:1] if x.ndim else x[...]),
    "every other": (lambda x: x[..., ::2] if x.ndim else x[...],
                    lambda x: x[..., ::2] if x.ndim else x[...]),
    "new axis": (lambda x: x[None] if x.ndim < 3 else x[...],
                 lambda x: x[None] if x.ndim < 3 else x[...]),
    "squeezed": (tg.squeeze, np.squeeze),
}  # fmt: skip
WRITES = ("add", "scale", "fill", "fill", "copy", "part")
COMPOSED: dict[str, Both] = {
    "softmax": (tg.softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "log_softmax": (tg.log_softmax, lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
    "std": (tg.std, np.std),
    "logsumexp": (tg.logsumexp, lambda x: np.log(np.exp(x).sum())),
}


def _quarters(x: Any) -> Any:
    """Quarters up to 8, in x's dtype."""
    clip, floor = (tg.clip, tg.floor) if isinstance(x, tg.Tensor) else (np.clip, np.floor)
    return floor(clip(x, -8, 8) * 4) * x.dtype.type(0.25) if clip is np.clip else (
        floor(clip(x, -8.0, 8.0) * 4) * 0.25
    )  # fmt: skip


@dataclass
class Arrays:
    """Tensors and the arrays that they are; views of one are views of the other."""

    data: Any
    pairs: list[Pair] = field(default_factory=list)

    def start(self) -> None:
        shape, dtype = self._one_of(SHAPES), self._one_of(DTYPES)
        seed = self.data.draw(st.integers(0, 99))
        array = np.random.default_rng(seed).integers(-16, 17, shape) / 4
        made = np.array(array, dtype)
        self.pairs.append((tg.tensor(made), made))

    def compute(self) -> None:
        x, array = self._recent()
        native, other = COMPUTED[self._one_of(sorted(COMPUTED))]
        self._keep(native(x), other(array))

    def join(self) -> None:
        (x, a), (y, b) = self._recent(), self._recent()
        native, other = JOINED[self._one_of(sorted(JOINED))]
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            return
        if np.prod(shape) <= 24:
            self._keep(native(x, y), other(a, b))

    def _keep(self, made: tg.Tensor, array: Any) -> None:
        self.pairs.append((_quarters(made), np.array(_quarters(np.asarray(array)))))

    def view(self) -> None:
        x, array = self._recent()
        native, other = VIEWS[self._one_of(sorted(VIEWS))]
        self.pairs.append((native(x), other(array)))

    def write(self) -> None:
        (x, a), (y, b) = self._recent(), self._recent()
        how = self._one_of(WRITES)
        if how == "add":
            x.add_(0.25)
            a += a.dtype.type(0.25)
        elif how == "scale":
            x.mul_(0.0)
            a *= 0
        elif how == "fill":
            x.fill_(2.0)
            a[...] = 2
        elif a.shape == b.shape:
            source = b.copy()
            if how == "copy":
                x.copy_(y)
            else:
                x[...] = y
            a[...] = source

    def look(self) -> None:
        self._compare(*self._recent())

    def compose(self) -> None:
        """A function whose expression is built once; of what is rounded nothing else is made."""
        x, array = self._recent()
        name = self._one_of(sorted(COMPOSED))
        if not array.size or (not array.ndim and name.endswith("softmax")):
            return
        native, other = COMPOSED[name]
        limit = 4 * np.finfo(array.dtype).eps
        got, want = native(x), other(array.astype(np.float64))
        np.testing.assert_allclose(got.numpy(), want, rtol=limit, atol=8 * limit)

    def check(self) -> None:
        for x, array in self.data.draw(st.permutations(self.pairs)):
            self._compare(x, array)

    @staticmethod
    def _compare(x: tg.Tensor, array: np.ndarray) -> None:
        assert x.dtype.name == array.dtype.name
        np.testing.assert_array_equal(x.numpy(), array)

    def _recent(self) -> Pair:
        """One of the last few: what happens to one of them matters to the others."""
        return self._one_of(self.pairs[-4:])

    def _one_of(self, values: Any) -> Any:
        return self.data.draw(st.sampled_from(values))


STEPS = (
    "start",
    "compute",
    "compute",
    "join",
    "view",
    "write",
    "write",
    "look",
    "compose",
    "compose",
)


def _run(data: st.DataObject, most: int) -> None:
    arrays = Arrays(data)
    arrays.start()
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=most)):
        getattr(arrays, step)()
    arrays.check()


@pytest.mark.parametrize("few", [0, evaluate.FEW], ids=["as large values", "as small values"])
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_arrays(few: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "FEW", few)
        _run(data, 20)


@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_compiled_arrays(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIGA_TENSOR_BACKEND", "native")
        _run(data, 10)
