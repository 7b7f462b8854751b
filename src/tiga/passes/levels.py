"""All levels of the IR in one context: `gf`, `gf_iter`, `gf_kernel`, `gf_tensor`."""

from torch_mlir import ir

from tiga.ir.context import make_context
from tiga.passes.domain import gf
from tiga.passes.iteration import GF_ITER
from tiga.passes.kernel import GF_KERNEL
from tiga.passes.tensor_dialect import gf_tensor


def new_context() -> ir.Context:
    """A fresh context that knows the dialects of every level."""
    return make_context((gf(), GF_ITER, GF_KERNEL, gf_tensor()))
