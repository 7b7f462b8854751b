"""The largest or smallest message of a row, with a value of its own for rows without any."""

from dataclasses import dataclass

import numpy as np

from tiga.ops.align import expand_to
from tiga.ops.leaf import constant, ones_like, zeros_like
from tiga.ops.message import OfCounted, Topology, degree, gather, reduce
from tiga.ops.monoid import MONOIDS
from tiga.ops.pointwise import cast, div, gt, logical_and, maximum, where
from tiga.ops.winners import WINS
from tiga.trace.node import Node
from tiga.trace.origin import Origin


@dataclass(frozen=True)
class RowExtremum(OfCounted, name="row_extremum"):
    """Per row, the `max` or `min` (`kind`) of the messages that count, or `empty` if none does.

    Ties share the derivative evenly. Winners are the messages that equal the result: as it is the
    result that is compared, nothing else need be kept for the derivative.
    """

    kind: str
    empty: float

    def reference(self, m: np.ndarray, keep: np.ndarray, topology: Topology) -> np.ndarray:
        rows, extent = topology.end(self.side), topology.extent(self.side)
        m = np.broadcast_to(m, (len(rows), *m.shape[1:]))
        counts = np.broadcast_to(keep, m.shape)
        monoid = MONOIDS[self.kind]
        fill = monoid.identity_value
        if m.dtype.kind in "iu":
            fill = np.iinfo(m.dtype).min if fill < 0 else np.iinfo(m.dtype).max
        out = np.full((extent, *m.shape[1:]), fill, m.dtype)
        monoid.ufunc.at(out, rows, np.where(counts, m, fill))
        number = np.zeros(out.shape, np.int64)
        np.add.at(number, rows, counts)
        return np.where(number > 0, out, np.asarray(self.empty, m.dtype))

    def _reduce(self, kind: str, m: Node) -> Node:
        return reduce(self.relation, self.side, kind, m)

    def expand(self, m: Node, keep: Node) -> Node:
        """The same value by a plain reduction and a count."""
        identity = MONOIDS[self.kind].identity(m.type.dtype)
        best = self._reduce(self.kind, where(keep, m, constant(identity, m.type)))
        compute = best.type.with_dtype(m.type.dtype.compute)
        if keep.op.origin is Origin.NUMBER:
            number = degree(self.relation, self.side, compute.dtype)
        else:
            number = self._reduce("sum", cast(keep, compute.dtype))
        number = expand_to(number, compute.shape, compute.space)
        return where(gt(number, zeros_like(number)), best, constant(self.empty, best.type))

    def _winners(self, out: Node, m: Node, keep: Node) -> tuple[Node, Node]:
        """Which messages are the result, and how many, at least 1."""
        best = WINS[self.kind](m, gather(self.relation, self.side, out))
        wins = best if keep.op.origin is Origin.NUMBER else logical_and(best, keep)
        count = self._reduce("sum", cast(wins, m.type.dtype.compute))
        return wins, maximum(count, ones_like(count))

    def vjp(self, ct, out, m, keep):
        wins, count = self._winners(out, m, keep)
        share = cast(div(cast(ct, count.type.dtype), count), ct.type.dtype)
        gathered = gather(self.relation, self.side, share)
        return where(wins, gathered, zeros_like(gathered)), None

    def jvp(self, tangents, out, m, keep):
        t = tangents[0]
        if t is None:
            return []
        wins, count = self._winners(out, m, keep)
        picked = self._reduce("sum", cast(where(wins, t, zeros_like(t)), count.type.dtype))
        return [cast(div(picked, count), out.type.dtype)]
