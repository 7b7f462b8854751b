"""An expression bound to memory, to be computed again and again."""

from collections.abc import Callable, Sequence
from typing import Any

from tiga.errors import InvalidValue
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.devices import CPU
from tiga.frontends.tensor.inspection import shown_node
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.program import BoundProgram, program_of


def prepare(x: Tensor) -> Callable[[], Tensor]:
    """A function that computes the expression again from the present values of its inputs.

    It writes into the tensor's own storage and returns the tensor: no allocation, no look-up. It
    does none of what a write in place does: the version stays, and expressions built on the tensor
    that still wait, and derivatives through it, read the new elements.

    Raises:
        InvalidValue: the tensor is a given value, a view of another, or was computed from
            operands that are gone.

    Example:
        >>> import tiga as tg
        >>> a = tg.tensor([1.0, 2.0])
        >>> b = a * 2.0
        >>> run = b.prepare()
        >>> a.fill_(5.0).tolist()
        [5.0, 5.0]
        >>> run().tolist()
        [10.0, 10.0]
    """
    run, walks = _bound(x)
    if not walks:
        return run

    def submit() -> Tensor:
        _forget(walks)
        return run()

    return submit


def prepare_together(tensors: Sequence[Tensor]) -> Callable[[], None]:
    """A function that computes several tensors again, calls on graphs once for all of them."""
    bound = [_bound(x) for x in tensors]
    walks = [walk for _, used in bound for walk in used]

    def submit() -> None:
        _forget(walks)
        for run, _ in bound:
            run()

    return submit


def _forget(walks: Sequence[Any]) -> None:
    """Outputs of calls on graphs that nobody asked for are those of an earlier run."""
    for walk in walks:
        walk.unasked.clear()


def _bound(x: Tensor) -> tuple[Callable[[], Tensor], list[Any]]:
    """A tensor bound to memory, and the calls on graphs that are made for it."""
    node = shown_node(x, alive=True)
    if not node.inputs or x._source is not None:
        raise InvalidValue(f"prepare() expected a computed tensor, got a given one ({here()}).")
    bound = program_of([node], cut=False)
    walks = [node.op.walk for node in bound.program.order if hasattr(node.op, "walk")]
    x.realize()
    return (_on_cpu if x.device == CPU else _on_gpu)(x, bound), walks


def _on_cpu(x: Tensor, bound: BoundProgram) -> Callable[[], Tensor]:
    from tiga.tensor_compiler import compile_tensors, prepare_tensors

    output = x.numpy()
    executable = compile_tensors(bound.program, True)
    executable.compile()
    return _submitting(prepare_tensors(executable, bound.arrays, output), x)


def _on_gpu(x: Tensor, bound: BoundProgram) -> Callable[[], Tensor]:
    from tiga.backends.triton.dense.executable import compile_dense
    from tiga.backends.triton.dense.prepared import prepare_dense
    from tiga.frontends.tensor.gpu_arrays import on_gpu, room

    index = x.device.index
    output: Any = x._array
    given = [on_gpu(array, index) for array in bound.arrays]
    # A call belongs to its graph, which no cache may keep alive.
    lasting = not any(node.op.defers for node in bound.program.order)
    executable = (compile_dense if lasting else compile_dense.__wrapped__)(bound.program)
    return _submitting(prepare_dense(executable, given, output, room(index)), x)


def _submitting(program: Any, x: Tensor) -> Callable[[], Tensor]:
    """The call that runs a bound program and gives its tensor."""
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
