"""Capture and compile: the first call in a process, and a further program's first call."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.harness import Options
from benchmarks.processes import run_child
from benchmarks.results import TIGA, AtMost, Measured, spread

PROCESSES = 3


@dataclass(frozen=True)
class FirstCall:
    """`key` names the reading of the child process."""

    key: str
    seconds: float

    @property
    def name(self) -> str:
        return f"first_call/{self.key}"

    @property
    def shape(self) -> Mapping[str, object]:
        return {"N": 1000, "E": 16_000, "F": 64, "processes": PROCESSES}

    def run(self, options: Options) -> Measured:
        children = [run_child("benchmarks.first_call_child") for _ in range(PROCESSES)]
        readings = {TIGA: spread([child[self.key] for child in children])}
        return Measured(self.name, "s", self.shape, readings, {}, (AtMost(self.seconds),))


CASES = (FirstCall("first", 2.5), FirstCall("further", 0.3))
