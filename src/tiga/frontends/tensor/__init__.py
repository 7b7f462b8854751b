"""Native tensors: lazy, differentiable, without torch."""

from tiga.frontends.tensor import methods
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import Device

methods.install()

__all__ = ["Device", "Tensor"]
