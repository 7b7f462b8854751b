"""Memory that tensors view: what it is kept alive by, and how often it was written in place."""

from typing import Any

from tiga.runtime.queue import READY as READY
from tiga.runtime.queue import Event as Event

FEWEST = 64
"""References up to which none are looked through."""


class Buffer:
    """A block of memory. `owner` is what keeps it alive; `version` counts writes in place.

    Tensors that view the same memory share one buffer: a write through any of them is seen
    through all, and raises the version of all. `absent` says where the bytes are while they are
    not in memory; `origin` is the file that they came from, if any. While there are `writes` they
    stay in memory. Where several tensors view the memory, `viewers` refers to them, and `nodes` to
    their expressions and what those show: an expression may outlive its tensor.
    """

    __slots__ = (
        "__weakref__", "absent", "limit", "nbytes", "nodes", "origin", "owner", "version",
        "viewers", "writes",
    )  # fmt: skip

    def __init__(self, owner: Any, nbytes: int) -> None:
        self.owner = owner
        self.nbytes = nbytes
        self.version = 0
        self.limit = FEWEST
        self.viewers: list[Any] = []
        self.writes: list[None] = []
        self.nodes: list[Any] = []
        self.absent: Any = None
        self.origin: Any = None

    def note(self, viewer: Any, node: Any, array: Any) -> None:
        """Note references to a tensor that views the memory, to its expression and its array. Of
        what was noted, what is gone is forgotten each time that it may be half of it."""
        self.viewers.append(viewer)
        self.nodes.append((node, array))
        if len(self.nodes) > self.limit:
            self.viewers[:] = [known for known in self.viewers if known() is not None]
            self.nodes[:] = [
                pair for pair in self.nodes if pair[0]() is not None and pair[1]() is not None
            ]
            self.limit = 2 * len(self.nodes) + FEWEST

    def __repr__(self) -> str:
        return f"<Buffer of {self.nbytes} bytes, version {self.version}>"
