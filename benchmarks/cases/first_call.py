"""Capture and compile: the first call in a process, and a further program's first call, also where
an earlier process has left their kernels on disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from benchmarks.harness import Options
from benchmarks.processes import NOTHING_KEPT, kept_in, run_child
from benchmarks.results import TIGA, AtMost, Measured, spread

PROCESSES = 3


@dataclass(frozen=True)
class FirstCall:
    """`key` names the reading of the child process; `kept`: its kernels are on disk."""

    key: str
    seconds: float
    kept: bool = False

    @property
    def name(self) -> str:
        return f"first_call/{self.key}" + "_from_disk" * self.kept

    @property
    def shape(self) -> Mapping[str, object]:
        return {"N": 1000, "E": 16_000, "F": 64, "processes": PROCESSES}

    def run(self, options: Options) -> Measured:
        with TemporaryDirectory() as folder:
            kernels = kept_in(folder) if self.kept else NOTHING_KEPT
            if self.kept:
                _readings(kernels)  # leaves them there
            children = [_readings(kernels) for _ in range(PROCESSES)]
        readings = {TIGA: spread([child[self.key] for child in children])}
        return Measured(self.name, "s", self.shape, readings, {}, (AtMost(self.seconds),))


def _readings(kernels: Mapping[str, str]) -> dict[str, float]:
    return run_child("benchmarks.first_call_child", kernels=kernels)


CASES = (
    FirstCall("first", 2.5), FirstCall("further", 0.3),
    FirstCall("first", 2.5, True), FirstCall("further", 0.3, True),
)  # fmt: skip
