"""BatchNorm in train mode, within a program: its statistics are sums over all nodes or edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from tiga.errors import Unfusable
from tiga.frontends.torch.capture.tracer import Recorder, Traced
from tiga.frontends.torch.capture.where import user_line
from tiga.ops.align import expand_to
from tiga.ops.functions import sqrt
from tiga.ops.leaf import constant, ones_like, stop_gradient
from tiga.ops.message import reduce_all, spread
from tiga.ops.pointwise import add, cast, div, maximum, mul, sub
from tiga.trace.node import Node
from tiga.types import GLOBAL, Type


def layers_with_statistics(conv: torch.nn.Module) -> dict[str, _BatchNorm]:
    """The BatchNorms within a layer that take statistics of what they see, by name."""
    return {
        name: module for name, module in conv.named_modules()
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    }  # fmt: skip


@dataclass
class BatchStatistics:
    """What a trace of a layer learns of its BatchNorms: the statistics they are to keep.

    `found` holds the name of a BatchNorm and the mean and unbiased variance that it saw, in order.
    """

    recorder: Recorder
    layers: Mapping[str, _BatchNorm]
    found: list[tuple[str, Node, Node]] = field(default_factory=list)

    def counts(self, func: Any, args: Any) -> bool:
        """Whether a call counts the batches of a BatchNorm, which is left to `keep`."""
        if func is not torch.Tensor.add_:
            return False
        return any(args[0] is layer.num_batches_tracked for layer in self.layers.values())

    def record(
        self, x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
        training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    ) -> Traced:  # fmt: skip
        """`nn.functional.batch_norm` over the entities of a traced value."""
        if not isinstance(x, Traced) or x.node is None or len(x.node.type.shape) != 1:
            raise Unfusable(f"{user_line()}: a BatchNorm of what has other axes than features.")
        value = cast(x.node, x.node.type.dtype.compute)
        count = _total(constant(1, Type(value.type.dtype, (), value.type.space)), value.type)
        mean = div(_total(value, value.type), count)
        centred = sub(value, spread(mean, value.type.space))
        square_sum = _total(mul(centred, centred), value.type)
        variance = div(square_sum, count)
        self._found(running_mean, mean, div(square_sum, _one_less(count)))
        deviation = sqrt(add(variance, constant(eps, variance.type)))
        one = ones_like(deviation) if weight is None else self._global(weight, deviation)
        result = mul(centred, spread(div(one, deviation), value.type.space))
        if bias is not None:
            result = add(result, spread(self._global(bias, deviation), value.type.space))
        return self.recorder.wrap(self.recorder._located(cast(result, x.node.type.dtype)))

    def _found(self, running_mean: Any, mean: Node, variance: Node) -> None:
        if running_mean is None:
            return
        names = [n for n, layer in self.layers.items() if layer.running_mean is running_mean]
        if not names:
            raise Unfusable(f"{user_line()}: running statistics that are those of no BatchNorm.")
        self.found.append((names[0], stop_gradient(mean), stop_gradient(variance)))

    def _global(self, parameter: torch.Tensor, like: Node) -> Node:
        traced = parameter if isinstance(parameter, Traced) else self.recorder.lift(parameter)
        assert traced.node is not None
        return cast(traced.node, like.type.dtype)


def _total(value: Node, like: Type) -> Node:
    """The sum over all entities, with the features of a type."""
    return expand_to(reduce_all(value), like.shape, GLOBAL)


def _one_less(count: Node) -> Node:
    one = constant(1, count.type)
    return maximum(sub(count, one), one)


def keep(
    layers: Mapping[str, _BatchNorm], found: Sequence[tuple[str, torch.Tensor, torch.Tensor]]
) -> None:
    """Update the running statistics of BatchNorms, as their own calls would."""
    with torch.no_grad():
        for name, mean, variance in found:
            layer = layers[name]
            assert layer.running_mean is not None
            assert layer.running_var is not None
            assert layer.momentum is not None
            if layer.num_batches_tracked is not None:
                layer.num_batches_tracked.add_(1)
            layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), layer.momentum)
            layer.running_var.lerp_(variance.to(layer.running_var.dtype), layer.momentum)
