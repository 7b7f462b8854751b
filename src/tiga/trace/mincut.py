"""Minimum cuts of directed graphs with capacities: what the planners decide with."""

from collections import deque
from dataclasses import dataclass, field

INFINITE = float("inf")


@dataclass
class Network:
    """A directed graph with capacities, from `source` (0) to `sink` (1).

    Example:
        >>> network = Network()
        >>> a = network.node()
        >>> network.edge(0, a, 3.0)
        >>> network.edge(a, 1, 2.0)
        >>> value, side = network.cut()
        >>> value, side == {0, a}
        (2.0, True)
    """

    heads: list[int] = field(default_factory=list)
    capacities: list[float] = field(default_factory=list)
    leaving: list[list[int]] = field(default_factory=lambda: [[], []])

    def node(self) -> int:
        """A new node."""
        self.leaving.append([])
        return len(self.leaving) - 1

    def edge(self, tail: int, head: int, capacity: float) -> None:
        """An edge; its reverse, of capacity 0, is next to it."""
        for start, end, size in ((tail, head, capacity), (head, tail, 0.0)):
            self.leaving[start].append(len(self.heads))
            self.heads.append(end)
            self.capacities.append(size)

    def cut(self) -> tuple[float, set[int]]:
        """The capacity of a minimum cut and the nodes on the source's side (the fewest)."""
        value = 0.0
        while True:
            path = self._path()
            if path is None:
                return value, self._reached()
            flow = min(self.capacities[e] for e in path)
            if flow == INFINITE:
                return INFINITE, set()
            for e in path:
                self.capacities[e] -= flow
                self.capacities[e ^ 1] += flow
            value += flow

    def _path(self) -> list[int] | None:
        """The edges of a shortest path with capacity left."""
        came: dict[int, int] = {0: -1}
        queue = deque([0])
        while queue and 1 not in came:
            node = queue.popleft()
            for e in self.leaving[node]:
                if self.capacities[e] > 0 and self.heads[e] not in came:
                    came[self.heads[e]] = e
                    queue.append(self.heads[e])
        if 1 not in came:
            return None
        path, node = [], 1
        while node != 0:
            path.append(came[node])
            node = self.heads[came[node] ^ 1]
        return path

    def _reached(self) -> set[int]:
        seen, stack = {0}, [0]
        while stack:
            for e in self.leaving[stack.pop()]:
                if self.capacities[e] > 0 and self.heads[e] not in seen:
                    seen.add(self.heads[e])
                    stack.append(self.heads[e])
        return seen
