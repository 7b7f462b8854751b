"""Extra peak memory of `relu(x_src − x_dst)`, forward and backward, over outputs and gradients."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.harness import Options
from benchmarks.memory_child import DEGREE, FOUR, NUM_NODES, REDUCERS, SECOND, USERS, WIDTH
from benchmarks.processes import ChildFailed, run_child
from benchmarks.results import TIGA, AtMost, Measured, spread

CHILD = "benchmarks.memory_child"
ITEMSIZE = {"float32": 4, "bfloat16": 2}
BAR, BAR_OF_SECOND = AtMost(5.0), AtMost(10.0)
"""Percent of one edges × features array (design: no message array)."""


@dataclass(frozen=True)
class MemoryCase:
    """One reducer in one dtype; each contestant runs in a process of its own."""

    reducer: str
    dtype: str
    peers: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"peak_memory/{self.reducer}/{self.dtype}"

    @property
    def shape(self) -> Mapping[str, object]:
        return {"N": NUM_NODES, "E": NUM_NODES * DEGREE, "F": WIDTH, "dtype": self.dtype}

    @property
    def array(self) -> int:
        """Bytes of one edges × features array."""
        return NUM_NODES * DEGREE * WIDTH * ITEMSIZE[self.dtype]

    def run(self, options: Options) -> Measured:
        floor = self._bytes("floor")
        extra, notes = {}, [f"100% is {self.array / 2**20:.0f} MiB"]
        for way in (TIGA, *self.peers):
            if way in options.skip:
                continue
            try:
                extra[way] = self._bytes(way) - floor
            except ChildFailed as error:
                if way == TIGA:
                    raise
                notes.append(f"{way} cannot run this: {str(error).splitlines()[-1]}")
        notes += [f"{way}: {size / 2**20:.1f} MiB" for way, size in extra.items()]
        readings = {way: spread([100 * size / self.array]) for way, size in extra.items()}
        bar = BAR_OF_SECOND if self.reducer == SECOND else BAR
        return Measured(self.name, "%", self.shape, readings, {}, (bar,), tuple(notes))

    def _bytes(self, way: str) -> int:
        return int(run_child(CHILD, way, self.reducer, self.dtype)["bytes"])


# torch needs minutes for some of these, so it takes part where a comparison says most.
PEERS = {("sum", "float32"): ("torch.compile", "eager"), ("max", "float32"): ("torch.compile",)}

CASES = (
    *(
        MemoryCase(reducer, dtype, PEERS.get((reducer, dtype), ()))
        for dtype in ITEMSIZE
        for reducer in (*REDUCERS, FOUR, SECOND)
    ),
    *(MemoryCase(reducer, "float32", ()) for reducer in USERS),
)
