"""The compiler: program -> canonical program -> plan of row programs -> executable."""

from functools import lru_cache

from tiga.backends.llvm.executable import Executable, prepare
from tiga.passes.pipeline import run_pipeline
from tiga.trace.program import Program


def compile_program(program: Program, name: str = "program") -> Executable:
    """The executable of `program` on the CPU; kernels are compiled at their first use."""
    scheduled = run_pipeline(program, name=name)
    return prepare(scheduled.plan, dict(scheduled.schedules), program.relations)


@lru_cache(maxsize=1024)
def executable(program: Program) -> Executable:
    """`compile_program`, once per program."""
    return compile_program(program)
