"""The compiler: program -> canonical program -> plan of row programs -> executable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tiga.backends.llvm.executable import Executable, prepare
from tiga.backends.llvm.stages import Stages
from tiga.errors import InvalidValue
from tiga.knobs import Knobs, current
from tiga.passes.base import Form, ScheduledPlan
from tiga.passes.dump import Dump
from tiga.passes.explain import explain
from tiga.passes.pipeline import NORMALIZE, PIPELINE, run_pipeline
from tiga.passes.schedule import Schedule
from tiga.passes.text import form_text
from tiga.shapes import Dim as Dim
from tiga.shapes import ShapeBinding as ShapeBinding
from tiga.shapes import ShapeSpecializer as ShapeSpecializer
from tiga.shapes import TensorSpec as TensorSpec
from tiga.trace.program import Program
from tiga.types import Space

LEVELS = ("domain", "iter", "kernel", "llvm")


def require_level(level: str) -> None:
    """Refuse a level of IR that there is not.

    Raises:
        InvalidValue: the message lists those that there are.
    """
    if level not in LEVELS:
        raise InvalidValue(f"ir() takes one of {', '.join(LEVELS)}; got {level!r}.")


@dataclass(frozen=True)
class Compiled:
    """A program with its plan, its schedules and what runs it."""

    program: Program
    scheduled: ScheduledPlan
    executable: Executable

    def run(
        self,
        graphs: Sequence[Any],
        inputs: Sequence[int],
        outputs: Sequence[int],
        threads: int,
        extents: Mapping[Space, int] | None = None,
        **options: Any,
    ) -> None:
        """Compute the outputs; see `Executable.run`."""
        self.executable.run(graphs, inputs, outputs, threads, extents, **options)

    def launch_on(self, graphs: Sequence[Any]) -> Callable[..., None]:
        """A run on these graphs, which fix all sizes: takes inputs, outputs and threads."""
        return self.executable.plan_on(graphs, None).run

    def explain(self) -> str:
        """What was fused into which kernels, stored, and sent to a library."""
        ran = self.executable
        text = explain(self.scheduled, ran.extents, ran.own_products, ran.placed)
        pages = [] if ran.pages is None else ran.pages.told()
        return "\n".join((text, *ran.told_of_code(), *pages))

    def ir(self, level: str = "domain") -> str:
        """The text of a level.

        Raises:
            InvalidValue: there is no such level; the message lists them.
        """
        require_level(level)
        if level == "llvm":
            return self.executable.module_text()
        forms: dict[str, Form] = {
            "domain": self.program,
            "iter": self.scheduled.plan,
            "kernel": self.scheduled,
        }
        return form_text(forms[level])

    def code(self) -> str:
        """The kernels as LLVM IR."""
        return self.executable.llvm_ir()

    @cached_property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules of the kernels, in order."""
        return tuple(schedule for _, schedule in self.scheduled.schedules)


def normalize(program: Program) -> Program:
    """`program` in canonical, hoisted form: what derivatives are best taken of."""
    form = run_pipeline(program, NORMALIZE, name="normalize")
    assert isinstance(form, Program)
    return form


def compile_program(program: Program, name: str = "program") -> Compiled:
    """`program` compiled for the CPU; kernels are compiled at their first use."""
    knobs = current()
    scheduled = run_pipeline(program, name=name, knobs=knobs)
    assert isinstance(scheduled, ScheduledPlan)
    stages = _stages(program, name, knobs)
    executable = prepare(scheduled, program.relations, stages)
    return Compiled(program, scheduled, executable)


def _stages(program: Program, name: str, knobs: Knobs) -> Stages:
    """How the backend compiles; its stages go where those of the pipeline went."""
    folder = None if knobs.dump is None else Dump.open(knobs.dump, name, program).folder
    return Stages(knobs.verify > 0, folder, len(PIPELINE) + 1)


def settings() -> tuple[int, Path | None]:
    """What a compilation is told by the knobs: how much it verifies, and where it dumps stages."""
    knobs = current()
    return knobs.verify, knobs.dump


def executable(program: Program) -> Compiled:
    """`compile_program`, once per program and settings."""
    return _executable(program, settings())


@lru_cache(maxsize=1024)
def _executable(program: Program, told: tuple[int, Path | None]) -> Compiled:
    return compile_program(program)
