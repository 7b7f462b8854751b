"""What stands for the indices of edges and nodes while a layer is traced."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from tiga.errors import Unfusable
from tiga.frontends.torch.capture.extent import Extent, Shape
from tiga.frontends.torch.capture.tracer import Recorder
from tiga.frontends.torch.capture.where import user_line
from tiga.interop._edge_sets import GIVEN, EdgeSet, loops_of
from tiga.types import Space


class SomeEdges(Extent):
    """The number of edges, of which may be asked beside what an extent tells whether it is 0.

    A program of a graph with edges is right for one without: every row is empty.
    """

    def __init__(self, extent: Extent, refuse: Callable[[], NoReturn]) -> None:
        super().__init__(extent.size, extent._where)
        self._refuse_value = refuse

    def _is_positive(self, other: Any) -> bool:
        return True if other == 0 else self._refuse_value()

    def _is_zero(self, other: Any) -> bool:
        return not self._is_positive(other)

    __gt__ = __ne__ = _is_positive
    __eq__ = __le__ = _is_zero
    __hash__ = object.__hash__


class EndIndex:
    """The node at one end of every edge of a set, as far as traced code may know it.

    Reducing or reading by it is recorded, and so is what tells loops from other edges; whatever
    else is done with it is refused.
    """

    device = torch.device("cpu")
    dtype = torch.int64

    def __init__(self, side: str, recorder: Recorder, edges: EdgeSet = GIVEN) -> None:
        self.side = side
        self.edges = edges
        self._recorder = recorder

    def dim(self) -> int:
        return 1

    def size(self, dim: int = 0) -> Any:
        return self._recorder.marks[self._recorder.edge_space]

    def numel(self) -> SomeEdges:
        return SomeEdges(self.size(), self._refuse)

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

    def __eq__(self, other: Any) -> Any:
        return self._compared(other, True)

    def __ne__(self, other: Any) -> Any:
        return self._compared(other, False)

    def _compared(self, other: Any, equal: bool) -> "EdgeMask":
        if not isinstance(other, EndIndex) or self.edges != other.edges or self.side == other.side:
            self._refuse()
        return EdgeMask(self.edges, equal)

    def __getitem__(self, mask: Any) -> "EndIndex":
        if not isinstance(mask, EdgeMask):
            self._refuse()
        return EndIndex(self.side, self._recorder, mask.of(self.edges))

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __mod__ = _refuse
    __truediv__ = __floordiv__ = __and__ = __or__ = __invert__ = __matmul__ = __pow__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __setitem__ = __iter__ = __len__ = __bool__ = __int__ = __index__ = _refuse
    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _no_op(func)


@dataclass(frozen=True)
class EdgeMask:
    """Which edges of a set are loops, or are not."""

    edges: EdgeSet
    loops: bool

    def __invert__(self) -> "EdgeMask":
        return EdgeMask(self.edges, not self.loops)

    def of(self, edges: EdgeSet) -> EdgeSet:
        """The edges of a set for which it holds."""
        return loops_of(edges) if self.loops else edges - loops_of(edges)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _no_op(func)


@dataclass(frozen=True)
class NodeIndex:
    """The numbers of the nodes of a space, in order: alone, or as both ends of loops."""

    space: Space
    rows: int = 1

    def _itself(self, *_: Any, **__: Any) -> "NodeIndex":
        return self

    view = reshape = unsqueeze = to = long = contiguous = _itself

    def repeat(self, *sizes: Any) -> "NodeIndex":
        return self.twice(sizes)

    def expand(self, *sizes: Any) -> "NodeIndex":
        return self.twice(sizes)

    def twice(self, sizes: Any) -> "NodeIndex":
        """Both ends of a loop at every node."""
        if self.rows != 1 or tuple(sizes) not in ((2, 1), (2, -1), ((2, 1),), ((2, -1),)):
            raise Unfusable(f"{user_line()}: the numbers of nodes as something else than loops.")
        return NodeIndex(self.space, 2)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unfusable(f"{user_line()}: `{name}` of the numbers of nodes, which are not known.")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _no_op(func)


class EndIndices(torch.Tensor):
    """The two rows of indices of a set of edges, of which code may take one, and ask for
    metadata."""

    _recorder: Recorder
    sides: tuple[str, str]
    edges: EdgeSet

    @staticmethod
    def __new__(cls, recorder: Recorder, sides: tuple[str, str], edges: EdgeSet = GIVEN) -> Any:
        shape = (2, recorder.sizes[recorder.edge_space])
        made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.int64, device="cpu")
        made._recorder, made.sides, made.edges = recorder, sides, edges
        return made

    def of(self, edges: EdgeSet) -> "EndIndices":
        """Those of another set."""
        return EndIndices(self._recorder, self.sides, edges)

    def row(self, number: int) -> EndIndex:
        """One of the two rows."""
        return EndIndex(self.sides[number], self._recorder, self.edges)

    def read(self, func: Any, args: Any) -> Any:
        """What a function of torch gives for it.

        Raises:
            Unfusable: it is neither a row, nor a part, nor metadata.
        """
        extent = self._recorder.marks[self._recorder.edge_space]
        shape = Shape((2, extent))
        if func is torch.Tensor.shape.__get__:
            return shape
        if func is torch.Tensor.size:
            return shape[args[0]] if args else shape
        if func in (torch.Tensor.numel, torch.numel):
            return self.row(0).numel()
        if func in _ROWS:
            return self.row(0), self.row(1)
        if func is torch.Tensor.__getitem__ and args[0] in (0, 1, -1, -2):
            return self.row(args[0])
        if func is torch.Tensor.__getitem__ and _is_part(args[0]):
            return self.of(args[0][1].of(self.edges))
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(self)
        raise _no_op(func)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0].read(func, args[1:])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0].read(func, args[1:])


def _is_part(index: Any) -> bool:
    """Whether an index takes the edges of a mask from both rows."""
    if not isinstance(index, tuple) or len(index) != 2:
        return False
    return index[0] == slice(None) and isinstance(index[1], EdgeMask)


def _no_op(func: Any) -> Unfusable:
    name = getattr(func, "__name__", func)
    return Unfusable(
        f"{user_line()}: `{name}` takes the indices of edges, and no op of a trace computes it."
    )


_T = torch.Tensor
_ROWS = (_T.unbind, torch.unbind, _T.__iter__)
_METADATA = (
    _T.dtype.__get__, _T.device.__get__, _T.layout.__get__, _T.is_sparse.__get__, _T.dim,
    _T.ndim.__get__, _T.is_cuda.__get__, _T.is_floating_point, _T.requires_grad.__get__,
)  # fmt: skip
