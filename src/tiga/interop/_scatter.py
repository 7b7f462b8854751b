"""Scatters and gathers by an index of edges, recorded as reductions and reads along a relation.

Libraries that keep edges in COO form write a reduction as `out.scatter_add_(0, index, message)`
and a read as `x.index_select(0, index)`. While such code is traced, `index` is an `EndIndex`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from tiga.errors import InvalidType, Unfusable
from tiga.frontends.torch.extent import Shape
from tiga.frontends.torch.tracer import Recorder, Traced
from tiga.frontends.torch.where import user_line
from tiga.ops.align import expand_to
from tiga.ops.leaf import constant, is_constant
from tiga.ops.message import Gather, degree, gather
from tiga.ops.pointwise import add, cast, mul
from tiga.reducers import Max, Messages, Min, Prod, Reducer, Sum
from tiga.trace.node import Node
from tiga.types import Relation, Space

REDUCERS: dict[str, Reducer] = {
    "sum": Sum(), "prod": Prod(), "amax": Max(), "amin": Min(),
}  # fmt: skip


class SomeEdges:
    """The number of edges in a comparison with 0, which is all that may be asked.

    A program of a graph with edges is right for one without: every row is empty.
    """

    def __init__(self, refuse: Callable[[], NoReturn]) -> None:
        self._refuse = refuse

    def _is_positive(self, zero: Any) -> bool:
        return True if zero == 0 else self._refuse()

    def _is_zero(self, zero: Any) -> bool:
        return not self._is_positive(zero)

    __gt__ = __ne__ = _is_positive
    __eq__ = __le__ = _is_zero
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()


class EndIndex:
    """The node at one end of every edge, as far as traced code may know it.

    Reducing or reading by it is recorded; whatever else is done with it is refused.
    """

    device = torch.device("cpu")
    dtype = torch.int64

    def __init__(self, side: str, recorder: Recorder) -> None:
        self.side = side
        self._recorder = recorder

    def dim(self) -> int:
        return 1

    def size(self, dim: int = 0) -> Any:
        return self._recorder.marks[self._recorder.edge_space]

    def numel(self) -> SomeEdges:
        return SomeEdges(self._refuse)

    def _itself(self, *_: Any) -> "EndIndex":
        return self

    # Features share the index of their edge, so spreading it over them changes nothing.
    view = reshape = expand_as = expand = unsqueeze = long = to = contiguous = _itself

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unfusable(
            f"{user_line()}: `index.{name}` reads the indices of edges; a program serves every "
            f"graph, so they can only name the rows of a scatter or of an index_select."
        )

    def _refuse(self, *_: Any) -> NoReturn:
        self.__getattr__("data")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __mod__ = _refuse
    __truediv__ = __floordiv__ = __and__ = __or__ = __invert__ = __matmul__ = __pow__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __getitem__ = __setitem__ = __iter__ = __len__ = __bool__ = __int__ = __index__ = _refuse
    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Unfusable(
            f"{user_line()}: `{getattr(func, '__name__', func)}` takes the indices of edges, and "
            f"no op of a trace computes it."
        )


class EndIndices(torch.Tensor):
    """The two rows of indices of all edges, of which code may take one, and ask for metadata."""

    _recorder: Recorder
    sides: tuple[str, str]

    @staticmethod
    def __new__(cls, recorder: Recorder, sides: tuple[str, str]) -> Any:
        shape = (2, recorder.sizes[recorder.edge_space])
        made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.int64, device="cpu")
        made._recorder, made.sides = recorder, sides
        return made

    def read(self, func: Any, args: Any) -> Any:
        """What a function of torch gives for it.

        Raises:
            Unfusable: it is neither a row nor metadata.
        """
        shape = Shape((2, self._recorder.marks[self._recorder.edge_space]))
        if func is torch.Tensor.shape.__get__:
            return shape
        if func is torch.Tensor.size:
            return shape[args[0]] if args else shape
        if func in _ROWS:
            return tuple(EndIndex(side, self._recorder) for side in self.sides)
        if func is torch.Tensor.__getitem__ and args[0] in (0, 1, -1, -2):
            return EndIndex(self.sides[args[0]], self._recorder)
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(self)
        raise Unfusable(
            f"{user_line()}: `{getattr(func, '__name__', func)}` takes the indices of edges, and "
            f"no op of a trace computes it."
        )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0].read(func, args[1:])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0].read(func, args[1:])


_T = torch.Tensor
_ROWS = (_T.unbind, torch.unbind, _T.__iter__)
_METADATA = (
    _T.dtype.__get__, _T.device.__get__, _T.layout.__get__, _T.is_sparse.__get__, _T.dim,
    _T.ndim.__get__, _T.is_cuda.__get__, _T.is_floating_point, _T.requires_grad.__get__,
)  # fmt: skip


@dataclass(frozen=True)
class Rows(Reducer):
    """Takes values of rows that were already reduced; edges carry them as reads of their row."""

    def rows(self, messages: Messages) -> Node:
        (read,) = messages.parts
        space = messages.relation.end(messages.side)
        if read.op.name == "constant":
            return constant(read.op.value, read.type.with_space(space))
        assert isinstance(read.op, Gather), "made by `row_message`"
        return read.inputs[0]


def row_message(recorder: Recorder, relation: Relation, value: Any, function: str) -> Traced:
    """What `edge` returns so that `Rows` finds the row value `value` again.

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


class ScatterMode(TorchFunctionMode):
    """Records torch functions that take an `EndIndex`."""

    def __init__(self, recorder: Recorder, relation: Relation) -> None:
        super().__init__()
        self.recorder = recorder
        self.relation = relation

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], EndIndices):
            return args[0].read(func, args[1:])
        if not any(isinstance(a, EndIndex) for a in (*args, *kwargs.values())):
            return func(*args, **kwargs)
        name = getattr(func, "__name__", str(func))
        handler = _HANDLERS.get(name if name.startswith("__") else name.rstrip("_"))
        if handler is None:
            return EndIndex.__torch_function__(func, types)
        return handler(self, name.endswith("_"), *args, **kwargs)

    def space(self, side: str) -> Space:
        """The nodes at a side, if traced code has values of them."""
        space = self.relation.end(side)
        if space not in self.recorder.sizes:
            raise Unfusable(f"{user_line()}: a reduction over the edges that leave a node.")
        return space

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
        rows = self._reduced(message, index.side, kind)
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

    def _reduced(self, message: Node, side: str, kind: str) -> Node:
        space = self.space(side)
        if kind == "sum" and message.op.name == "constant":
            count = degree(self.relation, side, message.type.dtype)
            rows = message.type.with_space(space)
            return mul(expand_to(count, rows.shape, space), constant(message.op.value, rows))
        return REDUCERS[kind].rows(Messages(self.relation, (message,), None, side))

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
