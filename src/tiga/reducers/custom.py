"""Reducers that users write: an identity, a combination, and what goes before and after.

The functions are plain code over the frontend's tensors. The frontend traces them; `recognise`
finds the components that need no order of edges, and `rows` computes them, and the others as a
fold in edge order.
"""

from typing import Any

from tiga.reducers.base import Bound, Reducer


class CustomReducer(Reducer):
    """Base of reducers that users write (`tg.Reducer`).

    Override `identity()` (the state of an empty row: a number, a tensor, or a tuple of them),
    `combine(left, right)` (two states to one), and if needed `lift(*messages)` (messages of an
    edge to a state) and `finalize(state)` (a state to the result). States are folded in CSR edge
    order, so `combine` need not be commutative; `associative = True` lets long rows be split.

    Example:
        >>> import torch, tiga as tg
        >>> class LogSum(tg.Reducer):
        ...     associative = commutative = True
        ...     def identity(self):
        ...         return 0.0
        ...     def lift(self, message):
        ...         return torch.log(message)
        ...     def combine(self, left, right):
        ...         return left + right
        >>> class Geometric(tg.MessagePassing):
        ...     reducer = LogSum()
        ...     def edge(self, src, dst, edge):
        ...         return src.x
        >>> graph = tg.Graph.from_coo([0, 1], [0, 0], num_src=2, num_dst=1)
        >>> Geometric()(graph=graph, src={"x": torch.tensor([1.0, torch.e])})
        tensor([1.])
    """

    associative: bool = False
    commutative: bool = False

    # Users keep settings as attributes; two reducers are the same only if they are one object.
    __setattr__ = object.__setattr__
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, *messages: Any) -> Any:
        return Bound(self, messages)

    def identity(self) -> Any:
        """The state of an empty row."""
        raise NotImplementedError(f"{type(self).__name__} must define identity()")

    def lift(self, *messages: Any) -> Any:
        """The state of one edge."""
        return messages[0] if len(messages) == 1 else messages

    def combine(self, left: Any, right: Any) -> Any:
        """The state of two runs of edges, `left` before `right`."""
        raise NotImplementedError(f"{type(self).__name__} must define combine(left, right)")

    def finalize(self, state: Any) -> Any:
        """The result of a row from its state."""
        return state
