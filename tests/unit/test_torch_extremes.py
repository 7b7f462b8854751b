"""Functions of messages far out, where a formula overflows or cancels before the result does."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tiga as tg

inf, nan = float("inf"), float("nan")
ONE = {
    "sinh": torch.sinh, "cosh": torch.cosh, "tan": torch.tan, "elu": torch.nn.functional.elu,
}  # fmt: skip
TWO = {"hypot": torch.hypot, "logaddexp": torch.logaddexp, "atan2": torch.atan2}
POINTS = (nan, inf, -inf, 0.5, -0.5, 1e-30, 1e-4, 20.5, -20.5, 88.5, -88.5, 1e30, -1e30)


class All(tg.MessagePassing):
    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        return {
            **{name: f(edge.a) for name, f in ONE.items()},
            **{name: f(edge.a, edge.b) for name, f in TWO.items()},
        }


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-37, equal_nan=True)


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_functions_far_out(name: str) -> None:
    points = torch.tensor(list(itertools.product(POINTS, repeat=2))).T.contiguous()
    nodes = torch.arange(points.shape[1])
    graph = tg.Graph.from_coo(nodes, nodes, num_src=len(nodes), num_dst=len(nodes))
    function: Callable[..., Any] = {**ONE, **TWO}[name]
    a, b = (row.clone().requires_grad_() for row in points)
    out = All()(graph=graph, src={}, dst={}, edge={"a": a, "b": b})[name]
    wide = [row.double().requires_grad_() for row in points][: 1 if name in ONE else 2]
    exact = function(*wide)
    expected = exact.float()
    close(out, expected)
    given = [a, b][: len(wide)]
    for slope, other in zip(
        torch.autograd.grad(out.sum(), given), torch.autograd.grad(exact.sum(), wide), strict=True
    ):
        known = expected.isfinite() & (other.abs() < 1e38)
        close(slope[known], other[known].float())
