"""What is decided at the level of torch's Python functions, before ATen sees a call.

There the arguments are still as the user wrote them: numbers that stay variable, and extents.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional as nnf

from tiga.errors import InvalidType, InvalidValue, TigaError, Unfusable
from tiga.frontends.torch.capture.aten import linear as products
from tiga.frontends.torch.capture.draws import DRAWS
from tiga.frontends.torch.capture.extent import Extent, Shape
from tiga.frontends.torch.capture.history import HISTORY
from tiga.frontends.torch.capture.modes import DispatchMode, FunctionMode
from tiga.frontends.torch.capture.numbers import Operand
from tiga.frontends.torch.capture.tracer import Recorder, Traced, tensors_in
from tiga.types import GLOBAL

T = torch.Tensor
Handler = Callable[[Recorder, Any, tuple[Any, ...], dict[str, Any]], Any]


def _is_entity(value: Any) -> bool:
    return (
        isinstance(value, Traced) and value.node is not None and (value.node.type.space != GLOBAL)
    )


def _shape(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (x,) = args
    if not _is_entity(x):
        return func(x)
    return Shape((recorder.marks[x.node.type.space], *x.node.type.shape))


def _size(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    x, *dims = args
    dims = [*dims, *kwargs.values()]
    if not _is_entity(x):
        return func(*args, **kwargs)
    shape = _shape(recorder, func, (x,), {})
    return shape[int(dims[0])] if dims and dims[0] is not None else shape


def _refuse_count(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    if not _is_entity(args[0]):
        return func(*args, **kwargs)
    return recorder.marks[args[0].node.type.space]._refuse()


def _refuse_iteration(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    if not _is_entity(args[0]):
        return func(*_lift(recorder, args), **kwargs)
    raise recorder.call(func.__name__).refuse_axis("this iterates over")


_CHOOSE = "use torch.where(condition, a, b) to choose per edge"
_KEEP = "keep the number as a Python attribute or pass it as a parameter of the call"
_NUMPY = "use torch's functions instead of numpy's, and torch.as_tensor for its arrays"
_PLAIN = "use torch's functions instead of those of `math`; or torch.where to choose per edge"
_INSTEAD = {
    "__array__": _NUMPY, "numpy": _NUMPY, "__float__": _PLAIN, "__int__": _PLAIN,
    "__index__": _PLAIN, "__complex__": _PLAIN,
}  # fmt: skip
"""What to do instead of asking for the data of all edges, by the method that was called."""


def _refuse_value(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    known = any(isinstance(t, Traced) or id(t) in recorder.tensors for t in tensors_in(args))
    if not known:
        return func(*args, **kwargs)
    entity = any(_is_entity(a) for a in args)
    name = getattr(func, "__name__", "")
    advice = _INSTEAD.get(name, _CHOOSE) if entity else _KEEP
    raise InvalidValue(
        f"{recorder.where}: `{name}` reads the data of a tensor, so what Python does next "
        f"would depend on it. One program serves all data: {advice}."
    )


def _layout(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """How a tensor lies in memory: its stand-in would lie in another way."""
    return func(*args, **kwargs)


def _describe(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (x, *_) = args
    if not isinstance(x, Traced):
        return func(*args, **kwargs)
    return f"<traced {x.node.type!r}>" if x.node is not None else "<traced indices>"


def _data(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    (x,) = args
    return torch.ops.aten.detach.default(recorder.lift(x) if not isinstance(x, Traced) else x)


METADATA: dict[Any, Handler] = {
    T.shape.__get__: _shape,
    T.size: _size,
    T.data.__get__: _data,
    **dict.fromkeys((T.stride, T.is_contiguous, T.storage_offset), _layout),
    T.__repr__: _describe,
    T.__format__: _describe,
    T.__iter__: _refuse_iteration,
    **dict.fromkeys((T.__len__, T.numel, T.nelement, torch.numel), _refuse_count),
    **dict.fromkeys(
        (
            T.__bool__, T.__float__, T.__int__, T.__index__, T.__complex__, T.item, T.tolist,
            T.numpy, T.__array__, T.__contains__, torch.equal, T.equal, torch.allclose, T.allclose,
            torch.is_nonzero, T.is_nonzero, torch.nonzero, T.nonzero,
        ),
        _refuse_value,
    ),
    **HISTORY,
}  # fmt: skip

_TURNS = (T.T.__get__, T.mT.__get__, T.H.__get__, T.mH.__get__, T.real.__get__)

_ACCEPTS_OPERANDS = frozenset(
    [
        "add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "pow", "where",
        "maximum", "minimum", "fmod", "remainder", "eq", "ne", "lt", "le", "gt", "ge", "lerp",
        "masked_fill", "floor_divide", "rsub", "float_power", "__add__", "__radd__", "__iadd__",
        "__sub__", "__rsub__", "__isub__", "__mul__", "__rmul__", "__imul__", "__truediv__",
        "__rtruediv__", "__itruediv__", "__div__", "__rdiv__", "__pow__", "__rpow__", "__mod__",
        "__rmod__", "__floordiv__", "__rfloordiv__", "__eq__", "__ne__", "__lt__", "__le__",
        "__gt__", "__ge__", "add_", "sub_", "mul_", "div_",
    ]
)  # fmt: skip
_ACCEPTS_EXTENTS = frozenset(
    [
        "view", "reshape", "expand", "broadcast_to", "zeros", "ones", "full", "empty", "new_zeros",
        "new_ones", "new_full", "new_empty", "unflatten", "expand_copy", "repeat", "tile",
    ]
)  # fmt: skip


def _has_operands(args: Any, kwargs: Any) -> bool:
    return any(isinstance(v, Operand) for v in (*args, *kwargs.values()))


def _clamp(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Bounds that stay variable have no ATen overload beside plain numbers."""
    if not _has_operands(args, kwargs):
        return func(*args, **kwargs)
    bounds = [recorder.number(v) if isinstance(v, Operand) else v for v in args]
    named = {k: recorder.number(v) if isinstance(v, Operand) else v for k, v in kwargs.items()}
    name = func.__name__.replace("clip", "clamp")
    return recorder.wrap(recorder.record(f"{name}.Tensor", bounds, named))


