"""The functions of a PyG layer that run per edge as one program; the rest of it stays torch."""

from collections.abc import Mapping
from typing import Any

import torch

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
        views = {"src": src, "dst": dst, "edge": edge}
        if isinstance(src, MadeUpRows):
            return run_on_rows(self.plan, functions, views, params)
        return run_stages(self.plan, functions, views, params)


# Of this module, `edge` alone is read like code of the user's: what it reaches of the layer is
# guarded and becomes inputs.
LayerMessages.edge.__module__ = "torch_geometric"


def run_stages(
    plan: tuple[Stage, ...], functions: Mapping[str, Any], views: Mapping[str, Any],
    params: Mapping[str, Any],
) -> Any:  # fmt: skip
    """Trace the functions of a plan one after another; the last result is one per row."""
    recorder = views["src"]._recorder
    done: dict[str, Any] = {}

    def value(argument: Argument) -> Any:
        kind, key = argument.kind, argument.key
        if kind in views:
            return views[kind][key]
        if kind == "index":
            return EndIndex(key, recorder)
        if kind == "extent":
            return recorder.marks[RELATION.dst]
        return {"param": params, "stage": done}[kind][key] if kind != "value" else key

    with ScatterMode(recorder, RELATION):
        for stage in plan:
            before = (done["message"],) if stage.function == "aggregate" else ()
            given = {name: value(argument) for name, argument in stage.arguments}
            done[stage.result] = functions[stage.function](*before, **given)
    return row_message(recorder, RELATION, done["aggregate"], "aggregate")


def run_on_rows(
    plan: tuple[Stage, ...], functions: Mapping[str, Any], views: Mapping[str, Any],
    params: Mapping[str, Any],
) -> Any:  # fmt: skip
    """Run the functions of a plan on made up rows, one edge each, so that torch's compiler sees
    what they read."""
    done: dict[str, Any] = {}
    for stage in plan:
        given: dict[str, Any] = {}
        for name, argument in stage.arguments:
            kind, key = argument.kind, argument.key
            if kind in views:
                given[name] = views[kind][key]
            elif kind == "index":
                given[name] = torch.arange(ROWS)
            elif kind == "extent":
                given[name] = ROWS
            elif kind == "value":
                given[name] = key
            else:
                given[name] = params[key] if kind == "param" else done[key]
        before = (done["message"],) if stage.function == "aggregate" else ()
        done[stage.result] = functions[stage.function](*before, **given)
    return done["aggregate"]
