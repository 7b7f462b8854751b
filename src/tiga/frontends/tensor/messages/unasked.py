"""Outputs of a run that nobody asked for yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Unasked:
    """Outputs of the last run, and the operands that it had. Memory that is written to meanwhile is
    a copy by then: what waits keeps the old value."""

    operands: tuple[Any, ...] = ()
    outputs: dict[int, Any] = field(default_factory=dict)

    def take(self, index: int, operands: Sequence[Any]) -> Any:
        """An output, which waits no longer; None if it does not, or is of other operands."""
        if index not in self.outputs:
            return None
        if not all(a is b for a, b in zip(self.operands, operands, strict=True)):
            return None
        found = self.outputs.pop(index)
        if not self.outputs:
            self.operands = ()
        return found

    def but(self, index: int, operands: Sequence[Any], values: Sequence[Any]) -> Any:
        """Let all outputs of a run wait but one, which is returned."""
        self.outputs = {i: value for i, value in enumerate(values) if i != index}
        self.operands = tuple(operands) if self.outputs else ()
        return values[index]

    def clear(self) -> None:
        """Let none wait."""
        self.operands, self.outputs = (), {}
