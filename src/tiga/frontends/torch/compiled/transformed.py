"""The derivatives of the library op: of every order, forward mode, and under `torch.func`.

A gradient that is registered with torch's own helper serves neither function transforms nor forward
mode, where it would give zeros without a word. This Function is derived in every mode.
"""

from typing import Any

import torch

from tiga.frontends.torch.compiled import library
from tiga.frontends.torch.compiled.callee import COUNTS, INDICES, callee, tangent_text

BEFORE = 3
"""Arguments of the Function before its tensors."""


class RunOp(torch.autograd.Function):
    """The op, with its tensors last."""

    @staticmethod
    def forward(program: str, numbers: Any, sizes: Any, *tensors: torch.Tensor) -> Any:
        return tuple(torch.ops.tiga.compute(program, list(tensors), numbers, sizes))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        program, numbers, sizes, *tensors = inputs
        call = program, tensors, numbers, sizes
        library.keep(ctx, call, output, ctx.needs_input_grad[BEFORE:])
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return *(None,) * BEFORE, *library.pull(ctx, cotangents, run)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Tangents of the outputs, zero for each that none of the inputs' tangents reaches."""
        kept = ctx.kept
        call = callee(kept.program)
        given = tangents[BEFORE + INDICES :]
        moving = [i for i, tangent in enumerate(given) if tangent is not None]
        text, live = tangent_text(kept.program, tuple(moving))
        first, second, *tensors = ctx.saved_tensors
        known = call.operands(kept.numbers, kept.sizes)
        known |= {("input", i): t for i, t in zip(call.tensors, tensors, strict=True)}
        values = [known.get(("input", i)) for i in range(len(call.arguments))]
        values += [given[i] for i in moving]
        arguments = callee(text).arrange(values, (first, second), kept.sizes[:COUNTS])
        found = dict(zip(live, run(*arguments), strict=True))
        zeros = library.empty_outputs(kept.program, (first, second), kept.sizes)
        return tuple(
            (found[i] if i in found else zeros[i].zero_()) if i in call.floats else None
            for i in range(len(zeros))
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, program: str, numbers: Any, sizes: Any, *tensors: Any) -> Any:
        call = program, list(tensors), numbers, sizes
        outputs, dims = library.samples(run, info.batch_size, in_dims[BEFORE:], call)
        return tuple(outputs), tuple(dims)


def run(
    program: str, tensors: list[torch.Tensor], numbers: list[float], sizes: list[int]
) -> list[torch.Tensor]:
    """The op as a Function: in the form that transforms derive."""
    return list(RunOp.apply(program, numbers, sizes, *tensors))


library.define_derivative(run)
