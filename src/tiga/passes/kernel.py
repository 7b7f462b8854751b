"""The `gf_kernel` dialect: a row program with its schedule, as one launch.

    %k = "gf_kernel.launch"() ({
      %w = "gf_iter.walk"() ...
    }) {lanes = "edges", edge_lanes = 16 : i64, ...} : () -> !gf_iter.done

Its attributes are the fields of `Schedule`; what it computes is taken by `gf_iter.result`.
"""

import dataclasses
from typing import get_type_hints

from torch_mlir import ir

from tiga.ir.dialects import Dialect, OpSpec
from tiga.ir.encoding import FIELD_KINDS, FieldKind
from tiga.passes.iteration import DONE_CONSTRAINT, ROWS, WALK, body_of
from tiga.passes.schedule import Schedule


def _schedule_kinds() -> dict[str, FieldKind]:
    hints = get_type_hints(Schedule)
    return {field.name: FIELD_KINDS[hints[field.name]] for field in dataclasses.fields(Schedule)}


_KINDS = _schedule_kinds()


def encode_schedule(schedule: Schedule) -> dict[str, ir.Attribute]:
    """A schedule as the attributes of a launch."""
    return {name: kind.encode(getattr(schedule, name)) for name, kind in _KINDS.items()}


def decode_schedule(operation: ir.Operation) -> Schedule:
    """The schedule that a launch carries."""
    attributes = operation.attributes
    return Schedule(**{name: kind.decode(attributes[name], {}) for name, kind in _KINDS.items()})


def _check_launch(operation: ir.Operation) -> str | None:
    names = [inner.name for inner in body_of(operation)]
    if names not in ([WALK], [ROWS]):
        return f"expected one {WALK} or {ROWS} as its body, got {', '.join(names) or 'nothing'}"
    decode_schedule(operation)
    return None


GF_KERNEL = Dialect(
    "gf_kernel",
    (
        OpSpec(
            "launch", 0, 1, {name: kind.constraint for name, kind in _KINDS.items()}, ("body",),
            outcome=DONE_CONSTRAINT, traits=("no_terminator",), check=_check_launch,
        ),
    ),
)  # fmt: skip
"""The dialect of launches."""
