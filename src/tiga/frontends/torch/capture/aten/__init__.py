"""ATen ops as nodes: one handler per op, by family. Importing the package fills the table."""

from tiga.frontends.torch.capture.aten import (
    arithmetic,
    functions,
    linear,
    lookup,
    reductions,
    shapes,
)
from tiga.frontends.torch.capture.aten.table import TABLE, Call

__all__ = ["TABLE", "Call", "arithmetic", "functions", "linear", "lookup", "reductions", "shapes"]
