"""Derivatives of native tensors: new expressions, no tape and no `.grad` fields.

Example:
    >>> import tiga as tg
    >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> tg.autograd.grad((x * x).sum(), x).tolist()
    [2.0, 4.0]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tiga.autograd.batching import vmap
from tiga.autograd.forward import hessian, jacobian, jvp
from tiga.autograd.reverse import grad, value_and_grad, vjp

if TYPE_CHECKING:
    from tiga.autograd.joint import JointAutogradPlan, grad_mlir, joint_plan

__all__ = [
    "JointAutogradPlan", "grad", "grad_mlir", "hessian", "jacobian", "joint_plan", "jvp",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip

_PLANS = ("JointAutogradPlan", "grad_mlir", "joint_plan")
"""Names that need MLIR, looked up on first use: derivatives by themselves need none."""


def __getattr__(name: str) -> Any:
    if name not in _PLANS:
        raise AttributeError(f"module 'tiga.autograd' has no attribute {name!r}")
    value = getattr(import_module("tiga.autograd.joint"), name)
    globals()[name] = value
    return value
