"""Spilling and restoring against raw file copies, and attaching a snapshot."""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

import tiga as tg
from benchmarks.harness import Options
from benchmarks.results import TIGA, AtMost, Measured, spread

NBYTES = 2**28
ROUNDS = 5
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
        return Measured(
            self.name, "MB/s", self.shape, readings, {}, (), ("through the page cache",)
        )


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


@dataclass(frozen=True)
class AttachCase:
    """Milliseconds to attach a snapshot, whatever its size."""

    name: str = "memory_disk/attach"

    @property
    def shape(self) -> Mapping[str, object]:
        return {"bytes": NBYTES}

    def run(self, options: Options) -> Measured:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            path = tg.save(tg.ones(NBYTES // 4), Path(folder) / "x.tiga")
            taken = [1e3 * _timed(lambda: tg.load(path)) for _ in range(ROUNDS)]
        bars = (AtMost(50.0),)
        return Measured(self.name, "ms", self.shape, {TIGA: spread(taken)}, {}, bars, ())


CASES = (SpillCase(), AttachCase())
