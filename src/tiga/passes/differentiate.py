"""Differentiate: gradient, training and tangent programs as passes."""

from collections.abc import Sequence
from dataclasses import dataclass

from tiga.errors import InvalidValue
from tiga.ops.bits import pack_bits, unpack_bits
from tiga.ops.leaf import Input
from tiga.ops.pointwise import add
from tiga.passes.base import Pass
from tiga.passes.reached import reached_only
from tiga.trace.derivatives import Rules, gradient, tangent, training
from tiga.trace.node import Node
from tiga.trace.program import Program

RULES = Rules(add, lambda label, of: Input(label, of)(), pack_bits, unpack_bits)


def trainable(program: Program, wanted: Sequence[int], *, bits: bool = False) -> Program:
    """The training form of a program, of which derivatives are taken: `trace.derivatives.training`,
    with none at nodes without edges."""
    return training(reached_only(program), wanted, RULES, bits=bits)


def _positions(labels: Sequence[str], inputs: Sequence[Node]) -> tuple[int, ...]:
    """Positions of the labelled inputs; of all inputs of float type when no label is given."""
    if not labels:
        return tuple(i for i, node in enumerate(inputs) if node.type.dtype.is_float)
    known = [node.op.label for node in inputs]
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise InvalidValue(f"expected inputs of {', '.join(known)}; got {unknown[0]!r}")
    return tuple(known.index(label) for label in labels)


@dataclass(frozen=True)
class SaveRows(Pass, name="gf-save-rows"):
    """Return also the row values that the gradient of the `wanted` inputs reads."""

    wanted: tuple[str, ...] = ()

    def __call__(self, form: Program) -> Program:
        return training(form, _positions(self.wanted, form.inputs), RULES)


@dataclass(frozen=True)
class Vjp(Pass, name="gf-vjp"):
    """The gradient program: of `wanted` inputs, for cotangents of the outputs in `present`.

    Row values among the outputs become inputs `output0`, ...; cotangents are `cotangent0`, ....
    """

    wanted: tuple[str, ...] = ()
    present: tuple[int, ...] = ()

    def __call__(self, form: Program) -> Program:
        floats = [i for i, node in enumerate(form.outputs) if node.type.dtype.is_float]
        unknown = set(self.present) - set(floats)
        if unknown:
            raise InvalidValue(f"expected outputs of {floats}, of float type; got {min(unknown)}")
        wanted = _positions(self.wanted, form.inputs)
        return gradient(form, wanted, self.present or floats, RULES).program


@dataclass(frozen=True)
class Jvp(Pass, name="gf-jvp"):
    """The tangent program: for tangents `tangent0`, ... of the `moving` inputs."""

    moving: tuple[str, ...] = ()

    def __call__(self, form: Program) -> Program:
        program, _ = tangent(form, _positions(self.moving, form.inputs), RULES)
        return program
