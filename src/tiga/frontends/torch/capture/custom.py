"""Reducers that users write: their methods, traced, as a fold over the edges of a row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tiga.errors import InvalidValue, Unfusable
from tiga.frontends.agreement import trusted_forms
from tiga.frontends.reducer_methods import (
    call_method,
    method_line,
    require_states,
    require_structure,
    require_types,
    state_shape,
)
from tiga.frontends.torch.capture.claims import check_claims, shaped
from tiga.frontends.torch.capture.intercept import recording
from tiga.frontends.torch.capture.messages import as_node, to_entities
from tiga.frontends.torch.capture.numbers import Operand
from tiga.frontends.torch.capture.tracer import Recorder
from tiga.frontends.torch.dtypes import default_float, dtype_of, torch_dtype
from tiga.frontends.trees import leaves_of, mapped, numbered
from tiga.knobs import current
from tiga.ops.align import expand_to
from tiga.ops.contract import is_contract
from tiga.ops.feature import feature_sum, reshape
from tiga.ops.leaf import constant, ones_like
from tiga.ops.pointwise import Div, cast, div, mul
from tiga.reducers import CustomReducer, Fold, Messages
from tiga.reducers.recognise import Forms, Lifted
from tiga.reducers.traced import fold_of, narrow_of, rounded, stand_ins, states_in
from tiga.trace.node import Node, rewrite, topological
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, DType, Space, Type


def custom_rows(recorder: Recorder, reducer: CustomReducer, messages: Messages) -> Any:
    """What a user's reducer makes of the messages of each row: one value, or a tree of them.

    16-bit messages are folded in float32; a float32 result is rounded to their dtype.

    Raises:
        InvalidType: a method is missing, or a state changes its structure, shape or dtype.
        InvalidValue: with `TIGA_VERIFY`, `combine` is not what the reducer claims it to be.
    """
    with recording(recorder):
        return TracedReducer(recorder, reducer, messages).rows()


@dataclass
class TracedReducer:
    """One reducer on messages of one type."""

    recorder: Recorder
    reducer: CustomReducer
    messages: Messages

    @property
    def name(self) -> str:
        return type(self.reducer).__name__

    def rows(self) -> Any:
        """The result of every row."""
        wide = [cast(m, m.type.dtype.compute) for m in self.messages.parts]
        shape, lifted = self.lift(wide, self.messages.relation.edge)
        start = self.identity(shape, lifted)
        types = [
            Type(s.type.dtype, state_shape(self.reducer, m.type.shape, s.type.shape), m.type.space)
            for m, s in zip(lifted, start, strict=True)
        ]
        rule = self.fold(shape, start, types)
        if current().verify:
            check_claims(self, wide, types, rule)
        states = [shaped(m, t) for m, t in zip(lifted, types, strict=True)]
        known = Lifted.of(states)
        forms = trusted_forms(rule, known)
        self.note(rule, forms)
        messages = replace(self.messages, parts=tuple(states))
        return self.results(shape, messages, rule, forms, known.ones)

    def results(
        self, shape: Any, states: Messages, rule: Fold, forms: Forms, ones: frozenset[int]
    ) -> Any:
        """What `finalize` makes of the row states of edges' states."""
        types = [part.type for part in states.parts]
        holes = stand_ins("state", types, states.relation.end(states.side))

        def filled(result: Node) -> Node:
            given = states_in(result, holes, states, rule, forms, ones)
            return rewrite([result], _reciprocals, given)[0]

        return mapped(filled, self.finalize(shape, holes))

    def note(self, rule: Fold, forms: Forms) -> None:
        """Say in `explain()` how each component is computed."""
        order = "folded in edge order"
        if self.reducer.associative:
            order += ", long rows in chunks"
        else:
            order += ", each row by one thread: `associative` is not claimed"
        scanned = rule.closure([i for i in range(rule.width) if i not in forms])
        each = [order if i in scanned else str(forms[i]) for i in range(rule.width)]
        parts = each if rule.width == 1 else [f"component {i}: {t}" for i, t in enumerate(each)]
        self.recorder.notes.append(f"reducer {self.name}: {'; '.join(parts)}")

    # methods of the user

    def call(self, method: str, space: Space, *arguments: Any) -> Any:
        """What a method returns; a value of it is one per entity of a space."""
        self.recorder.space = space
        return call_method(self.reducer, method, *arguments)

    def lift(self, messages: Sequence[Node], space: Space) -> tuple[Any, list[Node]]:
        """The structure of a state, and the states of edges."""
        tree = self.call("lift", space, *map(self.recorder.wrap, messages))
        require_states(self.reducer, tree)
        nodes = [to_entities(self.recorder, leaf, space, "lift") for leaf in leaves_of(tree)]
        return numbered(tree), [cast(n, n.type.dtype.compute) for n in nodes]

    def identity(self, shape: Any, lifted: Sequence[Node]) -> list[Node]:
        """The identity of each component, as a global value."""
        tree = self.call("identity", GLOBAL)
        require_structure(self.reducer, "identity", tree, shape, "what `lift` returns")
        found = []
        for leaf, like in zip(leaves_of(tree), lifted, strict=True):
            node = as_node(self.recorder, leaf, "identity")
            if node.type.space != GLOBAL:
                line = method_line(self.reducer, "identity")
                raise InvalidValue(f"{line}: `identity` returned a value of {node.type.space}.")
            found.append(self._start(leaf, node, like.type.dtype))
        return found

    @staticmethod
    def _start(leaf: Any, node: Node, dtype: DType) -> Node:
        """An identity in the dtype of its component; a number keeps all its digits."""
        if isinstance(leaf, torch.Tensor):
            return cast(node, _joined(dtype, node.type.dtype))
        if node.type.dtype.is_float and not dtype.is_float:
            dtype = default_float()
        exact = leaf.trace if isinstance(leaf, Operand) else None
        return constant(leaf, node.type.with_dtype(dtype)) if exact is None else cast(exact, dtype)

    def combine(
        self, shape: Any, left: Sequence[Node], right: Sequence[Node], space: Space
    ) -> list[Node]:
        """`combine` on two states, checked to give a state of the same types."""
        sides = [[self.recorder.wrap(node) for node in side] for side in (left, right)]
        pair = [mapped(side.__getitem__, shape) for side in sides]
        tree = self.call("combine", space, *pair)
        require_structure(self.reducer, "combine", tree, shape, "the states it is given")
        nodes = [to_entities(self.recorder, leaf, space, "combine") for leaf in leaves_of(tree)]
        types = ([(n.type.dtype, n.type.shape) for n in side] for side in (left, nodes))
        require_types(self.reducer, *types)
        return nodes

    def finalize(self, shape: Any, states: Sequence[Node]) -> Any:
        """The results of rows, 16-bit where the messages are."""
        end = self.messages.relation.end(self.messages.side)
        wrapped = [self.recorder.wrap(s) for s in states]
        tree = self.call("finalize", end, mapped(wrapped.__getitem__, shape))
        narrow = narrow_of(m.type.dtype for m in self.messages.parts)
        return mapped(
            lambda leaf: rounded(to_entities(self.recorder, leaf, end, "finalize"), narrow), tree
        )

    # the fold

    def fold(self, shape: Any, start: Sequence[Node], types: Sequence[Type]) -> Fold:
        """The reducer as a rule on states, traced on values of rows."""
        space = self.messages.relation.end(self.messages.side)
        left, right = (stand_ins(side, types, space) for side in ("left", "right"))
        combined = rewrite(self.combine(shape, left, right, space), _products)
        _require_global(combined, {*left, *right})
        return fold_of(combined, left, right, start, self.reducer.associative)


