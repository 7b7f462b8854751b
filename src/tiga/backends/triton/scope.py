"""Where a value is evaluated: once per kernel, per row, per edge, or at the edge's other end.

Each scope writes into its own block and caches what it has evaluated. Row values that edges ask
for are written before the loop over edges, as that is appended when it is complete.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from tiga.backends.triton import products
from tiga.backends.triton.arithmetic import Term, dtype_text
from tiga.backends.triton.block import Block
from tiga.backends.triton.equal_parts import part_size
from tiga.backends.triton.evaluate import ARITHMETIC, Evaluator, MovedPart, shares, stored
from tiga.backends.triton.layout import box_map, padded
from tiga.backends.triton.schedule import products as products_of
from tiga.backends.triton.tables import looked_up
from tiga.backends.triton.writer import Value, Writer, at_rank, pointer_type
from tiga.ops.feature import reshape
from tiga.ops.leaf import is_constant
from tiga.ops.pointwise import Eq, LogicalAnd, Where
from tiga.passes.rows import RowProgram
from tiga.passes.schedule import cone
from tiga.trace.node import Node, users
from tiga.trace.origin import Origin
from tiga.trace.scope import ValueScope
from tiga.types import DType, Type, int64


def is_rare(condition: Node) -> bool:
    """Whether a condition holds for few edges of a row, or few elements of an edge."""
    parts = condition.inputs if isinstance(condition.op, LogicalAnd) else (condition,)
    return any(part.op.finds is not None or _is_one_of(part) for part in parts)


def _is_one_of(condition: Node) -> bool:
    """Whether it compares one value with one number after another along an axis: one is equal."""
    parts = condition.inputs
    if not condition.op.concatenates or not all(isinstance(p.op, Eq) for p in parts):
        return False
    values, numbers = ({p.inputs[i] for p in parts} for i in (0, 1))
    are_numbers = all(n.op.origin is Origin.NUMBER for n in numbers)
    return are_numbers and len(values) == 1 and len(numbers) == len(parts) > 1


def _below(value: Node) -> Node:
    """What a value is under further axes of one element, or fewer; or the value."""
    is_view = value.op.reshapes and _extents(value.inputs[0]) == _extents(value)
    return value.inputs[0] if is_view else value


def _extents(node: Node) -> list[int]:
    return [n for n in node.type.shape if n != 1]


@dataclass(frozen=True)
class Entity:
    """Index tensor [rows, edges] of entities, where it is valid, and those extents."""

    text: str
    mask: str | None
    dims: tuple[int, int]


@dataclass
class KernelScope(ValueScope[Value]):
    """Values that are the same for the whole kernel, and the arrays that it is given."""

    program: RowProgram
    writer: Writer
    evaluator: Evaluator
    block: Block
    reads: frozenset[Node]
    values: dict[Node, Value] = field(default_factory=dict)

    def _evaluate(self, node: Node) -> Value:
        """A global value: an array of one entity, or computed from such."""
        if node.op.origin is Origin.NUMBER:
            return self.evaluator.constant(node)
        if node in self.reads:
            return self.load(self.block, node, Entity("0", None, (1, 1)))
        return self.evaluator.op(self.block, node, [self.value(n) for n in node.inputs])

    @cached_property
    def matrices(self) -> frozenset[Node]:
        """The matrices of the program's products."""
        return frozenset(n.inputs[1] for n in products_of(self.program))

    def is_picked(self, node: Node) -> bool:
        """Whether a choice takes something else than zero for few elements, from an array at the
        edges' other ends that nothing else reads. Not beside products: loads for these are started
        ahead, and none can be that waits for a product."""
        if not isinstance(node.op, Where):
            return False
        condition, chosen, rest = node.inputs
        filters = is_constant(rest, 0.0) and is_rare(condition)
        if not filters or chosen.op.origin is not Origin.END:
            return False
        (value,) = chosen.inputs
        array = _below(value)
        at_other = chosen.op.side != self.program.side and array in self.reads
        at_other = at_other and not self.matrices
        return at_other and all(len(self._readers[n]) == 1 for n in (chosen, value, array))

    @cached_property
    def _readers(self) -> dict[Node, list[Node]]:
        return users(cone(self.program))

    # memory

    def array(self, node: Node) -> str:
        """The pointer to a value's array."""
        hint = getattr(node.op, "label", None) or node.op.name
        return self.writer.parameter(("array", node), str(hint), pointer_type(node.type.dtype))

    def view(self, matrix: Node) -> products.View:
        """Where a matrix lies that products read."""
        found = products.view_of(matrix, self.reads)
        assert found is not None, f"{matrix!r} lies in no array"
        return replace(found, pointer=self.array(found.array))

    def state(self, kind: str, node: Node) -> str:
        """The pointer to states of a reduction or pieces of a total, in compute dtype."""
        dtype = node.type.dtype.compute
        return self.writer.parameter((kind, node), f"{kind}_{node.op.name}", pointer_type(dtype))

    def _address(self, pointer: str, type_: Type, entity: Entity, offset: str) -> str:
        rank = len(self.writer.tile.features(type_))
        parts = [pointer]
        if entity.text != "0":
            step = "" if type_.size == 1 else f" * {type_.size}"
            parts.append(f"{at_rank(entity.text, rank)}{step}")
        return " + ".join([*parts, *([offset] if offset else [])])

    def _dims(self, type_: Type, entity: Entity) -> tuple[int, ...]:
        return self.writer.dims(*entity.dims, type_)

    def _mask(self, type_: Type, entity: Entity) -> str:
        rank = len(self.writer.tile.features(type_))
        conditions = [] if entity.mask is None else [at_rank(entity.mask, rank)]
        return " & ".join(f"({c})" for c in (*conditions, *self.writer.within(type_)))

    def load(self, block: Block, node: Node, entity: Entity, where: str = "") -> Value:
        """The entities' elements, widened to the compute dtype; zero but for those that are read,
        `where` they are only some."""
        hint = getattr(node.op, "label", None) or node.op.name
        return self.load_from(
            block, self.array(node), node.type, node.type.dtype, entity, str(hint), where
        )

    def load_from(
        self, block: Block, pointer: str, type_: Type, dtype: DType, entity: Entity, hint: str,
        where: str = "",
    ) -> Value:  # fmt: skip
        """Elements of entities of any array of values of `type_`, held in `dtype`."""
        address = self._address(pointer, type_, entity, self.writer.offset_of(type_))
        mask = " & ".join(filter(None, (self._mask(type_, entity), where)))
        text = loaded(address, mask, dtype)
        value = Value(Term(text, dtype.compute), self._dims(type_, entity))
        if entity.text == "0" and not self.writer.offset_of(type_):
            # A scalar load: shaped like every other value.
            text = f"tl.full({list(value.dims)}, {text}, {dtype_text(dtype.compute)})"
            value = replace(value, term=Term(text, dtype.compute))
        return self.writer.named(block, f"{hint}_value", value)

    def load_lanes(self, block: Block, node: Node, entity: Entity, lanes: np.ndarray) -> MovedPart:
        """Chosen elements of the entities (`lanes` has the shape of the result)."""
        writer, evaluator = self.writer, self.evaluator
        shape, target = lanes.shape, tuple(map(padded, lanes.shape))
        box = box_map(lanes)
        if box is not None:
            terms = [str(box.base)] if box.base else []
            varying = writer.dot(shape, target, box.strides)
            terms += [varying] if varying else []
        else:
            terms = [evaluator.index(lanes, node.type.size)]
        inside = evaluator.inside(lanes)
        type_ = node.type.with_shape(shape)
        address = [self.array(node)]
        if entity.text != "0":
            address.append(f"{at_rank(entity.text, len(shape))} * {node.type.size}")
        conditions = [] if entity.mask is None else [at_rank(entity.mask, len(shape))]
        conditions += [*writer.within(type_), *([inside] if inside else [])]
        mask = " & ".join(f"({c})" for c in conditions)
        text = loaded(" + ".join([*address, *terms]), mask, node.type.dtype)
        lead = entity.dims
        value = Value(Term(text, node.type.dtype.compute), (*lead, *target))
        if not varying_text(terms) and entity.text == "0":
            text = f"tl.full({list(value.dims)}, {text}, {dtype_text(value.dtype)})"
            value = replace(value, term=Term(text, value.dtype))
        named = writer.named(block, "moved", value)
        if not varying_text(terms):
            named = replace(named, dims=(*lead, *(1,) * len(target)))
        return MovedPart(named, inside)

    def store(
        self,
        block: Block,
        pointer: str,
        node_type: Type,
        dtype: DType,
        entity: Entity,
        value: Value,
    ) -> None:
        """Write values to their entities' places, as `dtype` in memory."""
        address = self._address(pointer, node_type, entity, self.writer.offset_of(node_type))
        term = self.writer.full(value, self._dims(node_type, entity)).term
        mask = self._mask(node_type, entity)
        if self.writer.tile.windows > 1 and not self.writer.tile.is_windowed(node_type):
            mask = f"{mask} & (tl.program_id(1) == 0)" if mask else "tl.program_id(1) == 0"
        suffix = f", mask={mask}" if mask else ""
        if "[" not in address and " + " not in address:
            address = f"{address} + tl.full({list(self._dims(node_type, entity))}, 0, tl.int32)"
        block.add(f"tl.store({address}, {stored(term, dtype).text}{suffix})")

    def degree(self, block: Block, node: Node, entity: Entity) -> Value:
        """The number of edges at entities, as the number that the node wants."""
        key = ("degree", node.op.relation, node.op.side)
        pointer = self.writer.parameter(key, f"row_ptr_{node.op.side}", "*i64")
        mask = f", mask={entity.mask}, other=0" if entity.mask else ""
        count = (
            f"(tl.load({pointer} + {entity.text} + 1{mask}) - "
            f"tl.load({pointer} + {entity.text}{mask}))"
        )
        dtype = node.type.dtype
        term = ARITHMETIC.cast(Term(count, int64), int64, dtype)
        term = ARITHMETIC.cast(term, dtype, dtype.compute)
        if self.writer.tile.features(node.type):
            term = Term(f"{term.text}[:, :, None]", term.dtype)
        dims = (*entity.dims, *(1,) * len(self.writer.tile.features(node.type)))
        return self.writer.named(block, "degree", Value(term, dims))


