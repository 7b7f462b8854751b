"""Reducers that users write: an identity, a combination, and what goes before and after.

The functions are plain code over the frontend's tensors; the frontend traces them and hands the
trace to `fold`, which recognises by structure what is a known monoid, component by component, and
folds the rest in edge order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tiga.ops.align import expand_to
from tiga.ops.feature import concat, reshape, take
from tiga.ops.leaf import Input
from tiga.ops.message import reduce, spread
from tiga.ops.monoid import MONOIDS
from tiga.ops.pointwise import cast, where
from tiga.ops.scan import ScanAfter, inline, region
from tiga.reducers.base import Bound, Messages, Reducer
from tiga.trace.node import Node, topological
from tiga.trace.program import Program
from tiga.types import GLOBAL, DType, Type, float64

_MONOID_OPS = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min"}


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


@dataclass(frozen=True)
class Fold:
    """A traced reducer: `combine` takes the left components, the right ones, and what it reads.

    `identity` are numbers' or tensors' values per component, and `read` what `combine` reads
    beside the states, all as global nodes.
    """

    combine: Program
    identity: tuple[Node, ...]
    read: tuple[Node, ...] = ()

    @property
    def width(self) -> int:
        return len(self.identity)


def fold(messages: Messages, rule: Fold) -> tuple[Node, ...]:
    """The row states of lifted messages, one per component."""
    known = {i: _monoid(rule, i) for i in range(rule.width)}
    needed = _components_needed(rule, [i for i, kind in known.items() if kind is None])
    results: dict[int, Node] = {
        i: _reduced(messages, rule, i, kind)
        for i, kind in known.items()
        if kind is not None and i not in needed
    }
    if needed:
        results.update(zip(needed, _scanned(messages, rule, needed), strict=True))
    return tuple(results[i] for i in range(rule.width))


def _monoid(rule: Fold, component: int) -> str | None:
    """The monoid that a component combines by, on its own, with that monoid's identity."""
    output = rule.combine.outputs[component]
    kind = _MONOID_OPS.get(output.op.name)
    left, right = rule.combine.inputs[component], rule.combine.inputs[rule.width + component]
    if kind is None or set(output.inputs) != {left, right}:
        return None
    start = rule.identity[component]
    if start.op.name != "constant":
        return None
    return kind if start.op.value == MONOIDS[kind].identity(start.type.dtype) else None


def _components_needed(rule: Fold, wanted: Sequence[int]) -> list[int]:
    """The components that a scan of the wanted ones must carry."""
    needed: set[int] = set()
    stack = list(wanted)
    while stack:
        component = stack.pop()
        if component in needed:
            continue
        needed.add(component)
        read = set(topological([rule.combine.outputs[component]]))
        stack += [
            i for i in range(rule.width)
            if {rule.combine.inputs[i], rule.combine.inputs[rule.width + i]} & read
        ]  # fmt: skip
    return sorted(needed)


def _element(messages: Messages, rule: Fold, component: int) -> Node:
    """The lifted component, the identity where the edge does not count."""
    lifted = messages.parts[component]
    if messages.keep is None:
        return lifted
    keep = expand_to(messages.keep, lifted.type.shape, lifted.type.space)
    return where(keep, lifted, _spread(rule.identity[component], lifted.type))


def _spread(value: Node, like: Type) -> Node:
    return expand_to(value, like.shape, like.space)


def _reduced(messages: Messages, rule: Fold, component: int, kind: str) -> Node:
    return reduce(messages.relation, messages.side, kind, _element(messages, rule, component))


def _scanned(messages: Messages, rule: Fold, needed: Sequence[int]) -> list[Node]:
    """The components folded in edge order, packed into one carry."""
    elements = [_element(messages, rule, i) for i in needed]
    types = [e.type for e in elements]
    carry = _carry(types)
    end = messages.relation.end(messages.side)
    starts = [
        _spread(rule.identity[i], t.with_space(end)) for i, t in zip(needed, types, strict=True)
    ]
    step = _packed_step(rule, needed, types, carry)
    scan = ScanAfter(messages.relation, messages.side, False, step)
    read = [spread(node, messages.relation.edge) for node in rule.read]
    return _unpack(scan(_pack(starts, carry), _pack(elements, carry), *read), types)


def _packed_step(rule: Fold, needed: Sequence[int], types: Sequence[Type], carry: DType) -> Program:
    """`combine` on packed states."""
    packed = Type(carry, (sum(t.size for t in types),), GLOBAL)
    left, right = Input("left", packed)(), Input("right", packed)()
    holes = [Input(f"read{i}", node.type)() for i, node in enumerate(rule.read)]
    inputs = [rule.combine.inputs[i] for i in needed]
    inputs += [rule.combine.inputs[rule.width + i] for i in needed]
    inputs += rule.combine.inputs[2 * rule.width :]
    arguments = [*_unpack(left, types), *_unpack(right, types), *holes]
    part = Program(tuple(inputs), tuple(rule.combine.outputs[i] for i in needed))
    return region([_pack(inline(part, arguments, GLOBAL), carry)], [left, right, *holes])


def _carry(types: Sequence[Type]) -> DType:
    """The dtype that holds all components: their own, or float64 if they differ."""
    dtypes = {t.dtype for t in types}
    return dtypes.pop() if len(dtypes) == 1 else float64


def _pack(parts: Sequence[Node], carry: DType) -> Node:
    """All components after one another in one vector."""
    return concat(0, *(reshape(cast(p, carry), (p.type.size,)) for p in parts))


def _unpack(packed: Node, types: Sequence[Type]) -> list[Node]:
    parts, start = [], 0
    for of in types:
        stop = start + of.size
        part = reshape(take(packed, 0, tuple(range(start, stop))), of.shape)
        parts.append(cast(part, of.dtype))
        start = stop
    return parts
