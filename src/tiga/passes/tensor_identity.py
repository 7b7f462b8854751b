"""What tells whole-tensor programs from others: their text without users' lines."""

from tiga.trace.program import Program


def describe(program: Program) -> str:
    """The program as text without names of users' lines: the same for equal programs."""
    number = {node: i for i, node in enumerate(program.order)}
    lines = [
        f"{number[n]} = {n.op!r} {[number[c] for c in n.inputs]} : {n.type}" for n in program.order
    ]
    return "\n".join([*lines, f"return {[number[n] for n in program.outputs]}"])


def semantic_hash(program: Program) -> str:
    """Equal programs have equal hashes."""
    from hashlib import sha256  # loads a library of its own, which few programs need

    return sha256(describe(program).encode()).hexdigest()
