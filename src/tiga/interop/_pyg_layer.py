"""The whole `forward` of a PyG layer as one program: what it computes per node included."""

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tiga.errors import Unfusable
from tiga.frontends.message_passing import MessagePassing
from tiga.frontends.torch.capture.extent import Extent
from tiga.frontends.torch.capture.program import RELATION, SQUARE
from tiga.frontends.torch.capture.tracer import Recorder, Traced
from tiga.frontends.trees import mapped
from tiga.interop._batch_norm import BatchStatistics, layers_with_statistics
from tiga.interop._edge_parts import Parts
from tiga.interop._edge_sets import GIVEN, EdgeSet, NotWhole
from tiga.interop._indices import EndIndex, EndIndices
from tiga.interop._pyg_call import CallLayout, end_of
from tiga.interop._pyg_plan import Argument, asked_by
from tiga.interop._scatter import KnownRows, ScatterMode, global_message, row_message
from tiga.ops.message import gather
from tiga.trace.origin import Origin

MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""What may run at every call of a module. Programs are made once."""


RESULT, STATISTICS = "forward", "batch statistics"
"""What programs with BatchNorms in train mode return, by name: the latter as mean and variance by
number and name of a BatchNorm."""


HOOKED = "a hook runs at every call of a module of the layer"
"""Why such a layer is not one program: until the hook is removed, as that of lazy modules is."""


class WholeLayer(MessagePassing):
    """A layer's `forward`, for one way to call it, with messages along a set of edges."""

    reducer = KnownRows()
    strict = True

    def __init__(self, conv: Any, layout: CallLayout, edges: EdgeSet = GIVEN) -> None:
        self.conv = conv
        self.layout = layout
        self.edges = edges

    def edge(self, src: Any, dst: Any, edge: Any, **params: Any) -> Any:
        conv = self.conv
        # Named here, where names are looked up, so that what these functions read is guarded.
        functions = {
            "message": conv.message, "aggregate": conv.aggregate, "update": conv.update,
            "edge_update": conv.edge_update,
        }  # fmt: skip
        views = {"src": src, "dst": dst, "ndata": dst, "edge": edge, "param": params}
        return LayerTrace(conv, functions, views, self.layout, self.edges).run()


# Of this module, `edge` alone is read like code of the user's: what it reaches of the layer is
# guarded and becomes inputs.
WholeLayer.edge.__module__ = "torch_geometric"


class NodeCount(Extent):
    """The number of nodes at one end, of which may be asked whether the other end has fewer."""

    def __init__(self, extent: Extent, is_fewer: bool) -> None:
        super().__init__(extent.size, extent._where)
        self.is_fewer = is_fewer

    def __lt__(self, other: Any) -> bool:
        return self.is_fewer if isinstance(other, NodeCount) else self._refuse()

    def __gt__(self, other: Any) -> bool:
        return not self.is_fewer if isinstance(other, NodeCount) else self._refuse()

    __hash__ = object.__hash__