def _joined(message: DType, identity: DType) -> DType:
    """The dtype of a component whose identity is a tensor."""
    joined = torch.promote_types(torch_dtype(message), torch_dtype(identity))
    return dtype_of(joined).compute


def _reciprocals(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """Divisions by a value of fewer elements as products with its reciprocal: edges recompute the
    derivative of a product from what rows keep already, that of a quotient would be kept."""
    if not isinstance(node.op, Div) or not inputs[1].op.broadcasts:
        return None
    (narrow,) = inputs[1].inputs
    if narrow.type.size == node.type.size or not node.type.dtype.is_float:
        return None
    share = div(ones_like(narrow), narrow)
    return mul(inputs[0], expand_to(share, node.type.shape, node.type.space))


def _products(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """Products with a matrix, element by element: a scan has no other."""
    if not is_contract(node):
        return None
    x, matrix = inputs
    shape = (*x.type.shape, matrix.type.shape[1])
    left = expand_to(reshape(x, (*x.type.shape, 1)), shape, x.type.space)
    return feature_sum(mul(left, expand_to(matrix, shape, x.type.space)), len(shape) - 2)


def _require_global(outputs: Sequence[Node], states: set[Node]) -> None:
    """Refuse what reads values of nodes or edges beside its states."""
    read = [n for n in topological(outputs) if n.op.origin is Origin.ARGUMENT and n not in states]
    if any(n.type.space != GLOBAL for n in read):
        raise Unfusable("`combine` reads values of nodes or edges")
