"""`MessagePassing`: what one edge sends, how messages combine, what a node does with the result."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

from tiga.errors import InvalidState, InvalidType
from tiga.reducers import Reducer, Sum
from tiga.reducers.base import Returned
from tiga.runtime.collector import uncollected

Fields = Mapping[str, Any]

FieldSets = tuple[Fields | None, Fields | None, Fields | None, Fields | None]
"""What a call was given as `src`, `dst`, `edge` and `ndata`."""

TORCH_STATE, NATIVE_STATE = "_tiga_state", "_tiga_calls"
"""Where an instance has what it knows of its calls, on torch tensors and on native ones."""


@dataclass(frozen=True)
class Masked(Returned):
    """A message, and whether the edge counts: what `tg.mask` returns."""

    value: Any
    keep: Any

    def _why(self) -> str:
        return (
            "what `tg.mask` gives is a message and which edges count, to return or to give to a "
            "reducer: compute first, `return tg.mask(2 * x, keep)`. To compute with zeros where "
            "`keep` does not hold, use torch.where(keep, x, 0)."
        )


def mask(value: Any, keep: Any) -> Masked:
    """Inside `edge`: send `value` only where `keep` holds.

    Args:
        value: the message, or one argument of a reducer, `[E, ...]`.
        keep: bool `[E]`, or with feature axes that broadcast to those of `value`.

    An edge with `keep` False contributes the identity of the reduction, and exactly zero to every
    derivative, even where the derivative of `value` is infinite.

    Example:
        >>> import torch, tiga as tg
        >>> class Near(tg.MessagePassing):
        ...     def edge(self, src, dst, edge):
        ...         return tg.mask(src.x, edge.length < 1.0)
        >>> graph = tg.Graph.from_coo([0, 1], [0, 0], num_dst=1)
        >>> length = torch.tensor([0.5, 2.0])
        >>> Near()(graph=graph, src={"x": torch.tensor([3.0, 4.0])}, edge={"length": length})
        tensor([3.])
    """
    return Masked(value, keep)


class PerEdge(Returned):
    """Values with a row per edge, as `node` sees them: to return, not to compute with."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def _why(self) -> str:
        return (
            "what `tg.each()` and `tg.edge_softmax()` give has a row per edge, where `node` works "
            "on rows of nodes: compute with it in `edge`, and return it from `node` as it is."
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()


def _are_native(given: FieldSets) -> bool:
    """Whether some field is a native tensor; without torch, any field has to be."""
    core = sys.modules.get("tiga.frontends.tensor.core")
    if core is None:
        return _without_torch()
    for named in given:
        if named.__class__ is dict or isinstance(named, Mapping):
            for value in named.values():
                if isinstance(value, core.Tensor):
                    return True
    return _without_torch()


def _without_torch() -> bool:
    # Asked first whether torch is loaded: its compiler warns of what is remembered by a function.
    return sys.modules.get("torch") is None and not _has_torch()


@cache
def _has_torch() -> bool:
    return find_spec("torch") is not None


@cache
def _native() -> Callable[..., Any]:
    """The call on native tensors, loaded when there is one."""
    with uncollected():
        from tiga.frontends.tensor.messages.call import call

    return call


class MessagePassing:
    """Base class of kernels over the edges of a graph.

    Subclasses define `edge(self, src, dst, edge, **params)`: the message of one edge, written as
    torch code on fields whose first axis enumerates edges; and optionally
    `node(self, dst, aggregate, **params)`: what a destination makes of its reduced messages.
    `reducer` (default `tg.sum()`) combines the messages of a destination.

    Call it with tensors by name. `src`, `dst` and `edge` hold fields with leading extents
    `graph.num_src`, `graph.num_dst` and `graph.num_edges`; `ndata` instead of `src` and `dst`
    gives both ends of a graph with one set of nodes the same fields. Other keywords go to the
    parameters of `edge` and `node` with these names. Edge fields follow the order in which the
    graph's edges were given.

    Learned layers derive from both classes, in this order, and behave as any `nn.Module`:
    `class Layer(tg.MessagePassing, torch.nn.Module)`.

    Raises:
        InvalidType: no graph; `ndata` beside `src` or `dst`; a field that is no tensor; an unknown
            parameter; a `reducer` that is none.
        InvalidValue: a field of the wrong leading extent; `edge` reads or permutes the entity axis
            or branches on data; a field that `edge` names is missing.
        Unfusable: with `strict`, an op that cannot be fused.

    Example:
        >>> import torch, tiga as tg
        >>> class WeightedSum(tg.MessagePassing):
        ...     def edge(self, src, dst, edge):
        ...         return edge.w * src.x
        >>> graph = tg.Graph.from_coo([0, 1], [1, 1], num_dst=2)
        >>> x, w = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
        >>> WeightedSum()(graph=graph, src={"x": x}, edge={"w": w})
        tensor([ 0., 11.])
    """

    reducer: Reducer = Sum()
    strict: ClassVar[bool] = False
    """Raise instead of running what cannot be fused through torch in blocks."""
    _is_module: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        place = cls.__mro__.index(MessagePassing)
        hiding = [c for c in cls.__mro__[:place] if not issubclass(c, MessagePassing)]
        for other in hiding:
            if "__call__" in vars(other):
                raise InvalidType(
                    f"class {cls.__name__}: {other.__name__} comes before MessagePassing and hides "
                    f"its call. Name MessagePassing first: "
                    f"`class {cls.__name__}(tg.MessagePassing, {other.__name__})`."
                )
        aggr = vars(cls).get("aggr")
        if isinstance(aggr, str) and cls.reducer is MessagePassing.reducer:
            raise InvalidType(
                f"class {cls.__name__}: `aggr = {aggr!r}` is what PyG's layers say, and is not "
                f"read here. Write `reducer = tg.mean()`, `tg.sum()`, `tg.max()` and so on."
            )
        others = cls.__mro__[place + 1 :]
        cls._is_module = any("__call__" in vars(other) for other in others)

    def edge(self, src: Any, dst: Any, edge: Any) -> Any:
        """The message of one edge. Subclasses override it."""
        as_in_pyg = (
            " What is `message(self, x_j, x_i)` in PyG reads `src.x` for `x_j` and `dst.x` for "
            "`x_i` here; layers of PyG are compiled as they are by `tiga.interop.pyg.compile`."
        )
        raise InvalidType(
            f"{type(self).__name__} has no `edge`: define `def edge(self, src, dst, edge)` that "
            f"returns the message of an edge.{as_in_pyg if hasattr(self, 'message') else ''}"
        )

    def node(self, dst: Any, aggregate: Any) -> Any:
        """What a destination makes of its reduced messages. The default returns them."""
        return aggregate

    def __call__(self, *positional: Any, **call: Any) -> Any:
        """Run the kernel; through `nn.Module.__call__`, and so its hooks, where it is a module.

        A subclass may have a `forward` of its own, with parameters of any kind.
        """
        if positional and type(self).forward is MessagePassing.forward:
            raise InvalidType(
                f"{type(self).__name__}: a call takes names only, "
                f"`kernel(graph=..., src={{...}}, dst={{...}}, edge={{...}})`; got "
                f"{len(positional)} without."
            )
        if self._is_module:
            if "_modules" not in self.__dict__:
                raise InvalidState(
                    f"{type(self).__name__} was not set up: call `super().__init__()` first in its "
                    f"`__init__`, as in every torch.nn.Module."
                )
            return super().__call__(*positional, **call)  # type: ignore[misc]
        return self.forward(*positional, **call)

    def forward(
        self, *, graph: Any = None, src: Fields | None = None, dst: Fields | None = None,
        edge: Fields | None = None, ndata: Fields | None = None, **params: Any,
    ) -> Any:  # fmt: skip
        """The call itself; modules may override it and call `super().forward(graph=..., ...)`."""
        given = (src, dst, edge, ndata)
        if _are_native(given):
            return _native()(self, graph, given, params)
        from tiga.frontends.torch.call import call

        return call(self, graph, given, params)

    def _in_trace(self, told: Callable[..., Any], *args: Any) -> Any:
        """What a function tells of the kernel. While torch's compiler traces it is a constant: of a
        method's own object it then gives the object itself, of another argument no stand-in."""
        return told(self, *args)

    _in_trace._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def prepare(
        self, *, graph: Any = None, src: Fields | None = None, dst: Fields | None = None,
        edge: Fields | None = None, ndata: Fields | None = None, **params: Any,
    ) -> Any:  # fmt: skip
        """A call with fixed buffers: takes what a call takes, gives a launch without arguments.

        The launch reads the same tensors each time, whatever they hold by then, and computes into
        the same results, without gradients, which it returns (also as its `outputs`). It does none
        of a call's checks but one: that the graph is unchanged.

        Raises:
            Unfusable: no kernel can run it; everything else as a call does.

        Example:
            >>> import torch, tiga as tg
            >>> class Copy(tg.MessagePassing):
            ...     def edge(self, src, dst, edge):
            ...         return src.x
            >>> graph, x = tg.Graph.from_coo([0, 1], [1, 1]), torch.tensor([1.0, 2.0])
            >>> launch = Copy().prepare(graph=graph, ndata={"x": x})
            >>> x += 1
            >>> launch()
            tensor([0., 5.])
        """
        given = (src, dst, edge, ndata)
        if _are_native(given):
            from tiga.frontends.tensor.messages.call import prepare

            return prepare(self, graph, given, params)
        from tiga.frontends.torch.prepared import prepare as prepare_torch

        return prepare_torch(self, graph, given, params)

    def explain(
        self, *, graph: Any = None, src: Fields | None = None, dst: Fields | None = None,
        edge: Fields | None = None, ndata: Fields | None = None, **params: Any,
    ) -> str:  # fmt: skip
        """What the programs of this kernel were fused into, and what was not fused and why.

        With what a call takes it is told of that call, which is not made. Over a graph in a file
        that includes the pages, the most bytes in use by tier, and the bytes that are read and
        written, for the gradients too if a tensor requires them; no feature is read for it.

        Raises:
            OutOfBudget: the call would not fit; everything else as a call does.

        Example:
            >>> import torch, tiga as tg
            >>> class Copy(tg.MessagePassing):
            ...     def edge(self, src, dst, edge):
            ...         return src.x
            >>> graph, x = tg.Graph.from_coo([0, 1], [1, 1]), torch.tensor([1.0, 2.0])
            >>> print(Copy().explain(graph=graph, ndata={"x": x}).splitlines()[2].strip())
            1 kernel, 0 library calls
        """
        if graph is None:
            return str(self._inspected().explain())
        given = (src, dst, edge, ndata)
        told = self._told(given)(self, graph, given, params)
        return "\n".join([self._inspected().explain(), *told])

    def ir(self, level: str = "domain") -> str:
        """The text of a level of IR, `"domain"`, `"iter"`, `"kernel"` or `"llvm"`, per program."""
        return self._inspected().ir(level)

    def code(self, kind: str | None = None) -> str:
        """The generated code, per program: `"llvm"` for the CPU; `"triton"`, and what Triton makes
        of it, `"ttir"` and `"ptx"`, for GPUs, whether or not this machine has one. Left out: the
        source for where the program ran.
        """
        return self._inspected().code(kind)

    @property
    def schedules(self) -> tuple[Any, ...]:
        """The schedules of the row programs compiled so far."""
        return self._inspected().schedules()

    @property
    def diagnostics(self) -> tuple[Any, ...]:
        """What was not done as asked: one record per op that runs on the bounded path."""
        return self._inspected().diagnostics()

    @property
    def cache_info(self) -> Any:
        """`(hits, misses, variants, compiled)`: calls that found their program or not, programs
        captured, and executables built for them."""
        return self._inspected().cache_info()

    def reference(
        self, *, graph: Any = None, src: Fields | None = None, dst: Fields | None = None,
        edge: Fields | None = None, ndata: Fields | None = None, **params: Any,
    ) -> Any:  # fmt: skip
        """The result of a call by the numpy oracle, op by op and without derivatives: what the
        kernels are checked against.

        Raises:
            InvalidType: no kernel can run the call; everything else as a call does.

        Example:
            >>> import tiga as tg
            >>> class Copy(tg.MessagePassing):
            ...     def edge(self, src, dst, edge):
            ...         return src.x
            >>> graph, x = tg.Graph.from_coo([0, 1], [1, 1]), tg.tensor([1.0, 2.0])
            >>> Copy().reference(graph=graph, ndata={"x": x}).tolist()
            [0.0, 3.0]
        """
        given = (src, dst, edge, ndata)
        if _are_native(given):
            from tiga.frontends.tensor.messages.oracle import reference

            return reference(self, graph, given, params)
        from tiga.frontends.torch.call import reference as reference_of_torch

        return reference_of_torch(self, graph, given, params)

    def _inspected(self) -> Any:
        from tiga.frontends.inspection import inspected

        return inspected(self)

    def _told(self, given: FieldSets) -> Callable[..., list[str]]:
        """What captures a call of these fields, and says what is not known yet of its programs."""
        if _are_native(given):
            from tiga.frontends.tensor.messages.forecast import told

            return told
        from tiga.frontends.torch.inspection import told as told_of_torch

        return told_of_torch
