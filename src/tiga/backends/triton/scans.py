"""Loops that carry scans: one edge of every row of a tile at a time, the carries in registers.

Carries that a later loop reads (those of a reducer, in its derivatives) are made again, one block
of edges after another: what is kept between the loops is the carry that enters each block.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from tiga.backends.triton.arithmetic import Term, typed
from tiga.backends.triton.block import Block
from tiga.backends.triton.evaluate import ARITHMETIC, Evaluator
from tiga.backends.triton.loop import WIDENED, EdgeLoop
from tiga.backends.triton.scatters import MESSAGE, messages
from tiga.backends.triton.scope import EdgeScope, Entity, RowScope, Scope
from tiga.backends.triton.writer import Value, at_rank
from tiga.passes.carries import kept_scans, only_scans, read_results, reads_carry
from tiga.passes.rows import Phase, RowProgram, ScanLoop
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.trace.program import Program

KEPT, MARK = "kept", "mark"
"""The keys of carries in memory: before each edge of a block, and before each block."""

BLOCK = 32
"""Edges of a row whose carries are in memory at a time: they stay in the cache."""


def run_step(
    evaluator: Evaluator, block: Block, step: Program, arguments: Sequence[Value]
) -> Value:
    """A region of one output on values in registers."""
    known = dict(zip(step.inputs, arguments, strict=True))
    for node in step.order:
        if node in known:
            continue
        if node.op.origin is Origin.NUMBER:
            known[node] = evaluator.constant(node)
        else:
            known[node] = evaluator.op(block, node, [known[n] for n in node.inputs])
    return known[step.outputs[0]]


Start = Callable[[ScanLoop, RowScope], Value]
"""What a carry is before the loop."""


def initial(scan: ScanLoop, row: RowScope) -> Value:
    """What a scan starts from at the end of a row."""
    return row.value(scan.initial)


@dataclass(frozen=True)
class ScanEdgeLoop(EdgeLoop):
    """Loops of a program with scans, from the first edge to the last or back. If it `keeps`,
    what later loops need to make carries again is stored: `marks` says where a row's begins.
    Messages to the far ends of edges go to the slots from `slot` on."""

    start: Start = initial
    keeps: bool = True
    marks: str = f"low // {BLOCK} + row"
    slot: str = ""

    def run(self, phase: Phase, row: RowScope, totals: Mapping[Node, str]) -> dict[Node, Value]:
        """The reduced values of a phase, and the carries after its scans."""
        again = read_scans(self.program, phase)
        before, inner = Block(), Block()
        carries = {scan: self._started(scan, row) for scan in phase.scans}
        states: Mapping[Node, Value] = {}
        for edges in self._each(before, inner, row, phase, again, bool(again)):
            edges.values.update((scan.before, carry) for scan, carry in carries.items())
            states = self.taken(phase, inner, edges, totals, states)
            if self.keeps:
                self._mark(inner, phase, carries)
            self._carry(inner, edges, carries)
        if again:
            self._in_blocks(phase, row, before, inner, again)
        else:
            self.body.extend(before)
            self._nest(self.body, self._stop(phase), inner)
        if self.keeps and self._kept.intersection(phase.scans):
            self.body.add("tl.debug_barrier()")
        return {**states, **{scan.after: carry for scan, carry in carries.items()}}

    def _each(
        self, before: Block, inner: Block, row: RowScope, phase: Phase,
        again: Sequence[ScanLoop], in_block: bool,
    ) -> Iterator[EdgeScope]:  # fmt: skip
        """The edges of one step of a loop, one after another. All that they read is asked for
        before the first is computed with: carries wait for one another, what is read need not.
        What stands `before` the loop asks for the numbers of its first edges."""
        asked = []
        for number in range(self._several):
            place = Place(phase.reverse, in_block, number, self._several)
            head = place.lines()
            inner.extend(head)
            known = self._ask_for_numbers(before, place)
            edges = self.edges(inner, row, known=known)
            if self.widens_position:
                head.add(WIDENED)
            self._keep_numbers(inner, head, known, place)
            asked.append((edges, head))
        for edges, head in asked:
            if self._several > 1:
                inner.extend(head)
                self._ask(edges, phase.edge_values)
            for scan in again:
                edges.values[scan.before] = self._load_carry(KEPT, scan, inner, self._place)
        for edges, head in asked:
            if self._several > 1:
                inner.extend(head)
            yield edges

    def _ask_for_numbers(self, before: Block, place: "Place") -> dict[str, str]:
        """Load the numbers of an edge of the first step; the names that they have."""
        if self._several == 1:
            return {}
        before.extend(place.lines(start=""))
        known = {}
        for name, array in self.read_numbers.items():
            known[name] = self.writer.names.fresh(f"following_{name}")
            before.add(f"{known[name]} = {self.numbers(array)}")
        return known

    def _keep_numbers(
        self, inner: Block, head: Block, known: Mapping[str, str], place: "Place"
    ) -> None:
        """Give the numbers of an edge names of their own, for its turn, and load those of the edge
        of the next step."""
        for name, following in known.items():
            own = self.writer.names.fresh(name)
            inner.add(f"{own} = {name}")
            head.add(f"{name} = {own}")
            later = self.numbers(self.read_numbers[name], *place.following)
            inner.add(f"{following} = {later}")

    @property
    def _several(self) -> int:
        return max(1, self.writer.tile.ahead)

    def _ask(self, scope: Scope, nodes: Iterable[Node]) -> None:
        """Load what values read at an edge and at its other end."""
        stack = list(nodes)
        while stack:
            node = stack.pop()
            origin = node.op.origin
            if node in self.scope.reads:
                scope.value(node)
            elif origin is Origin.END and isinstance(scope, EdgeScope):
                if node.op.side != self.program.side:
                    self._ask(scope.other, node.inputs)
            elif self.scope.is_picked(node):
                stack.append(node.inputs[0])
            elif origin is Origin.OPERANDS:
                stack.extend(node.inputs)

    def _stop(self, phase: Phase) -> str:
        """The steps of a loop. One that only says with what blocks are entered may end at the last
        of these."""
        marks = self.keeps and phase.carries_only and not phase.reverse
        if marks and read_results(self.program).isdisjoint(scan.after for scan in phase.scans):
            return f"steps - (steps + {BLOCK - 1}) % {BLOCK}"
        return "steps"

    def _nest(self, block: Block, stop: str, inner: Block) -> None:
        """A loop over so many steps."""
        step = f"{self._several}, " if self._several > 1 else ""
        # What a loop stores is read by others: no load may start ahead of its turn.
        block.nest(f"for start in tl.range(0, {stop}, {step}num_stages=1):", inner)

    def taken(
        self, phase: Phase, inner: Block, edges: EdgeScope, totals: Mapping[Node, str],
        states: Mapping[Node, Value] = MappingProxyType({}),
    ) -> dict[Node, Value]:  # fmt: skip
        for message in messages(phase.scatters):
            pointer, dtype = self.scope.state(MESSAGE, message), message.type.dtype.compute
            entity = replace(self._entity(f"({self.slot} + step)", "live"), dims=edges.edge.dims)
            self.scope.store(inner, pointer, message.type, dtype, entity, edges.value(message))
        return super().taken(phase, inner, edges, totals, states)

    @cached_property
    def _kept(self) -> frozenset[ScanLoop]:
        return frozenset(kept_scans(self.program))

    def _started(self, scan: ScanLoop, row: RowScope) -> Value:
        """The name of a carry, which starts in the loop's surroundings."""
        return self._named(self.body, scan, self.start(scan, row))

    def _named(self, block: Block, scan: ScanLoop, start: Value) -> Value:
        dims = self.writer.dims(self.writer.tile.rows, 1, scan.before.type)
        full = self.writer.full(start, dims)
        return self.writer.named(block, "carry", Value(typed(full.term), dims))

    def _carry(self, inner: Block, edges: EdgeScope, carries: Mapping[ScanLoop, Value]) -> None:
        """Replace the carries before the edge by those after it."""
        following = []
        for scan, carry in carries.items():
            elements = [edges.value(e) for e in scan.elements]
            step = scan.before.op.step
            after = run_step(self.scope.evaluator, inner, step, [carry, *elements])
            after = self.writer.full(Value(typed(after.term), after.dims), carry.dims)
            live = Term(at_rank("live", len(carry.dims) - 2), carry.dtype)
            chosen = ARITHMETIC.select(live, after.term, carry.term)
            following.append(self.writer.named(inner, "next", Value(chosen, carry.dims)))
        for carry, after in zip(carries.values(), following, strict=True):
            inner.add(f"{carry.text} = {after.text}")

    # carries made again

    def _mark(self, inner: Block, phase: Phase, carries: Mapping[ScanLoop, Value]) -> None:
        """Store the carries with which a block of edges is entered, where they are needed again."""
        kept = [scan for scan in carries if scan in self._kept]
        if not kept:
            return
        enters = f"(position - low) % {BLOCK} == 0"
        if phase.reverse:
            enters = f"((position - low) % {BLOCK} == {BLOCK - 1}) | (step == count[:, None] - 1)"
        inner.add(f"mark = {self.marks} + step // {BLOCK}")
        inner.add(f"enters = live & ({enters})")
        for scan in kept:
            self._store_carry(MARK, scan, inner, self._entity("mark", "enters"), carries[scan])

    def _in_blocks(
        self, phase: Phase, row: RowScope, before: Block, inner: Block, again: Sequence[ScanLoop]
    ) -> None:
        """Block by block: what earlier loops carried is made again, then read."""
        block = Block()
        number = "blocks - 1 - block" if phase.reverse else "block"
        block.add(f"base = ({number}) * {BLOCK}")
        block.add(f"mark = {self.marks} + base // {BLOCK}")
        block.add("enters = base < count[:, None]")
        block.add(f"span = tl.minimum(steps - base, {BLOCK})")
        for earlier in self.program.phases:
            scans = [scan for scan in earlier.scans if scan in again]
            if scans:
                self._replay(block, row, scans)
        block.extend(before)
        self._nest(block, "span", inner)
        block.add("tl.debug_barrier()")
        self.body.add(f"blocks = tl.cdiv(steps, {BLOCK})")
        self.body.nest("for block in tl.range(0, blocks, num_stages=1):", block)

    def _replay(self, block: Block, row: RowScope, scans: Sequence[ScanLoop]) -> None:
        """Keep the carries before each edge of a block."""
        before, inner = Block(), Block()
        entered = self._entity("mark", "enters")
        carries = {
            s: self._named(block, s, self._load_carry(MARK, s, block, entered)) for s in scans
        }
        phase = only_scans(Phase(()), scans)
        again = read_scans(self.program, phase)
        for edges in self._each(before, inner, row, phase, again, in_block=True):
            for scan, carry in carries.items():
                edges.values[scan.before] = carry
                self._store_carry(KEPT, scan, inner, self._place, carry)
            self._carry(inner, edges, carries)
        block.extend(before)
        self._nest(block, "span", inner)
        block.add("tl.debug_barrier()")

    # memory

    def _load_carry(self, kind: str, scan: ScanLoop, block: Block, entity: Entity) -> Value:
        pointer, type_ = self.scope.state(kind, scan.before), scan.before.type
        return self.scope.load_from(block, pointer, type_, type_.dtype.compute, entity, kind)

    def _store_carry(
        self, kind: str, scan: ScanLoop, block: Block, entity: Entity, value: Value
    ) -> None:
        pointer, type_ = self.scope.state(kind, scan.before), scan.before.type
        self.scope.store(block, pointer, type_, value.dtype, entity, value)

    @property
    def _place(self) -> Entity:
        """The place of an edge in its block, for rows that programs hold at a time."""
        rows = self.writer.tile.rows
        text = f"(tl.program_id(0) * {rows} + tl.arange(0, {rows})[:, None]) * {BLOCK}"
        slot = self.writer.once("slot", "slot", text)
        return self._entity(f"({slot} + step - base)", "live")

    def _entity(self, text: str, mask: str) -> Entity:
        wide = f"{text}.to(tl.int64)" if self.wide else text
        return Entity(wide, mask, (self.writer.tile.rows, 1))


