"""Where values are evaluated, each at most once."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from tiga.trace.node import Node

Value = TypeVar("Value")


class ValueScope(ABC, Generic[Value]):
    """A place where nodes have values: `values` holds those that are known there."""

    values: dict[Node, Value]

    def value(self, node: Node) -> Value:
        """The node's value here."""
        if node not in self.values:
            self.values[node] = self._evaluate(node)
        return self.values[node]

    @abstractmethod
    def _evaluate(self, node: Node) -> Value:
        """Compute it from values that are known here, and around."""
