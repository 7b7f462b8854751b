"""Choose the tile of a row program from its widths and the mean degree of its rows."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tiga.backends.triton.evaluate import MAX_ELEMENTS, check_size
from tiga.backends.triton.layout import WARP, Tile, padded
from tiga.backends.triton.products import LEAST, are_kept
from tiga.errors import Unfusable
from tiga.passes.rows import RowProgram
from tiga.passes.schedule import cone, evaluated, is_elementwise
from tiga.passes.wide_sums import LARGEST
from tiga.trace.node import Node, reached
from tiga.trace.origin import Origin
from tiga.types import GLOBAL

WINDOW_BYTES = 512
"""A window of features: one 16-byte access for each thread of a warp."""

THREAD_ELEMENTS = 16
"""Elements of one gathered value per thread: four 16-byte accesses in flight."""

MOST_THREAD_ELEMENTS = 128
"""Elements of a value per thread, where more warps than four are taken to hold it."""

SECTOR = 8
"""Elements of a value below which reading indices costs as much as reading values."""

MANY = 4
"""So many reductions of a loop fill the registers of a thread, and so many arrays that an edge
reads fill what may be on its way: such programs take one edge of a row at a time, and few rows, so
that more of them run side by side."""

TOTAL_GROUPS = 2048
"""Pieces of a sum over all rows: fixed, so that the order of the sum does not depend on the GPU."""

OUTER_GROUPS = 256
"""Pieces of a sum of outer products, which are whole matrices."""

ROW_GROUPS, ROW_REGISTERS = 528, 128
"""The same of rows without edges, which wait for little but their loads: four programs for each
multiprocessor of an H200, whose threads keep within so many registers."""

PRODUCT_GROUPS = 264
"""Programs over rows that meet matrices, which stay in shared memory from tile to tile: two for
each multiprocessor of an H200."""

PRODUCT_ENTITIES = 64
"""Edges of a tile whose values meet a matrix: what one instruction of four warps multiplies. More
would not fit the registers beside the sums."""

PRODUCT_WIDTH = 128
"""Elements of an edge's value up to which so many edges fit."""

FACTOR_BYTES = 2**17
"""Bytes of the values of a tile's edges that are multiplied, at most: they go through shared memory
to where matrix units take them. Fewer edges than these units take are multiplied without."""

STEP_ENTITIES = 32
"""Edges of a tile of kernels that read matrices in each step. Four warps share instructions that
multiply 64 rows by a matrix in shared memory while others run (wgmma), around which ptxas wrote
wrong code for such kernels on an H200: values that are no numbers, and illegal addresses. Without
its optimisation, or with fewer rows, for which each warp has instructions of its own, they are
right."""

LONE_REGISTERS = 168
"""Registers of a thread with which three programs of four warps run side by side: kernels with a
lone product of small values keep within them, others would spill."""

MANY_PRODUCTS = 4
"""Products of a kernel, sums of outer products counted, from which values wider than
`PRODUCT_WIDTH` go through four warps, half as many edges at a time. With eight, ptxas kept them in
32 registers of a thread and up to 15 KB beside these: a step of a PaiNN-like potential took 1117 ms
on an H200, with its gates part by part and these tiles 89."""

AHEAD = 3
"""Steps of a loop whose loads are on their way at once where the registers of a thread hold few of
them: in shared memory. With fewer or more, the walks of TransformerConv took 2 to 8% longer."""

BESIDE = 3
"""Reductions of a loop beside which registers hold so few loads, if it reads one array; else it is
`MANY`. The forward walk of four reducers took 23% less on an H200 with its steps ahead, two of PNA
10%; those of a maximum took 7 to 20% longer."""

FEW = 3
"""Wide values, read or summed, beside which a thread has registers for twice as many edges where
features meet one another. The three walks of GAT took 18 to 37% less so on an H200."""


@dataclass(frozen=True)
class Facts:
    """What a tile is chosen by: `elements` of the widest value (padded), `read_size` bytes an
    element takes in memory and `itemsize` in registers, `whole` as in `Tile`, the products, whether
    a kernel `keeps` the matrices that they are with, `carried` the most reductions of a phase,
    `gathered` the wide arrays that edges read at their other ends, `held` the wide values that
    edges read anywhere, and the wide sums of a phase."""

    whole: int
    elements: int
    itemsize: int
    read_size: int
    num_products: int
    keeps: bool
    has_totals: bool
    has_edges: bool
    carried: int
    gathered: int
    held: int


def in_registers(program: RowProgram) -> list[Node]:
    """The nodes that kernels hold in registers: all but tables, the matrices of products, and of
    what these are made."""
    made = set(products(program))

    def held(node: Node) -> tuple[Node, ...]:
        if node.op.by_index:
            return node.inputs[1:]
        return node.inputs[:1] if node in made else node.inputs

    nodes = cone(program, held)
    return [n for n in nodes if n.op.origin is not Origin.OUTER]


