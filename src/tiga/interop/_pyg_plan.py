"""How one call of a PyG layer becomes functions per edge, with a place for every argument."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import torch

from tiga.errors import Unfusable
from tiga.interop._lazy_values import EdgeUpdate, made

ENDS = {"_i": "dst", "_j": "src"}
"""The suffix of a parameter of `message`, and the end of the edge at which it is read."""

INDICES = {"index": "dst", "edge_index_i": "dst", "edge_index_j": "src"}
EXTENTS = ("dim_size", "size_i")
ABSENT = ("ptr", "adj_t")
UNKNOWN = ("edge_index", "size", "size_j")
"""Parameters that Tiga doesn't have for `message`: indices, and numbers of nodes that only some
graphs have."""


HOOKS = (
    "_propagate_forward_pre_hooks", "_propagate_forward_hooks", "_message_forward_pre_hooks",
    "_message_forward_hooks", "_aggregate_forward_pre_hooks", "_aggregate_forward_hooks",
    "_edge_update_forward_pre_hooks", "_edge_update_forward_hooks",
)  # fmt: skip
"""Tables of a layer whose hooks may see or change the messages of edges."""


@dataclass(frozen=True)
class Argument:
    """Where a parameter of `message` comes from.

    `kind`: "src", "dst", "edge" (a field), "param" (a tensor or number of the whole call), "index",
    "extent", "value" (in `key` itself), or "stage" (what an earlier function returned).
    """

    kind: str
    key: Any = None


def asked_by(name: str) -> Argument:
    """What a parameter asks for by its name; "given": the argument of that name."""
    if name in INDICES:
        return Argument("index", INDICES[name])
    if name in EXTENTS:
        return Argument("extent")
    if name in ABSENT:
        return Argument("value", None)
    end = ENDS.get(name[-2:])
    return Argument("given", name) if end is None else Argument(end, name[:-2])


@dataclass(frozen=True)
class Stage:
    """A function of the layer that runs per edge, and its arguments by name."""

    function: str
    result: str
    arguments: tuple[tuple[str, Argument], ...]


@dataclass
class Binding:
    """The arguments of one call: the plan to be traced, and the tensors for its fields."""

    conv: Any
    size: list[int | None]
    num_edges: int
    stages: list[Stage] = field(default_factory=list)
    fields: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"src": {}, "dst": {}, "edge": {}, "param": {}}
    )

    def stage(self, function: str, result: str, given: Mapping[str, Any]) -> None:
        """Add a function. The inspector leaves out what `aggregate` gets from `message`."""
        parameters = self.conv.inspector.get_params(function)
        arguments = [(p.name, self._argument(function, p, given)) for p in parameters]
        self.stages.append(Stage(function, result, tuple(arguments)))

    def _argument(self, function: str, parameter: Any, given: Mapping[str, Any]) -> Argument:
        name = parameter.name
        if name in UNKNOWN:
            raise self._unfusable(f"`{function}` takes `{name}`, the graph of one call")
        asked = asked_by(name)
        if asked.kind not in ("src", "dst", "given"):
            return asked
        if asked.key not in given and parameter.default is Parameter.empty:
            raise TypeError(f"Parameter '{name}' is required")
        value = given.get(asked.key, parameter.default)
        if asked.kind == "given":
            return self._plain(name, value)
        return self._lifted(asked.kind, asked.key, value)

    def _lifted(self, end: str, name: str, value: Any) -> Argument:
        """A node value that every edge reads at one end."""
        dim = self.dim(end)
        if isinstance(value, (tuple, list)):
            other = value[1 - dim]
            if isinstance(other, torch.Tensor):
                self.conv._set_size(self.size, 1 - dim, other)
            value = value[dim]
        if not isinstance(value, torch.Tensor):
            return Argument("value", value)
        if self.conv.node_dim % max(value.dim(), 1) != 0:
            raise self._unfusable(
                f"`{name}` {list(value.shape)} has its nodes on axis {self.conv.node_dim}, which "
                f"is not the first"
            )
        self.conv._set_size(self.size, dim, value)
        return self._field(end, name, value)

    def dim(self, end: str) -> int:
        """The row of `edge_index` that holds an end."""
        forwards = self.conv.flow == "source_to_target"
        return int(forwards) if end == "dst" else int(not forwards)

    def _plain(self, name: str, value: Any) -> Argument:
        if isinstance(value, EdgeUpdate) and value.made is None:
            self.include(name, value)
            return Argument("stage", name)
        value = made(value)
        if isinstance(value, torch.Tensor):
            parameter = isinstance(value, torch.nn.Parameter)
            per_edge = not parameter and value.dim() and value.shape[0] == self.num_edges
            return self._field("edge" if per_edge else "param", name, value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self._field("param", name, value)
        if isinstance(value, (str, bool, type(None))):
            return Argument("value", value)
        raise self._unfusable(f"`{name}` is a {type(value).__name__}")

    def include(self, name: str, deferred: EdgeUpdate) -> None:
        """Run an edge update as a part of this walk."""
        deferred.inlined = True
        own = Binding(self.conv, self.size, self.num_edges)
        own.stage("edge_update", name, deferred.given)
        for kind, values in own.fields.items():
            self.fields[kind].update({f"{name}__{key}": value for key, value in values.items()})
        self.stages += [
            Stage(s.function, s.result, tuple((p, _within(name, a)) for p, a in s.arguments))
            for s in own.stages
        ]

    def _field(self, kind: str, name: str, value: Any) -> Argument:
        self.fields[kind][name] = value
        return Argument(kind, name)

    def _unfusable(self, what: str) -> Unfusable:
        return Unfusable(f"{type(self.conv).__name__}: {what}.")


def _within(name: str, argument: Argument) -> Argument:
    """The argument of an edge update whose fields stand among those of the whole walk."""
    if argument.kind not in ("src", "dst", "edge", "param"):
        return argument
    return Argument(argument.kind, f"{name}__{argument.key}")


def plain(stages: Sequence[Stage]) -> Any:
    """A plan as nested tuples of constants, which torch's compiler can hand on."""
    return tuple(
        (stage.function, stage.result, tuple((n, a.kind, a.key) for n, a in stage.arguments))
        for stage in stages
    )


def stages_of(described: Any) -> tuple[Stage, ...]:
    """The plan that `plain` describes."""
    return tuple(
        Stage(function, result, tuple((n, Argument(kind, key)) for n, kind, key in arguments))
        for function, result, arguments in described
    )
