"""Reading time and memory so that contestants can be compared fairly."""

import ctypes
import gc
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

Step = Callable[[], object]

SHORTEST_READING = 0.01
"""Seconds; a faster step is repeated until one reading takes this long."""


def _seconds(step: Step, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def interleave(
    steps: Mapping[str, Step], budget: float, fewest: int = 3, most: int = 30
) -> dict[str, list[float]]:
    """Time all steps in turn, round by round, each round starting with another one.

    A machine that slows down for a while so slows all of them, and ratios within a round hold.

    Args:
        steps: what to time, by name; each has run at least once before.
        budget: seconds to spend in all, as far as `fewest` and `most` rounds allow.

    Returns:
        Seconds per call, one reading per round, by name.
    """
    gc.collect()
    gc.disable()
    try:
        once = {name: _seconds(step, 1) for name, step in steps.items()}
        repeats = {name: max(1, round(SHORTEST_READING / t)) for name, t in once.items()}
        a_round = sum(max(t, SHORTEST_READING) for t in once.values())
        rounds = min(max(round(budget / a_round), fewest), most)
        names = list(steps)
        times: dict[str, list[float]] = {name: [] for name in names}
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                times[name].append(_seconds(steps[name], repeats[name]))
        return times
    finally:
        gc.enable()


def _status(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def can_read_memory() -> bool:
    """Whether this system keeps a high-water mark that a process can reset (Linux does)."""
    return Path("/proc/self/clear_refs").exists()


def rise(step: Step) -> int:
    """Bytes by which the resident set's peak during `step` passes what is resident before.

    The reading is the kernel's own (VmHWM), so it covers every allocator in the process. Run it in
    a process of its own: memory that an earlier step left behind could serve this one unseen.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from VmRSS
    before = _status("VmRSS")
    step()
    return _status("VmHWM") - before
