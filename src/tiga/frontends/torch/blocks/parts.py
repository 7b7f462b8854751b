"""Parts of a graph on which `edge` and `node` run as ordinary torch code."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tiga.compiler import settings
from tiga.errors import InvalidValue, Unfusable, bare
from tiga.frontends.message_passing import Masked, MessagePassing, PerEdge
from tiga.frontends.sent import Addressed, address
from tiga.frontends.signature import line_of, user_function
from tiga.frontends.torch.autograd import run
from tiga.frontends.torch.blocks.eager import fold_rows
from tiga.frontends.torch.blocks.fields import BlockFields, EdgeRange, RowBlock, RowView
from tiga.frontends.torch.blocks.random_state import RandomState
from tiga.frontends.torch.capture.draws import NodeOrder, require_no_training
from tiga.frontends.torch.capture.messages import EdgeOrder, aggregate
from tiga.frontends.torch.capture.program import RELATION
from tiga.frontends.torch.capture.tracer import Recorder, tensors_in
from tiga.frontends.torch.capture.where import located, user_line
from tiga.frontends.torch.dtypes import dtype_of
from tiga.frontends.torch.unit import Unit, unit_of
from tiga.frontends.trees import described, leaves_of, mapped, numbered
from tiga.reducers import Bound, CustomReducer, Multi
from tiga.relations import Graph
from tiga.trace.node import topological
from tiga.trace.program import Program
from tiga.types import Type

ROOM = 3
"""Bytes that blocks have for each that user code allocates: gradients are made of them too."""

INDEX_BYTES = 80
"""What numbers of both ends take for each edge; they may be sorted, and numbered anew."""


def send(kernel: MessagePassing, fields: BlockFields, part: EdgeRange, params: Any) -> Any:
    """What `edge` sends along the edges of a part."""
    return kernel.edge(*views(fields, part), **params)


def views(fields: BlockFields, part: EdgeRange) -> Iterator[RowView]:
    """What `edge` is called with for the edges of a part."""
    return (fields.view(end, fields.numbers(end, part)) for end in ("src", "dst", "edge"))


def tensors_of(sent: Any, count: int) -> list[torch.Tensor]:
    """The tensors in what `edge` sent, in a fixed order, each with one row per edge."""
    found: list[Any] = []
    for leaf in leaves_of(sent):
        while isinstance(leaf, Masked):
            found.append(leaf.keep)
            leaf = leaf.value
        for message in leaf.messages if isinstance(leaf, Bound) else (leaf,):
            while isinstance(message, Masked):
                found.append(message.keep)
                message = message.value
            found.append(message)
    return [_per_edge(value, count) for value in found]


def _per_edge(value: Any, count: int) -> torch.Tensor:
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    if not tensor.dim() or tensor.shape[0] != count:
        tensor = tensor.expand(count, *tensor.shape)
    return tensor.contiguous()


def replaced(sent: Any, values: Iterator[Any]) -> Any:
    """`sent` with its tensors exchanged, in the order of `tensors_of`."""

    def leaf(value: Any) -> Any:
        if isinstance(value, Masked):
            keep = next(values)
            return Masked(leaf(value.value), keep)
        if isinstance(value, Bound):
            return Bound(value.reducer, tuple(leaf(m) for m in value.messages))
        return next(values)

    return mapped(leaf, sent)


def form_of(sent: Any) -> Any:
    """What a program depends on of what `edge` sent, beside the types of its tensors."""

    def form(leaf: Any) -> Any:
        if isinstance(leaf, Masked):
            return "masked", form(leaf.value)
        if isinstance(leaf, Bound):
            return leaf.reducer, tuple(map(form, leaf.messages))
        return None

    return described(numbered(sent)), tuple(map(form, leaves_of(sent)))


@dataclass(frozen=True)
class Reducing:
    """The program of a reducer whose inputs are messages, and where each input comes from; `tree`
    has the numbers of its outputs."""

    unit: Unit
    sources: tuple[Any, ...]
    on_edges: tuple[bool, ...]
    tree: Any


Programs = dict[Any, "Reducing | Unfusable"]
"""Programs by what they depend on, or why there is none: blocks are much alike."""


@dataclass(frozen=True)
class Reduction:
    """The rows of a block to reduce: the reducer, the tensors it may read, where the block is; the
    programs of this call, and those of every call, which no user's reducer is part of."""

    reducer: Any
    tensors: dict[int, tuple[str, Any]]
    fields: BlockFields
    block: RowBlock
    programs: Programs
    kept: Programs

    @property
    def row_ptr(self) -> torch.Tensor:
        """The first edge of each row, counted from the block's first; a block may end within a
        row."""
        return self.fields.pointers_of(self.block).clamp(max=self.block.edges)

    def run(self, sent: Any, messages: list[torch.Tensor]) -> Any:
        """The row values, by compiled programs whose inputs are the messages."""
        try:
            return self._compiled(sent, messages)
        except Unfusable:
            if not any(isinstance(a.reducer, CustomReducer) for a in self._addressed(sent)):
                raise
        # A user's reducer that no program holds is folded by torch, the others as they are.
        given = replaced(sent, iter(messages))
        return mapped(self._alone, mapped(lambda leaf: address(self.reducer, leaf), given))

    def _addressed(self, sent: Any) -> list[Addressed]:
        return list(leaves_of(mapped(lambda leaf: address(self.reducer, leaf), sent)))

    def _compiled(self, sent: Any, messages: list[torch.Tensor]) -> Any:
        program = self._program(sent, messages)
        edges = self.block.edges
        column = torch.zeros(edges, dtype=torch.int32, device=self.fields.device)
        inner = Graph.from_csr(self.row_ptr, column, num_src=1, validate="none")
        values = [self._value(source, messages) for source in program.sources]
        results = run(program.unit, inner, inner.token(), values)

        def result(i: int) -> Any:
            return PerEdge(results[i]) if program.on_edges[i] else results[i]

        return mapped(result, program.tree)

    def _program(self, sent: Any, messages: list[torch.Tensor]) -> Reducing:
        """The program of these messages, made once."""
        types = [Type(dtype_of(m.dtype), tuple(m.shape[1:]), RELATION.edge) for m in messages]
        key = settings(), self.reducer, form_of(sent), tuple(types)
        programs = self.kept if self._is_built_in(sent) else self.programs
        try:
            found = programs.get(key)
        except TypeError:  # a reducer of several holds what has no hash
            return self._made(sent, types)
        if found is None:
            try:
                found = self._made(sent, types)
            except Unfusable as reason:
                found = bare(reason)
            programs[key] = found
        if isinstance(found, Unfusable):
            raise bare(found)
        return found

    def _is_built_in(self, sent: Any) -> bool:
        reducers = [self.reducer, *(a.reducer for a in self._addressed(sent))]
        return not any(isinstance(r, (CustomReducer, Multi)) for r in reducers)

    def _made(self, sent: Any, types: Sequence[Type]) -> Reducing:
        recorder = Recorder(RELATION.edge, RELATION.dst, self.tensors, relation=RELATION)
        nodes = [recorder.input(f"message{i}", t, i) for i, t in enumerate(types)]
        traced = replaced(sent, iter([recorder.wrap(node) for node in nodes]))
        rows = aggregate(recorder, RELATION, self.reducer, traced)
        outputs = tuple(leaves_of(rows))
        needed = set(topological(outputs))
        inputs = {n: s for n, s in recorder.inputs.items() if n in needed}
        on_edges = tuple(node.type.space == RELATION.edge for node in outputs)
        unit = unit_of(Program(tuple(inputs), outputs))
        return Reducing(unit, tuple(inputs.values()), on_edges, numbered(rows))

    def _value(self, source: Any, messages: list[torch.Tensor]) -> Any:
        if isinstance(source, int):
            return messages[source]
        if isinstance(source, EdgeOrder):
            part = EdgeRange(self.block.first, self.block.last)
            return self.fields.numbers("edge", part).index
        if isinstance(source, NodeOrder):
            return self.fields.numbers_of_rows(self.block).index
        value = source if isinstance(source, torch.Tensor) else source.get()
        return value.contiguous() if isinstance(value, torch.Tensor) else value

    def _alone(self, one: Addressed) -> Any:
        """One message of `edge` by its own reducer."""
        if isinstance(one.reducer, CustomReducer):
            keep = functools.reduce(torch.logical_and, one.keeps) if one.keeps else None
            return fold_rows(one.reducer, one.messages, keep, self.row_ptr)
        sent: Any = Bound(one.reducer, one.messages)
        for keep in one.keeps:
            sent = Masked(sent, keep)
        return self._compiled(sent, tensors_of(sent, self.block.edges))


