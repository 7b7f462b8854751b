"""Write programs as a module of the `gf` dialect, one function each; `read` is the inverse.

An op of the trace is an operation with the op's fields as attributes and regions, its type is the
result's type, its user's line the location. Inputs are arguments, with their label as an attribute.
"""

from collections.abc import Iterable, Mapping, Sequence

from torch_mlir import ir
from torch_mlir.dialects import func

from tiga.ir.context import location
from tiga.ir.encoding import RELATION_OP, encode_texts, encode_type
from tiga.ir.module import new_module
from tiga.ops import Op
from tiga.passes.domain import DOMAIN, YIELD, Spelling, fields_of
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import Relation, Type

LABEL = "gf.label"


class Writer:
    """Writes ops at the current insertion point, encoding each type and op once."""

    def __init__(self, spelling: Spelling = DOMAIN) -> None:
        self._spelling = spelling
        self._types: dict[tuple[Type, bool], ir.Type] = {}
        self._attributes: dict[Op, dict[str, ir.Attribute]] = {}

    def type(self, type: Type, *, one: bool = False) -> ir.Type:
        """The tensor type of `type` at all entities of its space, or at `one`."""
        found = self._types.get((type, one))
        if found is None:
            found = self._types[type, one] = encode_type(type, one=one)
        return found

    def attributes(self, op: Op) -> dict[str, ir.Attribute]:
        """The op's fields as attributes."""
        found = self._attributes.get(op)
        if found is None:
            fields = fields_of(type(op))
            found = {name: kind.encode(getattr(op, name)) for name, kind in fields.kinds.items()}
            for name in fields.regions:
                labels = (node.op.label for node in getattr(op, name).inputs)
                found[name] = encode_texts(labels)
            self._attributes[op] = found
        return found

    def op(self, node: Node, operands: Sequence[ir.Value], *, one: bool = False) -> ir.Value:
        """The operation of `node`, whose result is of all entities or of `one`."""
        if node.op.arity is None:
            operands = [self._part(value) for value in operands]
        attributes, regions = self.attributes(node.op), fields_of(type(node.op)).regions
        operation = ir.Operation.create(
            self._spelling.prefix + node.op.name,
            results=[self.type(node.type, one=one)],
            operands=operands,
            attributes=attributes,
            loc=location(node.where),
            regions=len(regions),
        )
        for name, region in zip(regions, operation.regions, strict=True):
            self._region(region, getattr(node.op, name))
        return operation.result

    def _region(self, region: ir.Region, program: Program) -> None:
        types = [self.type(node.type) for node in program.inputs]
        places = [location(node.where) for node in program.inputs]
        block = region.blocks.append(*types, arg_locs=places)
        with ir.InsertionPoint(block):
            results = self.body(program, block.arguments)
            ir.Operation.create(YIELD, operands=[self._part(value) for value in results])

    def body(self, program: Program, arguments: Sequence[ir.Value]) -> list[ir.Value]:
        """The operations of a program on its arguments; the values of its outputs."""
        values: dict[Node, ir.Value] = dict(zip(program.inputs, arguments, strict=True))
        for node in program.order[len(program.inputs) :]:
            values[node] = self.op(node, [values[child] for child in node.inputs])
        return [values[output] for output in program.outputs]

    def _part(self, value: ir.Value) -> ir.Value:
        hidden = ir.Type.parse(self._spelling.hidden)
        return ir.Operation.create(self._spelling.part, results=[hidden], operands=[value]).result

    def relations(self, relations: Iterable[Relation]) -> None:
        """Declarations of the relations, at the top of a module."""
        named = {relation.name: relation for relation in relations}
        for relation in named.values():
            ends = {"sym_name": relation.name, "src": relation.src.name, "dst": relation.dst.name}
            texts = {key: ir.StringAttr.get(text) for key, text in ends.items()}
            ir.Operation.create(RELATION_OP, attributes=texts)

    def function(self, name: str, inputs: Sequence[Node], outputs: Sequence[Node]) -> func.FuncOp:
        """A public function of whole arrays whose body is still empty."""
        types = [[self.type(node.type) for node in nodes] for nodes in (inputs, outputs)]
        function = func.FuncOp(name, ir.FunctionType.get(*types))
        function.add_entry_block([location(node.where) for node in inputs])
        labels = ({LABEL: ir.StringAttr.get(node.op.label)} for node in inputs)
        function.arg_attrs = ir.ArrayAttr.get([ir.DictAttr.get(label) for label in labels])
        return function


def write_program(writer: Writer, name: str, program: Program) -> None:
    """A program as a function of whole arrays."""
    function = writer.function(name, program.inputs, program.outputs)
    with ir.InsertionPoint(function.entry_block):
        func.ReturnOp(writer.body(program, function.arguments))


def emit(programs: Mapping[str, Program], context: ir.Context) -> ir.Module:
    """The `gf` module of named programs, not verified yet."""
    with new_module(context) as module:
        writer = Writer()
        writer.relations(r for program in programs.values() for r in program.relations)
        for name, program in programs.items():
            write_program(writer, name, program)
    return module
