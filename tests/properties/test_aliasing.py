"""Views of the same memory, writes into them, and when they are looked at: values and derivatives
are torch's, or refused.

Torch keeps operands of what it records by reference and refuses derivatives where they changed;
here expressions keep the old value. So torch's operands are copies.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiga as tg
from tiga import errors
from tiga.frontends.tensor import evaluate

torch = pytest.importorskip("torch")

SHAPES = ((3, 4), (4, 3), (2, 3, 2), (6,), (12,))
FUNCTIONS = {
    "sin": (tg.sin, torch.sin),
    "double": (lambda x: x * 2.0, lambda x: x * 2.0),
    "square": (lambda x: x * x, lambda x: x * x),
    "sum": (lambda x: x.sum(0, keepdims=True), lambda x: x.sum(0, keepdim=True)),
}


class Refused(Exception):
    """Either library refuses what the program does."""


@dataclass
class Program:
    """Pairs of tensors, native and torch's, and what happens to them."""

    data: Any
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    leaves: list[tuple[Any, Any]] = field(default_factory=list)

    def pick(self, shape: Any = None) -> tuple[Any, Any]:
        known = [p for p in self.pairs if shape is None or tuple(p[0].shape) == tuple(shape)]
        return self.data.draw(st.sampled_from(known))

    def leaf(self, number: int) -> None:
        shape = self.data.draw(st.sampled_from(SHAPES))
        array = np.random.default_rng(number).uniform(-1, 1, shape)
        wanted = self.data.draw(st.booleans())
        pair = tg.tensor(array, requires_grad=wanted), torch.tensor(array, requires_grad=wanted)
        self.pairs.append(pair)
        if wanted:
            self.leaves.append(pair)

    def view(self) -> None:
        x, t = self.pick()
        axis = self.data.draw(st.integers(0, x.ndim - 1))
        kind = self.data.draw(st.sampled_from(["slice", "turn", "expand", "detach", "flat"]))
        if kind == "slice" and x.shape[axis] > 1:
            start = self.data.draw(st.integers(0, x.shape[axis] - 2))
            index = (slice(None),) * axis + (slice(start, None, self.data.draw(st.integers(1, 2))),)
            self.pairs.append((x[index], t[index]))
        elif kind == "turn":
            order = self.data.draw(st.permutations(range(x.ndim)))
            self.pairs.append((x.permute(*order), t.permute(*order)))
        elif kind == "expand" and x.ndim < 3:
            self.pairs.append((tg.broadcast_to(x, (2, *x.shape)), t.expand(2, *t.shape)))
        elif kind == "flat" and t.is_contiguous():
            self.pairs.append((x.reshape(-1), t.view(-1)))
        else:
            self.pairs.append((x.detach(), t.detach()))

    def compute(self) -> None:
        x, t = self.pick()
        y, u = self.pick(x.shape)
        native, other = FUNCTIONS[self.data.draw(st.sampled_from(sorted(FUNCTIONS)))]
        if self.data.draw(st.booleans()):
            self.pairs.append((native(x), other(t.clone())))
        else:
            self.pairs.append((native(x * y + x), other(t.clone() * u.clone() + t.clone())))

    def write(self) -> None:
        x, t = self.pick()
        y, u = self.pick(x.shape)
        how = self.data.draw(st.sampled_from(["add_", "mul_", "copy_", "part", "fill"]))
        try:
            self._write(t, 0.5 if how == "fill" else u.clone(), how)
        except RuntimeError as error:
            raise Refused from error
        self._write(x, 0.5 if how == "fill" else y, how)

    @staticmethod
    def _write(target: Any, value: Any, how: str) -> None:
        if how == "fill":
            target.fill_(value)
        elif how == "part":
            target[...] = value
        else:
            getattr(target, how)(value)

    def look(self) -> None:
        self.pick()[0].tolist()

    def check(self) -> None:
        for x, t in self.data.draw(st.permutations(self.pairs)):
            np.testing.assert_allclose(x.numpy(), t.detach().numpy(), rtol=1e-12, atol=1e-12)
            assert x.requires_grad == t.requires_grad
        outputs = [p for p in self.pairs if p[1].requires_grad]
        if not outputs or not self.leaves:
            return
        x, t = self.data.draw(st.sampled_from(outputs))
        ours, theirs = zip(*self.leaves, strict=True)
        try:
            want = torch.autograd.grad((t * t.clone()).sum(), theirs, allow_unused=True)
        except RuntimeError as error:
            raise Refused from error
        got = tg.autograd.grad((x * x).sum(), list(ours), allow_unused=True)
        for g, w, leaf in zip(got, want, ours, strict=True):
            zero = np.zeros(leaf.shape)
            np.testing.assert_allclose(
                zero if g is None else g.numpy(), zero if w is None else w.numpy(),
                rtol=1e-9, atol=1e-9,
            )  # fmt: skip


@given(st.data(), st.sampled_from([0, evaluate.FEW]))
@settings(max_examples=200, deadline=None)
def test_aliases_agree_with_torch(data: st.DataObject, few: int) -> None:
    """Also as large values are: they do not keep the expressions that they were computed from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "FEW", few)
        _agree(data)


def _agree(data: st.DataObject) -> None:
    program = Program(data)
    for number in range(data.draw(st.integers(1, 3))):
        program.leaf(number)
    kinds = ["view", "view", "compute", "write", "write", "look"]
    try:
        for kind in data.draw(st.lists(st.sampled_from(kinds), max_size=12)):
            getattr(program, kind)()
        program.check()
    except (Refused, errors.InvalidValue):
        pass
