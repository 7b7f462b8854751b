"""Random numbers inside `edge` and `node`: bits by counter, from one seed per call.

The seed is drawn from torch's generator at every call, so `torch.manual_seed` repeats a run. The
bits of an edge depend on the seed, the edge's number and the feature alone, so every walk of a
call, and every derivative, sees the same ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as nnf

from tiga.errors import InvalidValue
from tiga.frontends.torch.capture.aten.table import wide
from tiga.frontends.torch.capture.tracer import Recorder
from tiga.frontends.torch.dtypes import dtype_of
from tiga.ops.align import expand_to
from tiga.ops.leaf import constant, zeros_like
from tiga.ops.message import EdgeIndex
from tiga.ops.pointwise import add, cast, ge, mul, where
from tiga.ops.random import BITS, RandomBits
from tiga.ops.tensor_functions import shift_right
from tiga.trace.node import Node
from tiga.types import GLOBAL, Shape, Space, Type, float32, float64, int64

SEED = "seed"
NODE_ORDER = "node_order"
FLOAT32_BITS = 24
FLOAT64_BITS = 53


@dataclass(frozen=True)
class Seed:
    """The source of an input: a number drawn at each call."""

    def get(self) -> torch.Tensor:
        """A new seed, from torch's default generator."""
        return torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64)


@dataclass(frozen=True)
class NodeOrder:
    """The source of an input: the numbers of the destinations."""


def random_words(recorder: Recorder, shape: Shape, space: Space, words: int) -> list[Node]:
    """Words of 32 random bits, in int64, for each element of a value."""
    number = Type(int64, (), GLOBAL)
    key = recorder.input(SEED, number, Seed())
    of = Type(int64, shape, space)
    operands = (key, _counter(recorder, space), _lanes(recorder, shape))
    given = [expand_to(operand, shape, space) for operand in operands]
    stream = recorder.streams
    recorder.streams += 1
    assert all(n.type == of for n in given)
    return [RandomBits(stream, word)(*given) for word in range(words)]


def _counter(recorder: Recorder, space: Space) -> Node:
    """The number of an entity."""
    if space == GLOBAL:
        return constant(0, Type(int64, (), GLOBAL))
    if space == recorder.edge_space:
        assert recorder.relation is not None
        return EdgeIndex(recorder.relation)()
    if space != recorder.node_space:
        raise recorder.call("random").unfusable(
            "random numbers of sources that are no destinations"
        )
    return recorder.input(NODE_ORDER, Type(int64, (), space), NodeOrder())


def _lanes(recorder: Recorder, shape: Shape) -> Node:
    """The number of an element among those of an entity."""
    of = Type(int64, shape, GLOBAL)
    if of.size == 1:
        return constant(0, of)
    lanes = torch.arange(of.size).reshape(shape)
    recorder.constants[id(lanes)] = lanes
    return recorder.call("arange").lift(lanes)


def dropout(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """`torch.dropout` and `nn.functional.dropout`."""

    def bind(
        input: Any, p: float = 0.5, training: bool = True, inplace: bool = False,
        train: bool | None = None,
    ) -> Any:  # fmt: skip
        return input, float(p), training if train is None else train, inplace

    x, p, training, inplace = bind(*args, **kwargs)
    if not 0 <= p <= 1:
        raise InvalidValue(f"{recorder.where}: dropout takes a probability p; got {p}.")
    if not training or p == 0:
        return x
    if inplace:
        raise recorder.call("dropout_").unfusable("dropout in place")
    node = x.node
    (bits,) = random_words(recorder, node.type.shape, node.type.space, 1)
    keeps = ge(bits, constant(round(p * 2**BITS), bits.type))
    y = wide(node)
    scaled = mul(y, constant(1 / (1 - p) if p < 1 else 0.0, y.type))
    kept = where(keeps, scaled, zeros_like(y))
    return recorder.wrap(recorder._located(cast(kept, node.type.dtype)))


def uniform(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """`torch.rand_like`: uniform in [0, 1)."""
    (x,) = args
    dtype = dtype_of(kwargs["dtype"]) if kwargs.get("dtype") else x.node.type.dtype
    shape, space = x.node.type.shape, x.node.type.space
    if dtype == float64:
        high, low = random_words(recorder, shape, space, 2)
        whole = add(
            mul(high, constant(2 ** (FLOAT64_BITS - BITS), high.type)),
            _shifted(low, 2 * BITS - FLOAT64_BITS),
        )
        value = _scaled(whole, float64, FLOAT64_BITS)
    else:
        (bits,) = random_words(recorder, shape, space, 1)
        value = _scaled(_shifted(bits, BITS - FLOAT32_BITS), float32, FLOAT32_BITS)
    return recorder.wrap(recorder._located(cast(value, dtype)))


def _shifted(bits: Node, count: int) -> Node:
    return shift_right(bits, constant(count, bits.type))


def _scaled(whole: Node, dtype: Any, bits: int) -> Node:
    value = cast(whole, dtype)
    return mul(value, constant(2.0**-bits, value.type))


def batch_norm(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """With running statistics it is arithmetic; with those of the batch it mixes edges."""

    def bind(
        input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
        training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    ) -> Any:  # fmt: skip
        return input, running_mean, running_var, weight, bias, training, eps

    x, mean, var, weight, bias, training, eps = bind(*args, **kwargs)
    require_no_training(training, recorder.where)

    def channels(t: torch.Tensor) -> torch.Tensor:
        return t.reshape(t.shape[0], *(1,) * (x.dim() - 2))

    result = (x - channels(mean)) * channels(torch.rsqrt(var + eps))
    result = result if weight is None else result * channels(weight)
    return result if bias is None else result + channels(bias)


def require_no_training(training: bool, where: str) -> None:
    """Refuse a BatchNorm that takes its statistics over edges or nodes.

    Raises:
        InvalidValue: it does.
    """
    if training:
        raise InvalidValue(
            f"{where}: a BatchNorm in train mode takes statistics over the edges (or nodes) that "
            f"it sees, and `edge` and `node` describe one. Normalise before the call, or the "
            f"result of it; use LayerNorm, which works on features; or call .eval() on the "
            f"BatchNorm, which then uses its running statistics."
        )


Handler = Callable[[Recorder, Any, tuple[Any, ...], dict[str, Any]], Any]
DRAWS: dict[Any, Handler] = {
    nnf.dropout: dropout,
    torch.dropout: dropout,
    torch.rand_like: uniform,
    nnf.batch_norm: batch_norm,
}
