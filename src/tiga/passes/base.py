"""What a pass is, and the three forms that a program over graphs takes on its way to a backend."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from tiga.passes.rows import Plan, Step
from tiga.passes.schedule import Schedule
from tiga.trace.program import Program


@dataclass(frozen=True)
class ScheduledPlan:
    """A plan whose row programs have schedules, in the order of its steps."""

    plan: Plan
    schedules: tuple[tuple[Step, Schedule], ...]


Form = Program | Plan | ScheduledPlan
"""A program as the `gf`, the `gf_iter` or the `gf_kernel` dialect says it."""


@dataclass(frozen=True)
class Pass:
    """A named pure function from one form of a program to the same or the next form.

    Fields of a subclass are the pass's options. Laws: the result means the same, or what the
    docstring says; a valid form in gives a valid form out.

    Example:
        >>> from tiga.passes.fold import Fold
        >>> Fold().name
        'gf-fold'
    """

    name: ClassVar[str]
    takes: ClassVar[type] = Program

    def __init_subclass__(cls, name: str, takes: type = Program) -> None:
        super().__init_subclass__()
        cls.name, cls.takes = name, takes

    def __call__(self, form: Any) -> Form:
        raise NotImplementedError

    def __str__(self) -> str:
        """The pass as the command line of `tiga.opt` spells it."""
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        options = [f"{name}={_spell(value)}" for name, value in given.items() if value != ()]
        return self.name + (f"{{{' '.join(options)}}}" if options else "")


def _spell(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
