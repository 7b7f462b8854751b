"""Products of node values in the steps that make what is multiplied and use what comes out.

A plan sends each product of node values with a matrix to a library: its factor is written and read
again, and so is its result. Here the steps over the rows of one space that no walk separates become
few: one with all products, and all that is made element by element before, between and after them;
and some that sum outer products, a few matrices at a time, as these take registers for the whole
step. Parts of a matrix are read where they lie, and walks leave only what no step makes again.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from tiga.backends.triton.layout import padded
from tiga.backends.triton.products import LARGEST_WHOLE, LEAST, MOVES, view_of
from tiga.backends.triton.row_steps import Cuts, Rows
from tiga.passes.rows import LibraryCall, Plan, RowProgram, Step
from tiga.passes.schedule import cone
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Space

WIDEST = 128
"""Elements of a row's value of which 64 rows fit the registers beside the products."""

CHEAP = 8
"""The dearest op, such as a root, that is made again for every element rather than read."""

SUMMED = 4096
"""Elements of the matrices that one step sums outer products into: 32 registers of a thread. Two
such steps took 90 us on an H200, and one with both sums 119, though it reads a factor less."""

Key = tuple[int, Space]
"""A group of steps: its level, and the space of its rows."""


def with_row_products(plan: Plan) -> Plan:
    """An equal plan that multiplies node values where they are made."""
    plan = _totals_of_factors_apart(plan)
    keys = _groups(plan)
    if not any(isinstance(step, LibraryCall) for step in keys):
        return plan
    plan = _with_sources(plan)
    keys = _groups(plan)
    again = _made_again(plan, keys)
    known, steps = set(plan.inputs), list[Step]()
    for level, key in _in_order(plan, keys):
        members = [s for s in plan.steps if keys.get(s) == key] if key else [level]
        made = _merged(plan, members, known) if key else members
        steps += made
        known.update(n for step in made for n in step.writes if n not in again.union(_views(made)))
    return _without_unread(replace(plan, steps=tuple(steps)))


def _views(steps: Iterable[Step]) -> set[Node]:
    """Matrices that steps make by rearrangement: kernels read them where they lie."""
    calls = [step.node for step in steps if isinstance(step, LibraryCall)]
    return {n for n in calls if isinstance(n.op, MOVES) and view_of(n, _source(n)) is not None}


def _source(matrix: Node) -> tuple[Node, ...]:
    while isinstance(matrix.op, MOVES):
        (matrix,) = matrix.inputs
    return (matrix,)


# which steps come together


def _groups(plan: Plan) -> dict[Step, Key]:
    """The steps that may join others, by the space of their rows and their level: the latest that
    those who read them allow, so that what nobody waits for joins what comes last. Even levels are
    those of rows, odd ones those of all else."""
    writer, level = _writers(plan), dict[Step, int]()
    for step in plan.steps:
        odd = int(_space_of(step) is None)
        before = [(level[writer[n]], n) for n in _reads(step) if n in writer]
        level[step] = max((_next(at, odd, n) for at, n in before), default=odd)
    last, limit = max(level.values(), default=0), dict[Node, int]()
    last += last % 2
    for step in reversed(plan.steps):
        at = level[step]
        if _space_of(step) is not None:
            at = level[step] = min(limit.get(n, last) for n in step.writes)
        for n in _reads(step):
            whole = n.type.space == GLOBAL and at % 2 == 0
            limit[n] = min(limit.get(n, last), at - 2 * whole - at % 2)
    spaces = {step: _space_of(step) for step in plan.steps}
    return {step: (level[step], space) for step, space in spaces.items() if space is not None}


def _next(level: int, odd: int, node: Node) -> int:
    """The first level that may read a value of a level: rows need totals of all rows first."""
    if level % 2 != odd:
        return level + 1
    return level + 2 * (odd == 0 and node.type.space == GLOBAL)


def _writers(plan: Plan) -> dict[Node, Step]:
    """The first step that writes each value."""
    found: dict[Node, Step] = {}
    for step in plan.steps:
        for node in step.writes:
            found.setdefault(node, step)
    return found


def _reads(step: Step) -> Iterable[Node]:
    """What a step reads; of a part of a matrix, the whole."""
    for node in step.reads:
        yield from _source(node) if node.type.space == GLOBAL else (node,)


