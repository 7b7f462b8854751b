"""A traced reducer as a rule on states, and its fold in edge order."""

from collections.abc import Sequence
from dataclasses import dataclass

from tiga.ops.align import expand_to
from tiga.ops.feature import concat, reshape, take
from tiga.ops.leaf import Input, zeros_like
from tiga.ops.message import spread
from tiga.ops.pointwise import cast, ne, where
from tiga.ops.scan import ScanAfter, inline, region
from tiga.reducers.base import Messages
from tiga.trace.node import Node, reached, topological
from tiga.trace.program import Program
from tiga.types import GLOBAL, DType, Type, float64


@dataclass(frozen=True)
class Fold:
    """A traced reducer: `combine` takes the left components, the right ones, and what it reads.

    `identity` are numbers' or tensors' values per component, and `read` what `combine` reads
    beside the states, all as global nodes. If it is `associative`, long rows may be split.
    """

    combine: Program
    identity: tuple[Node, ...]
    read: tuple[Node, ...] = ()
    associative: bool = False

    @property
    def width(self) -> int:
        return len(self.identity)

    @property
    def left(self) -> tuple[Node, ...]:
        return self.combine.inputs[: self.width]

    @property
    def right(self) -> tuple[Node, ...]:
        return self.combine.inputs[self.width : 2 * self.width]

    @property
    def holes(self) -> tuple[Node, ...]:
        """The inputs of `combine` that stand for what it reads."""
        return self.combine.inputs[2 * self.width :]

    def closure(self, wanted: Sequence[int]) -> list[int]:
        """The components that a scan of the wanted ones must carry."""

        def read_by(component: int) -> list[int]:
            read = set(topological([self.combine.outputs[component]]))
            pairs = enumerate(zip(self.left, self.right, strict=True))
            return [i for i, pair in pairs if not read.isdisjoint(pair)]

        return sorted(reached(wanted, below=read_by))


def element(messages: Messages, rule: Fold, component: int) -> Node:
    """The lifted component, the identity where the edge does not count."""
    lifted = messages.parts[component]
    return messages.kept_or(lifted, given_to(rule.identity[component], lifted.type))


def given_to(value: Node, like: Type) -> Node:
    """A global value for every entity of a type's space."""
    return expand_to(value, like.shape, like.space)


def scanned(messages: Messages, rule: Fold, needed: Sequence[int]) -> list[Node]:
    """The components folded in edge order, packed into one carry."""
    elements = [element(messages, rule, i) for i in needed]
    types = [e.type for e in elements]
    carry = _carry(types)
    end = messages.relation.end(messages.side)
    starts = [
        given_to(rule.identity[i], t.with_space(end)) for i, t in zip(needed, types, strict=True)
    ]
    step = _packed_step(rule, needed, types, carry)
    start, packed = _pack(starts, carry), _pack(elements, carry)
    read = [spread(node, messages.relation.edge) for node in rule.read]
    ends = (messages.relation, messages.side, False)
    if rule.associative:
        places = tuple(range(1, 1 + len(read)))
        scan = ScanAfter(*ends, step, _join(step), read=places)(start, packed, *read)
    elif messages.keep is None:
        scan = ScanAfter(*ends, step)(start, packed, *read)
    else:
        kept = _pack([cast(messages.mask(e), carry) for e in elements], carry)
        scan = ScanAfter(*ends, _skipping(step, kept))(start, packed, *read, kept)
    return _unpack(scan, types)


def _packed_step(rule: Fold, needed: Sequence[int], types: Sequence[Type], carry: DType) -> Program:
    """`combine` on packed states."""
    packed = Type(carry, (sum(t.size for t in types),), GLOBAL)
    left, right = Input("left", packed)(), Input("right", packed)()
    holes = [Input(f"read{i}", node.type)() for i, node in enumerate(rule.read)]
    inputs = [side[i] for side in (rule.left, rule.right) for i in needed]
    arguments = [*_unpack(left, types), *_unpack(right, types), *holes]
    part = Program((*inputs, *rule.holes), tuple(rule.combine.outputs[i] for i in needed))
    return region([_pack(inline(part, arguments, GLOBAL), carry)], [left, right, *holes])


def _skipping(step: Program, kept: Node) -> Program:
    """The step, with a last element that is 0 where an edge does not count: it leaves the carry as
    it is, also where combining with the identity would not."""
    flag = Input("kept", kept.type.with_space(GLOBAL))()
    counts = ne(flag, zeros_like(flag))
    return Program((*step.inputs, flag), (where(counts, step.outputs[0], step.inputs[0]),))


def _join(step: Program) -> Program:
    """What a run of edges does to a carry: it is combined with the run's result."""
    carry, element, *read = step.inputs
    unused = [Input(label, carry.type)() for label in ("before", "total")]
    return region(step.outputs, [carry, element, *unused, *read])


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
