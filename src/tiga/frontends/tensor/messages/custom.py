"""Reducers that users write, on native tensors: their methods traced, as a fold over a row's edges.

The methods run at every call, as `edge` does, on tensors that stand for all edges or rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tiga.frontends.agreement import trusted_forms
from tiga.frontends.reducer_methods import (
    call_method,
    require_states,
    require_structure,
    require_types,
)
from tiga.frontends.tensor.build import as_tensor, broadcast_shapes
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.dtypes import DEFAULT_FLOAT, promote, scalar_dtype
from tiga.frontends.tensor.functions.selection import astype
from tiga.frontends.tensor.functions.views import broadcast_to
from tiga.frontends.tensor.messages.claims import check_claims
from tiga.frontends.tensor.messages.entities import Entities
from tiga.frontends.tensor.messages.fields import stand_in
from tiga.frontends.tensor.scalars import SCALARS, number
from tiga.frontends.trees import leaves_of, mapped, numbered
from tiga.knobs import current
from tiga.ops.align import expand_to
from tiga.ops.pointwise import cast
from tiga.reducers import CustomReducer, Fold, Messages
from tiga.reducers.recognise import Lifted
from tiga.reducers.traced import fold_of, narrow_of, rounded, stand_ins, states_in
from tiga.trace.node import Node, substitute
from tiga.types import GLOBAL, DType, Relation, Shape, Space, Type


@lru_cache(maxsize=1024)
def _state(role: str, place: int, dtype: DType, shape: Shape, extent: int, grad: bool) -> Tensor:
    """A stand-in for one component of the states of all rows; the same one at every call, so that
    what is built from it is known again."""
    return stand_in(dtype, shape, extent, grad)


@dataclass(frozen=True)
class State:
    """One component of a state: its dtype and its shape per entity."""

    dtype: DType
    shape: Shape


class TracedReducer:
    """What a user's reducer built from the messages of all edges."""

    def __init__(self, reducer: CustomReducer, messages: Sequence[Tensor], extent: int) -> None:
        self.reducer = reducer
        self.narrow = narrow_of(m.dtype for m in messages)
        self.messages = [Type(m.dtype, m.shape[1:], GLOBAL) for m in messages]
        wide = [astype(m, m.dtype.compute, copy=False) for m in messages]
        lifted = call_method(reducer, "lift", *wide)
        self.shape = numbered(lifted)
        require_states(reducer, lifted)
        self.lifted = [as_tensor(leaf, "`lift`'s result") for leaf in leaves_of(lifted)]
        start = call_method(reducer, "identity")
        require_structure(reducer, "identity", start, self.shape, "what `lift` returns")
        pairs = zip(leaves_of(start), self.lifted, strict=True)
        self.start = [_identity(leaf, like) for leaf, like in pairs]
        self.states = [_component(m, s) for m, s in zip(self.lifted, self.start, strict=True)]
        grad = any(t._grad for t in (*self.lifted, *self.start))
        self.left, self.right, self.holes = (
            [_state(role, i, s.dtype, s.shape, extent, grad) for i, s in enumerate(self.states)]
            for role in ("left", "right", "state")
        )
        self.combined = self._combine()
        result = call_method(reducer, "finalize", self._tree(self.holes))
        self.result = mapped(lambda leaf: as_tensor(leaf, "`finalize`'s result"), result)

    @property
    def name(self) -> str:
        return type(self.reducer).__name__

    @property
    def values(self) -> tuple[Tensor, ...]:
        """All that the methods gave."""
        return (*self.lifted, *self.start, *self.combined, *leaves_of(self.result))

    @property
    def form(self) -> tuple[Any, ...]:
        """What tells it from others beside its values: what was made while other claims were tried,
        or none, is no proof of these."""
        reducer, trees = self.reducer, (self.shape, numbered(self.result))
        claims = reducer.associative, reducer.commutative, bool(current().verify)
        return *claims, *map(_hashable, trees)

    def _tree(self, states: Sequence[Tensor]) -> Any:
        return mapped(states.__getitem__, self.shape)

    def _combine(self) -> list[Tensor]:
        tree = call_method(self.reducer, "combine", self._tree(self.left), self._tree(self.right))
        require_structure(self.reducer, "combine", tree, self.shape, "the states it is given")
        made = [self._of_rows(as_tensor(leaf, "`combine`'s result")) for leaf in leaves_of(tree)]
        types = ([(t.dtype, t.shape[1:]) for t in side] for side in (self.left, made))
        require_types(self.reducer, *types)
        return made

    def _of_rows(self, value: Tensor) -> Tensor:
        """A value of every row; one that is the same for all is repeated."""
        rows = self.left[0].shape[:1]
        return value if value.shape[:1] == rows else broadcast_to(value, (*rows, *value.shape))

    # to values of rows

    def rows(self, relation: Relation, edges: Entities, nodes: Entities, keep: Node | None) -> Any:
        """The result of every row, as a tree."""
        types = [Type(s.dtype, s.shape, relation.edge) for s in self.states]
        lifted = tuple(
            expand_to(cast(edges.each(m._node), t.dtype), t.shape, relation.edge)
            for m, t in zip(self.lifted, types, strict=True)
        )
        rule = self._fold(nodes, types, relation.dst)
        if current().verify:
            check_claims(self.reducer, self.messages, self.states)
        known = Lifted.of(lifted)
        forms = trusted_forms(rule, known)
        holes = stand_ins("state", types, relation.dst)
        nodes.values.update(zip((h._node for h in self.holes), holes, strict=True))
        states = Messages(relation, lifted, keep)

        def filled(leaf: Tensor) -> Node:
            result = rounded(nodes.each(leaf._node), self.narrow)
            given = states_in(result, holes, states, rule, forms, known.ones)
            return substitute([result], given)[0]

        return mapped(filled, self.result)

    def _fold(self, nodes: Entities, types: Sequence[Type], space: Space) -> Fold:
        left, right = (stand_ins(side, types, space) for side in ("left", "right"))
        for stands, inputs in ((self.left, left), (self.right, right)):
            nodes.values.update(zip((s._node for s in stands), inputs, strict=True))
        combined = [nodes.each(value._node) for value in self.combined]
        start = [nodes.value(value._node) for value in self.start]
        return fold_of(combined, left, right, start, self.reducer.associative)


def _identity(leaf: Any, like: Tensor) -> Tensor:
    """The identity of a component. A number decides only whether the component is a float."""
    if not isinstance(leaf, SCALARS):
        start = as_tensor(leaf, "`identity`'s result")
        return astype(start, promote(like.dtype, start.dtype).compute, copy=False)
    floats = scalar_dtype(leaf).is_float and not like.dtype.is_float
    dtype = DEFAULT_FLOAT if floats else like.dtype
    return Tensor(number(leaf, Type(dtype, (), GLOBAL)), False)


def _component(lifted: Tensor, start: Tensor) -> State:
    return State(start.dtype, broadcast_shapes(lifted.shape[1:], start.shape))


def _hashable(tree: Any) -> Any:
    if isinstance(tree, dict):
        return tuple((key, _hashable(value)) for key, value in tree.items())
    return tuple(map(_hashable, tree)) if isinstance(tree, (tuple, list)) else tree
