"""Record what torch does inside `edge` and `node` as nodes of a trace.

Two torch modes see every call: the function mode at the level of Python (attributes, operators,
`torch.*`), the dispatch mode at the level of ATen, where composite ops are decomposed already.
Nothing is computed: a traced value has a made-up entity extent and no data.
"""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tiga.errors import InvalidValue, Unfusable
from tiga.frontends.torch.capture import operators
from tiga.frontends.torch.capture.aten import TABLE, Call
from tiga.frontends.torch.capture.extent import Extent
from tiga.frontends.torch.capture.guards import Place
from tiga.frontends.torch.capture.numbers import kept_value
from tiga.frontends.torch.capture.where import user_line
from tiga.frontends.torch.dtypes import dtype_of, global_type, torch_dtype
from tiga.ops.leaf import Input, constant, stop_gradient
from tiga.ops.pointwise import add, sub
from tiga.trace.node import Node
from tiga.types import GLOBAL, Relation, Space, Type

EXTENTS = (2_147_483_629, 2_147_483_587, 2_147_483_579)
"""Made-up extents of edges, destinations, and sources where these are another set: primes that no
feature axis has."""


class Storage:
    """What views of one traced value share: the name of the field it is, and who is alive."""

    __slots__ = ("field", "members")

    def __init__(self, field: str | None) -> None:
        self.field = field
        self.members: list[weakref.ref[Any]] = []

    def others(self, value: "Traced") -> bool:
        """Whether another view of this storage can still be read."""
        alive = (ref() for ref in self.members)
        return any(other is not None and other is not value for other in alive)


class Traced(torch.Tensor):
    """A value of the trace in the clothes of a tensor: shape, dtype and device, but no data.

    `node` is None for results that no op of the trace gives, such as the indices of a maximum;
    `recorder` made it, for the line `made`.
    """

    node: Node | None
    storage: Storage
    recorder: "weakref.ref[Recorder]"
    made: str

    @staticmethod
    def __new__(cls, node: Node | None, shape: Any, dtype: torch.dtype, storage: Storage) -> Any:
        traced = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device="cpu")
        traced.node = node
        traced.storage = storage
        return traced

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{user_line()}: a tensor has no attribute `{name}`. Fields come before it: "
            f"`edge(self, src, dst, edge)`, and `node(self, dst, aggregate)` with fields in `dst`."
        )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _escaped()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _escaped()


operators.install(Traced)


def _escaped() -> Any:
    raise kept_value("a value")


