"""Passes of MLIR's own, by name: its PassManager runs them on a module of any level."""

from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from tiga.errors import InvalidValue
from tiga.ir.context import transform

_ANCHORS = ("builtin.module({})", "builtin.module(func.func({}))")
"""Where a pass may run: on the module, or else on each function."""


@dataclass(frozen=True)
class NativePass:
    """One native pass, with its options as MLIR spells them.

    Example:
        >>> str(NativePass.named("canonicalize", "top-down=false"))
        'canonicalize{top-down=false}'
    """

    name: str
    options: str
    pipeline: str

    @staticmethod
    def named(name: str, options: str = "") -> "NativePass | None":
        """The pass, or None if MLIR has none of this name.

        Raises:
            InvalidValue: the pass does not take these options.
        """
        spelled = _spell(name, options)
        for anchor in _ANCHORS:
            pipeline = anchor.format(spelled)
            if _refusal(pipeline) is None:
                return NativePass(name, options, pipeline)
        if options and NativePass.named(name) is not None:
            refusal = _refusal(_ANCHORS[0].format(spelled))
            raise InvalidValue(f"pass {name}: expected options that it takes, got {refusal}")
        return None

    def __str__(self) -> str:
        return _spell(self.name, self.options)

    def __call__(self, module: ir.Module) -> None:
        """Rewrite `module` in place, verified.

        Raises:
            InvalidValue: the pass fails.
        """
        transform(module, self.pipeline, f"pass {self}")


def _spell(name: str, options: str) -> str:
    return f"{name}{{{options}}}" if options else name


def _refusal(pipeline: str) -> str | None:
    """Why MLIR does not take a pipeline, in a line."""
    try:
        PassManager.parse(pipeline, ir.Context())
    except ValueError as error:
        return " ".join(str(error).split())
    return None
