"""What a compiled program needs while it runs: threads, buffers, tiers of memory, streams."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiga.runtime.bundle import Access as Access
    from tiga.runtime.bundle import Bundle as Bundle
    from tiga.runtime.bundle import Resource as Resource
    from tiga.runtime.bundle import Task as Task
    from tiga.runtime.hierarchy import Buffer as Buffer
    from tiga.runtime.hierarchy import HierarchyRuntime as HierarchyRuntime
    from tiga.runtime.hierarchy import PhysicalInstance as PhysicalInstance
    from tiga.runtime.queue import Event as Event
    from tiga.runtime.queue import Stream as Stream

# Looked up on first use: kernels need none of these.
_HOME = {
    "Access": "bundle", "Buffer": "hierarchy", "Bundle": "bundle", "Event": "queue",
    "HierarchyRuntime": "hierarchy", "PhysicalInstance": "hierarchy", "Resource": "bundle",
    "Stream": "queue", "Task": "bundle",
}  # fmt: skip

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tiga.runtime' has no attribute {name!r}")
    value = getattr(import_module(f"tiga.runtime.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
