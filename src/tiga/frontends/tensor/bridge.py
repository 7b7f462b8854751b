"""Native expressions inside a torch graph: one torch autograd node from connected inputs on."""

from typing import Any

from tiga.errors import InvalidValue
from tiga.frontends.dlpack import array_of_torch, torch_of
from tiga.frontends.tensor.build import result
from tiga.frontends.tensor.core import Tensor, wrap
from tiga.frontends.tensor.lazy import LazyNode, Leaf, here
from tiga.ops.pointwise import add
from tiga.ops.tensor_complex import conj
from tiga.trace.autodiff import vjp
from tiga.trace.node import Node, topological


def connect(tensor: Any) -> Tensor:
    """A native leaf whose derivatives go back to a torch tensor."""
    if not tensor.requires_grad:
        raise InvalidValue(
            f"from_torch(connect=True) expected a tensor that requires grad ({here()})."
        )
    made = wrap(array_of_torch(tensor), requires_grad=True)
    node = made._node
    op = Leaf(node.type, "leaf", tensor)
    origin = LazyNode(op, (), node.type, node.place, 0, node.largest)
    origin.cell = node.cell
    made._node = origin
    return made


def connected(x: Tensor) -> list[Node]:
    """The connected leaves that a tensor depends on."""
    return [n for n in topological([x._node]) if getattr(n.op, "origin", None) is not None]


def to_torch_connected(x: Tensor, nodes: list[Node]) -> Any:
    """The value as a torch tensor whose backward is the native gradient."""
    import torch

    class Native(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *sources: Any) -> Any:
            return torch_of(x.realize()._array).clone()

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            given = wrap(array_of_torch(cotangent.contiguous()))
            found = vjp([x._node], [given._node], nodes, add, conj)
            return tuple(None if g is None else torch_of(result(g).realize()._array) for g in found)

    return Native.apply(*(node.op.tensor for node in nodes))