def _leaky_relu(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    slope = kwargs.get("negative_slope", args[1] if len(args) > 1 else None)
    if not isinstance(slope, Operand):
        return func(*args, **kwargs)
    traced = recorder.record("leaky_relu.default", (args[0], recorder.number(slope)), {})
    return recorder.wrap(traced)


def _autocast(device: str, values: Any) -> Any:
    """Operands of products in the dtype that autocast gives them on a kind of device."""
    if not torch.is_autocast_enabled(device):
        return values
    wanted = torch.get_autocast_dtype(device)

    def convert(value: Any) -> Any:
        casts = isinstance(value, Traced) and value.dtype in (torch.float32, torch.bfloat16,
                                                              torch.float16)  # fmt: skip
        return torch.ops.aten._to_copy.default(value, dtype=wanted) if casts else value

    return [convert(v) for v in values]


def _product(recorder: Recorder, name: str, build: Callable[..., Any], operands: Any) -> Any:
    traced = _autocast(recorder.device, [recorder.lift(t) if _is_plain(t) else t for t in operands])
    nodes = [None if t is None else t.node for t in traced]
    return recorder.wrap(recorder._located(build(recorder.call(name), *nodes)))


def _is_plain(value: Any) -> bool:
    return isinstance(value, T) and not isinstance(value, Traced)


def _linear(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    def bind(input: Any, weight: Any, bias: Any = None) -> Any:
        return input, weight, bias

    return _product(recorder, "linear", products.linear, bind(*args, **kwargs))


def _matmul(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    operands = [*args, *kwargs.values()]
    if not all(isinstance(v, T) for v in operands):
        return NotImplemented
    return _product(recorder, "matmul", products.matmul, operands)


def _rmatmul(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return _matmul(recorder, func, args[::-1], kwargs)


def _einsum(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    equation, *terms = args
    if not isinstance(equation, str):
        raise Unfusable(f"einsum without an equation ({recorder.where})")
    terms = list(terms[0]) if len(terms) == 1 and isinstance(terms[0], (list, tuple)) else terms

    def build(call: Any, *nodes: Any) -> Any:
        return products.einsum(call, equation, nodes)

    return _product(recorder, "einsum", build, terms)


def _outer(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return _product(recorder, "outer", products.outer, [*args, *kwargs.values()])


def _one_hot(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    def bind(tensor: Any, num_classes: int = -1) -> Any:
        return tensor, num_classes

    x, classes = bind(*args, **kwargs)
    if classes < 0:
        raise InvalidValue(
            f"{recorder.where}: one_hot reads the data for its width; pass num_classes."
        )
    positions = torch.ops.aten.arange.default(int(classes), dtype=x.dtype)
    spread = torch.ops.aten.unsqueeze.default(x, -1)
    return torch.ops.aten._to_copy.default(
        torch.ops.aten.eq.Tensor(spread, positions), dtype=torch.int64
    )


OF_OPERANDS: dict[Any, Handler] = {
    nnf.leaky_relu: _leaky_relu,
    **dict.fromkeys(
        (
            torch.clamp, T.clamp, torch.clip, T.clip, torch.clamp_min, T.clamp_min,
            torch.clamp_max, T.clamp_max,
        ),
        _clamp,
    ),
}  # fmt: skip
"""Functions that take numbers which stay variable where ATen's overloads have none."""

FUNCTIONS: dict[Any, Handler] = {
    **DRAWS,
    **OF_OPERANDS,
    nnf.linear: _linear,
    torch.einsum: _einsum,
    torch.outer: _outer,
    nnf.one_hot: _one_hot,
    T.__rmatmul__: _rmatmul,
    **dict.fromkeys((torch.matmul, T.matmul, T.__matmul__, torch.bmm, T.bmm), _matmul),
}


def _mapped(tree: Any, convert: Callable[[Any], Any]) -> Any:
    if type(tree) in (tuple, list, Shape, torch.Size):
        items = [_mapped(item, convert) for item in tree]
        return items if type(tree) is list else tuple(items)
    if type(tree) is dict:
        return {key: _mapped(value, convert) for key, value in tree.items()}
    if type(tree) is slice:
        return slice(*(_mapped(v, convert) for v in (tree.start, tree.stop, tree.step)))
    return convert(tree)


def _lift(recorder: Recorder, args: Any) -> Any:
    def convert(value: Any) -> Any:
        known = _is_plain(value) and id(value) in recorder.tensors
        return recorder.lift(value) if known else value

    return _mapped(args, convert)


def _resolve(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Arguments as torch takes them: tensors for numbers that stay variable, sizes for extents."""
    name = getattr(func, "__name__", "")

    def convert(value: Any) -> Any:
        kind = type(value)
        if issubclass(kind, Operand):
            return value.plain()
        if issubclass(kind, Extent):
            return value.size if name in _ACCEPTS_EXTENTS else value._refuse()
        return value

    def positional(value: Any) -> Any:
        if isinstance(value, Operand) and name in _ACCEPTS_OPERANDS:
            return recorder.number(value)
        return _mapped(value, convert)

    return tuple(positional(a) for a in args), _mapped(kwargs, convert)


@contextmanager
def recording(recorder: Recorder, gradients: bool = True) -> Iterator[None]:
    """Hand what torch does to a recorder; nothing changes where that is so already. `gradients`:
    as with gradients, whatever the call is made with."""
    if recorder.active:
        yield
        return
    recorder.active, enabled = True, gradients or torch.is_grad_enabled()
    try:
        with (
            torch.inference_mode(False), torch.set_grad_enabled(enabled),
            FunctionMode(recorder, intercept), DispatchMode(recorder),
        ):  # fmt: skip
            yield
    finally:
        recorder.active = False


def intercept(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Call a torch function on behalf of `edge`, or refuse it."""
    special = METADATA.get(func)
    if special is not None:
        recorder.describe(args)
        return special(recorder, func, args, kwargs)
    if getattr(func, "__name__", "") == "__get__" and func not in _TURNS:
        recorder.describe(args)
        return func(*args, **kwargs)
    args, kwargs = _lift(recorder, args), _lift(recorder, kwargs)
    handler = FUNCTIONS.get(func)
    if handler is not None and any(isinstance(t, Traced) for t in tensors_in((args, kwargs))):
        if func not in OF_OPERANDS or not _has_operands(args, kwargs):
            args, kwargs = _resolve(recorder, func, args, kwargs)
        return handler(recorder, func, args, kwargs)
    args, kwargs = _resolve(recorder, func, args, kwargs)
    try:
        return func(*args, **kwargs)
    except TigaError:
        raise
    except (RuntimeError, TypeError, IndexError) as error:
        raise _explained(recorder, func, error) from error


def _explained(recorder: Recorder, func: Any, error: Exception) -> Exception:
    """torch's own complaint, with the user's line; entity extents read as words."""
    text = str(error).splitlines()[0]
    for space, size in recorder.sizes.items():
        text = text.replace(str(size), "E" if space.of_edges else "N")
    if recorder.where in text:
        return error
    kind = InvalidType if isinstance(error, TypeError) else InvalidValue
    return kind(f"{recorder.where}: {getattr(func, '__name__', func)}: {text}")
