"""The spaces of calls' programs, and how large they are on a graph."""

from typing import Any

from tiga.trace.program import Program
from tiga.types import GLOBAL, Space

EXTENTS = {"edges": "num_edges", "src": "num_src", "dst": "num_dst", "node": "num_dst"}
"""The number of a graph that is the extent of each space, by its name."""


def spaces_of(program: Program) -> set[Space]:
    """Every space that a program has values of, or that its relations join."""
    related = {s for r in program.relations for s in (r.src, r.dst, r.edge)}
    return {node.type.space for node in program.order} - {GLOBAL} | related


def extents_of(program: Program, graph: Any) -> dict[Space, int]:
    """The extents of a program's spaces on a graph, or on its snapshot."""
    return {space: getattr(graph, EXTENTS[space.name]) for space in spaces_of(program)}
