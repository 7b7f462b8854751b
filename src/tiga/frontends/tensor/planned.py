"""Planned expressions: what is kept of them, and how their runs are told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from tiga.frontends.tensor.program import Bundle
from tiga.frontends.tensor.recipe import Recipe
from tiga.trace.node import Node

MOST_KEPT = 1024

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E")


def keep(found: dict[K, V], key: K, value: V) -> None:
    """Remember a value under a key; the oldest of more than `MOST_KEPT` is forgotten."""
    found[key] = value
    if len(found) > MOST_KEPT:
        del found[next(iter(found))]


@dataclass(frozen=True)
class Entry(Generic[E]):
    """A planned expression: which values in memory its inputs are, by their place in the walk."""

    executable: E
    inputs: tuple[int, ...]


def places_of(bundle: Bundle, order: Sequence[Node]) -> tuple[int, ...]:
    """The places in a walk of the values that a program reads."""
    place = {id(node): i for i, node in enumerate(order)}
    return tuple(place[id(leaf)] for leaf in bundle.leaves)


class Run(NamedTuple):
    """How values were computed; times in seconds. A launch on a GPU is not waited for."""

    recipe: Recipe
    executable: Any
    cache_hit: bool
    relaxed: bool
    compile_ms: float
    launch: float
    total: float

    def report(self) -> dict[str, Any]:
        """As `Tensor.execution` tells it."""
        return {
            "backend": self.executable.backend,
            "semantic_hash": self.executable.semantic_hash,
            "cache_hit": self.cache_hit,
            "compile_ms": self.compile_ms,
            "launch_ms": self.launch * 1e3,
            "materialize_ms": self.total * 1e3,
            "kernels": len(self.executable.kernels),
            "library_calls": self.executable.calls,
            "saved_bytes": 0,
            "relaxed_math": self.relaxed,
        }
