"""Dialects declared as data: one table of ops per dialect, loaded as IRDL into any context.

The native verifier checks operand and attribute kinds from the IRDL; a Python verifier per op
refuses undeclared attributes and runs the op's own check. Declaring from tables instead of op
classes keeps a fresh context cheap (about 3 ms with every dialect, against 13 ms with classes),
and lets the op registry be the one place where an op is declared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from torch_mlir import ir
from torch_mlir.dialects import ext, irdl

Check = Callable[[ir.Operation], str | None]
"""What an op's own verifier says is wrong, or None."""

ANY = "any"
TENSOR = "!builtin.tensor"
STRING = "#builtin.string"
INTEGER = "#builtin.integer"
INTEGERS = "#builtin.dense_array"
SYMBOL = "#builtin.symbol_ref"
TYPE = "#builtin.type"

TRAITS = {
    "pure": ext.Pure,
    "terminator": ir.IsTerminatorTrait,
    "no_terminator": ir.NoTerminatorTrait,
    "isolated": ir.IsIsolatedFromAboveTrait,
}


@dataclass(frozen=True)
class OpSpec:
    """One op. `operands` and `results` are counts, None for any number, of `values`.

    `attributes` maps names to constraints (`STRING`, `INTEGER`, ...), all of them required;
    `regions` names the op's regions; `traits` are keys of `TRAITS`; `check` is its own verifier.
    """

    name: str
    operands: int | None = None
    results: int | None = 1
    attributes: Mapping[str, str] | None = None
    regions: tuple[str, ...] = ()
    values: str = TENSOR
    traits: tuple[str, ...] = ()
    check: Check | None = None


@dataclass(frozen=True)
class Dialect:
    """A named set of ops."""

    name: str
    ops: tuple[OpSpec, ...]

    @cached_property
    def irdl(self) -> str:
        """The IRDL text that declares the dialect."""
        body = "\n".join(_irdl_of(op) for op in self.ops)
        return f"irdl.dialect @{self.name} {{\n{body}\n}}"

    def load(self, context: ir.Context) -> None:
        """Make the dialect known to `context`; once per context."""
        with context, ir.Location.unknown():
            irdl.load_dialects(ir.Module.parse(self.irdl))
            for op in self.ops:
                _attach_traits(f"{self.name}.{op.name}", op)


def _irdl_of(op: OpSpec) -> str:
    """Each value and attribute has its own constraint: sharing one would make them equal."""
    lines: list[str] = []

    def constraint(kind: str) -> str:
        name = f"%{len(lines)}"
        lines.append(f'{name} = irdl.base "{kind}"' if kind != ANY else f"{name} = irdl.any")
        return name

    def values(label: str, count: int | None) -> str:
        if count is None:
            return f"{label}s: variadic {constraint(op.values)}"
        return ", ".join(f"{label}{i}: {constraint(op.values)}" for i in range(count))

    parts = [f"irdl.operands({values('operand', op.operands)})"]
    attributes = (f'"{n}" = {constraint(kind)}' for n, kind in (op.attributes or {}).items())
    parts.append(f"irdl.attributes {{{', '.join(attributes)}}}" if op.attributes else "")
    parts.append(f"irdl.results({values('result', op.results)})")
    regions = ", ".join(f"{name}: %region_{name}" for name in op.regions)
    lines.extend(f"%region_{name} = irdl.region" for name in op.regions)
    parts.append(f"irdl.regions({regions})" if regions else "")
    body = "\n".join(f"    {line}" for line in (*lines, *filter(None, parts)))
    return f"  irdl.operation @{op.name} {{\n{body}\n  }}"


def _verifier(name: str, op: OpSpec) -> type:
    declared = set(op.attributes or ())

    def problem(operation: ir.Operation) -> str | None:
        undeclared = sorted(set(operation.attributes) - declared)
        if undeclared:
            allowed = ", ".join(sorted(declared)) or "none"
            return f"attribute {undeclared[0]!r} is not declared (declared: {allowed})"
        return op.check(operation) if op.check is not None else None

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