def _space_of(step: Step) -> Space | None:
    """The space over whose rows a step goes, if it may join others; None if it may not."""
    if isinstance(step, RowProgram):
        plain = step.relation is None and step.space != GLOBAL
        return step.space if plain and not step.space.of_edges else None
    node = step.node
    if not _is_product(node) or not _fits(node):
        return None
    space = node.inputs[0].type.space
    return space if space != GLOBAL and not space.of_edges else None


def _is_product(node: Node) -> bool:
    """Whether matrix units compute an op."""
    return bool(node.op.stands_alone) and not node.op.by_index


def _fits(node: Node) -> bool:
    """Whether a kernel multiplies such values on matrix units."""
    matrix = node.type if node.op.table is None else node.inputs[node.op.table].type
    rows = [n for n in (*node.inputs, node) if n.type.space != GLOBAL]
    narrow = all(LEAST <= extent <= WIDEST for extent in matrix.shape)
    small = padded(matrix.shape[0]) * padded(matrix.shape[1]) <= LARGEST_WHOLE
    single = all(n.type.size == n.type.shape[-1] for n in rows)
    return narrow and small and single and node.type.dtype.itemsize <= 4


def _with_sources(plan: Plan) -> Plan:
    """The plan with walks that also leave what they leave under another shape as it is made:
    groups then make other values of it."""

    def with_sources(step: Step) -> Step:
        if not isinstance(step, RowProgram) or step.relation is None:
            return step
        shaped = (n for n in step.stores if n.op.reshapes and n not in plan.outputs)
        below = (n.inputs[0] for n in shaped)
        sources = [n for n in below if n.op.origin not in (Origin.ARGUMENT, Origin.ROW)]
        return replace(step, stores=tuple(dict.fromkeys((*step.stores, *sources))))

    return replace(plan, steps=tuple(map(with_sources, plan.steps)))


def _made_again(plan: Plan, keys: dict[Step, Key]) -> set[Node]:
    """What walks leave for groups alone that is cheap to make of other things that they leave."""
    apart = [step for step in plan.steps if step not in keys]
    asked = {n for step in apart for n in step.reads}.union(plan.outputs)
    walks = [s for s in apart if isinstance(s, RowProgram) and s.relation is not None]
    left = {n for step in walks for n in step.stores}
    return {n for n in left - asked if _is_cheap(n, left.union(plan.inputs))}


def _is_cheap(node: Node, arrays: Collection[Node]) -> bool:
    """Whether a value is made of arrays, and of single numbers, without work to speak of."""

    def is_known(one: Node) -> bool:
        return one in arrays or one.op.origin is Origin.NUMBER

    def is_dear(one: Node) -> bool:
        return (one.type.size > 1 and not _moves(one)) or one.op.origin is Origin.ROW

    below = reached(node.inputs, is_known)
    return _moves(node) and not any(is_dear(one) for one in below if not is_known(one))


def _moves(node: Node) -> bool:
    cheap = node.op.pointwise and node.op.cost <= CHEAP
    return cheap or node.op.moves or node.op.origin in (Origin.GLOBAL, Origin.DEGREE)


def _in_order(plan: Plan, keys: dict[Step, Key]) -> list[tuple[Step, Key | None]]:
    """The steps that join none, and one of each group, after all that they read."""
    found: list[tuple[Step, Key | None]] = []
    waiting, done = list(plan.steps), set[Step]()
    writer = _writers(plan)
    while waiting:
        step = next(s for s in waiting if _is_ready(plan, keys, writer, done, s))
        key = keys.get(step)
        together = [s for s in waiting if s is step or (key and keys.get(s) == key)]
        found.append((step, key))
        done.update(together)
        waiting = [s for s in waiting if s not in together]
    return found


def _is_ready(
    plan: Plan, keys: dict[Step, Key], writer: dict[Node, Step], done: set[Step], step: Step
) -> bool:
    key = keys.get(step)
    members = [s for s in plan.steps if keys.get(s) == key] if key else [step]
    needed = {writer[n] for s in members for n in _reads(s) if n in writer}
    return needed <= done.union(members)


