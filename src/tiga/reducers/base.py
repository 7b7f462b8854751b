"""What a reducer is: messages of a row to one value, as a composition of trace ops."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tiga.errors import InvalidType, InvalidValue
from tiga.ops.align import expand_to
from tiga.ops.feature import reshape
from tiga.ops.leaf import constant
from tiga.ops.message import degree, reduce
from tiga.ops.pointwise import cast, where
from tiga.trace.node import Node
from tiga.types import Relation, Type, bool_


@dataclass(frozen=True)
class Messages:
    """What one edge function sent: its arguments to the reducer, and which edges count.

    `keep` is a bool edge value, or None when every edge counts; `side` names the rows. `position`
    is the number by which results name an edge, None for its position in CSR order.
    """

    relation: Relation
    parts: tuple[Node, ...]
    keep: Node | None = None
    side: str = "dst"
    position: Node | None = None

    def kept(self, m: Node, fill: float) -> Node:
        """`m` where the edge counts, elsewhere `fill`."""
        return self.kept_or(m, constant(fill, m.type))

    def kept_or(self, m: Node, other: Node) -> Node:
        """`m` where the edge counts, elsewhere `other`."""
        return m if self.keep is None else where(self._fitted(self.keep, m.type), m, other)

    @staticmethod
    def _fitted(keep: Node, like: Type) -> Node:
        """A mask for messages of a type: one of more axes ends in axes of extent 1."""
        rank = len(like.shape)
        if len(keep.type.shape) > rank and not set(keep.type.shape[rank:]) - {1}:
            keep = reshape(keep, keep.type.shape[:rank])
        return expand_to(keep, like.shape, like.space)

    def total(self, kind: str, m: Node) -> Node:
        """The row reduction of `m`, which must already hold the identity where masked."""
        return reduce(self.relation, self.side, kind, m)

    def count(self, like: Node) -> Node:
        """Per row, how many edges count, in the dtype and shape of the row value `like`."""
        if self.keep is None:
            return expand_to(degree(self.relation, self.side, like.type.dtype), like.type.shape,
                             like.type.space)  # fmt: skip
        counted = self.total("sum", cast(self.keep, like.type.dtype))
        return self._fitted(counted, like.type)

    def mask(self, m: Node) -> Node:
        """Which messages count, as a bool edge value of the shape of `m`."""
        of = m.type.with_dtype(bool_)
        return constant(True, of) if self.keep is None else self._fitted(self.keep, of)


class Returned:
    """What `edge` and `node` may return, but not compute with; `_why` says why not."""

    __slots__ = ()

    def _why(self) -> str:
        raise NotImplementedError

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise InvalidType(self._why())

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = [*args, *(kwargs or {}).values()]
        return next(value for value in operands if isinstance(value, cls))._refuse()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = __pow__ = __rpow__ = _refuse
    __neg__ = __getitem__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __len__ = _refuse


@dataclass(frozen=True)
class Bound(Returned):
    """The messages of one edge, addressed to a reducer: what `self.reducer(...)` returns."""

    reducer: "Reducer"
    messages: tuple[Any, ...]

    def _why(self) -> str:
        name = type(self.reducer).__name__
        return (
            f"{name}: what a reducer gives is known when all edges of a row are, so `edge` can "
            f"return it, not compute with it; `node` is given it. To sum values by the weights of "
            f"a softmax, return `tg.softmax()(score, value)`."
        )


_TAKES = {"numbers": "an integer or floating-point type", "floats": "a floating-point type"}
EMPTY_POLICIES = ("default", "identity")


@dataclass(frozen=True)
class Reducer:
    """Combines the messages into one row. Subclasses say how with `rows`.

    `empty="identity"` gives empty rows the identity of the reduction (such as -inf for a maximum)
    instead of the default value, which is finite.
    """

    empty: str = field(default="default", kw_only=True)
    arguments: ClassVar[int] = 1
    takes: ClassVar[str] = "values"
    """What messages may be: "values" of any type, "numbers" (no bools), or "floats"."""

    def __post_init__(self) -> None:
        if not isinstance(self.empty, str) or self.empty not in EMPTY_POLICIES:
            raise InvalidValue(
                f"empty= takes one of {', '.join(EMPTY_POLICIES)}; got {self.empty!r}."
            )

    def __call__(self, *messages: Any) -> Bound:
        """Address the messages of an edge to this reducer, inside `edge`."""
        if len(messages) != self.arguments:
            raise InvalidType(
                f"{type(self).__name__} takes {self.arguments} message(s) per edge; "
                f"got {len(messages)}."
            )
        return Bound(self, messages)

    def require(self, messages: Sequence[Type], place: Callable[[], str] = lambda: "") -> None:
        """Refuse messages of a type that the reduction is not defined on; `place` names the line.

        Raises:
            InvalidType: a message is no float, or a bool where numbers are ordered.
        """
        for of in messages:
            accepted = {
                "values": True, "numbers": of.dtype != bool_, "floats": of.dtype.is_float,
            }  # fmt: skip
            if not accepted[self.takes]:
                raise InvalidType(
                    f"{type(self).__name__} takes messages of {_TAKES[self.takes]}; got "
                    f"{of.dtype}{place()}: convert the message in `edge`, say with `.float()`."
                )

    def rows(self, messages: Messages) -> Node:
        """The row value, or a value per edge, in the dtype of the message."""
        raise NotImplementedError
