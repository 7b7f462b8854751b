"""Dump: the text of every stage of a compilation, each with the command that repeats the next."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tiga.passes.base import Form, Pass
from tiga.passes.text import form_text


@dataclass(frozen=True)
class Dump:
    """The folder of one program's stages: `00-trace.mlir`, `01-<pass>.mlir`, ...

    Its name ends in a digest of the program, so that programs never overwrite each other and the
    same program always goes to the same place.
    """

    folder: Path
    name: str

    @staticmethod
    def open(root: Path, name: str, form: Form) -> "Dump":
        """The folder for `form` below `root`, made if it is not there."""
        digest = hashlib.sha256(form_text(form, name).encode()).hexdigest()[:8]
        folder = root / f"{name}-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        return Dump(folder, name)

    def write(self, number: int, form: Form, passes: Sequence[Pass]) -> Path:
        """Write the form that the first `number` of `passes` made."""
        made_by = passes[number - 1].name if number else "trace"
        path = self.folder / f"{number:02}-{made_by}.mlir"
        text = form_text(form, self.name, locations=True)
        path.write_text(f"{_header(path.name, passes[number:])}{text}\n")
        return path


def _header(file: str, rest: Sequence[Pass]) -> str:
    if not rest:
        return "// The last stage of the pipeline.\n"
    return (
        f"// Next stage:   python -m tiga.opt {file} -p '{rest[0]}'\n"
        f"// Last stage:   python -m tiga.opt {file} -p '{','.join(map(str, rest))}'\n"
    )