@dataclass
class Recorder:
    """One capture: the spaces, the tensors that may be read, and the inputs found so far.

    `tensors` maps the identity of each tensor that `edge` can name to its label; `inputs` maps
    the input nodes to what they stand for, `values` those beside the fields to what they are now.
    """

    edge_space: Space
    node_space: Space
    tensors: dict[int, tuple[str, Any]]
    where: str = "<unknown>"
    device: str = "cpu"
    function: Any = None
    space: Space = GLOBAL
    numbers: set[Node] = field(default_factory=set)
    inputs: dict[Node, Any] = field(default_factory=dict)
    constants: dict[int, torch.Tensor] = field(default_factory=dict)
    operands: dict[int, Traced] = field(default_factory=dict)
    lifted: dict[int, Traced] = field(default_factory=dict)
    active: bool = False
    relation: Relation | None = None
    streams: int = 0
    bounds: list[tuple[Node, int, int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    values: dict[Node, Any] = field(default_factory=dict)
    specialise: Any = None
    described: set[int] = field(default_factory=set)
    """The identities of tensors of which more than their data was read."""

    def __post_init__(self) -> None:
        spaces = [self.edge_space, self.node_space]
        if self.relation is not None and self.relation.src not in spaces:
            spaces.append(self.relation.src)
        self.extents = dict(zip(EXTENTS, spaces, strict=False))
        self.sizes = dict(zip(spaces, EXTENTS, strict=False))
        self.marks = {space: Extent(size, lambda: self.where) for space, size in self.sizes.items()}

    def input(self, label: str, of: Type, source: Any) -> Node:
        """The input node of a source. Labels are for people: two modules may have a global of one
        name, and another source then gets another label."""
        node = Input(label, of)()
        while not _is_same_source(self.inputs.get(node, source), source):
            label += "'"
            node = Input(label, of)()
        self.inputs[node] = source
        return node

    def wrap(self, node: Node | None, storage: Storage | None = None, like: Any = None) -> Traced:
        """A tensor that stands for a node."""
        storage = storage or Storage(None)
        if node is None:
            traced = Traced(None, like.shape if like is not None else (), torch.int64, storage)
        else:
            space = node.type.space
            lead = () if space == GLOBAL else (self.sizes[space],)
            traced = Traced(node, (*lead, *node.type.shape), torch_dtype(node.type.dtype), storage)
        storage.members.append(weakref.ref(traced))
        traced.recorder, traced.made = weakref.ref(self), user_line()
        return traced

    def require_own(self, tree: Any) -> None:
        """Refuse tensors of another trace: equal fields are one node there and here.

        Raises:
            InvalidValue: `edge` or `node` of another kernel, or an earlier run of them, made one.
        """
        for tensor in tensors_in(tree):
            if isinstance(tensor, Traced) and tensor.recorder() is not self:
                raise kept_value(f"a value made at {tensor.made}")

    def number(self, operand: Any) -> Traced:
        """The tensor without axes that stands for a Python number."""
        self.require_own_number(operand)
        traced = self.operands.get(id(operand.trace))
        if traced is None:
            traced = self.operands[id(operand.trace)] = self.wrap(operand.trace)
            self.numbers.add(operand.trace)
        return traced

    def require_own_number(self, operand: Any) -> None:
        """As `require_own`, for a number that stays variable."""
        if operand.specialise != self.specialise:
            raise kept_value(f"the number {operand.value}")

    def lift(self, tensor: torch.Tensor) -> Traced:
        """A tensor that `edge` reads, as an input; a constant made inside it, as a constant."""
        found = self.lifted.get(id(tensor))
        if found is not None:
            return found
        named = self.tensors.get(id(tensor))
        if named is not None:
            label, source = named
            of = global_type(tensor, f"`{label}`")
            node = self.input(label, of, source)
            self.values[node] = tensor
            traced = self.wrap(node, Storage(label))
        elif id(tensor) in self.constants:
            traced = self.wrap(self._constant(tensor))
        else:
            raise InvalidValue(
                f"{self.where}: a tensor of shape {list(tensor.shape)} is read here, but no name "
                f"leads to it, so later changes would go unseen. Keep it as an attribute or "
                f"parameter of the kernel, in a closure, or pass it as a parameter of the call."
            )
        self.lifted[id(tensor)] = traced
        return traced

    def describe(self, args: Any) -> None:
        """Note that code reads the shape, or other metadata, of tensors that it can name."""
        self.described |= {id(t) for t in tensors_in(args)} & self.tensors.keys()

    def _constant(self, tensor: torch.Tensor) -> Node:
        of = Type(dtype_of(tensor.dtype), tuple(tensor.shape), GLOBAL)
        values = tensor.reshape(-1)
        uniform = values.numel() and bool((values == values[0]).all())
        if uniform and bool((values.signbit() == values[0].signbit()).all()):
            return constant(values[0].item(), of)
        number = len([s for s in self.inputs.values() if isinstance(s, torch.Tensor)])
        return self.input(f"constant{number}", of, tensor)

    def call(self, name: str) -> Call:
        return Call(name, self.where, self.numbers, self.extents, self._lift_node, self.bounds)

    def _lift_node(self, tensor: torch.Tensor) -> Node:
        node = self.lift(tensor).node
        assert node is not None
        return node

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Record one ATen call."""
        tensors = list(tensors_in((args, kwargs)))
        traced = [t for t in tensors if isinstance(t, Traced)]
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._refuse_generator(kwargs)
            raise self.call(func.__name__).unfusable("it draws random numbers")
        if not traced and not any(id(t) in self.tensors for t in tensors):
            return self._make_constant(func, args, kwargs, tensors)
        if func is torch.ops.aten.detach.default and self.function not in _DETACHES:
            return self.wrap(traced[0].node, traced[0].storage)  # autograd's own copy of a result
        schema = func._schema
        if schema.is_mutable:
            return self._write(func, args, kwargs)
        views = any(r.alias_info is not None for r in schema.returns)
        storage = traced[0].storage if views and traced else None
        return self._wrapped(self.record(func.__name__, args, kwargs), storage, traced)

    def _refuse_generator(self, kwargs: Any) -> None:
        if kwargs.get("generator") is not None:
            raise InvalidValue(
                f"{self.where}: a torch.Generator is drawn from, where gradients compute messages "
                f"again: draw from torch's own, or pass what was drawn."
            )

    def record(self, name: str, args: Any, kwargs: Any) -> Any:
        """The nodes that an overload gives for traced arguments."""
        handler = TABLE.get(name)
        call = self.call(name)
        if handler is None:
            self._refuse_unknown(call, args, kwargs)
        raw = name in _STATIC_INDICES
        # The first argument is what is indexed, even where it is a constant of integers.
        nodes = [_nodes(a, self, raw and i > 0) for i, a in enumerate(args)]
        named = {key: _nodes(value, self, raw) for key, value in kwargs.items()}
        return self._located(handler(call, *nodes, **named))  # type: ignore[misc]

    def _counts(self, arguments: Any) -> bool:
        """Whether arguments have an extent of entities, a multiple of it or a neighbour of one."""
        large = [s for s in _integers(arguments) if s >= min(EXTENTS) - 1]
        return any((s + 1) % extent <= 2 for s in large for extent in self.extents)

    def _refuse_unknown(self, call: Call, args: Any, kwargs: Any) -> None:
        if self._counts((args, kwargs)):
            raise call.refuse_axis(f"aten.{call.name} depends on")
        raise call.unfusable("no op of the trace computes this")

    def _located(self, result: Any) -> Any:
        """Give the user's line, and no derivative under `torch.no_grad()`, to new nodes."""
        if isinstance(result, (tuple, list)):
            return [self._located(r) for r in result]
        if not isinstance(result, Node):
            return result
        stack = [result]
        while stack:
            node = stack.pop()
            if node.where is None and node.inputs:
                node.where = self.where
                stack.extend(node.inputs)
        if result.type.dtype.is_float and not torch.is_grad_enabled():
            return stop_gradient(result)
        return result

    def _wrapped(self, result: Any, storage: Storage | None, traced: list[Traced]) -> Any:
        if isinstance(result, list):
            return [self._wrapped(r, storage, traced) for r in result]
        if isinstance(result, Node):
            return self.wrap(result, storage)
        return self.wrap(None, like=traced[0])

    def _write(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An op that writes to its first operand: the operand stands for the result from now on."""
        target = args[0] if args else None
        call = self.call(func.__name__)
        base, _, overload = func.__name__.partition(".")
        if not isinstance(target, Traced):
            raise call.unfusable("writing a traced value into an ordinary tensor")
        if target.storage.field is not None:
            raise InvalidValue(
                f"{self.where}: `{base}` writes in place to `{target.storage.field}`, which "
                f"belongs to the caller. Write `y = x + 1` instead of `x += 1`"
                f"{_batch_norm_hint(target.storage.field)}."
            )
        if not base.endswith("_") or target.storage.others(target):
            raise call.unfusable("writing in place to a value that has views")
        if f"{base[:-1]}.{overload}" not in TABLE:
            raise call.unfusable("no op of the trace computes this")
        result = self.record(f"{base[:-1]}.{overload}", args, kwargs)
        old = target.node
        assert old is not None
        if result.type != old.type:
            result = self.record("copy.default", (target, self.wrap(result)), {})
        if not torch.is_grad_enabled() and result.type.dtype.is_float:
            # torch writes the data and leaves the derivative as it was before.
            result = add(result, sub(old, stop_gradient(old)))
        target.node = result
        return target

    def _make_constant(self, func: Any, args: Any, kwargs: Any, tensors: Any) -> Any:
        """Ops on constants alone run at once: `torch.arange(3)`, `torch.eye(4)`."""
        if self._counts((args, kwargs)):
            if tensors:
                return self.wrap(self.record(func.__name__, args, kwargs))
            return self._filled(self.call(func.__name__), func, args, kwargs)
        for tensor in tensors:
            known = id(tensor) in self.constants or func is torch.ops.aten.lift_fresh.default
            if not known:
                self.lift(tensor)  # says what is wrong with it
        result = func(*args, **kwargs)
        for tensor in [*tensors, *tensors_in(result)]:
            self.constants[id(tensor)] = tensor
        return result

    def _filled(self, call: Call, func: Any, args: Any, kwargs: Any) -> Traced:
        """`torch.zeros(x.shape[0], 4)`: a constant for every entity."""
        base = func.__name__.partition(".")[0]
        values = {"zeros": 0, "ones": 1, "empty": 0}
        if base not in (*values, "full"):
            raise call.refuse_axis(f"aten.{call.name} depends on")
        sizes, *rest = args
        space = self.extents.get(sizes[0])
        if space is None or any(s in self.extents for s in sizes[1:]):
            raise call.refuse_axis(f"aten.{call.name} moves")
        value = rest[0] if base == "full" else values[base]
        dtype = kwargs.get("dtype") or (
            torch.tensor(value).dtype if base == "full" else torch.get_default_dtype()
        )
        return self.wrap(constant(value, Type(dtype_of(dtype), tuple(sizes[1:]), space)))


_STATIC_INDICES = ("index.Tensor", "index_select.default")
_DETACHES = (torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__)


def _batch_norm_hint(label: str) -> str:
    if "num_batches_tracked" not in label and "running_" not in label:
        return ""
    return (
        "; a BatchNorm in train mode takes statistics over all edges or nodes: apply it to what "
        "the call returns, or call .eval() on it"
    )


def _is_same_source(a: Any, b: Any) -> bool:
    """Whether two sources of inputs are one: places by what they are in, never by its content."""
    if isinstance(a, Place) and isinstance(b, Place):
        return type(a) is type(b) and a.holder is b.holder and bool(a.key == b.key)
    return a is b or (not isinstance(a, torch.Tensor) and not isinstance(a, Place) and a == b)


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested arguments."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from tensors_in(item)
    elif isinstance(tree, dict):
        yield from tensors_in(list(tree.values()))


def _integers(tree: Any) -> Iterator[int]:
    if type(tree) is int:
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _integers(item)
    elif isinstance(tree, dict):
        yield from _integers(list(tree.values()))


def _nodes(value: Any, recorder: Recorder, raw: bool) -> Any:
    """Arguments with nodes for tensors; `raw` keeps constant integer tensors, for indexing."""
    if isinstance(value, Traced):
        if value.node is None:
            raise Unfusable(f"indices of a maximum or minimum are read ({recorder.where})")
        return value.node
    if isinstance(value, torch.Tensor):
        is_index = raw and id(value) in recorder.constants and not value.is_floating_point()
        return value if is_index else recorder.lift(value).node
    if isinstance(value, (tuple, list)):
        return [_nodes(v, recorder, raw) for v in value]
    return value
