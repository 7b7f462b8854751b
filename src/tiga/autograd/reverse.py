"""Reverse mode: gradients as new expressions."""

from collections.abc import Callable, Sequence
from typing import Any

from tiga import knobs
from tiga.autograd.arguments import (
    as_list,
    as_sequence,
    check_callable,
    check_count,
    check_inputs,
    cotangent_of,
)
from tiga.autograd.recorded import derived
from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.arguments import integer
from tiga.frontends.tensor.build import result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.lazy import LARGE, LazyNode, here, is_wanted, user_place
from tiga.frontends.tensor.placement import device_of_node
from tiga.ops.leaf import StopGradient, zeros_like
from tiga.ops.pointwise import add
from tiga.ops.tensor_complex import conj
from tiga.ops.tensor_transfer import ToDevice
from tiga.trace import autodiff
from tiga.trace.node import Node, reached

CHECKPOINTS = ("auto", "save", "recompute")


def check_fresh(nodes: Sequence[Node]) -> None:
    """Refuse derivatives through values that were written in place since they were used."""
    for node in reached(nodes):
        if node.cell is not None and node.cell.stale:
            raise InvalidValue(
                f"a tensor from {node.where} was changed in place after it was used, and the "
                f"derivative needs its old value ({here()}): make the derivative before the "
                "change, or change a copy."
            )


def gradients(
    outputs: Sequence[Tensor], cotangents: Sequence[Node], inputs: Sequence[Tensor]
) -> list[Node | None]:
    """Gradient nodes, None where an output does not depend on an input."""
    nodes = [output._node for output in outputs]
    wanted = [x._node for x in inputs]

    def derive() -> list[Node | None]:
        return autodiff.vjp(nodes, cotangents, wanted, add, conj)

    found, doubtful = derived((nodes, cotangents, wanted), derive)
    if not doubtful:
        return found
    check_fresh([node for node in found if node is not None])
    if any(node is None and x.version for node, x in zip(found, inputs, strict=True)):
        check_fresh(nodes)
    return found


def follow(node: Node | None, x: Tensor) -> Node | None:
    """A derivative on the device of its input, also where it depends on no value."""
    if node is None or x.device == CPU:
        return node
    if device_of_node(node) != CPU:
        return node
    op = ToDevice(f"cuda:{x.device.index}", "cpu")
    return LazyNode(op, (node,), node.type, user_place(), 1, LARGE)


def none_of(x: Tensor) -> Tensor:
    """What the derivative by x is of something that does not change with it: zeros."""
    node = follow(zeros_like(x._node), x)
    assert node is not None
    return result(node)


def reaches(node: Node, source: Node) -> bool:
    """Whether `node` is made of `source` by ops that pass derivatives on, be they 0 everywhere."""

    def passed_on(node: Node) -> list[Node]:
        return [i for i in node.inputs if i.type.dtype.is_differentiable]

    return any(n is source for n in reached([node], _stops, passed_on))


def _stops(node: Node) -> bool:
    return isinstance(node.op, StopGradient)


def grad(
    output: Any,
    inputs: Any,
    *,
    grad_output: Any = None,
    allow_unused: bool = False,
    checkpoint: str = "auto",
) -> Any:
    """The gradient of `output` with respect to `inputs`, as new expressions.

    Args:
        output: a tensor; a real scalar unless `grad_output` is given.
        inputs: one tensor, or a sequence of them: leaves or intermediate values.
        grad_output: the cotangent of the output, of its shape and dtype. Cotangents of complex
            values are conjugate Wirtinger derivatives.
        allow_unused: give None for an input that the output does not depend on.
        checkpoint: "save" computes and keeps the values of the forward expression that the
            gradient reads, "recompute" keeps none, "auto" keeps what is worth it within
            TIGA_CHECKPOINT_BUDGET_BYTES. Without that bound, forward and backward are one
            program, and a value that both need is computed once.

    Returns:
        One tensor for one input, else a tuple.

    Raises:
        InvalidValue: a disconnected input, a missing cotangent, a value changed in place.
        InvalidType: something that has no derivative.

    Example:
        >>> import tiga as tg
        >>> x = tg.tensor(3.0, requires_grad=True)
        >>> dx = tg.autograd.grad(x * x * x, x)
        >>> tg.autograd.grad(dx, x).item()
        18.0
    """
    if not isinstance(output, Tensor):
        raise InvalidType(
            f"grad expected a tensor as output, got {type(output).__name__} ({here()})."
        )
    if checkpoint not in CHECKPOINTS:
        raise InvalidValue(
            f"checkpoint= expected one of {CHECKPOINTS}, got {checkpoint!r} ({here()})."
        )
    wanted, single = as_list(inputs, "inputs=")
    check_inputs(wanted)
    cotangent = cotangent_of(output, grad_output)
    found = [follow(node, x) for node, x in
             zip(gradients([output], [cotangent], wanted), wanted, strict=True)]  # fmt: skip
    sources = [output, *([grad_output] if grad_output is not None else [])]
    made = [_tensor(node, position, wanted, sources, allow_unused)
            for position, node in enumerate(found)]  # fmt: skip
    _plan(output, made, checkpoint)
    return made[0] if single else tuple(made)


