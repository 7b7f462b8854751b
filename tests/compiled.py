"""Run compiled programs on numpy arrays, and the oracle beside them."""

from collections.abc import Sequence

import numpy as np

from tiga.compiler import Compiled
from tiga.relations import Graph
from tiga.types import GLOBAL, Space


def extents_of(relations, graph: Graph) -> dict[Space, int]:
    """The extent of every space of `relations`, all of which are `graph`."""
    sizes = {GLOBAL: 1}
    for relation in relations:
        sizes |= {relation.src: graph.num_src, relation.dst: graph.num_dst}
        sizes[relation.edge] = graph.num_edges
    return sizes


def call(
    compiled: Compiled,
    graph: Graph,
    arrays: Sequence[np.ndarray],
    *,
    threads: int = 2,
    extents: dict[Space, int] | None = None,
) -> list[np.ndarray]:
    """The outputs of a compiled program, whose relations are all `graph`.

    Outputs start as bytes that no right result consists of, so that what is not written shows.
    """
    program = compiled.program
    sizes = extents_of(program.relations, graph) | (extents or {})
    given = [np.ascontiguousarray(array) for array in arrays]
    outputs = []
    for node in program.outputs:
        lead = () if node.type.space == GLOBAL else (sizes[node.type.space],)
        shape, dtype = (*lead, *node.type.shape), node.type.dtype.numpy
        outputs.append(np.full((*shape, dtype.itemsize), 0x55, np.uint8).view(dtype)[..., 0])
    addresses = [[array.ctypes.data for array in group] for group in (given, outputs)]
    compiled.run([graph] * len(program.relations), *addresses, threads, extents=sizes)
    return outputs
