"""Schedule the row programs of a plan, each by itself, and decide which run together."""

from dataclasses import dataclass, replace

from tiga.passes.base import Pass, ScheduledPlan
from tiga.passes.pairs import joined
from tiga.passes.rows import Plan, RowProgram
from tiga.passes.schedule import schedule


@dataclass(frozen=True)
class ScheduleRows(Pass, name="gf-iter-schedule", takes=Plan):
    """Schedule every row program by itself, and decide which run together with the next.

    A schedule says what lies across lanes and how wide a window of features is.
    """

    def __call__(self, form: Plan) -> ScheduledPlan:
        rows, first = [step for step in form.steps if isinstance(step, RowProgram)], joined(form)
        schedules = (replace(schedule(step), joins_next=step in first) for step in rows)
        return ScheduledPlan(form, tuple(zip(rows, schedules, strict=True)))
