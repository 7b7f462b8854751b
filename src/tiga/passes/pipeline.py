"""The pipeline: which passes there are, in which order a program takes them, and what is dumped."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiga.errors import InvalidValue, TigaError
from tiga.knobs import Knobs, current
from tiga.passes.base import Form, Pass, ScheduledPlan
from tiga.passes.canonicalize import canonicalize
from tiga.passes.differentiate import Jvp, SaveRows, Vjp
from tiga.passes.drop_empty import DropEmpty
from tiga.passes.dump import Dump
from tiga.passes.expand import Expand
from tiga.passes.fewer_reads import fewer_reads
from tiga.passes.fold import Fold
from tiga.passes.form import form as form_rows
from tiga.passes.hoist import hoist
from tiga.passes.inverses import inverses
from tiga.passes.join import joined, split
from tiga.passes.joined_products import part_products
from tiga.passes.one_pass import one_pass
from tiga.passes.rows import Plan, RowProgram
from tiga.passes.scaled_products import scaled_products
from tiga.passes.schedule import schedule
from tiga.passes.sink import sink
from tiga.passes.tensor_checkpoints import PlanTensorCheckpoints
from tiga.passes.tensor_vjp import TensorVjp
from tiga.passes.verify import verify_form, verify_text
from tiga.trace.program import Program


@dataclass(frozen=True)
class Canonicalize(Pass, name="gf-canonicalize"):
    """Sum over edges by rows, take signs out of sums."""

    def __call__(self, form: Program) -> Program:
        return canonicalize(form)


@dataclass(frozen=True)
class Hoist(Pass, name="gf-hoist"):
    """Compute on nodes what depends on one end of the edges only."""

    def __call__(self, form: Program) -> Program:
        return hoist(form)


@dataclass(frozen=True)
class OnePass(Pass, name="gf-one-pass"):
    """Take values of rows out of sums that are linear in them: GPUs then pass over edges once."""

    def __call__(self, form: Program) -> Program:
        return one_pass(form)


@dataclass(frozen=True)
class FewerReads(Pass, name="gf-fewer-reads"):
    """Read fewer values at the other ends of edges: GPUs are bound by them."""

    def __call__(self, form: Program) -> Program:
        return fewer_reads(form)


@dataclass(frozen=True)
class Inverses(Pass, name="gf-inverses"):
    """Multiply edge values by the inverses of node values: GPUs divide slowly."""

    def __call__(self, form: Program) -> Program:
        return inverses(form)


@dataclass(frozen=True)
class PartProducts(Pass, name="gf-part-products"):
    """Multiply joined values of nodes part by part: GPUs then write no joined array."""

    def __call__(self, form: Program) -> Program:
        return part_products(form)


@dataclass(frozen=True)
class ScaledProducts(Pass, name="gf-scaled-products"):
    """Multiply values joined with scaled copies of themselves once: no copy is written."""

    def __call__(self, form: Program) -> Program:
        return scaled_products(form)


@dataclass(frozen=True)
class Sink(Pass, name="gf-sink"):
    """Reshape values of nodes at the edges that read them, so that they are stored once."""

    def __call__(self, form: Program) -> Program:
        return sink(form)


@dataclass(frozen=True)
class FormRows(Pass, name="gf-form-rows"):
    """Decide which walk computes what: a plan of row programs and library calls."""

    def __call__(self, form: Program) -> Plan:
        return form_rows(form)


@dataclass(frozen=True)
class SplitRows(Pass, name="gf-split-rows", takes=Plan):
    """Split walks so that their last part can run together with the next walk of the rows."""

    def __call__(self, form: Plan) -> Plan:
        return split(form)


@dataclass(frozen=True)
class ScheduleRows(Pass, name="gf-iter-schedule", takes=Plan):
    """Decide per row program what lies across lanes, how wide a window of features is, and whether
    it runs together with the next."""

    def __call__(self, form: Plan) -> ScheduledPlan:
        rows, first = [step for step in form.steps if isinstance(step, RowProgram)], joined(form)
        schedules = (replace(schedule(step), joins_next=step in first) for step in rows)
        return ScheduledPlan(form, tuple(zip(rows, schedules, strict=True)))


PASSES: tuple[type[Pass], ...] = (
    Fold, DropEmpty, Expand, Canonicalize, Hoist, Inverses, OnePass, FewerReads, PartProducts,
    ScaledProducts, SaveRows, Vjp, Jvp, Sink, FormRows, SplitRows, ScheduleRows, TensorVjp,
    PlanTensorCheckpoints,
)  # fmt: skip
"""Every pass, as `python -m tiga.opt --list` shows them."""

NORMALIZE: tuple[Pass, ...] = (
    Canonicalize(),
    Hoist(),
    Canonicalize(),  # hoisting makes sums of node values, and negations that were between gathers
)
"""What a program goes through before it is differentiated or planned."""

PIPELINE: tuple[Pass, ...] = (
    DropEmpty(),
    Expand(),
    *NORMALIZE,
    ScaledProducts(),
    Sink(),
    FormRows(),
    SplitRows(),
    ScheduleRows(),
)
"""What a program goes through before a backend takes it."""


def run_pass(step: Pass, form: Form) -> Form:
    """One pass on one program.

    Raises:
        InvalidValue: the pass does not take this form, or fails on it; the message names it.
    """
    if not isinstance(form, step.takes):
        expected, got = step.takes.__name__, type(form).__name__
        raise InvalidValue(f"pass {step.name}: expected a {expected}, got a {got}")
    try:
        return step(form)
    except TigaError as error:
        error.args = (f"pass {step.name}: {error.args[0]}", *error.args[1:])
        raise
    except (AssertionError, NotImplementedError) as error:
        raise InvalidValue(f"pass {step.name}: {error}") from error


def run_pipeline(
    form: Form,
    passes: Sequence[Pass] = PIPELINE,
    *,
    name: str = "program",
    knobs: Knobs | None = None,
) -> Form:
    """`form` through `passes`, verified and dumped as the knobs say.

    Args:
        form: usually a `Program`.
        name: names the program in dumps.
        knobs: `tiga.knobs.current()` by default.

    Raises:
        InvalidValue: a pass fails; the message names it.
        Unfusable: a pass meets what the compiler cannot fuse.
    """
    knobs = current() if knobs is None else knobs
    dump = Dump.open(knobs.dump, name, form) if knobs.dump is not None else None
    for number in range(len(passes) + 1):
        if number:
            form = run_pass(passes[number - 1], form)
            _verify(passes[number - 1], form, knobs.verify)
        if dump is not None:
            dump.write(number, form, passes)
    return form


def _verify(step: Pass, form: Form, level: int) -> None:
    try:
        for check in (verify_form, verify_text)[:level]:
            check(form)
    except (AssertionError, TigaError) as error:
        raise AssertionError(f"pass {step.name} left an invalid program: {error}") from error
