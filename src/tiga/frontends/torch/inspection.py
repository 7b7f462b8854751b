"""What a kernel can tell about its programs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from tiga.backends.triton import report
from tiga.compiler import require_level
from tiga.errors import InvalidValue, Unfusable
from tiga.frontends.torch.autograd import requires_grad
from tiga.frontends.torch.binding import bind
from tiga.frontends.torch.fields import namespaces
from tiga.frontends.torch.forecast import Prediction, predict
from tiga.frontends.torch.gpu import device_of, gpu_target
from tiga.frontends.torch.unit import Runnable
from tiga.frontends.torch.variants import Variant, state_of, variant_of

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


def foretold(
    kernel: Any, graph: Any, given: Sequence[Any], params: Mapping[str, Any]
) -> tuple[list[str], list[Prediction]]:
    """Capture and compile the programs of a call, without running it: why it would not run fused,
    and what it would take where the graph is in a file."""
    fields = namespaces(graph, *given)
    variant = variant_of(kernel, graph, fields, params)
    if variant.captured is None or variant.unit is None:
        return ["a call would not be fused"], []
    with torch.no_grad():
        values = bind(variant.captured, graph, fields, params, state_of(kernel).orders)
    grad = torch.is_grad_enabled()
    wanted = tuple(i for i, v in enumerate(values) if grad and requires_grad(v))
    try:
        if graph.paged:
            return [], list(predict(variant.unit, graph, values, wanted))
        device = device_of(graph)
        if wanted:
            variant.unit.training(wanted, device)
        else:
            variant.unit.plain().compile(device)
    except Unfusable as reason:
        return [f"a call would not be fused: {reason}"], []
    return [], []


class Inspection:
    """The programs of one kernel instance."""

    def __init__(self, kernel: Any) -> None:
        self.name = type(kernel).__name__
        self.state = state_of(kernel)

    def _runnables(self) -> Iterator[tuple[str, Runnable]]:
        for i, variant in enumerate(self.state.all()):
            if variant.unit is not None:
                for what, runnable in variant.unit.runnables():
                    yield f"program {i}, {what}", runnable

    def cache_info(self) -> CacheInfo:
        """Counts of hits, misses, variants and executables."""
        compiled = {id(r): r for _, r in self._runnables()}
        variants = self.state.all()
        return CacheInfo(self.state.hits, self.state.misses, len(variants), len(compiled))

    def explain(self) -> str:
        """One section per program."""
        lines = [f"{self.name}: {len(self.state.all())} program(s)"]
        for i, variant in enumerate(self.state.all()):
            lines += [f"program {i}: not fused: {text}; {_ADVICE}" for text in _reasons(variant)]
            if variant.captured is not None:
                lines += [f"program {i}: {text}" for text in variant.captured.notes]
        lines += [f"batches: sample by sample: {text}; {_ONE_BY_ONE}" for text in self._batches()]
        for what, runnable in self._runnables():
            lines += [
                f"{what}:",
                *(f"  {line}" for line in _explain(runnable).splitlines()),
            ]
        return "\n".join(lines)

    def explain_call(self, kernel: Any, graph: Any, given: Any, params: Any) -> str:
        """`explain` of the programs of a call that is not made; over a graph in a file, also what
        it would read and hold."""
        what, predictions = foretold(kernel, graph, given, params)
        lines = [self.explain(), *what]
        for prediction in predictions:
            lines += prediction.told()
        return "\n".join(lines)

    def ir(self, level: str) -> str:
        """The text of one level, a section per program."""
        require_level(level)
        return self._texts(lambda runnable: runnable.executable.ir(level))

    def code(self, kind: str | None = None) -> str:
        """The text of one kind, a section per program."""
        if kind not in (None, *KINDS):
            raise InvalidValue(f"code() takes one of {', '.join(KINDS)}; got {kind!r}.")
        return self._texts(lambda runnable: _code(runnable, kind))

    def _texts(self, text: Any) -> str:
        return "\n".join(f"// {what}\n{text(runnable)}" for what, runnable in self._runnables())

    def schedules(self) -> tuple[Any, ...]:
        """The schedules of all row programs."""
        return tuple(s for _, r in self._runnables() for s in _schedules(r))

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """One record per program on the bounded path, and per reason that samples of a batch ran
        one by one."""
        refused = [
            Diagnostic("capture", "rejected", text, _ADVICE)
            for v in self.state.all()
            for text in _reasons(v)
        ]
        return *refused, *(
            Diagnostic("vmap", "per sample", t, _ONE_BY_ONE) for t in self._batches()
        )

    def _batches(self) -> list[str]:
        units = [v.unit for v in self.state.all() if v.unit is not None]
        return list(dict.fromkeys(text for unit in units for text in unit.per_sample()))


_ADVICE = (
    "runs through torch in destination blocks; rewrite the op, or set strict to make it an error"
)
_ONE_BY_ONE = "samples of node and edge values alone run together"


def _code(runnable: Runnable, kind: str | None) -> str:
    if kind is None:
        kind = "triton" if runnable.ran_on_gpu else "llvm"
    if kind == "llvm":
        return runnable.executable.code()
    return report.text(runnable.gpu_runs.executable, kind, gpu_target())


def _explain(runnable: Runnable) -> str:
    if not runnable.ran_on_gpu:
        return runnable.executable.explain()
    runs = runnable.gpu_runs
    pages = [] if runs.pages is None else runs.pages.told()
    on_gpus = "\n".join((report.explain(runs.executable), *pages))
    return f"{_on_cpu(runnable)}\non GPUs:\n{on_gpus}"


def _on_cpu(runnable: Runnable) -> str:
    """What the CPU's kernels would fuse, or why there are none."""
    try:
        return runnable.executable.explain()
    except Unfusable as reason:
        return f"not for the CPU: {reason}"


def _schedules(runnable: Runnable) -> tuple[Any, ...]:
    if runnable.ran_on_gpu:
        return report.schedules(runnable.gpu_runs.executable)
    return runnable.executable.schedules


def _reasons(variant: Variant) -> list[str]:
    """Why calls of a variant run on the bounded path, if any do."""
    return [str(b.reason) for b in (variant.bounded, variant.fallback) if b is not None]
