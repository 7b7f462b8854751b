"""`tg.execution`: memory budgets for a stretch of code, and a report of their use."""

from contextlib import AbstractContextManager
from typing import Any

from tiga.errors import InvalidState, InvalidType, InvalidValue
from tiga.frontends.tensor.devices import Device, check_device
from tiga.runtime.scope import Scope, within
from tiga.runtime.tiers import parse_budgets

EVICTION = ("error", "lru")
EXCLUDES = (
    "memory of torch and numpy, allocations from before the scope, Python and compiled code, the "
    "page cache and what is mapped from files"
)


def _count(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidValue(f"{name}: expected an int of at least {least}, got {value!r}.")
    return value


class execution:  # noqa: N801  used as a function: `with tg.execution(...) as run`
    """Budgets for the memory that tensors take in the body of a `with`.

    Args:
        device: where new tensors are: "cpu", "cuda" or "cuda:N".
        memory: sizes by tier, such as `{"host": "1GiB", "nvme": "4GiB"}`; also "device" and
            "host-pinned". A tier that is not named has no bound. Sizes are bytes, or a whole
            number with B, KiB, MiB, GiB or TiB.
        spill_dir: the folder for tensors moved out of memory; TMPDIR, else /var/tmp.
        page_rows: rows per page of a graph on disk; by default as many as the budget holds.
        prefetch_depth: pages read ahead of the one that is computed, at most; by default as many
            as threads read at a time.
        eviction: what happens when the host budget is full: "error", or "lru" to spill the
            tensors that were used longest ago; operands of what runs stay.

    New memory is charged to the innermost scope until it is freed, once for all tensors that view
    it. Values live on after the scope. What does not fit raises before it is allocated.

    Raises:
        InvalidValue: an unknown tier or policy, a bad size or count.
        OutOfBudget (a MemoryError), in the body: tier, need, live, budget and largest holders.

    Example:
        >>> import tiga as tg
        >>> with tg.execution(memory={"host": "1KiB"}) as run:
        ...     x = tg.zeros(64)
        ...     try:
        ...         tg.zeros(256)
        ...     except MemoryError:
        ...         run.memory_report()["live_bytes"]["host"]
        256
    """

    def __init__(
        self,
        *,
        device: Any = "cpu",
        memory: Any = None,
        spill_dir: Any = None,
        page_rows: int | None = None,
        prefetch_depth: int | None = None,
        eviction: str = "error",
    ) -> None:
        self.device: Device = check_device(device)
        if eviction not in EVICTION:
            raise InvalidValue(f"eviction: expected 'error' or 'lru', got {eviction!r}.")
        rows = None if page_rows is None else _count("page_rows", page_rows, 1)
        depth = None if prefetch_depth is None else _count("prefetch_depth", prefetch_depth, 0)
        self._scope = Scope(
            parse_budgets(memory), spill_dir, eviction == "lru", rows, depth, self.device
        )
        self.eviction = eviction
        self._entered: AbstractContextManager[None] | None = None

    def __enter__(self) -> "execution":
        if self._entered is not None:
            raise InvalidState("tg.execution: this scope is entered already; make another one.")
        if self._scope.spill_dir is not None:
            _ = self._scope.file  # a folder that is not there is found now, not when memory is full
        self._scope.begin()
        self._entered = within(self._scope)
        self._entered.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        assert self._entered is not None
        entered, self._entered = self._entered, None
        entered.__exit__(*raised)
        self._scope.end()
        self._scope.give_back_idle()

    def memory_report(self) -> dict[str, Any]:
        """What the scope holds and moved: `live_bytes`, `peak_bytes` and `budget_bytes` by tier,
        `idle_bytes` that are kept for another use and given back when something needs them,
        `eviction_policy`, `evictions`, `restores`, `bytes_spilled`, `bytes_restored` and
        `seconds_waiting` for the disk; `excludes` says what is not counted."""
        accounts, counters = self._scope.accounts, self._scope.counters
        return {
            "live_bytes": {name: a.live for name, a in accounts.items()},
            "idle_bytes": {name: a.idle for name, a in accounts.items()},
            "peak_bytes": {name: a.peak for name, a in accounts.items()},
            "budget_bytes": {name: a.budget for name, a in accounts.items()},
            "eviction_policy": self.eviction,
            "evictions": counters.evictions,
            "restores": counters.restores,
            "bytes_spilled": counters.bytes_spilled,
            "bytes_restored": counters.bytes_restored,
            "seconds_waiting": counters.seconds_waiting,
            "excludes": EXCLUDES,
        }

    def timeline(self) -> list[tuple[float, int, int]]:
        """Seconds since the start, live bytes in memory and on disk, at each change."""
        start = self._scope.history[0][0]
        return [(at - start, host, disk) for at, host, disk in self._scope.history]

    def plot(self, path: Any = None) -> Any:
        """Live bytes over time as a matplotlib figure, also written to `path`.

        Raises:
            InvalidType: matplotlib is not installed (the `viz` extra).
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise InvalidType("plot() needs matplotlib: pip install 'tiga-lang[viz]'.") from None
        seconds, host, disk = zip(*self.timeline(), strict=True)
        figure = Figure()
        axes = figure.subplots()
        axes.step(seconds, host, where="post", label="host")
        axes.step(seconds, disk, where="post", label="disk")
        axes.set(xlabel="seconds", ylabel="live bytes")
        axes.legend()
        if path is not None:
            figure.savefig(path)
        return figure