def _plan(output: Tensor, made: Sequence[Tensor | None], checkpoint: str) -> None:
    """Let the gradients decide what to keep when they are materialised, if that was asked for."""
    if checkpoint == "auto" and knobs.read("checkpoint_budget_bytes") is None:
        return
    from tiga.autograd.checkpoint import GradientPlan

    found = [tensor for tensor in made if tensor is not None and tensor._array is None]
    plan = GradientPlan(output, found, checkpoint)
    for tensor in found:
        tensor._plan = plan


def _tensor(
    node: Node | None, position: int, inputs: Sequence[Tensor], sources: Sequence[Tensor],
    allow_unused: bool,
) -> Tensor | None:  # fmt: skip
    if node is None and reaches(sources[0]._node, inputs[position]._node):
        return none_of(inputs[position])
    if node is None and allow_unused:
        return None
    if node is None:
        raise InvalidValue(
            f"the output does not depend on input {position}, built at {inputs[position].where} "
            f"({here()}); pass allow_unused=True to get None."
        )
    return result(node, *sources)


def value_and_grad(function: Callable[..., Tensor], *, argnums: Any = 0) -> Callable[..., Any]:
    """A function that returns the value of `function` and its gradient for some arguments.

    Example:
        >>> import tiga as tg
        >>> value, dx = tg.autograd.value_and_grad(lambda x: (x * x).sum())(tg.tensor([3.0]))
        >>> value.item(), dx.tolist()
        (9.0, [6.0])
    """
    check_callable(function, "value_and_grad")
    places = [integer(i, "argnums=") for i in as_sequence(argnums)]

    def call(*args: Any, **kwargs: Any) -> Any:
        missing = [i for i in places if not 0 <= i < len(args)]
        if missing:
            raise InvalidValue(
                f"argnums={argnums!r} names argument {missing[0]}, got {len(args)} ({here()})."
            )
        tracked = [tracking(a) if i in places else a for i, a in enumerate(args)]
        value = function(*tracked, **kwargs)
        found = grad(value, [tracked[i] for i in places], allow_unused=True)
        filled = [
            none_of(tracked[i]) if g is None else g for i, g in zip(places, found, strict=True)
        ]
        release([value, *filled], args, tracked)
        return value, filled[0] if isinstance(argnums, int) else tuple(filled)

    return call


def tracking(x: Any) -> Tensor:
    """The tensor itself if it takes part in derivatives, else one of the same value that does."""
    if not isinstance(x, Tensor):
        raise InvalidType(f"expected a tensor to differentiate, got {type(x).__name__} ({here()}).")
    return x if x.requires_grad else x.detach().requires_grad_()


def release(results: Sequence[Tensor], given: Sequence[Any], tracked: Sequence[Any]) -> None:
    """Let results of a function of `tracked` in place of `given` forget how they came about, unless
    they depend on something else that derivatives are asked for."""
    own = [t for g, t in zip(given, tracked, strict=True) if t is not g]
    for tensor in own:
        tensor._node.wanted = False
    for tensor in results:
        tensor._grad = tensor._grad and reaches_wanted(tensor._node)


def reaches_wanted(node: Node) -> bool:
    """Whether a value depends on one that derivatives can be asked for."""
    return any(map(is_wanted, reached([node], _stops)))


def vjp(function: Callable[..., Any], *primals: Tensor) -> tuple[Any, Callable[..., Any]]:
    """The value of `function`, and the function from cotangents of it to those of the primals.

    Example:
        >>> import tiga as tg
        >>> value, pull = tg.autograd.vjp(lambda x: x * x, tg.tensor([3.0]))
        >>> pull(tg.tensor([1.0]))[0].tolist()
        [6.0]
    """
    check_callable(function, "vjp")
    tracked = [tracking(p) for p in primals]
    value = function(*tracked)
    results, _ = as_list(value, "the function's result")
    outputs = [Tensor(r._node, r._grad) for r in results]
    release(results, primals, tracked)

    def pull(*cotangents: Tensor) -> tuple[Tensor, ...]:
        check_count(cotangents, len(outputs), "vjp: cotangents")
        given = [cotangent_of(o, c) for o, c in zip(outputs, cotangents, strict=True)]
        found = gradients(outputs, given, tracked)
        sources = [*outputs, *cotangents]
        made = [
            none_of(x) if node is None else result(node, *sources)
            for x, node in zip(tracked, found, strict=True)
        ]
        release(made, primals, tracked)
        return tuple(made)

    return value, pull
