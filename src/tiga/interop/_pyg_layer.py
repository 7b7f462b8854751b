"""The whole `forward` of a PyG layer as one program: what it computes per node included."""

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.nn.modules.module import _has_any_global_hook

from tiga.errors import TigaError, Unfusable
from tiga.frontends.message_passing import MessagePassing
from tiga.frontends.torch.capture import SQUARE
from tiga.frontends.torch.tracer import Recorder, Traced
from tiga.frontends.torch.tree import tree_map
from tiga.interop._pyg_plan import ABSENT, ENDS, EXTENTS, HOOKS, INDICES, Argument
from tiga.interop._scatter import EndIndex, EndIndices, Rows, ScatterMode, row_message
from tiga.ops.message import Gather, gather

EDGE_INDEX = "edge_index"
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""What may run at every call of a module. Programs are made once."""


HOOKED = "a hook runs at every call of a module of the layer"
"""Why such a layer is not one program: until the hook is removed, as that of lazy modules is."""


class NotWhole(TigaError):
    """No program can hold a layer's `forward`."""


@dataclass(frozen=True)
class Layout:
    """How a call passes its arguments, by name of a parameter of `forward`.

    `training` is the layer's. The kinds of an `Argument` are "ndata", "edge" and "param" for
    tensors of the nodes, of the edges and of neither, "index" for the indices of the edges, and
    "value" for what is no tensor.
    """

    arguments: tuple[tuple[str, Argument], ...]
    training: bool


@dataclass
class Call:
    """One call of a layer: its layout, the tensors by kind and name, and the indices."""

    edge_index: torch.Tensor
    num_nodes: int
    layout: Layout
    fields: dict[str, dict[str, torch.Tensor]]


@lru_cache(maxsize=256)
def _parameters(forward: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(forward).parameters)[1:]