def is_product(node: Node) -> bool:
    """Whether a value is a product with a matrix."""
    return node.op.table is not None and not node.op.by_index


def products(program: RowProgram) -> list[Node]:
    """The products with a matrix that kernels compute: others are arrays that they read."""
    return list(filter(is_product, evaluated(program)))


def is_window_safe(node: Node) -> bool:
    """Whether an element of the result depends on the same element of wide operands only; of a
    table that is looked up, kernels read what a window needs."""
    if node.op.by_index:
        return node.op.table is not None and node.inputs[1].type.size == 1
    return is_elementwise(node) and node.op.origin is not Origin.POSITION


def words_of(nodes: Iterable[Node]) -> set[Node]:
    """Those of some nodes that hold conditions as bits."""
    bits = [n for n in nodes if n.op.packs or n.op.unpacks]
    return {n if n.op.packs else n.inputs[0] for n in bits}


def flat_size(program: RowProgram, nodes: list[Node]) -> int:
    """The one size above 1 that all values share if their axes may be forgotten; 1 if all are
    single numbers; 0 where axes matter. Bits are those of whole values."""
    made = (n for n in nodes if n not in program.reads and not (n.op.packs or n.op.unpacks))
    if program.outer_sums or not all(map(is_window_safe, made)):
        return 0
    words = words_of(nodes)
    sizes = {n.type.size for n in nodes if n not in words} - {1}
    size = sizes.pop() if len(sizes) == 1 else int(not sizes)
    itemsize = max((n.type.dtype.compute.itemsize for n in nodes), default=4)
    return 0 if words and padded(size) > WINDOW_BYTES // itemsize else size


def facts(program: RowProgram) -> Facts:
    """The facts of a row program; raises Unfusable for values too wide for any tile."""
    nodes = in_registers(program)
    assert not any(node.op.by_index for node in program.outer_sums), "taken apart before"
    if any(n.op.by_index and n.type.space == GLOBAL for n in nodes):
        raise Unfusable("lookup: kernels of a GPU look up nothing by a global index")
    whole = flat_size(program, nodes)
    itemsize = max((n.type.dtype.compute.itemsize for n in nodes), default=4)
    widest = max((_padded_size(n) for n in nodes), default=1)
    if not whole:
        largest = max(widest, *(_padded_size(n) for n in program.outer_sums), 1)
        beside = bool(program.outer_sums or products(program))
        check_size(largest, "a row program's widest value", LARGEST if beside else MAX_ELEMENTS)
    read = max((n.type.dtype.itemsize for n in program.reads), default=4)
    multiplied = products(program)
    count = len(program.outer_sums) + len(multiplied)
    keeps = are_kept({n.inputs[1] for n in multiplied})
    has_edges = program.relation is not None
    carried = max((len(phase.reductions) for phase in program.phases), default=0)
    return Facts(
        whole, widest, itemsize, read, count, keeps, program.has_sums, has_edges, carried,
        sum(_padded_size(n) == widest for n in far_reads(program)), _held(program, widest),
    )  # fmt: skip


def _held(program: RowProgram, widest: int) -> int:
    """How many of the widest values the edges of a phase read or sum, at most."""
    reads, most = set(program.reads), 0
    for phase in program.phases:
        nodes = reached(phase.edge_values, lambda n: n in reads or n.op.origin is Origin.ROW)
        found = (*(n for n in nodes if n in reads), *phase.reductions)
        most = max(most, sum(_padded_size(n) == widest for n in found))
    return most


def far_reads(program: RowProgram) -> list[Node]:
    """The arrays that edges read at their other ends."""
    reads = set(program.reads)
    gathers = (n for n in evaluated(program) if n.op.origin is Origin.END)
    far = [n.inputs[0] for n in gathers if n.op.side != program.side]
    return [n for n in reached(far, reads.__contains__) if n in reads]


def _padded_size(node: Node) -> int:
    return int(np.prod([padded(extent) for extent in node.type.shape]))


