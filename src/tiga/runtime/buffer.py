"""Memory that tensors view: what it is kept alive by, and how often it was written in place."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """When a value is ready. Values on the CPU are ready when they exist."""

    def query(self) -> bool:
        """Whether the value is ready."""
        return True

    def wait(self) -> None:
        """Return when the value is ready."""


READY = Event()


class Buffer:
    """A block of memory. `owner` is what keeps it alive; `version` counts writes in place.

    Tensors that view the same memory share one buffer: a write through any of them is seen
    through all, and raises the version of all.
    """

    __slots__ = ("__weakref__", "nbytes", "owner", "version", "viewers")

    def __init__(self, owner: Any, nbytes: int) -> None:
        self.owner = owner
        self.nbytes = nbytes
        self.version = 0
        self.viewers: list[Any] = []

    def __repr__(self) -> str:
        return f"<Buffer of {self.nbytes} bytes, version {self.version}>"
