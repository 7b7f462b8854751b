"""Cut a whole-tensor program into kernels and library calls.

Ready ops join the current kernel as long as they fit its domain; when none does, the kernel is
closed. What is read outside of a kernel, and outputs, are its stores.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tiga.passes.rows import LibraryCall
from tiga.passes.tensor_axes import columns_after
from tiga.passes.tensor_draft import KernelDraft
from tiga.passes.tensor_fusable import CPU, Role, Target, is_reduction, role_of
from tiga.passes.tensor_places import columns_of, columns_of_positions
from tiga.passes.tensor_schedule import close
from tiga.passes.tensor_spec import FULL, TensorStep
from tiga.passes.tensor_strides import moving_columns, prefix, suffix
from tiga.passes.tensor_windows import Window, window_of
from tiga.trace.node import Node, users
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import Shape

Windows = Mapping[Node, Window]

LIBRARY_BELOW = 2048
"""Domains so small that numpy computes them faster than a launch."""


def _domain(node: Node, target: Target) -> Shape:
    """The shape that a kernel for the node has to walk."""
    return node.inputs[0].type.shape if is_reduction(node, target) else node.type.shape


def _inner(shape: Shape, axes: Shape, target: Target) -> int | None:
    """The columns of a reduction over rows; None for other axes."""
    return columns_after(shape, axes) if target.grouped else prefix(shape, axes)


def _votes(nodes: Sequence[Node], size: int, target: Target, windows: Windows) -> Counter:
    """Which numbers of columns the nodes on a domain of this size ask for."""
    votes: Counter = Counter()
    for node in nodes:
        for columns in _wishes(node, size, target):
            votes[columns] += 1 if node.op.broadcasts else 2
        for columns in _window_wishes(node, size, windows):
            votes[columns] += 2
    return votes


def _window_wishes(node: Node, size: int, windows: Windows) -> list[int]:
    """The numbers of columns that windows and positions of a size, which a node reads, ask for."""
    whole = [c for c in node.inputs if c.type.size == size]
    asked = [windows[c].columns for c in whole if c in windows]
    asked += [columns_of_positions(c.op) for c in whole if c.op.origin is Origin.POSITION]
    return [columns for columns in asked if columns is not None]


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
    elif node.op.broadcasts and node.inputs[0].type.size > 1:
        yield moving_columns(node.inputs[0].type.shape, node.type.shape)


def _asked(node: Node, target: Target) -> int | None:
    """The columns that a gather or a scan asks for."""
    return columns_of(node) if role_of(node, target) in (Role.GATHER, Role.SCAN) else None


def _open(size: int, votes: Counter, target: Target, windows: Windows) -> KernelDraft:
    """The kernel on a domain of this size that most of the nodes there ask for."""
    usable = {c: n for c, n in votes.items() if 0 < c < size or (c == size and len(votes) == 1)}
    if not usable:
        return KernelDraft(1, size, True, target, windows=windows)
    columns = max(usable, key=lambda c: (usable[c], c))
    return KernelDraft(size // columns, columns, False, target, windows=windows)


def _own_drafts(node: Node, target: Target, windows: Windows) -> list[KernelDraft]:
    """Kernels for this node alone."""
    size = math.prod(_domain(node, target))
    found = _window_wishes(node, size, windows)
    if (asked := _asked(node, target)) is not None:
        found = [asked, *found]
    elif is_reduction(node, target):
        shape, axes = node.inputs[0].type.shape, node.op.axes
        own = suffix(shape, axes), _inner(shape, axes, target)
        found = [*(c for c in own if c), *found]
    drafts = [KernelDraft(size // c, c, False, target, windows=windows) for c in found]
    return [*drafts, KernelDraft(1, size, True, target, windows=windows)]


def _can_start(node: Node, native: bool, target: Target) -> bool:
    size = math.prod(_domain(node, target))
    if size == 0 or (not native and size < LIBRARY_BELOW):
        return False
    role = role_of(node, target)
    return _is_readable_view(node) if role is Role.VIEW else role is not None


def _is_readable_view(node: Node) -> bool:
    return bool(node.op.broadcasts) and node.inputs[0].op.origin is not Origin.NUMBER


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
    for node in program.outputs:
        planner.store(node)
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
        self.windows: dict[Node, Window] = {}
        self.votes: dict[int, Counter] = {}  # of what waits at the present step, by size

    def _ready(self, node: Node) -> bool:
        return all(child in self.done for child in node.inputs)

    def step(self) -> None:
        """One more library call or kernel."""
        if self.target.windows:
            self._set_aside()
        self.votes.clear()
        for node in self.waiting:
            if self._ready(node) and not self._starts(node):
                self._alone(node)
                return
        if not self.waiting:
            return
        start = next(node for node in self.waiting if self._ready(node))
        self._kernel(self._first(start))

    def _set_aside(self) -> None:
        """Take what is a window of values in memory off the list: kernels read it there."""
        for node in list(self.waiting):
            window = window_of(node, self.windows) if self._ready(node) else None
            if window is not None:
                self.windows[node] = window
                self._finish(node)

    def _finish(self, node: Node) -> None:
        self.waiting.remove(node)
        self.done.add(node)

    def _alone(self, node: Node) -> None:
        """A library call for a node, or for the windows that no kernel for it can read."""
        unread = [child for child in node.inputs if child in self.windows]
        for child in unread:
            self.store(child)
        if not unread:
            self._finish(node)
            self.steps.append(LibraryCall(node))

    def store(self, node: Node) -> None:
        """Make what is a window so far a value in memory."""
        if self.windows.pop(node, None) is None:
            return
        for child in node.inputs:
            self.store(child)
        self.steps.append(LibraryCall(node))

    def _starts(self, node: Node) -> bool:
        if not _can_start(node, self.native, self.target):
            return False
        return self._draft(node).accepts(node)

    def _draft(self, node: Node) -> KernelDraft:
        """The kernel that a node starts; one that takes it, if there is any."""
        size = math.prod(_domain(node, self.target))
        if size not in self.votes:
            self.votes[size] = _votes(self.waiting, size, self.target, self.windows)
        voted = _open(size, self.votes[size], self.target, self.windows)
        voted.ordered = not self.relaxed
        if voted.accepts(node):
            return voted
        drafts = _own_drafts(node, self.target, self.windows)
        own = [replace(draft, ordered=not self.relaxed) for draft in drafts]
        return next((draft for draft in own if draft.accepts(node)), voted)

    def _first(self, start: Node) -> Node:
        """The ready node with the largest domain, so that small values join large kernels."""
        ready = [n for n in self.waiting if self._ready(n)]
        return max(ready, key=lambda n: math.prod(_domain(n, self.target)), default=start)

    def _kernel(self, start: Node) -> None:
        draft = self._draft(start)
        inside: list[Node] = []
        while joined := self._joined(draft):
            inside += joined
        self._close(draft, inside)

    def _joined(self, draft: KernelDraft) -> list[Node]:
        """What joins a kernel in one pass over all that waits, in order."""
        found = []
        for node in list(self.waiting):
            if self._ready(node) and draft.accepts(node):
                draft.join(node)
                found.append(node)
                self._finish(node)
        return found

    def _close(self, draft: KernelDraft, inside: list[Node]) -> None:
        members = set(inside)
        wanted = [n for n in inside if self._is_stored(n, members)]
        kernel = [n for n in wanted if not n.op.is_view or self._computed(draft, n)]
        views = [n for n in wanted if n not in set(kernel)]
        # Another view that is wanted outside is numpy's view of the stored value.
        bases = [self._base(draft, n, members) for n in views]
        stored = list(dict.fromkeys([*kernel, *(b for b in bases if b in members)]))
        if stored:
            self.steps.append(close(draft, stored, self.relaxed))
        self.steps.extend(LibraryCall(n) for n in self._chain(draft, views, members))

    def _is_stored(self, node: Node, members: set[Node]) -> bool:
        return node in self.outputs or any(r not in members for r in self.readers[node])

    def _computed(self, draft: KernelDraft, node: Node) -> bool:
        """Whether a broadcast value is one of the kernel's full values."""
        return bool(node.op.broadcasts) and draft.kind(node) == FULL

    def _is_view(self, draft: KernelDraft, node: Node, members: set[Node]) -> bool:
        return node in members and node.op.is_view and not self._computed(draft, node)

    def _base(self, draft: KernelDraft, node: Node, members: set[Node]) -> Node:
        while self._is_view(draft, node, members):
            node = node.inputs[0]
        return node

    def _chain(self, draft: KernelDraft, views: list[Node], members: set[Node]) -> list[Node]:
        """The views between stored values and wanted ones, in order."""
        needed: dict[Node, None] = {}
        for node in views:
            path = []
            while self._is_view(draft, node, members) and node not in needed:
                path.append(node)
                node = node.inputs[0]
            needed.update(dict.fromkeys(reversed(path)))
        return list(needed)
