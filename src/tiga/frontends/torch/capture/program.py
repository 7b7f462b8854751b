"""Capture: run `edge` and `node` once on traced values and keep the program they describe."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MethodType
from typing import Any, cast

import torch

from tiga.errors import InvalidType, InvalidValue, TigaError, Unfusable
from tiga.frontends.message_passing import MessagePassing, PerEdge
from tiga.frontends.signature import check_parameters, line_of, taken, user_function
from tiga.frontends.torch.capture.discover import Discovery, place_key
from tiga.frontends.torch.capture.guards import AttributeSlot, Guards, Place, metadata
from tiga.frontends.torch.capture.intercept import recording
from tiga.frontends.torch.capture.messages import aggregate, to_entities
from tiga.frontends.torch.capture.numbers import Operand, is_plain_number, kept_value, number_type
from tiga.frontends.torch.capture.numbers import operand as make_operand
from tiga.frontends.torch.capture.opaque import calls_of
from tiga.frontends.torch.capture.parameters import ParamSource, leaves, rebuilt
from tiga.frontends.torch.capture.rebuild import Rebuilder
from tiga.frontends.torch.capture.recording import DRAWS_UNSEEN, random_states, recording_clone
from tiga.frontends.torch.capture.tracer import Recorder, Storage, Traced
from tiga.frontends.torch.capture.where import first_of_ours, located, user_line
from tiga.frontends.torch.dtypes import dtype_of, torch_dtype
from tiga.frontends.torch.index_ranges import IndexRange, bounds_of
from tiga.frontends.trees import leaves_of, mapped, numbered
from tiga.frontends.views import View
from tiga.ops.message import gather
from tiga.trace.node import Node, topological
from tiga.trace.program import Program
from tiga.types import GLOBAL, Relation, Space, Type

RELATION = Relation("edges", Space("src", "node"), Space("dst", "node"))
_NODES = Space("node", "node")
SQUARE = Relation("edges", _NODES, _NODES)
"""The relation of a call with `ndata`: both ends are one node set."""


@dataclass(frozen=True)
class FieldSource:
    """A field of the call: `src`, `dst`, `edge` or `ndata`, and its name."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Captured:
    """A program with the place of each input, its guards, and the shape of its result.

    `result` holds positions of outputs; `params` are values of parameters that the program
    depends on; `numbers` are the inputs that stand for Python numbers; `rows` is the tree
    of what `node` is given, with dtype and feature shape of each leaf; None without a `node`;
    `bounds` are those of fields that index tables; `notes` say what was recognised.
    """

    program: Program
    sources: tuple[Any, ...]
    guards: Guards
    result: Any
    params: Mapping[ParamSource, Any]
    numbers: frozenset[Node]
    rows: Any = None
    bounds: tuple[IndexRange, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """What a capture starts from: the kernel, the fields by namespace, the call's parameters."""

    kernel: MessagePassing
    fields: Mapping[str, Mapping[str, torch.Tensor]]
    params: Mapping[str, Any]

    @property
    def relation(self) -> Relation:
        return SQUARE if "ndata" in self.fields else RELATION

    @property
    def device(self) -> str:
        """The kind of device that the fields are on."""
        found = (t.device.type for values in self.fields.values() for t in values.values())
        return next(found, "cpu")


class FieldView(View):
    """The fields of one end, or of the edges, traced; `values` build them."""

    def __init__(self, label: str, values: Mapping[str, Any], recorder: Recorder) -> None:
        super().__init__(label, values, user_line)
        self.__dict__.update(_recorder=recorder, _known={})

    def _made(self, name: str) -> Traced:
        if not self._recorder.active:
            raise kept_value(f"`{self._label}`")
        if name not in self._known:
            self._known[name] = self._values[name]()
        known: Traced = self._known[name]
        return known


@dataclass
class Attempt:
    """One run of `edge` and `node`, with numbers as operands or as they are."""

    request: Request
    discovery: Discovery
    variable: bool
    operands: dict[Any, Operand] = field(default_factory=dict)
    specialised: dict[Any, Place] = field(default_factory=dict)
    params: dict[ParamSource, Any] = field(default_factory=dict)
    rows: Any = None

    def __post_init__(self) -> None:
        relation = self.request.relation
        self.relation = relation
        self.recorder = Recorder(
            relation.edge, relation.dst, self.discovery.tensors, relation=relation,
            device=self.request.device, specialise=self.specialise,
        )  # fmt: skip
        self.rebuilder = Rebuilder(self.replace)

    # numbers

    def replace(self, place: Place, value: Any) -> Any:
        """The operand for a number that discovery found; other values stay."""
        known = self.discovery.numbers.get(place_key(place))
        if known is None or not is_plain_number(value):
            return value
        label, source = known
        if not self.variable:
            self.specialised[place_key(source)] = source
            return value
        return self.operand(place_key(source), label, source, value)

    def operand(self, key: Any, label: str, source: Any, value: float | int) -> Operand:
        found = self.operands.get(key)
        if found is None:
            node = self.recorder.input(label, number_type(value), source)
            self.recorder.values[node] = value
            found = make_operand(value, node, frozenset([key]), self.specialise)
            self.operands[key] = found
        return found

    def specialise(self, operand: Operand) -> None:
        """The value of a number was used: it belongs to the key."""
        for key in operand.roots:
            if isinstance(key, ParamSource):
                self.params[key] = key.of(self.request.params)
            else:
                self.specialised[key] = self.discovery.numbers[key][1]

    # arguments

    def field(self, namespace: str, name: str, tensor: torch.Tensor) -> Node:
        relation = self.relation
        space = {"src": relation.src, "dst": relation.dst, "edge": relation.edge,
                 "ndata": relation.dst}[namespace]  # fmt: skip
        label = f"{'node' if namespace == 'ndata' else namespace}.{name}"
        dtype = dtype_of(tensor.dtype, f"field `{label}`")
        of = Type(dtype, tuple(tensor.shape[1:]), space)
        return self.recorder.input(label, of, FieldSource(namespace, name))

    def view(self, end: str, on_edges: bool) -> FieldView:
        """The fields of an end; those of nodes are read through the relation on edges."""
        fields = self.request.fields
        namespace = end if end in fields else "ndata"

        def make(name: str, tensor: torch.Tensor) -> Any:
            def build() -> Traced:
                node = self.field(namespace, name, tensor)
                if on_edges and end != "edge":
                    node = gather(self.relation, end, node)
                return self.recorder.wrap(node, Storage(f"{end}.{name}"))

            return build

        values = {n: make(n, t) for n, t in fields.get(namespace, {}).items()}
        return FieldView(end, values, self.recorder)

    def parameters(self, function: str) -> dict[str, Any]:
        """The parameters of the call that `edge` or `node` takes, by name."""
        given = taken(self.request.kernel, function, self.request.params)
        return {n: rebuilt(ParamSource(n), value, self.parameter) for n, value in given.items()}

    def parameter(self, source: ParamSource, value: Any) -> Any:
        label = source.label
        if isinstance(value, torch.Tensor):
            of = Type(dtype_of(value.dtype, f"parameter `{label}`"), tuple(value.shape), GLOBAL)
            node = self.recorder.input(f"param.{label}", of, source)
            self.recorder.values[node] = value
            return self.recorder.wrap(node, Storage(label))
        if is_plain_number(value) and self.variable:
            return self.operand(source, f"param.{label}", source, value)
        self.params[source] = value
        return value

    # the run

    def run(self) -> Captured:
        """Trace `edge`, the reduction and `node`."""
        kernel = self.request.kernel
        clone, reads = recording_clone(kernel)
        self._equip(clone)
        before, drawn = dict(vars(clone)), self._random_states()
        gradients = not self.discovery.asks_for_grad_mode
        with calls_of(self.discovery.clocks) as clocks, recording(self.recorder, gradients):
            result = self._trace(clone)
        self._check_unchanged(before, vars(clone))
        self._check_repeatable(reads, clocks)
        if self._random_states() != drawn:
            raise InvalidValue(f"{self._line()}: {DRAWS_UNSEEN}")
        outputs = tuple(leaves_of(result))
        used = set(topological(outputs))
        inputs = {n: s for n, s in self.recorder.inputs.items() if n in used}
        guards = self._guards(reads, [s for n, s in self.recorder.inputs.items() if n not in used])
        program = Program(tuple(inputs), outputs)
        numbers = frozenset(o.trace for o in self.operands.values())
        return Captured(
            program, tuple(inputs.values()), guards, numbered(result), self.params, numbers,
            self.rows, bounds_of(self.recorder.bounds, inputs), tuple(self.recorder.notes),
        )  # fmt: skip

    def _trace(self, clone: Any) -> Any:
        kernel, recorder, relation = self.request.kernel, self.recorder, self.relation
        recorder.space = relation.edge
        edge = self._bound(clone, "edge")
        views = self.view("src", True), self.view("dst", True), self.view("edge", True)
        params = self.parameters("edge")
        with located(lambda: self._returned(clone, "edge")):
            sent = edge(*views, **params)
            rows = aggregate(recorder, relation, kernel.reducer, sent)
        if user_function(kernel, "node") is MessagePassing.node:
            return rows
        recorder.space = relation.dst
        node = self._bound(clone, "node")
        given = mapped(self._row, rows)
        types = (n.type for n in leaves_of(rows))
        self.rows = numbered(rows), tuple((torch_dtype(t.dtype), t.shape) for t in types)
        params = self.parameters("node")
        with located(lambda: self._returned(clone, "node")):
            made = node(self.view("dst", False), given, **params)
            return mapped(self._made, made)

    def _row(self, row: Node) -> Any:
        """A reduced message as `node` sees it."""
        on_edges = row.type.space == self.relation.edge
        return PerEdge(row) if on_edges else self.recorder.wrap(row)

    def _made(self, leaf: Any) -> Node:
        if isinstance(leaf, PerEdge):
            return cast(Node, leaf.value)
        return to_entities(self.recorder, leaf, self.relation.dst, "node")

    def _returned(self, clone: Any, name: str) -> str:
        """The line to blame for what a function returned: of its last op, or its first one."""
        where = self.recorder.where
        return line_of(self._bound(clone, name)) if where == "<unknown>" else where

    def _bound(self, clone: Any, name: str) -> Any:
        function = user_function(self.request.kernel, name)
        copy = self.rebuilder.function(function) if isinstance(function, FunctionType) else function
        attribute = getattr(self.request.kernel, name)
        return MethodType(copy, clone) if isinstance(attribute, MethodType) else copy

    def _equip(self, clone: Any) -> None:
        """Put operands, and copies of the methods that read numbers, on the stand-in for self."""
        kernel, state = self.request.kernel, vars(clone)
        for _, place in list(self.discovery.numbers.values()):
            if isinstance(place, AttributeSlot):
                state[place.key] = self.replace(place, place.get())
        for name in self.discovery.names:
            method = inspect.getattr_static(kernel, name, None)
            if isinstance(method, FunctionType) and name not in state:
                state[name] = MethodType(self.rebuilder.function(method), clone)

    def _random_states(self) -> tuple[Any, ...]:
        return random_states(self.discovery.names, self.discovery.generators)

    def _check_repeatable(self, reads: set[str], clocks: set[str]) -> None:
        """Refuse what would be the same in every call, as a program is recorded once."""
        told = [(name, "gives something else whenever it is called") for name in sorted(clocks)]
        for label in self.discovery.iterators:
            owner, _, name = label.rpartition(".")
            if owner != "self" or name in reads:
                told.append((name, "is an iterator, which goes on whenever it is asked"))
        for label, why in told:
            raise InvalidValue(
                f"{self._line()}: `edge` or `node` reads `{label}`, which {why}. They run once per "
                f"program, and not in every call: pass what it gives as a parameter of the call."
            )

    def _line(self) -> str:
        return line_of(user_function(self.request.kernel, "edge"))

    def _check_unchanged(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        written = [k for k in after if k not in before or after[k] is not before[k]]
        if written:
            raise InvalidValue(
                f"{self._line()}: `edge` or `node` assigns `self.{written[0]}`. They run once per "
                f"program, not once per call: return the value, or keep state outside of them (ask "
                f"for a cached_property once before the call)."
            )
        name = self.rebuilder.written()
        if name is not None:
            raise InvalidValue(
                f"{self._line()}: `edge` or `node` assigns `{name}`, a variable outside of them. "
                f"They run once per program, not once per call: return the value instead."
            )

    def _guards(self, reads: set[str], unused: list[Any]) -> Guards:
        """What must hold for another call; `unused` are inputs of which no data are read."""
        discovery = self.discovery
        for name in sorted(reads):
            discovery.attribute(self.request.kernel, name, "self", required=True)
        discovery.settle()
        guards = discovery.guards
        for place in self.specialised.values():
            guards.values.append((place, place.get()))
        described = [discovery.tensors[key][1] for key in sorted(self.recorder.described)]
        for place in (*described, *(source for source in unused if isinstance(source, Place))):
            guards.fact(partial(metadata, place))
        return guards


def discover(kernel: MessagePassing, params: Mapping[str, Any]) -> Discovery:
    """Everything that the functions of a kernel can read, of these parameters too."""
    discovery = Discovery()
    discovery.attribute(kernel, "reducer", "self", required=True)
    discovery.guards.attributes.append((kernel, "__class__", type(kernel)))
    for name in ("edge", "node"):
        discovery.attribute(kernel, name, "self", operand=True, required=True)
        discovery.value(user_function(kernel, name), name, operand=True)
    for source, value in leaves(params):
        if not isinstance(value, torch.Tensor):
            discovery.value(value, source.label)
    before = -1
    while before != len(discovery.names):
        before = len(discovery.names)
        for name in sorted(discovery.names):
            if not name.startswith("__"):
                discovery.attribute(kernel, name, "self", operand=True)
        if "super" in discovery.names or _calls_super(discovery):
            _parents(kernel, discovery)
        discovery.settle()
    return discovery


def _calls_super(discovery: Discovery) -> bool:
    return any(
        isinstance(f, FunctionType) and "super" in f.__code__.co_names for f in discovery.keep
    )


def _parents(kernel: Any, discovery: Discovery) -> None:
    """The overridden methods that `super()` may reach."""
    for cls in type(kernel).__mro__:
        for name in discovery.names & vars(cls).keys():
            method = vars(cls)[name]
            if isinstance(method, FunctionType):
                discovery.guards.attributes.append((cls, name, method))
                discovery.value(method, name)


def capture(request: Request) -> Captured:
    """The program of a call.

    Raises:
        Unfusable: an op that no trace can hold.
        InvalidValue, InvalidType: `edge` does what no program can do; the message says where.
    """
    kernel = request.kernel
    check_parameters(kernel, request.params)
    try:
        return Attempt(request, discover(kernel, request.params), variable=True).run()
    except Unfusable:
        raise
    except TigaError as error:
        if not isinstance(error, InvalidType):
            raise
        return _retry(request, error)
    except Exception as error:
        first = first_of_ours(error)
        if isinstance(first, Unfusable):
            raise first from None
        return _retry(request, first or error)


def _retry(request: Request, error: Exception) -> Captured:
    """Code that cannot work with operands gets plain numbers, which then belong to the key."""
    attempt = Attempt(request, discover(request.kernel, request.params), variable=False)
    given = (value for _, value in leaves(request.params))
    has_numbers = attempt.discovery.numbers or any(map(is_plain_number, given))
    if not has_numbers:
        raise error
    return attempt.run()
