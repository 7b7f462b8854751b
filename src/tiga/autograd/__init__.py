"""Derivatives of native tensors: new expressions, no tape and no `.grad` fields.

Example:
    >>> import tiga as tg
    >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> tg.autograd.grad((x * x).sum(), x).tolist()
    [2.0, 4.0]
"""

from tiga.autograd.batching import vmap
from tiga.autograd.forward import hessian, jacobian, jvp
from tiga.autograd.joint import JointAutogradPlan, grad_mlir, joint_plan
from tiga.autograd.reverse import grad, value_and_grad, vjp

__all__ = [
    "JointAutogradPlan", "grad", "grad_mlir", "hessian", "jacobian", "joint_plan", "jvp",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip
