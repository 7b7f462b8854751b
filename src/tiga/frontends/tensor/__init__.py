"""Native tensors: lazy, differentiable, without torch."""

from tiga.frontends.tensor import methods
from tiga.frontends.tensor.core import Device, Tensor

methods.install()

__all__ = ["Device", "Tensor"]
