"""Which of many values is their extremum: comparisons that hold for few of them."""

from dataclasses import dataclass
from typing import ClassVar

from tiga.ops.pointwise import Compare


@dataclass(frozen=True)
class Winner(Compare):
    """Whether a is b, where b is known to be the extremum of many values of which a is one."""

    finds: ClassVar[str]


@dataclass(frozen=True)
class IsMax(Winner, name="is_max"):
    """Whether a is b, the largest of many values of which a is one: a >= b holds for few."""

    finds = "max"

    def reference(self, a, b):
        return a >= b

    def lower(self, b, x, y):
        return b.compare("ge", x, y)


@dataclass(frozen=True)
class IsMin(Winner, name="is_min"):
    """Whether a is b, the smallest of many values of which a is one: a <= b holds for few."""

    finds = "min"

    def reference(self, a, b):
        return a <= b

    def lower(self, b, x, y):
        return b.compare("le", x, y)


WINS = {op.finds: op for op in (IsMax(), IsMin())}
"""Whether a value is the extremum of its row, by the kind of the extremum."""
