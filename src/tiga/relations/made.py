"""Graphs of edges that are checked and in order already, as if a user had given their indices."""

from typing import Any

import numpy as np

from tiga.relations.csr import Csr
from tiga.relations.graph import Graph
from tiga.relations.indices import Indices
from tiga.relations.inputs import CooInput, CsrInput
from tiga.relations.snapshot import Snapshot


def input_of(csr: Csr, dtype: np.dtype, template: Any) -> CsrInput | CooInput:
    """What a user would have given for these edges, in indices of this type and kind."""
    if csr.permutation is None:
        pointers = Indices("row_ptr", csr.row_ptr.astype(dtype), template)
        sources = Indices("col_idx", csr.col_idx.astype(dtype), template)
        return CsrInput(pointers, sources, csr.num_src)
    data = np.empty((2, csr.num_edges), dtype)
    data[0, csr.permutation] = csr.col_idx
    data[1, csr.permutation] = csr.destinations(dtype)
    src, dst = Indices("src", data[0], template), Indices("dst", data[1], template)
    return CooInput(src, dst, csr.num_src, csr.num_dst)


def graph_of(csr: Csr, dtype: np.dtype, template: Any) -> Graph:
    """The graph of these edges."""
    graph = Graph(input_of(csr, dtype, template), "none")
    graph._snapshot = Snapshot(graph.token(), csr)
    return graph
