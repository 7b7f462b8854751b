"""Fields as `edge` sees them: the same on tensors of torch, fused or not, and on native ones."""

from collections.abc import Callable
from typing import Any

import pytest

import tiga as tg
from tests.frontends import Native, OfTorch

GRAPH = tg.Graph.from_coo([0, 1, 1], [1, 0, 1], num_dst=2)


@pytest.fixture(params=["fused", "in blocks", "native"])
def call(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], Any]:
    """Runs an `edge` function on two fields of the edges."""
    if request.param != "native":
        pytest.importorskip("torch")
    of = Native if request.param == "native" else OfTorch
    kind = InBlocks if request.param == "in blocks" else Sends
    fields = {"m": of.tensor([1.0, 2.0, 3.0]), "w": of.tensor([1.0] * 3)}
    return lambda function: kind(function)(graph=GRAPH, edge=fields)


class Sends(tg.MessagePassing):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def edge(self, src, dst, edge):
        return self.function(edge)


class InBlocks(Sends):
    def edge(self, src, dst, edge):
        import torch

        return self.function(edge) + 0 * torch.linalg.svdvals(edge.m[:, None, None])[:, 0]


def test_fields_are_attributes_items_and_names(call) -> None:
    # No `assert` in it: that reads names of pytest's, all of which would be guarded.
    def message(edge):
        named = list(edge) == list(edge.keys()) == ["m", "w"]
        known = "m" in edge and "k" not in edge and not hasattr(edge, "k")
        return sum(edge[name] for name in edge) + getattr(edge, "k", named * known) * edge.m

    assert call(message).tolist() == [5.0, 10.0]


def test_a_field_that_was_not_passed_is_an_error_with_the_line(call) -> None:
    with pytest.raises(tg.errors.InvalidValue, match=rf"{__file__}:\d+.*`edge.k` is read"):
        call(lambda edge: edge.k)


def test_fields_cannot_be_assigned(call) -> None:
    def message(edge):
        edge.m = edge.m * 2
        return edge.m

    with pytest.raises(tg.errors.InvalidValue, match=rf"{__file__}:\d+.*use a variable"):
        call(message)