@dataclass
class LayerTrace:
    """One trace of a layer's `forward`, run on a copy whose messages are traced with it."""

    conv: Any
    functions: Mapping[str, Any]
    views: Mapping[str, Any]
    layout: CallLayout
    edges: EdgeSet

    def __post_init__(self) -> None:
        self.recorder: Recorder = self.views["dst"]._recorder
        self.relation = RELATION if self.layout.has_two_sets else SQUARE
        self.parts = Parts(self.recorder, self.relation, self.edges, self.views["edge"])
        batches = layers_with_statistics(self.conv)
        self.statistics = BatchStatistics(self.recorder, batches) if batches else None
        if self.layout.has_two_sets:
            marks = self.recorder.marks
            for row in (0, 1):
                space = self.relation.end(end_of(self.conv, row))
                marks[space] = NodeCount(marks[space], row == self.layout.fewer)

    def run(self) -> Any:
        """What the layer returns, as `edge` returns values of rows.

        Raises:
            NotWhole: no program can hold it.
            AlongOther: one can, over these edges.
        """
        self._require_no_hooks()
        layer = copy.copy(self.conv)
        vars(layer).update(propagate=self.propagate, edge_updater=self.edge_updater)
        self.layer = layer
        before = dict(vars(layer))
        self.recorder.space = self.relation.dst
        try:
            with ScatterMode(self.recorder, self.relation, self.parts, self.statistics):
                given = {name: self._given(a) for name, a in self.layout.arguments}
                result = type(layer).forward(layer, **given)
        except NotWhole:
            raise
        except Exception as error:  # torch says what is wrong when the layer is run as it is
            raise NotWhole(str(error).partition("\n")[0]) from error
        finally:
            self.recorder.space = self.relation.edge
        self._require_unchanged(before)
        if not self.parts.is_complete:
            raise NotWhole("values of loops that are added, where no message goes along them")
        result = mapped(self._row_message, result)
        return result if self.statistics is None else self._with_statistics(result)

    def _given(self, argument: Argument) -> Any:
        kind, key = argument.kind, argument.key
        if kind == "value":
            return key
        if kind == "index":
            return EndIndices(self.recorder, (self._side(0), self._side(1)))
        if kind == "size":
            return tuple(self.recorder.marks[self.relation.end(self._side(r))] for r in (0, 1))
        if kind == "pair":
            return tuple(self._given(part) for part in key)
        read = self.views[kind][key]
        if kind in ("edge", "param"):
            return read
        assert read.node.op.origin is Origin.END
        return self.recorder.wrap(read.node.inputs[0], read.storage)

    def _side(self, row: int) -> str:
        return end_of(self.conv, row)

    def _row_message(self, value: Any) -> Traced:
        if not isinstance(value, Traced) or value.node is None:
            raise NotWhole(f"`forward` returns {type(value).__name__}, no tensor of the program")
        if value.node.type.space != self.relation.dst:
            raise NotWhole("`forward` returns a value that is none of the nodes")
        return row_message(self.recorder, self.relation, value, "forward")

    def _with_statistics(self, result: Any) -> Any:
        assert self.statistics is not None
        message = partial(global_message, self.recorder, self.relation)
        found = self.statistics.found
        kept = {(i, name): (message(m), message(v)) for i, (name, m, v) in enumerate(found)}
        return {RESULT: result, STATISTICS: kept}

    # what the layer calls

    def propagate(self, edge_index: Any, size: Any = None, **given: Any) -> Any:
        """The layer's `propagate`, traced."""
        edges = self._edges_of(edge_index)
        with self._at_edges(edges):
            message = self._stage("message", edges, given)
            out = self._stage("aggregate", edges, given, message)
        update = self.layer.inspector.get_params("update")
        named = {p.name: self._argument(p, edges, given) for p in update}
        return self.layer.update(out, **named)

    def edge_updater(self, edge_index: Any, size: Any = None, **given: Any) -> Any:
        """The layer's `edge_updater`, traced."""
        edges = self._edges_of(edge_index)
        with self._at_edges(edges):
            return self._stage("edge_update", edges, given)

    @contextmanager
    def _at_edges(self, edges: EdgeSet) -> Iterator[None]:
        """Trace what a layer does at some edges."""
        self.recorder.space, self.parts.at = self.relation.edge, edges
        yield
        self.recorder.space, self.parts.at = self.relation.dst, None

    def _stage(self, function: str, edges: EdgeSet, given: Mapping[str, Any], *before: Any) -> Any:
        parameters = self.layer.inspector.get_params(function)
        named = {p.name: self._argument(p, edges, given) for p in parameters}
        return getattr(self.layer, function)(*before, **named)

    def _argument(self, parameter: Any, edges: EdgeSet, given: Mapping[str, Any]) -> Any:
        asked = asked_by(parameter.name)
        kind, key = asked.kind, asked.key
        if kind == "index":
            return EndIndex(key, self.recorder, edges)
        if kind == "extent":
            return self.recorder.marks[self.relation.dst]
        if kind == "value":
            return key
        if key not in given and parameter.default is inspect.Parameter.empty:
            raise Unfusable(f"a function of the layer takes `{parameter.name}`")
        value = given.get(key, parameter.default)
        return value if kind == "given" else self._lifted(kind, key, value)

    def _lifted(self, end: str, name: str, value: Any) -> Any:
        """A node value at one end of every edge."""
        if isinstance(value, (tuple, list)):
            value = value[next(row for row in (0, 1) if self._side(row) == end)]
        if not isinstance(value, Traced) or value.node is None:
            return value
        rank = len(value.node.type.shape) + 1
        ours = value.node.type.space == self.relation.end(end)
        if not ours or self.layer.node_dim % rank != 0:
            raise Unfusable(f"`{name}` is no value of the nodes")
        return self.recorder.wrap(gather(self.relation, end, value.node))

    def _edges_of(self, edge_index: Any) -> EdgeSet:
        """The edges along which messages go: the set that the program ranges over."""
        if not isinstance(edge_index, EndIndices):
            raise Unfusable("messages along other edges than those of the call")
        if edge_index.sides != (self._side(0), self._side(1)):
            raise Unfusable("messages against the direction of the edges")
        self.parts.require(edge_index.edges)
        return edge_index.edges

    # what no program can hold

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
