"""Planned expressions: what is kept of them, and how their runs are told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from tiga.frontends.tensor.program import program_of
from tiga.frontends.tensor.recipe import Form, Recipe, Structure, structure, with_known
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
    """A planned expression, and its form: which values in memory its inputs are."""

    executable: E
    form: Form

    def operands(self, order: Sequence[Node]) -> list[Any]:
        """The values in memory that it reads, of nodes like those that were planned."""
        return [order[place].cell.array for place in self.form.inputs]


class Plans(Generic[E]):
    """Planned expressions by what tells them from others, the oldest first.

    The one that was found last is compared before others are looked for: equal keys consist of the
    same objects mostly, and comparing these takes less time than hashing them.
    """

    def __init__(self) -> None:
        self._entries: dict[Any, Entry[E]] = {}
        self._last: tuple[Any, Entry[E] | None] = (None, None)

    def get(self, key: Any) -> Entry[E] | None:
        """The plan under a key, if there is one."""
        last, entry = self._last
        if last == key:
            return entry
        entry = self._entries.get(key)
        if entry is not None:
            self._last = key, entry
        return entry

    def of(
        self, roots: Sequence[Node], settings: tuple[Any, ...], compile: Callable[[Program], E]
    ) -> tuple[Structure, Entry[E], bool]:
        """The structure of an expression, its plan under settings, and whether that was there
        before; else it is planned and remembered."""
        found = structure(roots)
        entry = self.get((found.parts, *settings))
        if entry is not None:
            return found, entry, True
        found = with_known(found, roots)
        key = (found.parts, *settings)
        entry = self.get(key)
        if entry is not None:
            return found, entry, True
        entry = _planned(roots, found, compile)
        keep(self._entries, key, entry)
        return found, entry, False

    def clear(self) -> None:
        """Forget all of them."""
        self._entries.clear()
        self._last = (None, None)


def _planned(roots: Sequence[Node], given: Structure, compile: Callable[[Program], E]) -> Entry[E]:
    """The plan of an expression. A call belongs to its graph, which no cache may keep alive: the
    program defers it."""
    order = given.order
    deferred = {id(order[i]): order[i].op.deferred(n) for n, i in enumerate(given.calls)}
    bound = program_of(roots, instead=deferred)
    place = {id(node): i for i, node in enumerate(order)}
    inputs = [place[id(leaf)] for leaf in bound.leaves]
    return Entry(compile(bound.program), Form.of(given, inputs))


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
            "kernels_from_disk": self.executable.kernels_from_disk,
            "library_calls": self.executable.calls,
            "saved_bytes": 0,
            "relaxed_math": self.relaxed,
        }