@dataclass(frozen=True)
class Place:
    """Where one of `several` edges of a step lies; on the way back, rows join in at their last
    edge."""

    reverse: bool
    in_block: bool
    number: int
    several: int

    @property
    def first(self) -> str:
        """The first edge of the loop."""
        return "base" if self.in_block else "0"

    def lines(self, start: str = "start + ") -> Block:
        """The place of the edge, and the rows that have one."""
        block = Block()
        if self.reverse:
            end = "base + span" if self.in_block else "steps"
            block.add(f"step = {end} - 1 - ({start}{self.number})")
        else:
            first = "base + " if self.in_block else ""
            block.add(f"step = {first}{start}{self.number}")
        exists = "step < count[:, None]"
        # The last of several may lie before the first edge.
        passed = self.reverse and self.several > 1
        block.add(f"live = (step >= {self.first}) & ({exists})" if passed else f"live = {exists}")
        block.add("position = low + step")
        return block

    @property
    def following(self) -> tuple[str, str]:
        """The position of the edge of the next step, and the rows that have one."""
        if not self.reverse:
            return f"position + {self.several}", f"step + {self.several} < count[:, None]"
        exists = f"(step - {self.several} < count[:, None])"
        return f"position - {self.several}", f"(step >= {self.first} + {self.several}) & {exists}"


def read_scans(program: RowProgram, phase: Phase) -> tuple[ScanLoop, ...]:
    """The scans of earlier loops whose carries a phase reads."""
    kept = kept_scans(program)
    return tuple(
        scan
        for scan in kept
        if scan not in phase.scans and reads_carry(phase.edge_values, scan.before)
    )
