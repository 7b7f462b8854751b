"""Native expressions inside a torch graph: one torch autograd node from connected inputs on."""

from typing import Any

from tiga.errors import InvalidValue
from tiga.frontends.dlpack import array_of_torch, torch_of
from tiga.frontends.tensor.build import result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import LazyNode, Leaf, here
from tiga.frontends.tensor.storage import wrap
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
    origin.cell, origin.wanted = node.cell, True
    made._node = origin
    return made


def _lent(tensor: Any) -> Tensor:
    """A torch tensor as a native one, connected if derivatives pass through it."""
    return connect(tensor) if tensor.requires_grad else wrap(array_of_torch(tensor))


def _returned(x: Tensor) -> Any:
    """A native value for torch, connected if torch is to differentiate it again."""
    import torch

    nodes = connected(x) if torch.is_grad_enabled() else []
    return to_torch_connected(x, nodes) if nodes else torch_of(x._in_memory())


def connected(x: Tensor) -> list[Node]:
    """The connected leaves that a tensor depends on."""
    order = topological([x._node])
    return [n for n in order if isinstance(n.op, Leaf) and n.op.tensor is not None]


def to_torch_connected(x: Tensor, nodes: list[Node]) -> Any:
    """The value as a torch tensor whose backward is the native gradient, of any order."""
    import torch

    class Native(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *sources: Any) -> Any:
            ctx.save_for_backward(*sources)
            return torch_of(x._in_memory()).clone()

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            # Torch refuses values written since, and those that an earlier backward let go.
            assert len(ctx.saved_tensors) == len(nodes)
            given = _lent(cotangent.contiguous())
            found = vjp([x._node], [given._node], nodes, add, conj)
            return tuple(None if g is None else _returned(result(g, x)) for g in found)

    return Native.apply(*(node.op.tensor for node in nodes))
