"""How kernels are compiled: with the native verifier or not, and what is written of each stage."""

from dataclasses import dataclass
from pathlib import Path

from tiga.backends.llvm.engine import INPUT_STAGE, LLVM_IR_STAGE, PIPELINE, Dump


@dataclass(frozen=True)
class Stages:
    """What the knobs say of a compilation.

    `folder` receives every stage beside those of the pipeline, whose number ended before `first`:

        06-kernel0-i32-0-module.mlir      upstream dialects, as the kernel was emitted
        06-kernel0-i32-1-convert-vector-to-scf.mlir
        ...
        06-kernel0-i32-9-llvm.ll          LLVM IR, before LLVM's own optimisation
    """

    verify: bool = False
    folder: Path | None = None
    first: int = 0

    def dump(self, kernel: str) -> Dump | None:
        """What writes the stages of the kernel named `kernel`; None when nothing is to be."""
        if self.folder is None:
            return None
        folder, prefix = self.folder, f"{self.first:02}-{kernel}"

        def write(stage: str, text: str) -> None:
            name = _file_name(prefix, stage)
            (folder / name).write_text(_header(name, stage) + text)

        return write


_STAGES = (INPUT_STAGE, *PIPELINE, LLVM_IR_STAGE)
_ENDINGS = {INPUT_STAGE: "module.mlir", LLVM_IR_STAGE: "llvm.ll"}


def _file_name(prefix: str, stage: str) -> str:
    return f"{prefix}-{_STAGES.index(stage)}-{_ENDINGS.get(stage, f'{stage}.mlir')}"


def _header(name: str, stage: str) -> str:
    rest = PIPELINE[_STAGES.index(stage) :]
    if stage == LLVM_IR_STAGE:
        return "; LLVM optimises this at its highest level and emits machine code.\n"
    if not rest:
        return "// The last stage in MLIR.\n"
    return (
        f"// Next stage:   python -m tiga.opt {name} -p '{rest[0]}'\n"
        f"// Last stage:   python -m tiga.opt {name} -p '{','.join(rest)}'\n"
    )
