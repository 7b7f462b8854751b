"""Several reducers over one message, in one walk."""

from typing import Any

from tiga.errors import InvalidType
from tiga.reducers.base import Bound, Reducer


class Multi(Reducer):
    """The results of several reducers over the same message.

    `tg.multi(tg.sum(), tg.max())` gives a tuple, `tg.multi(total=tg.sum())` a dict. All take the
    one message that `edge` returns, and share one walk over the edges.

    Raises:
        InvalidType: there are none, some by position and some by name, or one of two messages.

    Example:
        >>> import torch, tiga as tg
        >>> class Both(tg.MessagePassing):
        ...     reducer = tg.multi(total=tg.sum(), peak=tg.max())
        ...     def edge(self, src, dst, edge):
        ...         return src.x
        >>> graph = tg.Graph.from_coo([0, 1], [1, 1], num_dst=2)
        >>> Both()(graph=graph, src={"x": torch.tensor([1.0, 2.0])})["total"]
        tensor([0., 3.])
    """

    parts: Any

    def __init__(self, *reducers: Reducer, **named: Reducer) -> None:
        super().__init__()
        if bool(reducers) == bool(named):
            raise InvalidType("tg.multi takes reducers by position or by name, at least one.")
        for reducer in (*reducers, *named.values()):
            if not isinstance(reducer, Reducer) or reducer.arguments != 1:
                raise InvalidType(f"tg.multi takes reducers of one message; got {reducer!r}.")
        object.__setattr__(self, "parts", reducers or named)

    def bound(self, message: Any) -> Any:
        """The message addressed to each reducer, in a tuple or dict as they were given."""
        if isinstance(self.parts, dict):
            return {name: Bound(reducer, (message,)) for name, reducer in self.parts.items()}
        return tuple(Bound(reducer, (message,)) for reducer in self.parts)

    def _key(self) -> Any:
        return tuple(self.parts.items()) if isinstance(self.parts, dict) else self.parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Multi) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Multi({self.parts!r})"
