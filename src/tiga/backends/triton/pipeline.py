"""What a program for a GPU goes through before it is a plan, pass by pass."""

from tiga.knobs import current
from tiga.passes.base import Form, Pass
from tiga.passes.canonicalize import Canonicalize
from tiga.passes.drop_empty import DropEmpty
from tiga.passes.edge_parts import EdgeParts
from tiga.passes.expand import Expand
from tiga.passes.fewer_reads import FewerReads
from tiga.passes.form_rows import FormRows
from tiga.passes.hoist import Hoist
from tiga.passes.inverses import Inverses
from tiga.passes.near_tables import NearTables
from tiga.passes.one_pass import OnePass
from tiga.passes.part_products import PartProducts
from tiga.passes.rows import Plan
from tiga.passes.sink import Sink
from tiga.passes.small_products import SmallProducts
from tiga.passes.small_tables import SmallTables
from tiga.passes.wide_sums import WideSums
from tiga.trace.program import Program

PIPELINE: tuple[Pass, ...] = (
    DropEmpty(),
    Expand(),
    Canonicalize(),
    Hoist(),
    NearTables(),  # after hoisting, indices that nodes have are gathers
    Canonicalize(),
    Inverses(),
    OnePass(),
    FewerReads(),
    SmallProducts(),  # after sums of products with one matrix were joined
    SmallTables(),
    EdgeParts(),
    WideSums(),
    PartProducts(),
    Sink(),
    FormRows(),
)
"""What is true of GPUs decides here: they divide slowly, are bound by what edges gather, and take
no large sums and no small matrices."""


def planned(program: Program) -> Plan:
    """The plan of a program. MLIR is imported only where stages are dumped."""
    knobs = current()
    if knobs.dump is None:
        return _through_passes(program)
    from tiga.passes.pipeline import run_pipeline

    plan = run_pipeline(program, PIPELINE, name="gpu", knobs=knobs)
    assert isinstance(plan, Plan)
    return plan


def _through_passes(form: Form) -> Plan:
    for step in PIPELINE:
        form = step(form)
    assert isinstance(form, Plan)
    return form
