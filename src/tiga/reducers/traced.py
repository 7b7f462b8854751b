"""From what a frontend traced of a user's reducer to its rule on states and the results of rows."""

from collections.abc import Iterable, Sequence

from tiga.ops.align import expand_to
from tiga.ops.leaf import Input
from tiga.ops.message import spread
from tiga.ops.pointwise import cast
from tiga.reducers.base import Messages
from tiga.reducers.fold import Fold
from tiga.reducers.invariance import shifts_without_effect
from tiga.reducers.recognise import Forms
from tiga.reducers.rows import RowStates
from tiga.trace.node import Node, substitute, topological
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import GLOBAL, DType, Space, Type


def stand_ins(role: str, types: Sequence[Type], space: Space) -> list[Node]:
    """Inputs that stand for the components of a state of each entity of a space."""
    return [Input(f"{role}{i}", t.with_space(space))() for i, t in enumerate(types)]


def fold_of(
    combined: Sequence[Node], left: Sequence[Node], right: Sequence[Node], start: Sequence[Node],
    associative: bool,
) -> Fold:  # fmt: skip
    """The rule whose `combine` gives `combined` of two states, and whose identity is `start`.
    Global values that `combine` reads are its arguments too."""
    globals_ = (n.inputs[0] for n in topological(combined) if n.op.origin is Origin.GLOBAL)
    read, space = list(dict.fromkeys(globals_)), left[0].type.space
    holes = [Input(f"read{i}", n.type.with_space(space))() for i, n in enumerate(read)]
    spreads = {spread(n, space): hole for n, hole in zip(read, holes, strict=True)}
    identity = tuple(
        expand_to(cast(n, like.type.dtype), like.type.shape, GLOBAL)
        for n, like in zip(start, left, strict=True)
    )
    program = Program((*left, *right, *holes), tuple(substitute(combined, spreads)))
    return Fold(program, identity, tuple(read), associative)


def states_in(
    result: Node, holes: Sequence[Node], states: Messages, rule: Fold, forms: Forms,
    ones: frozenset[int],
) -> dict[Node, Node]:  # fmt: skip
    """The states of rows that a result of `finalize` is made of, for the inputs that stand for
    them; `states` are those of edges, of which the components `ones` are 1."""
    still = shifts_without_effect(forms, result, holes, ones)
    found, needed = RowStates(states, rule, forms, still), set(topological([result]))
    return {hole: found.state(i) for i, hole in enumerate(holes) if hole in needed}


def narrow_of(dtypes: Iterable[DType]) -> DType | None:
    """The 16-bit dtype of messages, if they share one: their states are wider."""
    (dtype, *others) = set(dtypes)
    return dtype if not others and dtype != dtype.compute else None


def rounded(result: Node, narrow: DType | None) -> Node:
    """A result in the 16-bit dtype of the messages, if they have one."""
    is_wide = narrow is not None and result.type.dtype == narrow.compute
    return cast(result, narrow) if is_wide and narrow is not None else result
