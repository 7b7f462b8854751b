"""Forward and backward as one bundle of tasks with explicit dependencies."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tiga.autograd.arguments import as_list, check_inputs, cotangent_of
from tiga.autograd.checkpoint import GradientPlan, decide, marked
from tiga.autograd.reverse import grad
from tiga.errors import InvalidValue
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.inspection import shown_node
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.program import program_of
from tiga.ops.tensor_markers import Grad
from tiga.passes.tensor_dialect import TensorProgram
from tiga.passes.tensor_text import program_text
from tiga.passes.tensor_vjp import TensorVjp


@dataclass(frozen=True)
class JointTask:
    """One unit of a bundle: what it waits for, reads and writes."""

    name: str
    kind: str
    after: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True)
class JointTasks:
    """Tasks of one snapshot of the inputs: `version` and `structure` tell it from others."""

    tasks: tuple[JointTask, ...]
    version: int
    structure: str


@dataclass(frozen=True)
class JointAutogradPlan:
    """An output and its gradients, to be computed together."""

    output: Tensor
    inputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    bundle: JointTasks
    plan: GradientPlan

    def run(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute the output, then the gradients."""
        if any(g._array is None for g in self.gradients):
            self.plan.settle()
        self.output.realize()
        return self.output, self.gradients

    def explain(self) -> str:
        """The tasks, their dependencies and bytes, and what is kept between them."""
        lines = [f"bundle {self.bundle.structure[:12]}, version {self.bundle.version}"]
        for task in self.bundle.tasks:
            waits = f" after {', '.join(task.after)}" if task.after else ""
            lines.append(
                f"  {task.name} ({task.kind}){waits}: reads {', '.join(task.reads) or 'inputs'}, "
                f"writes {', '.join(task.writes)}, {task.nbytes} bytes"
            )
        bound = program_of([self.output._node, *(g._node for g in self.gradients)], cut=False)
        output, *gradients = bound.program.outputs
        chosen = decide(
            TensorProgram(bound.program.inputs, tuple(marked(output, gradients))), self.plan.policy
        )
        kept, spilled = set(chosen.saved), set(chosen.spilled)
        for node in chosen.candidates:
            verdict = "save" if node in kept else "spill" if node in spilled else "recompute"
            where = f" ({node.where})" if node.where else ""
            lines.append(f"  {verdict} {node.op.name}: {node.type.row_bytes} bytes{where}")
        return "\n".join(lines)


def joint_plan(output: Tensor, inputs: Any, *, checkpoint: str = "auto") -> JointAutogradPlan:
    """Forward and backward of a scalar output as one executable bundle.

    Raises:
        InvalidValue: no inputs, or one that the output does not depend on.

    Example:
        >>> import tiga as tg
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> plan = tg.autograd.joint_plan((x * x).sum(), x)
        >>> value, (dx,) = plan.run()
        >>> value.item(), dx.tolist()
        (5.0, [2.0, 4.0])
    """
    wanted, _ = as_list(inputs, "inputs=")
    if not wanted:
        raise InvalidValue(f"joint_plan expected at least one input ({here()}).")
    gradients = list(grad(output, wanted, checkpoint="auto"))
    tasks = [JointTask("forward", "autograd-forward", (), (), ("output",), output.nbytes)]
    tasks += [
        JointTask(f"backward:{i}", "autograd-backward", ("forward",), ("output",),
                  (f"gradient:{i}",), g.nbytes)
        for i, g in enumerate(gradients)
    ]  # fmt: skip
    text = program_text(program_of([output._node, *(g._node for g in gradients)], False).program)
    structure = sha256(text.encode()).hexdigest()
    bundle = JointTasks(tuple(tasks), max(x.version for x in wanted), structure)
    plan = GradientPlan(output, gradients, checkpoint)
    return JointAutogradPlan(output, tuple(wanted), tuple(gradients), bundle, plan)


def grad_mlir(output: Tensor, input: Tensor, *, grad_output: Any = None, lower: bool = True) -> str:
    """The gradient as `gf_tensor` text: the request, or (`lower`) what `gf-tensor-vjp` makes of it.

    Example:
        >>> import tiga as tg
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> "gf_tensor.grad" in tg.autograd.grad_mlir((x * x).sum(), x, lower=False)
        True
    """
    check_inputs([input])
    cotangent = cotangent_of(output, grad_output)
    bound = program_of([shown_node(output), cotangent, shown_node(input)], cut=False)
    request = Grad()(*bound.program.outputs)
    program = TensorProgram(bound.program.inputs, (request,))
    return program_text(TensorVjp()(program) if lower else program, verify=True, name="gradient")
