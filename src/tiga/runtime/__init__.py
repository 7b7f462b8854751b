"""What a compiled program needs while it runs: threads, buffers, tiers of memory, streams.

- Values: a `buffer` of the `pool`, or a `device_array`; `layout` says how arrays lie, `addresses`
  where, and `dlpack` hands them over.
- Budgets: a `scope` charges what is allocated to `tiers`; `spill` has the files of what exceeds
  memory (`spare_files`, `mapped`), and `pages` read rows from them (`arena`, `direct`).
- Files with names: `container`, with its header, and `cache_files`.
- Threads: `parallel` for kernels, a `crew` for pages, `queue` for streams; `locks`, `turns` and
  `floor` say who may go on.
- GPUs: `platform` is what programs need of one, `cuda` by torch and `driver` without it;
  `functions` launch compiled kernels.
- Users' own use of it: `hierarchy` moves named values between tiers, a `bundle` orders tasks.
"""

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
