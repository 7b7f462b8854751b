"""The row states of a traced reducer: each component by its form, the rest in edge order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tiga.ops.functions import exp, log
from tiga.ops.leaf import constant, ones_like, stop_gradient, zeros_like
from tiga.ops.message import gather, reduce, spread
from tiga.ops.moments import SquaredDeviations
from tiga.ops.monoid import MONOIDS
from tiga.ops.pointwise import add, gt, maximum, minimum, ne, sub, where
from tiga.reducers.base import Messages
from tiga.reducers.fold import Fold, element, given_to, scanned
from tiga.reducers.recognise import Form, Forms, summand
from tiga.reducers.softmax import INFINITY, finite_shift
from tiga.trace.node import Node
from tiga.trace.origin import Origin

EXTREMA: Mapping[str, Callable[[Node, Node], Node]] = {"max": maximum, "min": minimum}

UNBOUNDED = (*EXTREMA, "logsumexp")
"""Forms whose value may be infinite where all messages are."""


@dataclass
class RowStates:
    """The states of rows, for lifted messages (`messages.parts`) and the forms of components.

    No derivative flows through the components in `still`.
    """

    messages: Messages
    rule: Fold
    forms: Forms
    still: frozenset[int] = frozenset()
    done: dict[int, Node] = field(default_factory=dict)

    def all(self) -> tuple[Node, ...]:
        """Every component's state."""
        return tuple(map(self.state, range(self.rule.width)))

    def state(self, i: int) -> Node:
        """The state of component `i`."""
        if i not in self.done:
            self.done[i] = self._state(i)
        return self.done[i]

    def _state(self, i: int) -> Node:
        if i in self._scanned:
            return self._scanned[i]
        form = self.forms[i]
        if form.kind == "logsumexp":
            return self._logsumexp(i)
        if form.kind == "scaled":
            return self._reduced("sum", self._summand(i, form))
        if form.kind == "deviations":
            message = self.messages.parts[form.by[0]]
            moment = SquaredDeviations(self.messages.relation, self.messages.side)
            return moment(message, self.messages.mask(message))
        total = self._reduced(form.kind, self._element(i))
        if form.kind in EXTREMA:
            total = self._from_start(i, form.kind, total)
        return stop_gradient(total) if i in self.still else total

    @cached_property
    def _scanned(self) -> dict[int, Node]:
        unknown = [i for i in range(self.rule.width) if i not in self.forms]
        needed = self.rule.closure(unknown)
        if not needed:
            return {}
        return dict(zip(needed, scanned(self.messages, self.rule, needed), strict=True))

    def _element(self, i: int) -> Node:
        return element(self.messages, self.rule, i)

    def _reduced(self, kind: str, value: Node) -> Node:
        return reduce(self.messages.relation, self.messages.side, kind, value)

    def _gathered(self, value: Node) -> Node:
        return gather(self.messages.relation, self.messages.side, value)

    def _start(self, i: int, total: Node) -> Node:
        return given_to(self.rule.identity[i], total.type)

    def _from_start(self, i: int, kind: str, total: Node) -> Node:
        """The extremum of a row and of the state that it starts from."""
        start = self.rule.identity[i]
        identity = MONOIDS[kind].identity(total.type.dtype)
        if start.op.origin is Origin.NUMBER and start.op.value == identity:
            return total
        return EXTREMA[kind](total, self._start(i, total))

    def _shift(self, k: int) -> Node:
        """What component `k` scales sums by, at edges."""
        state = self.state(k)
        form = self.forms.get(k)
        if form is not None and form.kind in UNBOUNDED and state.type.dtype.is_float:
            return self._gathered(finite_shift(state))
        # No edge reads it in rows without any, but derivatives of 0 / 0 are NaN all the same.
        number = self.messages.count(state)
        some = gt(number, zeros_like(number))
        return self._gathered(where(some, state, ones_like(state)))

    def _summand(self, i: int, form: Form) -> Node:
        edge = self.messages.relation.edge
        elements = {k: self._element(k) for k in range(self.rule.width)}
        shifts = {k: self._shift(k) for k in form.by}
        read = [spread(node, edge) for node in self.rule.read]
        found = summand(self.rule, i, elements, shifts, read, edge)
        assert found is not None, "a form without a summand"
        return found

    def _logsumexp(self, i: int) -> Node:
        """log of the sum of exp, shifted by the maximum, which cancels."""
        score = self._element(i)
        peak = self._from_start(i, "max", self._reduced("max", score))
        shift = finite_shift(stop_gradient(peak))
        total = self._reduced("sum", exp(sub(score, self._gathered(shift))))
        if self.rule.identity[i].op.value != -INFINITY:
            total = add(total, exp(sub(self._start(i, total), shift)))
        some = ne(total, zeros_like(total))  # NaN stays
        value = add(log(where(some, total, ones_like(total))), shift)
        return where(some, value, constant(-INFINITY, value.type))
