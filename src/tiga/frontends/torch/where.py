"""The user's line: where in `edge` or `node` an op was asked for."""

import sys
from pathlib import Path
from types import FrameType

import torch

import tiga

_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(tiga.__file__).parent))
_PROGRAMS = str(Path(tiga.__file__).parent / "_cli")
"""The demonstration's kernels are written as a user's are."""

_is_library: dict[str, bool] = {}


def _belongs_to_library(filename: str) -> bool:
    known = _is_library.get(filename)
    if known is None:
        library = filename.startswith((*_LIBRARIES, "<frozen"))
        known = library and not filename.startswith(_PROGRAMS)
        _is_library[filename] = known
    return known


def user_line() -> str:
    """`file:line` of the innermost frame outside torch and Tiga."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _belongs_to_library(frame.f_code.co_filename):
        frame = frame.f_back
    return "<unknown>" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
