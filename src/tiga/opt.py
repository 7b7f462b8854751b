"""Run passes on the text of a program: `python -m tiga.opt file.mlir -p gf-hoist,gf-form-rows`.

Reads a module of any level, runs the passes on each of its functions, and prints the verified
result. `-` reads standard input; `--list` shows the passes; a pass may have options, as in
`gf-vjp{wanted=x,w}`. MLIR's own passes, such as `cse` or `convert-scf-to-cf`, may stand anywhere
among them: its PassManager runs these on the module, of whatever dialects. Files that `TIGA_DUMP`
wrote start with the command that repeats a stage.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tiga.errors import InvalidValue, TigaError
from tiga.ir.context import parse, text_of
from tiga.passes.base import Pass
from tiga.passes.levels import new_context
from tiga.passes.native import NativePass
from tiga.passes.pipeline import PASSES
from tiga.passes.spelling import parse_passes
from tiga.passes.transform import transform


def optimize(
    text: str, passes: Sequence[Pass | NativePass], *, source: str = "text", locations: bool = False
) -> str:
    '''The text of a module after `passes` on each of its functions.

    Args:
        text: a module of `gf`, `gf_iter` or `gf_kernel`; of any dialect that MLIR has if all of
            the passes are its own.
        passes: in order; each takes the form that the one before it gives.
        source: names the text in errors.
        locations: whether to print the users' lines too.

    Raises:
        InvalidValue: the text is no valid module, or a pass fails; the message says which.
        Unfusable: a pass meets what the compiler cannot fuse.

    Example:
        >>> from tiga.passes.fold import Fold
        >>> text = """func.func @f(%x: tensor<?xf32, "src">) -> tensor<?xf32, "src"> {
        ...   %0 = "gf.neg"(%x) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
        ...   %1 = "gf.neg"(%0) : (tensor<?xf32, "src">) -> tensor<?xf32, "src">
        ...   return %1 : tensor<?xf32, "src">
        ... }"""
        >>> "gf.neg" in optimize(text, [Fold()])
        False
    '''
    module = transform(parse(text, new_context(), source), passes)
    return text_of(module, locations=locations)


def _list() -> str:
    width = max(len(kind.name) for kind in PASSES)
    lines = [f"{kind.name:{width}}  {(kind.__doc__ or '').splitlines()[0]}" for kind in PASSES]
    return "\n".join(lines)


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text()
    except OSError as error:
        raise InvalidValue(f"expected a file to read, got {file}: {error.strerror}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tiga.opt", description=__doc__)
    parser.add_argument("file", nargs="?", default="-", help="a module, or - for standard input")
    parser.add_argument("-p", "--passes", default="", help="passes, in order, with commas between")
    parser.add_argument("--list", action="store_true", help="list the passes")
    parser.add_argument("--locations", action="store_true", help="print the users' lines too")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parser().parse_args(arguments)
    if options.list:
        print(_list())
        return 0
    try:
        passes = parse_passes(options.passes, PASSES)
        text = _read(options.file)
        print(optimize(text, passes, source=options.file, locations=options.locations))
    except TigaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
