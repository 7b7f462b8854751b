"""Evaluate a program with numpy, op by op."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space

if TYPE_CHECKING:  # whole-tensor programs come by here, and need no graphs
    from tiga.relations.csr import Csr


@dataclass(frozen=True)
class EdgeList:
    """A relation as arrays: source and destination of every edge in CSR order, and extents."""

    src: np.ndarray
    dst: np.ndarray
    num_src: int
    num_dst: int

    @staticmethod
    def of(csr: "Csr") -> "EdgeList":
        """Both ends of every edge in CSR order."""
        rows = np.repeat(np.arange(csr.num_dst), np.diff(csr.row_ptr))
        return EdgeList(np.asarray(csr.col_idx), rows, csr.num_src, csr.num_dst)

    def end(self, side: str) -> np.ndarray:
        return self.src if side == "src" else self.dst

    def extent(self, side: str) -> int:
        return self.num_src if side == "src" else self.num_dst


def _extents(topologies: Mapping[Relation, EdgeList]) -> dict[Space, int]:
    extents = {GLOBAL: 1}
    for relation, edges in topologies.items():
        extents[relation.src] = edges.num_src
        extents[relation.dst] = edges.num_dst
        extents[relation.edge] = len(edges.src)
    return extents


def _apply(
    node: Node, arrays: Sequence[np.ndarray], topologies: Mapping[Relation, EdgeList]
) -> np.ndarray:
    """One op: 16-bit floats are widened before and rounded after, as every backend does."""
    wide = [
        a.astype(np.float32) if n.type.dtype.compute != n.type.dtype else a
        for a, n in zip(arrays, node.inputs, strict=True)
    ]
    relation = getattr(node.op, "relation", None)
    options = {} if relation is None else {"topology": topologies[relation]}
    with np.errstate(all="ignore"):
        return node.op.reference(*wide, **options).astype(node.type.dtype.numpy)


def evaluate(
    program: Program, arrays: Sequence[np.ndarray], topologies: Mapping[Relation, EdgeList]
) -> list[np.ndarray]:
    """The program's outputs. Arrays come in the order of its inputs, with an entity axis first
    unless global; so do the results."""
    known: dict[Node, np.ndarray] = {}
    for node, array in zip(program.inputs, arrays, strict=True):
        known[node] = array[None] if node.type.space == GLOBAL else array
    for node in program.order:
        if node not in known:
            known[node] = _apply(node, [known[i] for i in node.inputs], topologies)
    extents = _extents(topologies)
    return [_shaped(node, known[node], extents) for node in program.outputs]


def _shaped(node: Node, array: np.ndarray, extents: Mapping[Space, int]) -> np.ndarray:
    if node.type.space == GLOBAL:
        return array.reshape(node.type.shape)
    return np.array(np.broadcast_to(array, (extents[node.type.space], *node.type.shape)))