def varying_text(terms: list[str]) -> bool:
    """Whether an address varies along features."""
    return any(not t.isdigit() for t in terms)


def loaded(address: str, mask: str, dtype: DType) -> str:
    """A load, widened to the compute dtype."""
    options = f", mask={mask}, other=0" if mask else ""
    widened = f".to({dtype_text(dtype.compute)})" if dtype != dtype.compute else ""
    return f"tl.load({address}{options}){widened}"


@dataclass
class RowScope(ValueScope[Value]):
    """Values of one entity per row: the row of the walk, or the entity at an edge's other end."""

    kernel: KernelScope
    block: Block
    entity: Entity
    values: dict[Node, Value] = field(default_factory=dict)

    def _evaluate(self, node: Node) -> Value:
        kernel = self.kernel
        if node.op.origin is Origin.NUMBER:
            return kernel.evaluator.constant(node)
        if node in kernel.reads:
            return kernel.load(self.block, node, self.entity)
        if node.op.origin is Origin.GLOBAL:
            return kernel.value(node.inputs[0])
        if node.op.origin is Origin.DEGREE:
            return kernel.degree(self.block, node, self.entity)
        assert node.op.origin is not Origin.ROW, f"{node!r} belongs to an earlier phase"
        return within_entity(self, node)

    def located(self, node: Node) -> Entity | None:
        """Where the array of a node is read, if it has one."""
        return self.entity if node in self.kernel.reads else None


