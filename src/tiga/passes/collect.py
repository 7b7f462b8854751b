"""Collect what placed steps read: arrays of the program, and values that earlier steps store."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from tiga.passes.draft import FREE, Draft
from tiga.passes.rows import Step
from tiga.trace.derivatives import RECOMPUTE_COST
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import GLOBAL

MUCH = 4
"""How many times as large a value is to be so that it is read as what it is made of."""


@dataclass(frozen=True)
class Collector:
    """Finds the arrays that steps read. `home` and `phase` say where each value is computed, `late`
    has those that are complete only when their whole step has run."""

    program: Program
    drafts: Sequence[Draft]
    home: Mapping[Node, int]
    phase: Mapping[Node, int]
    late: Set[Node]

    def steps(self) -> tuple[Step, ...]:
        """The steps that do something, each with what it reads and stores."""
        for output in self.program.outputs:
            if output.type.space not in self.program.edges:
                self._need(output)
        for index in reversed(range(len(self.drafts))):
            self._collect_reads(index)
        return tuple(draft.finish() for draft in self.drafts if draft.is_live)

    def _need(self, node: Node) -> None:
        """Have the step that makes a value store it; inputs are arrays as they are."""
        if node.op.origin is Origin.ARGUMENT:
            return
        draft = self.drafts[self.home[node]]
        if draft.library is None and node not in self.late:
            draft.stores[node] = None

    def _collect_reads(self, index: int) -> None:
        """Find the arrays that step `index` reads, and have their steps store them."""
        draft = self.drafts[index]
        seen: set[Node] = set()
        stack = list(reversed(draft.goals()))
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if self._is_array(node, index):
                draft.reads[node] = None
                self._need(node)
            elif node.op.origin is not Origin.ROW:
                stack.extend(reversed(node.inputs))

    def _is_array(self, node: Node, index: int) -> bool:
        """Whether step `index` reads a value as an array, rather than making it."""
        if node.op.origin is Origin.ARGUMENT:
            return True
        if not self._comes_from_before(node, index):
            return False
        return self.drafts[index].library is not None or not self._is_cheap_again(node)

    def _comes_from_before(self, node: Node, index: int) -> bool:
        """Whether step `index` finds a value made by an earlier step.

        A free value that later steps store is made again by those before them.
        """
        home = self.home.get(node, FREE)
        assert home <= index or self.phase[node] == FREE, f"{node} is read before it is written"
        return FREE < home < index

    def _is_cheap_again(self, node: Node) -> bool:
        """Whether making a value of a row again reads less than reading it: then it needs no array.

        It is one global value, or made from inputs of the program and single elements of its row.
        """
        if node.op.origin is Origin.GLOBAL:
            return node not in self.program.outputs
        if node.type.space == GLOBAL or node.type.size == 1 or node in self.program.outputs:
            return False
        read: dict[Node, None] = {}
        stack = [node]
        while stack:
            one = stack.pop()
            if one.op.is_uniform:
                continue
            narrow = one.type.size == 1 or MUCH * one.type.row_bytes <= node.type.row_bytes
            if one.op.origin is Origin.ARGUMENT or narrow:
                read[one] = None
            elif (one.op.pointwise or one.op.is_view) and one.op.cost < RECOMPUTE_COST:
                stack.extend(one.inputs)
            else:
                return False
        return sum(n.type.row_bytes for n in read) < node.type.row_bytes
