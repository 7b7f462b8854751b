"""Tensors of both frontends, for what is the same on either."""

from typing import Any

import tiga as tg


class OfTorch:
    """Tensors of torch."""

    @staticmethod
    def tensor(values: Any, dtype: str = "float64", requires_grad: bool = False) -> Any:
        import torch

        made = torch.tensor(values, dtype=getattr(torch, dtype))
        return made.requires_grad_(requires_grad)

    @staticmethod
    def grad(y: Any, x: Any) -> Any:
        import torch

        return torch.autograd.grad(y, x, retain_graph=True)[0]


class Native:
    """Native tensors."""

    @staticmethod
    def tensor(values: Any, dtype: str = "float64", requires_grad: bool = False) -> Any:
        return tg.tensor(values, dtype=getattr(tg, dtype), requires_grad=requires_grad)

    @staticmethod
    def grad(y: Any, x: Any) -> Any:
        return tg.autograd.grad(y, x)
