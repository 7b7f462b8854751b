"""What a tensor will compute, or has computed: expressions, IR, generated code."""

from typing import Any

from tiga.errors import InvalidValue
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.program import program_of
from tiga.frontends.tensor.recipe import Made, Recipe
from tiga.trace.node import Node, topological


def shown_node(x: Tensor, *, alive: bool = False) -> Node:
    """The expression that gave, or will give, the tensor's value; `alive`: with its operands.

    Raises:
        InvalidValue: `alive` was asked for, and an operand is gone.
    """
    found = x._expression
    if found is None:
        return x._node
    return found.node(alive=alive) if isinstance(found, (Made, Recipe)) else found


def hash_of(x: Tensor) -> str:
    """What tells a tensor's program from others: equal programs have equal hashes."""
    from tiga.passes.tensor_identity import semantic_hash

    return semantic_hash(program_of([shown_node(x)]).program)


def expression(x: Tensor) -> str:
    """The expression as text, one line per operation: for reading, its form may change."""
    order = topological([shown_node(x)])
    names = {node: f"%{i}" for i, node in enumerate(order)}
    lines = []
    for node in order:
        inputs = ", ".join(names[child] for child in node.inputs)
        where = f"  # {node.where}" if node.where else ""
        lines.append(f"{names[node]} = {node.op.name}({inputs}) : {node.type}{where}")
    return "\n".join(lines)


def mlir(x: Tensor, *, verify: bool = False) -> str:
    """The expression as a canonical `gf_tensor` module: inputs are arguments, equal parts are one.

    Args:
        verify: also run MLIR's verifier on it, parse the text again and compare.

    Example:
        >>> import tiga as tg
        >>> text = (tg.ones(2) + 1.0).mlir(verify=True)
        >>> "gf_tensor.add" in text
        True
    """
    from tiga.tensor_compiler import tensor_text

    return tensor_text(program_of([shown_node(x)]).program, verify=verify)


def generated_code(x: Tensor, stage: str | None = None) -> str:
    """What the compiler makes of the expression at one stage.

    Args:
        stage: "gf_tensor"; on the CPU "loops" (MLIR before lowering) or "llvm" (the default); on a
            GPU "triton" (the default), "ttir" or "ptx".
    """
    if x.device != CPU and stage != "gf_tensor":
        from tiga.backends.triton.dense.executable import dense_code

        return dense_code(program_of([shown_node(x)]).program, stage or "triton")
    from tiga.tensor_compiler import STAGES, tensor_code

    if stage is not None and stage not in STAGES:
        raise InvalidValue(
            f"generated_code expected one of {', '.join(STAGES)}, got {stage!r} ({here()})."
        )
    return tensor_code(program_of([shown_node(x)]).program, stage or "llvm")


METHODS: dict[str, Any] = {
    "expression": expression, "generated_code": generated_code, "mlir": mlir,
}  # fmt: skip
