"""What the scans of a row program need of one another: carries that are kept, and runs of edges
that may be taken by themselves and joined."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tiga.passes.rows import Phase, RowProgram, ScanLoop
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin


def kept_scans(program: RowProgram) -> tuple[ScanLoop, ...]:
    """Scans whose carries before each edge are read in a later phase than their own."""
    return tuple(
        scan
        for number, phase in enumerate(program.phases)
        for scan in phase.scans
        if any(
            reads_carry(later.edge_values, scan.before) for later in program.phases[number + 1 :]
        )
    )


def reads_carry(values: Iterable[Node], before: Node) -> bool:
    """Whether edge values are made from the carries before each edge of a scan."""
    return any(n is before for n in reached(values, lambda n: not n.type.on_edges))


def read_results(program: RowProgram) -> frozenset[Node]:
    """What loops leave at the row that values after them, or at edges, are made of."""
    scans = (n for scan in program.scans for n in (scan.initial, *scan.elements))
    edges = (n for phase in program.phases for n in phase.edge_values)
    roots, reads = (*program.stores, *program.totals, *edges, *scans), set(program.reads)
    found = reached(roots, lambda n: n in reads or n.op.carries)
    return frozenset(n for n in found if n.op.origin is Origin.ROW)


def only_scans(phase: Phase, scans: Sequence[ScanLoop]) -> Phase:
    """The part of a phase that carries some of its scans."""
    return replace(phase, reductions=(), stores=(), outer_sums=(), scatters=(), scans=tuple(scans))


def levels(phase: Phase) -> tuple[tuple[ScanLoop, ...], ...]:
    """The scans of a phase, those first that read no carry of others."""
    number: dict[ScanLoop, int] = {}
    for scan in phase.scans:
        read = (s for s in number if reads_carry(scan.elements, s.before))
        number[scan] = 1 + max((number[s] for s in read), default=-1)
    count = 1 + max(number.values(), default=-1)
    return tuple(tuple(s for s in phase.scans if number[s] == i) for i in range(count))


def root_of(scan: ScanLoop) -> ScanLoop | None:
    """The scan that a scan is a derivative of."""
    place = scan.before.op.root
    return None if place < 0 else ScanLoop.of(scan.elements[place])


def joined_phases(program: RowProgram) -> frozenset[int]:
    """The phases all of whose scans may take chunks by themselves, by their numbers."""
    found = {i for i, p in enumerate(program.phases) if p.scans and all(map(_joins, p.scans))}
    while True:
        homes = {scan.before for i in found for scan in program.phases[i].scans}
        left = {i for i in found if all(r in homes for r in _roots(program.phases[i]))}
        if left == found:
            return frozenset(found)
        found = left


def _joins(scan: ScanLoop) -> bool:
    """Whether a scan joins, if the scan that it is a derivative of does."""
    op = scan.before.op
    uniform = all(scan.elements[i].op.is_uniform for i in op.read)
    return op.joins and uniform and (op.root < 0 or scan.elements[op.root].op.carries)


def _roots(phase: Phase) -> list[Node]:
    """The carries of the scans that those of a phase are derivatives of."""
    found = map(root_of, phase.scans)
    return [scan.before for scan in found if scan is not None]
