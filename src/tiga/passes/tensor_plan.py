"""Cut a whole-tensor program into kernels and library calls.

Ready ops join the current kernel as long as they fit its domain; when none does, the kernel is
closed. What is read outside of a kernel, and outputs, are its stores.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tiga.ops.feature import Broadcast
from tiga.passes.tensor_axes import columns_after
from tiga.passes.tensor_fusable import (
    CPU,
    Target,
    is_gather,
    is_move,
    is_pointwise,
    is_reduction,
    is_scan,
    moving_columns,
    prefix,
    suffix,
)
from tiga.passes.tensor_group import Group
from tiga.passes.tensor_places import columns_of
from tiga.passes.tensor_schedule import close
from tiga.passes.tensor_spec import FULL, LibraryStep, TensorStep
from tiga.trace.node import Node, users
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import Shape

LIBRARY_BELOW = 2048
"""Domains so small that numpy computes them faster than a launch."""


def _domain(node: Node, target: Target) -> Shape:
    """The shape that a kernel for the node has to walk."""
    return node.inputs[0].type.shape if is_reduction(node, target) else node.type.shape


def _inner(shape: Shape, axes: Shape, target: Target) -> int | None:
    """The columns of a reduction over rows; None for other axes."""
    return columns_after(shape, axes) if target.grouped else prefix(shape, axes)


def _votes(nodes: Sequence[Node], size: int, target: Target) -> Counter:
    """Which numbers of columns the nodes on a domain of this size ask for."""
    votes: Counter = Counter()
    for node in nodes:
        for columns in _wishes(node, size, target):
            votes[columns] += 1 if isinstance(node.op, Broadcast) else 2
    return votes


def _wishes(node: Node, size: int, target: Target) -> Iterator[int]:
    """The numbers of columns that a node on a domain of this size asks for."""
    if is_reduction(node, target):
        source = node.inputs[0].type
        if node.type.size > 1 and source.size == size:
            found = suffix(source.shape, node.op.axes), _inner(source.shape, node.op.axes, target)
            yield from (columns for columns in found if columns is not None)
    elif node.type.size != size:
        return
    elif asked := _asked(node, target):
        yield asked
    elif isinstance(node.op, Broadcast) and node.inputs[0].type.size > 1:
        yield moving_columns(node.inputs[0].type.shape, node.type.shape)


def _asked(node: Node, target: Target) -> int | None:
    """The columns that a gather or a scan asks for."""
    known = is_gather(node, target) or is_scan(node, target)
    return columns_of(node) if known else None


def _open(node: Node, waiting: Sequence[Node], target: Target) -> Group:
    size = math.prod(_domain(node, target))
    votes = _votes(waiting, size, target)
    usable = {c: n for c, n in votes.items() if 0 < c < size or (c == size and len(votes) == 1)}
    if not usable:
        return Group(1, size, True, target)
    columns = max(usable, key=lambda c: (usable[c], c))
    return Group(size // columns, columns, False, target)


def _own_groups(node: Node, target: Target) -> list[Group]:
    """Kernels for this node alone."""
    size = math.prod(_domain(node, target))
    if (asked := _asked(node, target)) is not None:
        return [Group(size // asked, asked, False, target), Group(1, size, True, target)]
    if not is_reduction(node, target):
        return [Group(1, size, True, target)]
    shape, axes = node.inputs[0].type.shape, node.op.axes
    found = [suffix(shape, axes), _inner(shape, axes, target)]
    return [Group(size // c, c, False, target) for c in found if c] + [Group(1, size, True, target)]


def _can_start(node: Node, native: bool, target: Target) -> bool:
    size = math.prod(_domain(node, target))
    if size == 0 or (not native and size < LIBRARY_BELOW):
        return False
    computed = is_pointwise(node, target) or is_reduction(node, target)
    computed |= is_gather(node, target) or is_scan(node, target)
    return computed or _is_readable_move(node)


def _is_readable_move(node: Node) -> bool:
    return isinstance(node.op, Broadcast) and node.inputs[0].op.origin is not Origin.NUMBER


def plan(
    program: Program, native: bool = False, relaxed: bool = True, target: Target = CPU
) -> tuple[TensorStep, ...]:
    """The steps of a whole-tensor program, in an order that computes every value before its use.

    `native` compiles domains of any size; without `relaxed`, sums add element after element;
    `target` says what kernels compute.
    """
    planner = _Planner(program, native, relaxed, target)
    while planner.waiting:
        planner.step()
    return tuple(planner.steps)


class _Planner:
    def __init__(self, program: Program, native: bool, relaxed: bool, target: Target) -> None:
        self.native, self.relaxed, self.target = native, relaxed, target
        order = program.order
        self.done = {n for n in order if not n.inputs}
        self.waiting = [n for n in order if n.inputs]
        self.readers = users(order)
        self.outputs = set(program.outputs)
        self.steps: list[TensorStep] = []

    def _ready(self, node: Node) -> bool:
        return all(child in self.done for child in node.inputs)

    def step(self) -> None:
        """One more library call or kernel."""
        for node in self.waiting:
            if self._ready(node) and not self._starts(node):
                self.waiting.remove(node)
                self.done.add(node)
                self.steps.append(LibraryStep(node))
                return
        start = next(node for node in self.waiting if self._ready(node))
        self._kernel(self._first(start))

    def _starts(self, node: Node) -> bool:
        if not _can_start(node, self.native, self.target):
            return False
        return self._group(node).accepts(node)

    def _group(self, node: Node) -> Group:
        """The kernel that a node starts; one that takes it, if there is any."""
        voted = _open(node, self.waiting, self.target)
        voted.ordered = not self.relaxed
        if voted.accepts(node):
            return voted
        own = [replace(group, ordered=not self.relaxed) for group in _own_groups(node, self.target)]
        return next((group for group in own if group.accepts(node)), voted)

    def _first(self, start: Node) -> Node:
        """The ready node with the largest domain, so that small values join large kernels."""
        ready = [n for n in self.waiting if self._ready(n)]
        return max(ready, key=lambda n: math.prod(_domain(n, self.target)), default=start)

    def _kernel(self, start: Node) -> None:
        group = self._group(start)
        inside: list[Node] = []
        progress = True
        while progress:
            progress = False
            for node in list(self.waiting):
                if self._ready(node) and group.accepts(node):
                    group.join(node)
                    inside.append(node)
                    self.waiting.remove(node)
                    self.done.add(node)
                    progress = True
        self._close(group, inside)

    def _close(self, group: Group, inside: list[Node]) -> None:
        members = set(inside)
        wanted = [n for n in inside if self._is_stored(n, members)]
        kernel = [n for n in wanted if not is_move(n) or self._computed(group, n)]
        moves = [n for n in wanted if n not in set(kernel)]
        # Another moved value that is wanted outside is numpy's view of the stored one.
        bases = [self._base(group, n, members) for n in moves]
        stored = list(dict.fromkeys([*kernel, *(b for b in bases if b in members)]))
        if stored:
            self.steps.append(close(group, stored, self.relaxed))
        self.steps.extend(LibraryStep(n) for n in self._chain(group, moves, members))

    def _is_stored(self, node: Node, members: set[Node]) -> bool:
        return node in self.outputs or any(r not in members for r in self.readers[node])

    def _computed(self, group: Group, node: Node) -> bool:
        """Whether a broadcast value is one of the kernel's full values."""
        return isinstance(node.op, Broadcast) and group.kind(node) == FULL

    def _moves(self, group: Group, node: Node, members: set[Node]) -> bool:
        return node in members and is_move(node) and not self._computed(group, node)

    def _base(self, group: Group, node: Node, members: set[Node]) -> Node:
        while self._moves(group, node, members):
            node = node.inputs[0]
        return node

    def _chain(self, group: Group, moves: list[Node], members: set[Node]) -> list[Node]:
        """The moves between stored values and wanted ones, in order."""
        needed: dict[Node, None] = {}
        for node in moves:
            path = []
            while self._moves(group, node, members) and node not in needed:
                path.append(node)
                node = node.inputs[0]
            needed.update(dict.fromkeys(reversed(path)))
        return list(needed)
