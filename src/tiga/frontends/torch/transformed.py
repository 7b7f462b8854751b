"""The library op under `torch.func` inside a compiled region.

torch derives an op that has a registered gradient neither under its function transforms nor in
forward mode. This Function runs the op, and is derived in every mode.
"""

from typing import Any

import torch

from tiga.frontends.torch import library
from tiga.frontends.torch.library import COUNTS, INDICES, callee, tangent_text


class InTransforms(torch.autograd.Function):
    """The op, with its tensors last."""

    @staticmethod
    def forward(program: str, numbers: Any, sizes: Any, *tensors: torch.Tensor) -> Any:
        return tuple(torch.ops.tiga.run(program, list(tensors), numbers, sizes))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        program, numbers, sizes, *tensors = inputs
        call = program, tensors, numbers, sizes
        library.keep(ctx, call, output, ctx.needs_input_grad[3:])
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return None, None, None, *library.pull(ctx, cotangents, run)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        kept = ctx.kept
        call = callee(kept.program)
        moving = [i for i, t in enumerate(tangents[3 + INDICES :]) if t is not None]
        text, live = tangent_text(kept.program, tuple(moving))
        first, second, *tensors = ctx.saved_tensors
        known = call.operands(kept.numbers, kept.sizes)
        known |= {("input", i): t for i, t in zip(call.tensors, tensors, strict=True)}
        values = [known.get(("input", i)) for i in range(len(call.arguments))]
        values += [tangents[3 + INDICES + i] for i in moving]
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
        outputs, dims = library.samples(run, info.batch_size, in_dims[3:], call)
        return tuple(outputs), tuple(dims)


def run(
    program: str, tensors: list[torch.Tensor], numbers: list[float], sizes: list[int]
) -> list[torch.Tensor]:
    """The op, in a form that transforms derive."""
    return list(InTransforms.apply(program, numbers, sizes, *tensors))