def finish(
    kernel: MessagePassing, fields: BlockFields, block: RowBlock, rows: Any, params: Any
) -> Any:
    """What `node` makes of the rows of a block."""
    if type(kernel).node is MessagePassing.node and "node" not in vars(kernel):
        return rows
    view = fields.view("dst", fields.numbers_of_rows(block))
    return kernel.node(view, rows, **params)


class Allocations(TorchDispatchMode):
    """Counts the bytes of all results but views, which may be of whole fields."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {_storage(t) for t in tensors_in((args, tuple((kwargs or {}).values())))}
        made = [t for t in tensors_in(result) if _storage(t) not in given]
        self.total += sum(t.numel() * t.element_size() for t in made)
        return result


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


class RefuseTraining(TorchFunctionMode):
    """Refuses what would take statistics over the edges of each part."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func in (torch.batch_norm, torch.nn.functional.batch_norm):
            given = args[5] if len(args) > 5 else named.get("training", False)
            require_no_training(given, user_line())
        return func(*args, **named)


def measure(
    kernel: MessagePassing, fields: BlockFields, count: int, params: Any,
    mode: Callable[[], AbstractContextManager[Any]] = torch.no_grad,
) -> int:  # fmt: skip
    """Bytes that `edge` allocates per edge, with room for gradients, from its first edges; `mode`
    is what it runs in.

    Also checks that messages do not depend on which edges are evaluated together.

    Raises:
        InvalidValue: they do.
    """
    state, all_edges = RandomState.now(fields.device), EdgeRange(0, count)
    ends = list(views(fields, all_edges))
    with mode(), RefuseTraining(), Allocations() as allocations:
        whole = kernel.edge(*ends, **params)
    if count > 1 and state.is_now():
        with mode():
            halves = [
                tensors_of(send(kernel, fields, part, params), part.last - part.first)
                for part in (EdgeRange(0, count // 2), EdgeRange(count // 2, count))
            ]
        with torch.no_grad(), located(lambda: line_of(user_function(kernel, "edge"))):
            found = tensors_of(whole, count)
            _require_independent(found, halves, lambda: send(kernel, fields, all_edges, params))
    state.restore()
    return INDEX_BYTES + math.ceil(ROOM * allocations.total / count)


def _require_independent(
    whole: list[torch.Tensor], halves: list[list[torch.Tensor]], again: Callable[[], Any]
) -> None:
    if all(map(_are_close, whole, (torch.cat(p) for p in zip(*halves, strict=True)))):
        return
    if not all(map(_are_close, whole, tensors_of(again(), len(whole[0])))):
        raise InvalidValue(
            "`edge` gives other messages when it runs again on the same edges, as it does for "
            "gradients: something in it changes as it runs, such as a spectral_norm in train mode. "
            "Call .eval() on that, or keep it out of `edge`."
        )
    raise InvalidValue(
        "`edge` mixes edges: evaluated on a part of them it gives other messages. Work on "
        "feature axes only (dim=-1); the reducer combines edges."
    )


def _are_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(
        one.double(), other.double(), rtol=1e-2, atol=1e-4, equal_nan=True
    )
