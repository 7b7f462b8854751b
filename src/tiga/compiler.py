"""The compiler: program -> canonical program -> plan of row programs -> executable."""

from functools import lru_cache

from tiga.backends.llvm.executable import Executable, prepare
from tiga.passes.canonicalize import canonicalize
from tiga.passes.form import form
from tiga.passes.hoist import hoist
from tiga.trace.program import Program


def compile_program(program: Program) -> Executable:
    """The executable of `program` on the CPU; kernels are compiled at their first use."""
    canonical = canonicalize(hoist(canonicalize(program)))
    return prepare(form(canonical), program.relations)


@lru_cache(maxsize=1024)
def executable(program: Program) -> Executable:
    """`compile_program`, once per program."""
    return compile_program(program)
