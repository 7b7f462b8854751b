"""The second moment of a row about its mean, with the derivative that the algebra gives."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.align import expand_to
from tiga.ops.leaf import constant, ones_like, zeros_like
from tiga.ops.message import OfCounted, Topology, degree, gather, reduce
from tiga.ops.pointwise import cast, div, maximum, mul, sub, where
from tiga.trace.node import Node
from tiga.trace.origin import Origin
from tiga.types import Type


@dataclass(frozen=True)
class SquaredDeviations(OfCounted, name="squared_deviations"):
    """Per row, the sum of (m - mean)^2 over its messages; 0 for an empty row.

    The derivative through the mean is zero, as deviations sum to zero: 2 (m - mean) ct is all of
    it, which saves a walk and two row values against differentiating the two sums.
    """

    def infer(self, m: Type, keep: Type) -> Type:
        assert m.dtype == m.dtype.compute, f"deviations of {m}"
        return super().infer(m, keep)

    def reference(self, m: np.ndarray, keep: np.ndarray, topology: Topology) -> np.ndarray:
        rows, extent = topology.end(self.side), topology.extent(self.side)
        m = np.broadcast_to(m, (len(rows), *m.shape[1:]))
        counts = np.broadcast_to(keep, m.shape)
        sums = [np.zeros((extent, *m.shape[1:]), m.dtype) for _ in range(3)]
        np.add.at(sums[0], rows, np.where(counts, m, 0))
        np.add.at(sums[1], rows, counts.astype(m.dtype))
        mean = sums[0] / np.maximum(sums[1], 1)
        np.add.at(sums[2], rows, np.where(counts, (m - mean[rows]) ** 2, 0))
        return sums[2]

    def _sum(self, m: Node) -> Node:
        return reduce(self.relation, self.side, "sum", m)

    def _count(self, m: Node, keep: Node) -> Node:
        if keep.op.origin is not Origin.NUMBER:
            return self._sum(cast(keep, m.type.dtype))
        count = degree(self.relation, self.side, m.type.dtype)
        rows = self.infer(m.type, keep.type)
        return expand_to(count, rows.shape, rows.space)

    def _deviations(self, m: Node, keep: Node) -> Node:
        number = self._count(m, keep)
        total = self._sum(where(keep, m, zeros_like(m)))
        mean = div(total, maximum(number, ones_like(number)))
        distance = sub(m, gather(self.relation, self.side, mean))
        return where(keep, distance, zeros_like(distance))

    def expand(self, m: Node, keep: Node) -> Node:
        """The same value in two sums."""
        distance = self._deviations(m, keep)
        return self._sum(mul(distance, distance))

    def vjp(self, ct, out, m, keep):
        twice = gather(self.relation, self.side, mul(ct, constant(2, ct.type)))
        return mul(twice, self._deviations(m, keep)), None

    def jvp(self, tangents, out, m, keep):
        if tangents[0] is None:
            return []
        slope = mul(constant(2, m.type), self._deviations(m, keep))
        return [self._sum(mul(slope, tangents[0]))]
