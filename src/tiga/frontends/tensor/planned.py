"""Planned expressions: what is kept of them, and how their runs are told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from tiga.frontends.tensor.program import Bundle, program_of
from tiga.frontends.tensor.recipe import Recipe, Structure
from tiga.trace.node import Node
from tiga.trace.program import Program

MOST_KEPT = 1024
"""Planned expressions that are remembered."""

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

    def operands(self, order: Sequence[Node]) -> list[Any]:
        """The values in memory that it reads, of a walk like the one that was planned."""
        return [order[place].cell.array for place in self.inputs]  # type: ignore[attr-defined]


def places_of(bundle: Bundle, order: Sequence[Node]) -> tuple[int, ...]:
    """The places in a walk of the values that a program reads."""
    place = {id(node): i for i, node in enumerate(order)}
    return tuple(place[id(leaf)] for leaf in bundle.leaves)


def graph_calls(roots: Sequence[Node], order: Sequence[Node]) -> list[int]:
    """The places of calls on graphs that have no value yet; those of roots are made in any case."""
    found = [place for place, node in enumerate(order) if node.op.defers]
    if not found:
        return found
    tops = {id(root) for root in roots}
    return [i for i in found if id(order[i]) in tops or getattr(order[i], "cell", None) is None]


def anywhere(parts: Structure) -> Structure:
    """A structure that does not tell which graphs are called on."""
    called = [getattr(part, "defers", False) for part in parts]
    return tuple([p.form if c else p for p, c in zip(parts, called, strict=True)])


def bundle_of(roots: Sequence[Node], order: Sequence[Node], calls: Sequence[int]) -> Bundle:
    """The program of expressions. A call belongs to its graph, which no cache may keep alive: the
    program defers it."""
    deferred = {id(order[place]): order[place].op.deferred(n) for n, place in enumerate(calls)}
    return program_of(roots, instead=deferred)


def plan_anew(
    found: dict[Any, Entry[E]], key: Any, roots: Sequence[Node], order: Sequence[Node],
    calls: Sequence[int], compile: Callable[[Program], E],
) -> Entry[E]:  # fmt: skip
    """The plan of an expression, remembered under its key."""
    bundle = bundle_of(roots, order, calls)
    entry = Entry(compile(bundle.program), places_of(bundle, order))
    keep(found, key, entry)
    return entry


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
