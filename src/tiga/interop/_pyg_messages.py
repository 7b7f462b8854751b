"""The functions of a PyG layer that run per edge as one program; the rest of it stays torch."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from tiga.errors import InvalidValue, Unfusable
from tiga.frontends.message_passing import MessagePassing
from tiga.frontends.torch.capture.program import RELATION
from tiga.frontends.torch.compiled.call import ROWS, MadeUpRows
from tiga.interop._indices import EndIndex
from tiga.interop._pyg_plan import Argument, Stage
from tiga.interop._scatter import KnownRows, ScatterMode, row_message


class LayerMessages(MessagePassing):
    """The per-edge functions of a layer, for one way to call it."""

    reducer = KnownRows()
    strict = True

    def __init__(self, conv: Any, plan: tuple[Stage, ...]) -> None:
        self.conv = conv
        self.plan = plan

    def edge(self, src: Any, dst: Any, edge: Any, **params: Any) -> Any:
        conv = self.conv
        functions = {
            "edge_update": conv.edge_update,
            "message": conv.message,
            "aggregate": conv.aggregate,
        }
        views = {"src": src, "dst": dst, "edge": edge, "param": params}
        if isinstance(src, MadeUpRows):
            return run_on_rows(self.plan, functions, views)
        return run_traced(self.plan, functions, views)


# Of this module, `edge` alone is read like code of the user's: what it reaches of the layer is
# guarded and becomes inputs.
LayerMessages.edge.__module__ = "torch_geometric"


def run_traced(
    plan: tuple[Stage, ...], functions: Mapping[str, Any], views: Mapping[str, Any]
) -> Any:
    """Trace the functions of a plan one after another; the last result is one per row."""
    recorder = views["src"]._recorder
    extent = recorder.marks[RELATION.dst]
    with ScatterMode(recorder, RELATION):
        rows = _run(plan, functions, views, lambda end: EndIndex(end, recorder), extent)
    return row_message(recorder, RELATION, rows, "aggregate")


@contextmanager
def _explained(function: str, functions: Mapping[str, Any]) -> Iterator[None]:
    """Name the aggregation that asks the graph for what no program tells."""
    try:
        yield
    except InvalidValue as error:
        if function != "aggregate":
            raise
        layer = functions["aggregate"].__self__
        aggregation = type(getattr(layer, "aggr_module", layer)).__name__
        raise Unfusable(
            f"{aggregation} of {type(layer).__name__} sorts, pads or counts messages, which no "
            f"program does: call the layer itself"
        ) from error


def run_on_rows(
    plan: tuple[Stage, ...], functions: Mapping[str, Any], views: Mapping[str, Any]
) -> Any:
    """Run the functions of a plan on made up rows, one edge each, so that torch's compiler sees
    what they read."""
    return _run(plan, functions, views, lambda end: torch.arange(ROWS), ROWS)


def _run(
    plan: tuple[Stage, ...], functions: Mapping[str, Any], views: Mapping[str, Any],
    index: Callable[[str], Any], extent: Any,
) -> Any:  # fmt: skip
    """Run the functions of a plan one after another; the result of the last, `aggregate`."""
    done: dict[str, Any] = {}
    known = {**views, "stage": done}

    def value(argument: Argument) -> Any:
        kind, key = argument.kind, argument.key
        if kind == "value":
            return key
        if kind == "index":
            return index(key)
        return extent if kind == "extent" else known[kind][key]

    for stage in plan:
        before = (done["message"],) if stage.function == "aggregate" else ()
        given = {name: value(argument) for name, argument in stage.arguments}
        with _explained(stage.function, functions):
            done[stage.result] = functions[stage.function](*before, **given)
    return done["aggregate"]
