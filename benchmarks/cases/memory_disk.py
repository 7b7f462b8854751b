"""Spilling and restoring against raw file copies, and attaching a snapshot.

A gibibyte is spilled, and 4 GiB attached, in files under /var/tmp.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

import tiga as tg
from benchmarks.harness import Options
from benchmarks.results import TIGA, AtLeast, AtMost, Measured, spread
from tiga.runtime.container import Content, write_container

NBYTES = 2**30
ATTACHED = 2**32
ROUNDS = 3
FOLDER = "/var/tmp"


def _timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


@dataclass(frozen=True)
class SpillCase:
    """MB/s of moving a tensor to disk and back, and of writing and reading a file of its size."""

    name: str = "memory_disk/spill"

    @property
    def shape(self) -> Mapping[str, object]:
        return {"bytes": NBYTES}

    def run(self, options: Options) -> Measured:
        rates: dict[str, list[float]] = {TIGA: [], "raw file": []}
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder, tg.execution(spill_dir=folder):
            x = tg.ones(NBYTES // 4)
            plain = np.ones(NBYTES, np.uint8)
            for _ in range(ROUNDS):
                seconds = _timed(lambda: x.spill().realize())
                rates[TIGA].append(2 * NBYTES / seconds / 1e6)
                seconds = _timed(lambda: _raw(plain, Path(folder) / "raw"))
                rates["raw file"].append(2 * NBYTES / seconds / 1e6)
        readings = {way: spread(values) for way, values in rates.items()}
        pairs = zip(rates["raw file"], rates[TIGA], strict=True)
        ratios = {"raw file": spread([own / raw for raw, own in pairs])}
        notes = ("through the page cache", "the ratio is the share of the raw rate")
        bars = (AtLeast(("raw file",), 0.8),)
        return Measured(self.name, "MB/s", self.shape, readings, ratios, bars, notes)


def _raw(plain: np.ndarray, path: Path) -> None:
    """Write the bytes to a new file and read them into new memory."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.unlink(path)
    left = plain.data
    while len(left):
        left = left[os.write(fd, left) :]
    back = np.empty(plain.size, np.uint8)
    os.preadv(fd, [back.data], 0)
    os.close(fd)
    assert back[-1] == 1


def _zeros(nbytes: int) -> Content:
    """So many bytes for a snapshot, never in memory together."""
    piece = np.zeros(2**24, np.uint8)
    return Content("uint8", (nbytes,), (piece for _ in range(nbytes // piece.size)))


@dataclass(frozen=True)
class AttachCase:
    """Milliseconds to attach a snapshot, whatever its size."""

    name: str = "memory_disk/attach"

    @property
    def shape(self) -> Mapping[str, object]:
        return {"bytes": ATTACHED}

    def run(self, options: Options) -> Measured:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            path = Path(folder) / "x.tiga"
            write_container(path, {"x": _zeros(ATTACHED)}, "dict")
            taken = [1e3 * _timed(lambda: tg.load(path)) for _ in range(ROUNDS)]
        bars = (AtMost(50.0),)
        return Measured(self.name, "ms", self.shape, {TIGA: spread(taken)}, {}, bars, ())


CASES = (SpillCase(), AttachCase())
