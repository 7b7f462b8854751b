"""Schedule a row program: what lies across vector lanes, and how wide a window of features is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from tiga.errors import Unfusable
from tiga.passes.rows import RowProgram
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin

VECTOR_BYTES = 64
"""One AVX-512 register; narrower machines split it."""

NARROW = 2
"""Up to so many elements per edge value, edges lie across lanes; above it, features do, as one load
then brings all of an entity where a gather instruction brings one element per lane."""

CHEAP = 16
"""Up to so much work per edge, edges are best taken one by one: at the pace of their loads, which
gather instructions do not beat. Above it, lanes pay even if some hold no edge."""

WINDOW_BYTES = 512
"""A window of features: 8 registers of the widest value."""

MAX_ELEMENTS = 4096
"""Straight-line code for wider values that cannot be windowed would take seconds to compile."""

PREFETCH_DISTANCE = 12
"""Edges ahead whose rows are asked for: about the latency of memory over the work of an edge."""


@dataclass(frozen=True)
class Schedule:
    """How the edges of one row program are walked.

    `lanes` is `"features"` or `"edges"`: then `edge_lanes` edges at a time, and what is left of a
    row in lanes of which some hold no edge, or one by one if fewer than `few`. `window` elements
    of the `whole` per pass, 0 where values are taken whole; `prefetch` edges ahead, 0 for none.
    With `joins_next`, the step and the next one may run together, block of rows by block of rows.
    """

    lanes: str
    edge_lanes: int = 0
    few: int = 0
    whole: int = 0
    window: int = 0
    prefetch: int = 0
    joins_next: bool = False

    def __str__(self) -> str:
        if self.lanes == "edges":
            return f"{self.edge_lanes} edges across lanes"
        if self.window:
            return f"features across lanes, {self.window} of {self.whole} at a time"
        return "features across lanes"


def cone(
    program: RowProgram, below: Callable[[Node], Sequence[Node]] = attrgetter("inputs")
) -> list[Node]:
    """Every node that the program evaluates or reads, each once; `below` gives the inputs of one
    that are looked at."""
    reads = set(program.reads)

    def is_given(node: Node) -> bool:
        return node in reads or (node.op.origin is Origin.TOTAL and node not in program.totals)

    roots = [n for phase in program.phases for n in (*phase.reductions, *phase.edge_values)]
    roots += [n for scan in program.scans for n in (scan.before, scan.after)]
    return list(reached([*roots, *program.stores, *program.totals], is_given, below))


def evaluated(program: RowProgram) -> list[Node]:
    """Every node that the program evaluates: what it reads is an array, whichever op made it."""
    reads = set(program.reads)
    return [n for n in cone(program) if n not in reads]


def _in_registers(program: RowProgram) -> list[Node]:
    """The nodes that kernels hold in registers: all but matrices, tables, and sums of those."""
    nodes = cone(program)
    arrays = {n.inputs[n.op.table] for n in nodes if n.op.table is not None}
    arrays |= set(program.outer_sums)
    return [n for n in nodes if n not in arrays]


def _whole(program: RowProgram, nodes: list[Node]) -> int:
    """The one size above 1 that all nodes share if a window of features may be taken, else 0."""
    sizes = {n.type.size for n in nodes} - {1}
    # What an earlier step stored is an array to read, whichever op made it.
    made = set(nodes).difference(program.reads)
    return sizes.pop() if len(sizes) == 1 and all(map(is_elementwise, made)) else 0


def is_elementwise(node: Node) -> bool:
    """Whether an element of the result depends on the same element of wide operands only."""
    op = node.op
    if op.origin is not Origin.OPERANDS:
        return op.origin not in (Origin.CARRY, Origin.OUTER)
    if op.broadcasts:
        (source,) = node.inputs
        return source.type.size in (1, node.type.size)
    return bool(op.pointwise or op.reshapes)


def _edge_values(program: RowProgram) -> Iterator[Node]:
    relation = program.relation
    return (n for n in cone(program) if relation is not None and n.type.space == relation.edge)


def _by_edges(program: RowProgram, lanes: int) -> Schedule | None:
    """Edges across lanes, for narrow values that hardware can gather: 4 or 8 bytes an element."""
    values = list(_edge_values(program))
    read = [n for n in values if n.op.origin in (Origin.END, Origin.ARGUMENT)]
    wide_enough = all(n.type.dtype.itemsize >= 4 for n in read)
    simple = not (program.outer_sums or program.scans or program.scatters)
    simple = simple and all(n.op.table is None for n in values)
    size = max((n.type.size for n in values), default=0)
    if not (wide_enough and simple and 0 < size <= NARROW):
        return None
    if sum(n.op.cost for n in values if n.op.pointwise) > CHEAP:
        few = lanes // 2 if _scatters_edges(program) else lanes // 4
        return Schedule("edges", edge_lanes=lanes, few=few)
    # Long rows of scalars gain by a half, and short ones then take no lanes at all. There is no
    # gain where edge values are gathered by their id as well.
    pays = size == 1 and program.side == "dst"
    return Schedule("edges", edge_lanes=lanes, few=lanes) if pays else None


def _scatters_edges(program: RowProgram) -> bool:
    """Whether edge values are written by their id: a masked scatter costs as much as a full one."""
    return program.side == "src" and any(phase.stores for phase in program.phases)


def schedule(program: RowProgram) -> Schedule:
    """The schedule of a row program, from its widths alone."""
    nodes = _in_registers(program)
    assert all(n.type.size for n in nodes), "values without elements: gf-drop-empty takes them out"
    itemsize = max((n.type.dtype.compute.itemsize for n in nodes), default=4)
    by_edges = _by_edges(program, VECTOR_BYTES // itemsize)
    if by_edges is not None:
        return by_edges
    mixes = program.outer_sums or program.scans
    whole, window = 0 if mixes else _whole(program, nodes), WINDOW_BYTES // itemsize
    widest = max((n.type.size for n in nodes), default=1)
    prefetch = PREFETCH_DISTANCE if program.relation is not None else 0
    if whole > window:
        return Schedule("features", whole=whole, window=window, prefetch=prefetch)
    if widest > MAX_ELEMENTS:
        where = next((n.where for n in nodes if n.where and n.type.size == widest), None)
        place = f" ({where})" if where else ""
        raise Unfusable(f"values of {widest} elements that mix features{place}")
    return Schedule("features", prefetch=prefetch)
