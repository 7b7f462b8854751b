"""Derivatives of native tensors: new expressions, no tape and no `.grad` fields.

Example:
    >>> import tiga as tg
    >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> tg.autograd.grad((x * x).sum(), x).tolist()
    [2.0, 4.0]
"""

from tiga.autograd.reverse import grad, value_and_grad, vjp

__all__ = ["grad", "value_and_grad", "vjp"]
