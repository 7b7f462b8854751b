"""Dialects declared as data: one table of ops per dialect, loaded as IRDL into any context.

The native verifier checks operand and attribute kinds from the IRDL; a Python verifier per op
refuses undeclared attributes and runs the op's own check. Declaring from tables instead of op
classes keeps a fresh context cheap (about 3 ms with every dialect, against 13 ms with classes),
and lets the op registry be the one place where an op is declared.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

from torch_mlir import ir
from torch_mlir.dialects import ext, irdl

Check = Callable[[ir.Operation], str | None]
"""What an op's own verifier says is wrong, or None."""

ANY = "any"
TENSOR = "!builtin.tensor"
STRING = "#builtin.string"
BOOLEAN = "#builtin.integer of i1"
INTEGER = "#builtin.integer"
INTEGERS = "#builtin.dense_array"
NUMBER = "#builtin.float"
ARRAY = "#builtin.array"
SYMBOL = "#builtin.symbol_ref"
TYPE = "#builtin.type"

_ATTRIBUTES: dict[str, type[ir.Attribute]] = {
    STRING: ir.StringAttr, BOOLEAN: ir.BoolAttr, INTEGER: ir.IntegerAttr,
    INTEGERS: ir.DenseI64ArrayAttr, NUMBER: ir.FloatAttr, ARRAY: ir.ArrayAttr,
    SYMBOL: ir.FlatSymbolRefAttr, TYPE: ir.TypeAttr, ANY: ir.Attribute,
}  # fmt: skip

TRAITS = {
    "pure": ext.Pure,
    "terminator": ir.IsTerminatorTrait,
    "no_terminator": ir.NoTerminatorTrait,
    "isolated": ir.IsIsolatedFromAboveTrait,
}


@dataclass(frozen=True)
class OpSpec:
    """One op. `operands` and `results` are counts; None for any number, all of one type.

    `values` constrains operands, `outcome` results (by default as operands). `attributes` maps
    names to constraints (`STRING`, `INTEGER`, ...), all of them required; `regions` names the
    op's regions; `traits` are keys of `TRAITS`; `check` is its own verifier.
    """

    name: str
    operands: int | None = None
    results: int | None = 1
    attributes: Mapping[str, str] | None = None
    regions: tuple[str, ...] = ()
    values: str = TENSOR
    outcome: str | None = None
    traits: tuple[str, ...] = ()
    check: Check | None = None


@dataclass(frozen=True)
class Dialect:
    """A named set of ops, and of types without parameters."""

    name: str
    ops: tuple[OpSpec, ...]
    types: tuple[str, ...] = ()

    @cached_property
    def irdl(self) -> str:
        """The IRDL text that declares the dialect."""
        types = (f"  irdl.type @{name}" for name in self.types)
        body = "\n".join((*types, *map(_irdl_of, self.ops)))
        return f"irdl.dialect @{self.name} {{\n{body}\n}}"


def load_dialects(dialects: Iterable[Dialect], context: ir.Context) -> None:
    """Make dialects known to `context`, all at once as they may name one another's types."""
    dialects = tuple(dialects)
    for dialect in dialects:
        _name_module(dialect)
    with context, ir.Location.unknown():
        irdl.load_dialects(ir.Module.parse("\n".join(dialect.irdl for dialect in dialects)))
        for dialect in dialects:
            for op in dialect.ops:
                _attach_traits(f"{dialect.name}.{op.name}", op)


def _name_module(dialect: Dialect) -> None:
    """Give the dialect a Python module, if only an empty one.

    The bindings import a dialect's module when Python first looks at one of its ops; while there
    is none they try again at every look, which costs fifty times the look itself.
    """
    name = f"torch_mlir.dialects.{dialect.name}"
    sys.modules.setdefault(name, ModuleType(name, f"The dialect {dialect.name}."))


def _constraint(kind: str) -> str:
    """The IRDL op for a constraint: any, a builtin `!` or `#` base, or a type `@dialect::@type`.

    IRDL knows bases only: that an integer is an i1 is left to the Python verifier.
    """
    if kind == ANY:
        return "irdl.any"
    return f"irdl.base {kind}" if kind.startswith("@") else f'irdl.base "{kind.split()[0]}"'


def _irdl_of(op: OpSpec) -> str:
    """Each value and attribute has its own constraint: sharing one would make them equal."""
    lines: list[str] = []

    def constraint(kind: str) -> str:
        lines.append(f"%{len(lines)} = {_constraint(kind)}")
        return f"%{len(lines) - 1}"

    def values(label: str, count: int | None, kind: str) -> str:
        if count is None:
            return f"{label}s: variadic {constraint(kind)}"
        return ", ".join(f"{label}{i}: {constraint(kind)}" for i in range(count))

    operands = values("operand", op.operands, op.values)
    results = values("result", op.results, op.outcome or op.values)
    named = (f'"{name}" = {constraint(kind)}' for name, kind in (op.attributes or {}).items())
    attributes = ", ".join(named)
    regions = ", ".join(f"{name}: %region_{name}" for name in op.regions)
    lines.extend(f"%region_{name} = irdl.region" for name in op.regions)
    lines += [f"irdl.operands({operands})", f"irdl.results({results})"]
    lines += [f"irdl.attributes {{{attributes}}}"] if attributes else []
    lines += [f"irdl.regions({regions})"] if regions else []
    body = "\n".join(f"    {line}" for line in lines)
    return f"  irdl.operation @{op.name} {{\n{body}\n  }}"


def _wrong_attribute(
    declared: Mapping[str, type[ir.Attribute]], attributes: ir.OpAttributeMap
) -> str | None:
    """Said here, as Python verifiers run before the native one."""
    for name, kind in declared.items():
        if name not in attributes:
            return f"attribute {name!r} is missing"
        if not isinstance(attributes[name], kind):
            return f"attribute {name!r} is of kind {kind.__name__}, got {attributes[name]}"
    undeclared = sorted(set(attributes) - set(declared))
    if not undeclared:
        return None
    allowed = ", ".join(sorted(declared)) or "none"
    return f"attribute {undeclared[0]!r} is not declared (declared: {allowed})"


def _verifier(name: str, op: OpSpec) -> type:
    declared = {key: _ATTRIBUTES[kind] for key, kind in (op.attributes or {}).items()}

    def problem(operation: ir.Operation) -> str | None:
        wrong = _wrong_attribute(declared, operation.attributes)
        if wrong is not None:
            return wrong
        try:
            return op.check(operation) if op.check is not None else None
        except (AssertionError, ValueError) as error:
            return str(error) or "its operands do not fit"
        except Exception as error:  # a check reads what may be ill-formed in any way
            return f"{type(error).__name__}: {error}"

    def verify_invariants(view: ir.OpView) -> bool:
        found = problem(view.operation)
        if found is not None:
            view.operation.location.emit_error(f"{name}: {found}")
        return found is None

    return type("Verifier", (), {"verify_invariants": staticmethod(verify_invariants)})


def _attach_traits(name: str, op: OpSpec) -> None:
    ir.DynamicOpTrait.attach(name, _verifier(name, op))
    for trait in op.traits:
        TRAITS[trait].attach(name)
