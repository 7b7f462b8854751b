"""Scatters and gathers by an index of edges, recorded as reductions and reads along a relation.

Libraries that keep edges in COO form write a reduction as `out.scatter_add_(0, index, message)`
and a read as `x.index_select(0, index)`. While such code is traced, `index` is an `EndIndex`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as nnf
from torch.overrides import TorchFunctionMode

from tiga.errors import InvalidType, Unfusable
from tiga.frontends.sent import guard_leaves
from tiga.frontends.torch.capture.tracer import Recorder, Traced
from tiga.frontends.torch.capture.where import user_line
from tiga.interop._batch_norm import BatchStatistics
from tiga.interop._edge_parts import Parts, is_extent
from tiga.interop._edge_sets import ADDED
from tiga.interop._indices import EdgeMask, EndIndex, EndIndices, NodeIndex
from tiga.ops.align import expand_to
from tiga.ops.leaf import constant, is_constant
from tiga.ops.message import degree, gather, spread, sum_to
from tiga.ops.pointwise import add, cast, mul, sub
from tiga.reducers import Max, Messages, Min, Prod, Reducer, Sum
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Relation, Space

REDUCERS: dict[str, Reducer] = {
    "sum": Sum(), "prod": Prod(), "amax": Max(), "amin": Min(),
}  # fmt: skip


@dataclass(frozen=True)
class KnownRows(Reducer):
    """Takes values of rows that were already reduced, or of all; edges carry them as reads."""

    def rows(self, messages: Messages) -> Node:
        (read,) = messages.parts
        space = messages.relation.end(messages.side)
        if read.op.origin is Origin.NUMBER:
            return constant(read.op.value, read.type.with_space(space))
        if read.op.origin is Origin.GLOBAL:
            return read.inputs[0]
        assert read.op.origin is Origin.END, "made by `row_message`"
        return read.inputs[0]


def row_message(recorder: Recorder, relation: Relation, value: Any, function: str) -> Traced:
    """What `edge` returns so that `KnownRows` finds the row value `value` again.

    Raises:
        InvalidType: `value` is no tensor.
        Unfusable: it has one row per edge, so nothing reduced it.
    """
    if not isinstance(value, Traced) or value.node is None:
        raise InvalidType(f"`{function}` returned {type(value).__name__}; expected a tensor.")
    if value.node.type.space == relation.edge:
        raise Unfusable(f"`{function}` returned a value per edge, not one per node.")
    rows = expand_to(value.node, value.node.type.shape, relation.dst)
    return recorder.wrap(gather(relation, "dst", rows))


def global_message(recorder: Recorder, relation: Relation, value: Node) -> Traced:
    """What `edge` returns so that `KnownRows` finds the value `value` of no entity again."""
    return recorder.wrap(spread(value, relation.edge))


class ScatterMode(TorchFunctionMode):
    """Records torch functions that take indices of edges, or parts of them."""

    def __init__(
        self, recorder: Recorder, relation: Relation, parts: Parts | None = None,
        statistics: BatchStatistics | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.recorder = recorder
        self.relation = relation
        self.parts = Parts(recorder, relation) if parts is None else parts
        self.statistics = statistics

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], EndIndices):
            return args[0].read(func, args[1:])
        if self.statistics is not None and self.statistics.counts(func, args):
            return args[0]
        if self.statistics is not None and func is nnf.batch_norm:
            return self._batch_norm(*args, **kwargs)
        if func in (torch.cat, torch.concat, torch.stack):
            return self._join(func, args, kwargs)
        if func is torch.arange and any(map(is_extent, args)):
            return self._numbers(*args)
        given = (*args, *kwargs.values())
        if any(isinstance(a, EdgeMask) for a in given):
            return self._part(func, args)
        if not any(isinstance(a, EndIndex) for a in given):
            return func(*args, **kwargs)
        if func is torch.Tensor.__setitem__:
            return self.parts.put_loops(*args)
        name = getattr(func, "__name__", str(func))
        handler = _HANDLERS.get(name if name.startswith("__") else name.rstrip("_"))
        if handler is None:
            return EndIndex.__torch_function__(func, types)
        return handler(self, name.endswith("_"), *args, **kwargs)

    def _batch_norm(self, *args: Any, **kwargs: Any) -> Any:
        assert self.statistics is not None
        arguments = inspect.signature(nnf.batch_norm).bind(*args, **kwargs)
        arguments.apply_defaults()
        if not arguments.arguments["training"]:
            return nnf.batch_norm(*args, **kwargs)
        x, *rest = arguments.args
        if isinstance(x, Traced) and _space(x) == self.relation.edge and not self.parts.are_all:
            raise Unfusable(f"{user_line()}: a BatchNorm over a part of the edges.")
        return self.statistics.record(x, *rest)

    def space(self, side: str) -> Space:
        """The nodes at a side, if traced code has values of them."""
        space = self.relation.end(side)
        if space not in self.recorder.sizes:
            raise Unfusable(f"{user_line()}: a reduction over the edges that leave a node.")
        return space

    # parts of the edges

    def _numbers(self, *limits: Any) -> NodeIndex:
        if len(limits) > 2 or (len(limits) == 2 and (is_extent(limits[0]) or limits[0] != 0)):
            raise Unfusable(f"{user_line()}: the numbers of some nodes, which depend on the graph.")
        return self.parts.loops(limits[-1])

    def _part(self, func: Any, args: Any) -> Any:
        if func is torch.Tensor.__getitem__:
            return self.parts.picked(*args)
        if func is torch.Tensor.__setitem__:
            return self.parts.put(*args)
        return EdgeMask.__torch_function__(func, ())

    def _join(self, func: Any, args: Any, kwargs: Any) -> Any:
        pair = tuple(args[0] if args else kwargs["tensors"])
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        kinds = tuple(map(type, pair))
        if kinds == (NodeIndex, NodeIndex) and func is torch.stack and dim == 0:
            return pair[0].twice((2, 1)) if pair[0] == pair[1] else pair[0].data
        if kinds == (EndIndices, NodeIndex) and func is not torch.stack and dim in (1, -1):
            return self.parts.with_loops(*pair)
        values = kinds == (Traced, Traced) and func is not torch.stack and dim == 0
        if values and set(map(_space, pair)) != {GLOBAL}:
            return self.parts.joined(*pair)
        if {EndIndices, EndIndex, NodeIndex} & set(kinds):
            return EndIndex.__torch_function__(func, ())
        return func(*args, **kwargs)

    # the functions

    def reduce(
        self, in_place: bool, base: Any, dim: int, index: EndIndex, src: Any, kind: str = "sum",
        include_self: bool = True,
    ) -> Any:  # fmt: skip
        """`base` with the messages `src` of every row reduced into it."""
        self._require_first_axis(dim, src)
        message = self._message(src)
        if kind == "mean" or kind not in REDUCERS:
            raise Unfusable(f"{user_line()}: scatter_reduce with `{kind}`.")
        base = base if isinstance(base, Traced) else self.recorder.lift(base)
        rows = self._reduced(message, index, kind)
        result = self._combined(base.node, rows, kind, include_self)
        located = self.recorder._located(cast(result, base.node.type.dtype))
        if not in_place:
            return self.recorder.wrap(located)
        base.node = located
        return base

    def read(self, in_place: bool, x: Any, dim: int, index: EndIndex) -> Any:
        """`x` at the given end of every edge."""
        self._require_first_axis(dim, x)
        if not isinstance(x, Traced) or x.node is None or x.node.type.space != self.space(
            index.side
        ):  # fmt: skip
            raise Unfusable(f"{user_line()}: reads by edge from what is no value of the nodes.")
        return self.recorder.wrap(self.recorder._located(gather(self.relation, index.side, x.node)))

    # their parts

    def _require_first_axis(self, dim: int, x: Any) -> None:
        if dim % x.dim() != 0:
            raise Unfusable(f"{user_line()}: axis {dim} of the features, not the one of edges.")

    def _message(self, src: Any) -> Node:
        traced = src if isinstance(src, Traced) else self.recorder.lift(src)
        assert traced.node is not None
        if traced.node.type.space != self.relation.edge:
            raise Unfusable(f"{user_line()}: scatters what is no value of the edges.")
        return traced.node

    def _reduced(self, message: Node, index: EndIndex, kind: str) -> Node:
        side, space = index.side, self.space(index.side)
        self.parts.require(index.edges)
        keep = self.parts.keep(index.edges)
        if kind == "sum" and message.op.origin is Origin.NUMBER:
            rows = message.type.with_space(space)
            count = self._counts(index, keep, constant(1, rows))
            return mul(expand_to(count, rows.shape, space), constant(message.op.value, rows))
        if keep is not None:
            (message,) = guard_leaves([message], keep)
        return REDUCERS[kind].rows(Messages(self.relation, (message,), keep, side))

    def _counts(self, index: EndIndex, keep: Node | None, like: Node) -> Node:
        """Per node, how many edges of the index's set there are."""
        relation, side = self.relation, index.side
        dtype = like.type.dtype.compute
        one_each = relation.src == relation.dst and self.parts.edges - index.edges == {ADDED}
        if keep is None or one_each:
            count = degree(relation, side, like.type.dtype)
            return sub(count, constant(1, count.type)) if one_each else count
        counted = cast(keep, dtype)
        return cast(sum_to(relation, side, counted), like.type.dtype)

    def _combined(self, base: Node, rows: Node, kind: str, include_self: bool) -> Node:
        if base.type.shape != rows.type.shape or base.type.space != rows.type.space:
            raise Unfusable(
                f"{user_line()}: scatters {rows.type} into {base.type}; pass `dim_size` where the "
                f"number of rows is asked for."
            )
        neutral = {"sum": 0, "prod": 1}.get(kind, None if include_self else 0)
        if neutral is not None and is_constant(base, neutral):
            return rows
        if not include_self or kind not in ("sum", "prod"):
            raise Unfusable(f"{user_line()}: scatter with `{kind}` into values that are not new.")
        return (add if kind == "sum" else mul)(base, cast(rows, base.type.dtype))


def _space(value: Traced) -> Space | None:
    return None if value.node is None else value.node.type.space


def _index_add(
    mode: ScatterMode, in_place: bool, base: Any, dim: int, index: Any, source: Any
) -> Any:
    return mode.reduce(in_place, base, dim, index, source)


def _scatter_reduce(
    mode: ScatterMode, in_place: bool, base: Any, dim: int, index: Any, src: Any, reduce: str,
    *, include_self: bool = True,
) -> Any:  # fmt: skip
    return mode.reduce(in_place, base, dim, index, src, reduce, include_self)


def _getitem(mode: ScatterMode, in_place: bool, x: Any, index: Any) -> Any:
    if not isinstance(index, EndIndex):
        return EndIndex.__torch_function__(torch.Tensor.__getitem__, ())
    return mode.read(in_place, x, 0, index)


_HANDLERS: dict[str, Callable[..., Any]] = {
    "scatter_add": ScatterMode.reduce,
    "index_add": _index_add,
    "scatter_reduce": _scatter_reduce,
    "index_select": ScatterMode.read,
    "__getitem__": _getitem,
}