def _window(known: Facts) -> int:
    return min(padded(known.whole), WINDOW_BYTES // known.itemsize) if known.whole else 0


def choose_tile(program: RowProgram, degree: int, few: int = 0) -> Tile:
    """The tile of a row program whose rows have about so many edges (a power of two); `few` is the
    number of rows, or 0 where there are many."""
    known = facts(program)
    window = _window(known)
    width = window or known.elements
    if known.num_products:
        return _product_tile(known, degree, few)
    # Features that meet one another across lanes leave fewer registers for values.
    mixes = known.whole == 0
    few = mixes and known.held <= FEW and WARP <= width <= WARP * THREAD_ELEMENTS
    spread = mixes and not few and not _gathers_several(known, width)
    warps = (2 if spread else 1) if width <= WARP * THREAD_ELEMENTS else warps_for(width)
    if known.has_totals:
        warps = max(warps, 4)
    elements = THREAD_ELEMENTS // 2 if spread or width < SECTOR else THREAD_ELEMENTS
    many = not mixes and width >= WARP and max(known.carried, known.gathered) >= MANY
    elements = THREAD_ELEMENTS // 4 if many else elements
    entities = max(1, WARP * warps * elements // width)
    groups = TOTAL_GROUPS if known.has_totals else 0
    if not known.has_edges:
        return Tile(min(4 * entities, 1024), 1, 4, known.whole, window, groups)
    if mixes and width >= WARP:
        lanes = 4 if few else 2
    else:
        lanes = _edge_lanes(width, width * known.read_size, degree)
    edges = 1 if many else min(lanes, entities)
    ahead = _ahead(known, width)
    return Tile(entities // edges, edges, warps, known.whole, window, groups, ahead=ahead)


def _gathers_several(known: Facts, width: int) -> bool:
    """Whether edges gather several wide arrays whose features meet one another."""
    mixes = known.whole == 0 and WARP <= width <= WARP * THREAD_ELEMENTS
    return mixes and known.held > FEW and known.gathered > 1


def _ahead(known: Facts, width: int) -> int:
    """The steps of a loop that are ahead: where registers hold few of the loads on their way."""
    flat = known.whole > 0 and width >= WARP and known.gathered == 1
    reads_one = known.held == known.carried + 1
    beside = flat and known.carried >= (BESIDE if reads_one else MANY)
    waits = beside or _gathers_several(known, width)
    return AHEAD if waits and not known.has_totals else 0


def warps_for(width: int) -> int:
    """Warps of a program that holds a value of so many elements: 128 to a thread at most."""
    return max(4, width // (WARP * MOST_THREAD_ELEMENTS))


def _product_tile(known: Facts, degree: int = 1, few: int = 0) -> Tile:
    """Enough edges for matrix units, few of each row: its last step leaves few places empty."""
    places = PRODUCT_ENTITIES * 4 // max(known.itemsize, 4)
    entities = max(LEAST, places * PRODUCT_WIDTH // max(known.elements, PRODUCT_WIDTH))
    entities = min(entities, FACTOR_BYTES // (known.elements * known.itemsize))
    groups = OUTER_GROUPS if known.has_totals else 0
    warps = 4 if known.elements <= 64 and known.keeps else 8
    entities = entities if known.keeps else min(entities, STEP_ENTITIES)
    if not known.has_edges:
        return _row_product_tile(known, entities, warps)
    many = known.keeps and known.num_products >= MANY_PRODUCTS
    wide = many and known.elements > PRODUCT_WIDTH
    if wide:
        warps, entities = 4, min(entities, max(LEAST, entities // 2))
    lone = known.num_products == 1 and known.elements <= 64 and known.itemsize == 4 and not groups
    # Matrices that are read in each step would take as much shared memory for each step ahead, and
    # wide values leave none to a second program on a multiprocessor.
    stages = 0 if known.keeps and not wide else 1
    registers = LONE_REGISTERS if lone else 0
    edges = _lanes_of_few(entities, degree, few)
    return Tile(entities // edges, edges, warps, groups=groups, registers=registers, stages=stages)


def _lanes_of_few(entities: int, degree: int, few: int) -> int:
    """Edges of a row side by side, with so many in all: more where there are too few rows for two
    programs on each multiprocessor, as far as rows have edges."""
    lanes = min(entities, 2)
    most = min(degree, entities) if few else 0
    while few < PRODUCT_GROUPS * (entities // lanes) and 4 * lanes <= most:
        lanes *= 2
    return lanes


def _row_product_tile(known: Facts, entities: int, warps: int) -> Tile:
    """The same of rows without edges."""
    # Loads that start ahead take shared memory in which another program has its matrices.
    if not known.has_totals:
        return Tile(entities, 1, warps, groups=PRODUCT_GROUPS, stages=1)
    narrow = known.num_products == 1 and known.elements <= 64 and known.itemsize == 4
    registers = ROW_REGISTERS if narrow else 0
    groups = ROW_GROUPS if narrow else OUTER_GROUPS
    return Tile(entities, 1, warps, groups=groups, registers=registers, stages=1)


def _edge_lanes(width: int, row_bytes: int, degree: int) -> int:
    """Edges of a row side by side: enough to read indices in whole sectors; more where rows are
    neither short nor so uneven that few tiles have full rows."""
    if width < SECTOR:
        return min(WARP, max(8, degree))
    if width < WARP:
        return 8
    return 4 if row_bytes == 256 and 32 <= degree <= 512 else 2