@dataclass
class EdgeScope(ValueScope[Value]):
    """Values of the edges of a tile."""

    row: RowScope
    other: RowScope
    block: Block
    edge: Entity
    values: dict[Node, Value] = field(default_factory=dict)

    @property
    def kernel(self) -> KernelScope:
        return self.row.kernel

    def end(self, side: str) -> RowScope:
        return self.row if side == self.kernel.program.side else self.other

    def _evaluate(self, node: Node) -> Value:
        kernel = self.kernel
        if node.op.origin is Origin.NUMBER:
            return kernel.evaluator.constant(node)
        if node.op.origin is Origin.END:
            return self.end(node.op.side).value(node.inputs[0])
        if node.op.origin is Origin.GLOBAL:
            return kernel.value(node.inputs[0])
        if node.op.origin is Origin.POSITION:
            return self._position(node)
        if node in kernel.reads:
            return kernel.load(self.block, node, self.edge)
        if kernel.is_picked(node):
            return self._picked(node)
        return within_entity(self, node)

    def _picked(self, node: Node) -> Value:
        """A choice that few elements make of an array at the other end: only these are read."""
        kernel, (condition, chosen, _) = self.kernel, node.inputs
        (value,) = chosen.inputs
        array = _below(value)
        condition = reshape(condition, array.type.shape)
        mask = self.value(condition)
        dims = kernel.writer.dims(*self.other.entity.dims, condition.type)
        text = kernel.writer.full(mask, dims).text
        found = kernel.load(self.block, array, self.other.entity, f"({text})")
        return found if array is value else kernel.evaluator.renamed(value, found) or found

    def _position(self, node: Node) -> Value:
        """The positions of the edges in CSR order."""
        term = Term(f"{self.edge.text}.to(tl.int64)", int64)
        features = self.kernel.writer.tile.features(node.type)
        if features:
            term = Term(f"{term.text}[:, :, None]", int64)
        return Value(term, (*self.edge.dims, *(1,) * len(features)))

    def located(self, node: Node) -> Entity | None:
        """Where the array of a node is read, if it has one."""
        return self.edge if node in self.kernel.reads else None


