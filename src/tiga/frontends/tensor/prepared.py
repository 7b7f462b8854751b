"""An expression bound to memory, to be computed again and again."""

from collections.abc import Callable

from tiga.errors import InvalidValue
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.inspection import shown_node
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.program import program_of
from tiga.tensor_compiler import compile_tensors, prepare_tensors


def prepared(x: Tensor) -> Callable[[], Tensor]:
    """A function that computes `x` again into its own storage and returns it.

    Raises:
        InvalidValue: the tensor is a given value, a view of another, or was computed from
            operands that are gone.
    """
    node = shown_node(x, alive=True)
    if not node.inputs or x._source is not None:
        raise InvalidValue(f"prepare() expected a computed tensor, got a given one ({here()}).")
    bundle = program_of([node], cut=False)
    x.realize()
    output = x.numpy()
    executable = compile_tensors(bundle.program, True)
    executable.compile()
    program = prepare_tensors(executable, bundle.arrays, output)
    if len(program.calls) == 1:
        return _single(program.calls[0], x, program)
    run = program.run

    def submit() -> Tensor:
        run()
        return x

    return submit


def _single(call: Callable[[], object], x: Tensor, kept: object) -> Callable[[], Tensor]:
    """The shortest way for one kernel; `kept` keeps its memory alive."""

    def submit(kept: object = kept) -> Tensor:
        call()
        return x

    return submit
