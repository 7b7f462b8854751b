"""The pipeline: which passes there are, in which order a program takes them, and what is dumped."""

from collections.abc import Sequence

from tiga.errors import InvalidValue, TigaError
from tiga.knobs import Knobs, current
from tiga.passes.base import Form, Pass
from tiga.passes.canonicalize import Canonicalize
from tiga.passes.differentiate import Jvp, SaveRows, Vjp
from tiga.passes.drop_empty import DropEmpty
from tiga.passes.dump import Dump
from tiga.passes.edge_parts import EdgeParts
from tiga.passes.expand import Expand
from tiga.passes.fewer_reads import FewerReads
from tiga.passes.fold import Fold
from tiga.passes.form_rows import FormRows
from tiga.passes.hoist import Hoist
from tiga.passes.inverses import Inverses
from tiga.passes.near_tables import NearTables
from tiga.passes.one_pass import OnePass
from tiga.passes.part_products import PartProducts
from tiga.passes.scaled_products import ScaledProducts
from tiga.passes.schedule_rows import ScheduleRows
from tiga.passes.sink import Sink
from tiga.passes.small_products import SmallProducts
from tiga.passes.small_tables import SmallTables
from tiga.passes.split_rows import SplitRows
from tiga.passes.tensor_checkpoints import PlanTensorCheckpoints
from tiga.passes.tensor_vjp import TensorVjp
from tiga.passes.verify import verify_form, verify_text
from tiga.passes.wide_sums import WideSums

PASSES: tuple[type[Pass], ...] = (
    Fold, DropEmpty, Expand, Canonicalize, Hoist, NearTables, Inverses, OnePass, FewerReads,
    SmallProducts, SmallTables, EdgeParts, WideSums, PartProducts, ScaledProducts, SaveRows, Vjp,
    Jvp, Sink, FormRows, SplitRows, ScheduleRows, TensorVjp, PlanTensorCheckpoints,
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
