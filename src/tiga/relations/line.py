"""The graph of edges that follow one another."""

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.relations.csr import Csr
from tiga.relations.graph import Graph
from tiga.relations.indices import index_dtype
from tiga.relations.made import graph_of


def line_graph(graph: Graph, backtracking: bool) -> Graph:
    """See `Graph.line_graph`."""
    if graph.paged:
        raise InvalidType(
            "Graph.line_graph: the graph is in a file, and pairs of its edges would be in memory. "
            "Read it with `graph.in_memory()`."
        )
    if graph.num_src != graph.num_dst:
        raise InvalidValue(
            f"Graph.line_graph: edges follow one another where sources and destinations are one "
            f"set of nodes; this graph has {graph.num_src} and {graph.num_dst}."
        )
    src_dtype, dst_dtype = graph.input.dtypes()
    pairs = _pairs(graph.csr(), backtracking)
    return graph_of(pairs, max(src_dtype, dst_dtype, pairs.index_dtype), graph.input.template)


def _pairs(csr: Csr, backtracking: bool) -> Csr:
    """Rows are edges, in the order of the user; sources are the edges that lead to theirs."""
    count = csr.num_edges
    number = np.arange(count) if csr.permutation is None else csr.permutation
    start, end = np.empty(count, np.int64), np.empty(count, np.int64)
    start[number], end[number] = csr.col_idx, csr.destinations(np.dtype(np.int64))
    degree = np.diff(csr.row_ptr)[start]
    row_ptr = np.zeros(count + 1, np.int64)
    np.cumsum(degree, out=row_ptr[1:])
    # Those of a row lie side by side where the edges into its start do.
    position = np.arange(row_ptr[-1]) + np.repeat(csr.row_ptr[start] - row_ptr[:-1], degree)
    before = number[position]
    if not backtracking:
        row = np.repeat(np.arange(count), degree)
        ahead = start[before] != end[row]
        before, row = before[ahead], row[ahead]
        np.cumsum(np.bincount(row, minlength=count), out=row_ptr[1:])
    return Csr(count, count, row_ptr, before.astype(index_dtype(count, len(before))))
