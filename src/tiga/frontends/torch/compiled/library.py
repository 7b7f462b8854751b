"""Programs as one op of torch's library, which `torch.compile` and `torch.export` can hold.

`tiga::run(str program, Tensor[] tensors, float[] numbers, SymInt[] sizes) -> Tensor[]`

- `program`: a header and the program's own MLIR text, so that a compiled or exported graph means
  the same in any process.
- `tensors`: two index tensors, then the program's tensors; edge values in the order of the user.
- `numbers` and `sizes`: its float operands; sources and destinations, then its integer operands.

The op's derivative is the op again, on the text of the gradient program; see `transformed`.
`tiga::compute` is the same without derivatives: what graphs hold once their gradients are traced,
as it is reached with one dispatch less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tiga.frontends.torch.compiled.batches import Run, run_batch
from tiga.frontends.torch.compiled.callee import (
    COUNTS,
    INDICES,
    Arguments,
    Ready,
    backward_of,
    callee,
)
from tiga.frontends.torch.compiled.topologies import Topologies
from tiga.frontends.torch.dtypes import torch_dtype

_TOPOLOGIES = Topologies()
_LIBRARY = torch.library.Library("tiga", "DEF")
_ARGUMENTS = "(str program, Tensor[] tensors, float[] numbers, SymInt[] sizes) -> Tensor[]"
for _name in ("run", "compute"):
    _LIBRARY.define(_name + _ARGUMENTS, tags=(torch.Tag.pt2_compliant_tag,))


def _compute(program: str, tensors: Any, numbers: Any, sizes: Any) -> list[torch.Tensor]:
    call = callee(program)
    num_src, num_dst, *integers = sizes
    at = _TOPOLOGIES.get(call.graph_kind, tensors[0], tensors[1], (num_src, num_dst))
    ready = at.ready.get(program)
    if ready is None:
        ready = at.ready[program] = Ready(call, at)
    return ready.run(tensors[INDICES:], numbers, integers)


def _fake(program: str, tensors: Any, numbers: Any, sizes: Any) -> list[torch.Tensor]:
    return empty_outputs(program, tensors, sizes)


def empty_outputs(program: str, tensors: Any, sizes: Any) -> list[torch.Tensor]:
    """Arrays for the outputs of a call, allocated beside its index tensors."""
    call = callee(program)
    leads = {
        "edges": call.per_edge(tensors).shape[0],
        "src": sizes[0],
        "dst": sizes[1],
        "node": sizes[1],
    }
    made = []
    for node in call.program.outputs:
        of = node.type
        lead = (leads[of.space.name],) if of.space.name in leads else ()
        made.append(tensors[0].new_empty((*lead, *of.shape), dtype=torch_dtype(of.dtype)))
    return made


@dataclass(frozen=True)
class Kept:
    """What a run leaves for its gradient: its arguments but tensors, which tensors have gradients,
    and which of them and of the outputs are saved, after the index tensors."""

    program: str
    numbers: Sequence[float]
    sizes: Sequence[int]
    count: int
    wanted: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def keep(ctx: Any, call: Arguments, output: Sequence[torch.Tensor], needs: Sequence[bool]) -> None:
    """Set the context of a run; `needs` says which tensors need a gradient."""
    program, tensors, numbers, sizes = call
    told = callee(program)
    wanted = tuple(i - INDICES for i, need in enumerate(needs) if need and i >= INDICES)
    # What a gradient for every cotangent reads; one for fewer reads nothing else.
    read = backward_of(program, wanted, told.floats).arguments
    position = {i: INDICES + at for at, i in enumerate(told.tensors)}
    inputs = tuple(position[i] for kind, i in read if kind == "input" and i in position)
    outputs = tuple(i for kind, i in read if kind == "output")
    saved = (*tensors[:INDICES], *(tensors[i] for i in inputs), *(output[i] for i in outputs))
    ctx.save_for_backward(*saved)
    ctx.kept = Kept(program, numbers, sizes, len(tensors), wanted, inputs, outputs)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(o for o in output if not o.is_floating_point()))


def pull(ctx: Any, cotangents: Sequence[Any], run: Run) -> list[torch.Tensor | None]:
    """The gradient of each tensor of a run, None where none flows; `run` computes programs."""
    kept: Kept = ctx.kept
    call = callee(kept.program)
    gradients: list[Any] = [None] * kept.count
    present = tuple(i for i in call.floats if cotangents[i] is not None)
    if not present:
        return gradients
    backward = backward_of(kept.program, kept.wanted, present)
    first, second, *saved = ctx.saved_tensors
    known: dict[tuple[str, int], Any] = {("cotangent", i): cotangents[i] for i in present}
    for at, value in zip(kept.inputs, saved, strict=False):
        known["input", call.tensors[at - INDICES]] = value
    for i, value in zip(kept.outputs, saved[len(kept.inputs) :], strict=True):
        known["output", i] = value
    known |= call.operands(kept.numbers, kept.sizes)
    values = [known.get(argument) for argument in backward.arguments]
    found = run(*callee(backward.text).arrange(values, (first, second), kept.sizes[:COUNTS]))
    for position, value in zip(backward.wanted, found, strict=True):
        gradients[INDICES + call.tensors.index(position)] = value
    return gradients


def samples(run: Run, size: int, dims: Sequence[Any], call: Arguments) -> Any:
    """The op on a batch; `dims` are the batch axes of the tensors, None without one."""
    program, tensors, _, sizes = call
    if size == 0:
        empty = empty_outputs(program, tensors, sizes)
        return [o.new_empty((0, *o.shape)) for o in empty], [0] * len(empty)
    outputs = run_batch(run, size, dims, call, callee(program))
    return outputs, [0] * len(outputs)


def vmap(info: Any, in_dims: Any, program: str, tensors: Any, numbers: Any, sizes: Any) -> Any:
    """The op on a batch under torch's own dispatch."""
    call = program, tensors, numbers, sizes
    return samples(torch.ops.tiga.run, info.batch_size, in_dims[1], call)


for _name in ("run", "compute"):
    for _kind in ("CPU", "CUDA"):
        _LIBRARY.impl(_name, _compute, _kind)
    torch.library.register_fake(f"tiga::{_name}", _fake, lib=_LIBRARY)
    torch.library.register_vmap(f"tiga::{_name}", vmap, lib=_LIBRARY)


def define_derivative(differentiated: Run) -> None:
    """Say how the op is computed where gradients may follow."""
    _LIBRARY.impl("run", differentiated, "Autograd")