def _without_unread(plan: Plan) -> Plan:
    """The plan without what nobody reads."""
    needed, kept = set(plan.outputs), list[Step]()
    for step in reversed(plan.steps):
        used = _used(step, needed)
        if used is not None:
            needed.update(used.reads)
            kept.append(used)
    return replace(plan, steps=tuple(reversed(kept)))


def _used(step: Step, needed: set[Node]) -> Step | None:
    """What of a step is needed."""
    if not needed.intersection(step.writes):
        return None
    if isinstance(step, LibraryCall) or needed.issuperset(step.stores):
        return step
    left = replace(step, stores=tuple(n for n in step.stores if n in needed))
    known = set(cone(left))
    return replace(left, reads=tuple(n for n in step.reads if n in known))


# one group


def _merged(plan: Plan, members: list[Step], known: set[Node]) -> Sequence[Step]:
    """The steps that a group becomes."""
    if not any(isinstance(step, LibraryCall) for step in members):
        return members
    space = _space_of(members[0])
    assert space is not None
    others = [step for step in plan.steps if step not in members]
    elsewhere = {n for step in others for n in step.reads}.union(plan.outputs)
    written = [n for step in members for n in step.writes]
    sums = [n for n in written if n.op.origin is Origin.OUTER]
    totals = [n for n in written if n.op.origin is Origin.TOTAL]
    before = Rows(space, frozenset(known))
    stores = [n for n in written if n in elsewhere and n.type.space != GLOBAL]
    factors = [n for node in (*sums, *totals) for n in node.inputs]
    stores = list(dict.fromkeys([*stores, *filter(before.has_products, factors)]))
    steps = Cuts(before, tuple(stores)).steps
    if any(before.widest(step) > WIDEST for step in steps):
        return members
    after = before.with_arrays(stores)
    for part in _in_parts(sums, after):
        factors = [n for node in part for n in node.inputs]
        with_them = [n for n in totals if n.inputs[0] in factors]
        steps.append(after.summed(part, with_them))
        totals = [n for n in totals if n not in with_them]
    return [*steps, after.step((), tuple(totals))] if totals else steps


def _totals_of_factors_apart(plan: Plan) -> Plan:
    """An equal plan that leaves the totals of factors of outer products to who reads these row by
    row anyway: a walk with totals takes more warps to a program, and each several tiles."""
    calls = [step.node for step in plan.steps if isinstance(step, LibraryCall)]
    sums = [n for n in calls if n.op.origin is Origin.OUTER and _is_product(n) and _fits(n)]
    factors = {n for node in sums for n in node.inputs}
    return replace(plan, steps=tuple(p for s in plan.steps for p in _without_totals(s, factors)))


def _without_totals(step: Step, factors: set[Node]) -> list[Step]:
    if not isinstance(step, RowProgram):
        return [step]
    stored = [n for n in step.totals if n.inputs[0] in factors]
    stored = [n for n in stored if n.inputs[0] in (*step.stores, *step.reads)]
    if not stored or not (step.phases or step.stores):
        return [step]
    walk = replace(step, totals=tuple(n for n in step.totals if n not in stored))
    known = set(cone(walk))
    walk = replace(walk, reads=tuple(n for n in step.reads if n in known))
    values = tuple(dict.fromkeys(n.inputs[0] for n in stored))
    return [walk, RowProgram(step.space, None, "dst", (), (), tuple(stored), values)]


def _in_parts(sums: Sequence[Node], rows: "Rows") -> list[list[Node]]:
    """Sums of outer products in parts that one step has registers for, those of the same arrays
    together."""
    groups: dict[frozenset[Node], list[Node]] = {}
    for node in sums:
        groups.setdefault(rows.read_by(node.inputs[0]), []).append(node)
    parts: list[list[Node]] = []
    for group in groups.values():
        most = max(SUMMED // max(n.type.size for n in group), 1)
        for at in range(0, len(group), most):
            _place(parts, group[at : at + most])
    return parts


def _place(parts: list[list[Node]], sums: list[Node]) -> None:
    """Put some sums into the first part that has room, or into a new one."""
    for part in parts:
        if sum(n.type.size for n in (*part, *sums)) <= SUMMED:
            part += sums
            return
    parts.append(sums)
