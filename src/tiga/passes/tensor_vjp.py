"""Replace gradient requests of a whole-tensor program by the gradients' own ops."""

from dataclasses import dataclass

from tiga.errors import InvalidValue
from tiga.ops.pointwise import add
from tiga.ops.tensor_complex import conj
from tiga.ops.tensor_markers import Grad
from tiga.passes.base import Pass
from tiga.passes.tensor_dialect import TensorProgram
from tiga.trace.autodiff import vjp
from tiga.trace.node import Node, rewrite


@dataclass(frozen=True)
class TensorVjp(Pass, name="gf-tensor-vjp", takes=TensorProgram):
    """Replace every `gf_tensor.grad` by the ops of the gradient."""

    def __call__(self, form: TensorProgram) -> TensorProgram:
        return TensorProgram(form.inputs, tuple(rewrite(form.outputs, _gradient)))


def _gradient(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not isinstance(node.op, Grad):
        return None
    output, cotangent, x = inputs
    (found,) = vjp([output], [cotangent], [x], add, conj)
    if found is None:
        raise InvalidValue(f"the output of {node!r} does not depend on the input")
    return found
