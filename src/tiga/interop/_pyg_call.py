"""How a layer is called: its arguments by what they are values of, and the counts of nodes."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.nn.modules.module import _has_any_global_hook

from tiga.interop._pyg_plan import HOOKS, Argument

EDGE_INDEX = "edge_index"
SIZE = "size"


@dataclass(frozen=True)
class CallLayout:
    """How a call passes its arguments, by name of a parameter of `forward`.

    `training` is the layer's. The kinds of an `Argument` are "ndata", "src", "dst", "edge" and
    "param" for tensors of the nodes, of those at one end, of the edges and of neither; "index" for
    the indices of the edges; "pair" for one argument at each row of these, "size" for the counts
    of both; "value" for what is no tensor. `fewer` is the row with fewer nodes, of two node sets.
    """

    arguments: tuple[tuple[str, Argument], ...]
    training: bool
    fewer: int | None = None

    @property
    def has_two_sets(self) -> bool:
        """Whether sources and destinations are two node sets."""
        return self.fewer is not None


@dataclass
class LayerCall:
    """One call of a layer: its layout, the tensors by kind and name, and the indices.

    `counts` are the numbers of nodes that the rows of `edge_index` may name.
    """

    edge_index: torch.Tensor
    counts: tuple[int, int]
    layout: CallLayout
    fields: dict[str, dict[str, torch.Tensor]]


@lru_cache(maxsize=256)
def _parameters(forward: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(forward).parameters)[1:]


def call_of(conv: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LayerCall | None:
    """What is passed to a layer; None where that cannot be told."""
    if conv.explain or any(getattr(conv, hook) for hook in HOOKS) or _has_any_global_hook():
        return None
    names = _parameters(type(conv).forward)
    given: dict[str, Any] = {**dict(zip(names, args, strict=False)), **kwargs}
    edge_index: Any = given.get(EDGE_INDEX)
    if len(given) != len(args) + len(kwargs) or not _is_index(edge_index):
        return None
    pairs = {n: v for n, v in given.items() if _is_pair(v)}
    sorter = _Sorter(conv, edge_index.shape[1], (0, 0), bool(pairs))
    counts = _counts(pairs, given.get(SIZE)) if pairs else sorter.one_count(given)
    if counts is None:
        return None
    sorter.counts = counts
    arguments = [(name, sorter.argument(name, value)) for name, value in given.items()]
    if any(argument is None for _, argument in arguments):
        return None
    layout = CallLayout(tuple(arguments), conv.training, _fewer(counts) if pairs else None)  # type: ignore[arg-type]
    return LayerCall(edge_index, counts, layout, sorter.fields)


def _is_index(value: Any) -> bool:
    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        return False
    return value.dtype in (torch.int64, torch.int32) and value.dim() == 2 and len(value) == 2


def _is_pair(value: Any) -> bool:
    """Whether an argument has a part for each of two node sets."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return False
    kinds = {type(part) for part in value}
    return kinds <= {torch.Tensor, type(None)} and torch.Tensor in kinds


def _counts(pairs: Mapping[str, Any], size: Any) -> tuple[int, int] | None:
    """The numbers of nodes of two sets, if the call says both, and in one voice."""
    found: list[set[int]] = [set(), set()]
    for row in (0, 1):
        found[row] |= {len(p[row]) for p in pairs.values() if p[row] is not None and p[row].dim()}
        if size is not None and size[row] is not None:
            found[row].add(size[row])
    if any(len(counts) != 1 for counts in found):
        return None
    return found[0].pop(), found[1].pop()


def _fewer(counts: tuple[int, int]) -> int:
    return int(counts[1] < counts[0])


@dataclass
class _Sorter:
    """Sorts arguments by kind."""

    conv: Any
    num_edges: int
    counts: tuple[int, int]
    has_two_sets: bool

    def __post_init__(self) -> None:
        kinds = ("src", "dst") if self.has_two_sets else ("ndata",)
        self.fields: dict[str, dict[str, torch.Tensor]] = {k: {} for k in (*kinds, "edge", "param")}

    def one_count(self, given: Mapping[str, Any]) -> tuple[int, int] | None:
        """The number of nodes of one set: as many as the first tensor has."""
        tensors = [v for n, v in given.items() if isinstance(v, torch.Tensor) and n != EDGE_INDEX]
        first: Any = next((t for t in tensors if t.dim()), None)
        if first is None or first.shape[0] == self.num_edges or self.conv.node_dim % first.dim():
            return None
        return first.shape[0], first.shape[0]

    def argument(self, name: str, value: Any) -> Argument | None:
        """Where the layer gets an argument from; None where it cannot be told."""
        if name == EDGE_INDEX:
            return Argument("index")
        if value is None or isinstance(value, (bool, str)):
            return Argument("value", value)
        if name == SIZE:
            return Argument("size") if self.has_two_sets and tuple(value) == self.counts else None
        if _is_pair(value):
            parts = [self._part(f"{name} {row}", row, value[row]) for row in (0, 1)]
            return None if None in parts else Argument("pair", tuple(parts))
        if not isinstance(value, torch.Tensor):
            return None
        kind = self._kind(value)
        return None if kind is None else self._field(kind, name, value)

    def _part(self, name: str, row: int, value: torch.Tensor | None) -> Argument | None:
        """One part of a pair: values of the nodes that a row of indices names."""
        if value is None:
            return Argument("value", None)
        if not value.dim() or self.conv.node_dim % value.dim():
            return None
        return self._field(end_of(self.conv, row), name, value)

    def _kind(self, value: torch.Tensor) -> str | None:
        if not value.dim() or isinstance(value, torch.nn.Parameter):
            return "param"
        count = value.shape[0]
        if self.has_two_sets:
            if count in self.counts:
                return None  # of which of both sets, or of the edges?
            return "edge" if count == self.num_edges else "param"
        return {self.counts[0]: "ndata", self.num_edges: "edge"}.get(count, "param")

    def _field(self, kind: str, name: str, value: torch.Tensor) -> Argument:
        self.fields[kind][name] = value
        return Argument(kind, name)


def end_of(conv: Any, row: int) -> str:
    """The end of the edges that a row of `edge_index` holds."""
    forwards = conv.flow == "source_to_target"
    return "dst" if (row == 1) == forwards else "src"
