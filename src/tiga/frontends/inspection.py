"""What a kernel can tell about its programs, whatever the tensors that it was called with."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tiga.backends.triton import report
from tiga.backends.triton.executable import Executable
from tiga.compiler import Compiled, require_level
from tiga.errors import InvalidValue, Unfusable
from tiga.frontends.message_passing import NATIVE_STATE, TORCH_STATE
from tiga.paging.span import PagePlan
from tiga.runtime.driver import device_count, driver

KINDS = ("llvm", *report.STAGES)
"""What `code` shows."""


class CacheInfo(NamedTuple):
    """Calls that found their program, calls that captured one, programs, executables built."""

    hits: int
    misses: int
    variants: int
    compiled: int


class Diagnostic(NamedTuple):
    """Something that was not fused, and where the user wrote it."""

    stage: str
    disposition: str
    message: str
    action: str


class CompiledPart(NamedTuple):
    """What was compiled of a captured program: the program itself, or a derivative. `key` tells
    those apart that several programs share; `pages` is of the last run over a graph in a file."""

    what: str
    key: Any
    ran_on_gpu: bool
    cpu: Callable[[], Compiled]
    gpu: Callable[[], Executable]
    pages: PagePlan | None = None

    def explain(self) -> str:
        """What was fused, stored, and sent to a library."""
        if not self.ran_on_gpu:
            return self.cpu().explain()
        pages = [] if self.pages is None else self.pages.told()
        on_gpus = "\n".join((report.explain(self.gpu()), *pages))
        return f"{self._on_cpu()}\non GPUs:\n{on_gpus}"

    def _on_cpu(self) -> str:
        """What the CPU's kernels would fuse, or why there are none."""
        try:
            return self.cpu().explain()
        except Unfusable as reason:
            return f"not for the CPU: {reason}"

    def code(self, kind: str | None, capability: int) -> str:
        """The text of one kind; None: for where it ran."""
        if kind is None:
            kind = "triton" if self.ran_on_gpu else "llvm"
        if kind == "llvm":
            return self.cpu().code()
        return report.text(self.gpu(), kind, capability)

    @property
    def schedules(self) -> tuple[Any, ...]:
        """The schedules of its row programs, for where it ran."""
        return report.schedules(self.gpu()) if self.ran_on_gpu else self.cpu().schedules


@dataclass(frozen=True)
class Captured:
    """One program of a kernel: why calls of it are not fused, if they are not, and its parts."""

    refusals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parts: list[CompiledPart] = field(default_factory=list)


@dataclass(frozen=True)
class Known:
    """What a frontend knows of a kernel; `advice` says what to do about what was refused."""

    hits: int
    misses: int
    programs: list[Captured]
    advice: str
    one_by_one: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Inspection:
    """The programs of one kernel instance; code for GPUs is shown for a compute capability."""

    name: str
    known: Sequence[Known]
    capability: int

    def _programs(self) -> Iterator[tuple[str, Known, Captured]]:
        programs = [(known, captured) for known in self.known for captured in known.programs]
        for i, (known, captured) in enumerate(programs):
            yield f"program {i}", known, captured

    def parts(self) -> Iterator[tuple[str, CompiledPart]]:
        """What was compiled, with the program that it belongs to."""
        for name, _, captured in self._programs():
            for part in captured.parts:
                yield f"{name}, {part.what}", part

    def cache_info(self) -> CacheInfo:
        """Counts of hits, misses, variants and executables."""
        hits, misses = (sum(getattr(k, name) for k in self.known) for name in ("hits", "misses"))
        compiled = {part.key for _, part in self.parts()}
        return CacheInfo(hits, misses, len(list(self._programs())), len(compiled))

    def explain(self) -> str:
        """One section per program."""
        count = len(list(self._programs()))
        calls = "" if count else "; call it first, or give `explain` the arguments of a call"
        lines = [f"{self.name}: {count} program(s){calls}"]
        for name, known, captured in self._programs():
            lines += [f"{name}: not fused: {text}; {known.advice}" for text in captured.refusals]
            lines += [f"{name}: {text}" for text in captured.notes]
        lines += [f"batches: sample by sample: {t}; {_ONE_BY_ONE}" for t in self._one_by_one()]
        for what, part in self.parts():
            lines += [f"{what}:", *(f"  {line}" for line in part.explain().splitlines())]
        return "\n".join(lines)

    def ir(self, level: str) -> str:
        """The text of one level, a section per program."""
        require_level(level)
        return self._texts(lambda part: part.cpu().ir(level))

    def code(self, kind: str | None = None) -> str:
        """The text of one kind, a section per program."""
        if kind not in (None, *KINDS):
            raise InvalidValue(f"code() takes one of {', '.join(KINDS)}; got {kind!r}.")
        return self._texts(lambda part: part.code(kind, self.capability))

    def _texts(self, text: Callable[[CompiledPart], str]) -> str:
        return "\n".join(f"// {what}\n{text(part)}" for what, part in self.parts())

    def schedules(self) -> tuple[Any, ...]:
        """The schedules of all row programs."""
        return tuple(schedule for _, part in self.parts() for schedule in part.schedules)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """One record per program on the bounded path, and per reason that samples of a batch ran
        one by one."""
        refused = [
            Diagnostic("capture", "rejected", text, known.advice)
            for _, known, captured in self._programs()
            for text in captured.refusals
        ]
        return *refused, *(
            Diagnostic("vmap", "per sample", text, _ONE_BY_ONE) for text in self._one_by_one()
        )

    def _one_by_one(self) -> list[str]:
        return [text for known in self.known for text in known.one_by_one]


_ONE_BY_ONE = "samples of node and edge values alone run together"

SHOWN = 90
"""The compute capability of code that is shown on a machine without a GPU."""


def inspected(kernel: Any) -> Inspection:
    """What a kernel instance can tell. Torch is imported if it was called with torch tensors."""
    known = []
    if TORCH_STATE in vars(kernel):
        from tiga.frontends.torch.inspection import known_of

        known.append(known_of(kernel))
    if NATIVE_STATE in vars(kernel):
        from tiga.frontends.tensor.messages.calls import calls_of

        known.append(calls_of(kernel).known())
    capability = driver(0).capability() if device_count() else SHOWN
    return Inspection(type(kernel).__name__, known, capability)