def call_of(conv: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
    """What is passed to a layer on one set of nodes; None where that cannot be told."""
    if conv.explain or any(getattr(conv, hook) for hook in HOOKS) or _has_any_global_hook():
        return None
    names = _parameters(type(conv).forward)
    given: dict[str, Any] = {**dict(zip(names, args, strict=False)), **kwargs}
    edge_index: Any = given.get(EDGE_INDEX)
    if len(given) != len(args) + len(kwargs) or type(edge_index) is not torch.Tensor:
        return None
    if edge_index.layout is not torch.strided or edge_index.dtype not in (torch.int64, torch.int32):
        return None
    if edge_index.dim() != 2 or len(edge_index) != 2:
        return None
    tensors = [v for n, v in given.items() if isinstance(v, torch.Tensor) and n != EDGE_INDEX]
    first: Any = next((t for t in tensors if t.dim()), None)
    if first is None or first.shape[0] == edge_index.shape[1] or conv.node_dim % first.dim():
        return None
    arguments: list[tuple[str, Argument]] = []
    fields: dict[str, dict[str, torch.Tensor]] = {"ndata": {}, "edge": {}, "param": {}}
    for name, value in given.items():
        kind = _kind(name, value, first.shape[0], edge_index.shape[1])
        if kind is None:
            return None
        arguments.append((name, Argument(kind, value if kind == "value" else name)))
        if kind in fields:
            fields[kind][name] = value
    return Call(edge_index, first.shape[0], Layout(tuple(arguments), conv.training), fields)


def _kind(name: str, value: Any, num_nodes: int, num_edges: int) -> str | None:
    if name == EDGE_INDEX:
        return "index"
    if value is None or isinstance(value, (bool, str)):
        return "value"
    if not isinstance(value, torch.Tensor):
        return None
    if not value.dim() or isinstance(value, torch.nn.Parameter):
        return "param"
    return {num_nodes: "ndata", num_edges: "edge"}.get(value.shape[0], "param")


class WholeLayer(MessagePassing):
    """A layer's `forward`, for one way to call it."""

    reducer = Rows()
    strict = True

    def __init__(self, conv: Any, layout: Layout) -> None:
        self.conv = conv
        self.layout = layout

    def edge(self, src: Any, dst: Any, edge: Any, **params: Any) -> Any:
        conv = self.conv
        # Named here, where names are looked up, so that what these functions read is guarded.
        functions = {
            "message": conv.message, "aggregate": conv.aggregate, "update": conv.update,
            "edge_update": conv.edge_update,
        }  # fmt: skip
        return LayerTrace(conv, functions, dst._recorder).run(self.layout, dst, edge, params)


# Of this module, `edge` alone is read like code of the user's: what it reaches of the layer is
# guarded and becomes inputs.
WholeLayer.edge.__module__ = "torch_geometric"


@dataclass
class LayerTrace:
    """One trace of a layer's `forward`, run on a copy whose messages are traced with it."""

    conv: Any
    functions: Mapping[str, Any]
    recorder: Recorder

    def run(self, layout: Layout, nodes: Any, edges: Any, params: Mapping[str, Any]) -> Any:
        """What the layer returns, as `edge` returns values of rows.

        Raises:
            NotWhole: no program can hold it.
        """
        self._require_no_hooks()
        layer = copy.copy(self.conv)
        vars(layer).update(propagate=self.propagate, edge_updater=self.edge_updater)
        self.layer = layer
        before = dict(vars(layer))
        self.recorder.space = SQUARE.dst
        try:
            with ScatterMode(self.recorder, SQUARE):
                given = {n: self._given(a, nodes, edges, params) for n, a in layout.arguments}
                result = type(layer).forward(layer, **given)
        except Exception as error:  # torch says what is wrong when the layer is run as it is
            raise NotWhole(str(error).partition("\n")[0]) from error
        finally:
            self.recorder.space = SQUARE.edge
        self._require_unchanged(before)
        return tree_map(self._row_message, result)

    def _given(self, argument: Argument, nodes: Any, edges: Any, params: Mapping[str, Any]) -> Any:
        kind, key = argument.kind, argument.key
        if kind == "index":
            return EndIndices(self.recorder, (self._side(0), self._side(1)))
        if kind == "ndata":
            read = nodes[key]
            assert isinstance(read.node.op, Gather)
            return self.recorder.wrap(read.node.inputs[0], read.storage)
        return {"edge": edges, "param": params}[kind][key] if kind != "value" else key

    def _side(self, row: int) -> str:
        """The end of the edges that a row of `edge_index` holds."""
        forwards = self.conv.flow == "source_to_target"
        return "dst" if (row == 1) == forwards else "src"

    def _row_message(self, value: Any) -> Traced:
        if not isinstance(value, Traced) or value.node is None:
            raise NotWhole(f"`forward` returns {type(value).__name__}, no tensor of the program")
        if value.node.type.space != SQUARE.dst:
            raise NotWhole("`forward` returns a value that is none of the nodes")
        return row_message(self.recorder, SQUARE, value, "forward")

    # what the layer calls

    def propagate(self, edge_index: Any, size: Any = None, **given: Any) -> Any:
        """The layer's `propagate`, traced."""
        self._require_same_edges(edge_index)
        self.recorder.space = SQUARE.edge
        message = self._stage("message", given)
        out = self._stage("aggregate", given, message)
        self.recorder.space = SQUARE.dst
        update = self.layer.inspector.get_params("update")
        return self.layer.update(out, **{p.name: self._argument(p, given) for p in update})

    def edge_updater(self, edge_index: Any, size: Any = None, **given: Any) -> Any:
        """The layer's `edge_updater`, traced."""
        self._require_same_edges(edge_index)
        self.recorder.space = SQUARE.edge
        result = self._stage("edge_update", given)
        self.recorder.space = SQUARE.dst
        return result

    def _stage(self, function: str, given: Mapping[str, Any], *before: Any) -> Any:
        parameters = self.layer.inspector.get_params(function)
        named = {p.name: self._argument(p, given) for p in parameters}
        return getattr(self.layer, function)(*before, **named)

    def _argument(self, parameter: Any, given: Mapping[str, Any]) -> Any:
        name = parameter.name
        if name in INDICES:
            return EndIndex(INDICES[name], self.recorder)
        if name in EXTENTS:
            return self.recorder.marks[SQUARE.dst]
        if name in ABSENT:
            return None
        end = ENDS.get(name[-2:])
        key = name if end is None else name[:-2]
        if key not in given and parameter.default is inspect.Parameter.empty:
            raise Unfusable(f"a function of the layer takes `{name}`")
        value = given.get(key, parameter.default)
        return value if end is None else self._lifted(end, key, value)

    def _lifted(self, end: str, name: str, value: Any) -> Any:
        """A node value at one end of every edge."""
        if isinstance(value, (tuple, list)):
            value = value[next(row for row in (0, 1) if self._side(row) == end)]
        if not isinstance(value, Traced) or value.node is None:
            return value
        rank = len(value.node.type.shape) + 1
        if value.node.type.space != SQUARE.dst or self.layer.node_dim % rank != 0:
            raise Unfusable(f"`{name}` is no value of the nodes")
        return self.recorder.wrap(gather(SQUARE, end, value.node))

    # what no program can hold

    def _require_same_edges(self, edge_index: Any) -> None:
        if not isinstance(edge_index, EndIndices):
            raise Unfusable("messages along other edges than those of the call")

    def _require_no_hooks(self) -> None:
        if is_hooked(self.conv):
            raise NotWhole(HOOKED)

    def _require_unchanged(self, before: Mapping[str, Any]) -> None:
        after = vars(self.layer)
        changed = [k for k in after if k not in before or after[k] is not before[k]]
        if changed:
            raise NotWhole(f"`forward` assigns `self.{changed[0]}` at every call")


def is_hooked(conv: Any) -> bool:
    """Whether hooks run at calls of modules within a layer."""
    inner = (module for module in conv.modules() if module is not conv)
    return any(getattr(module, hook) for module in inner for hook in MODULE_HOOKS)