Scope = RowScope | EdgeScope


def within_entity(scope: Scope, node: Node) -> Value:
    """An op on values of one scope."""
    kernel = scope.kernel
    if node.op.by_index:
        table, index = node.inputs
        pointer = kernel.array(table)
        return looked_up(kernel.writer, scope.block, node, scope.value(index), pointer)
    if node.op.table is not None:
        x = scope.value(node.inputs[0])
        return products.multiply(
            kernel.evaluator,
            scope.block,
            node,
            x,
            kernel.view,
            kernel.matrices,
            "start" if isinstance(scope, EdgeScope) else None,
        )
    if node.op.moves and not kernel.writer.tile.is_flat:
        return _moved(scope, node)
    return kernel.evaluator.op(scope.block, node, [scope.value(n) for n in node.inputs])


def _moved(scope: Scope, node: Node) -> Value:
    """A movement: by addresses where its operands are arrays, else in registers."""
    evaluator, reads = scope.kernel.evaluator, scope.kernel.reads
    if node.op.renames:
        direct = evaluator.renamed(node, scope.value(node.inputs[0]))
        if direct is not None:
            return evaluator.named(scope.block, node, direct)
    if part_size(node) and not any(_base(scope, n, own)[1] in reads for n, own in shares(node)):
        args = [scope.value(child) for child in node.inputs]
        return evaluator.op(scope.block, node, args)
    parts = [_part(*_base(scope, child, lanes)) for child, lanes in shares(node)]
    joined = evaluator.join(parts, node.type.dtype.compute, node.type.shape)
    return evaluator.named(scope.block, node, joined)


def _base(scope: Scope, child: Node, lanes: np.ndarray) -> tuple[Scope, Node, np.ndarray]:
    """The value from which a chain of movements takes its elements, and where it lives."""
    while child not in scope.values and scope.located(child) is None:
        if child.op.origin is Origin.END:
            scope, child = scope.end(child.op.side), child.inputs[0]  # type: ignore[union-attr]
        elif child.op.moves and child.op.arity is not None:
            ((source, inner),) = shares(child)
            lanes = np.where(lanes >= 0, inner.ravel()[np.maximum(lanes, 0)], -1)
            child = source
        else:
            break
    return scope, child, lanes


def _part(scope: Scope, child: Node, lanes: np.ndarray) -> MovedPart:
    entity = scope.located(child)
    kernel = scope.kernel
    if entity is not None and (child not in scope.values or child.type.size > 1):
        return kernel.load_lanes(scope.block, child, entity, lanes)
    return kernel.evaluator.pick(scope.block, child, scope.value(child), lanes)
