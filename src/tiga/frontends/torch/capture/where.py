"""The user's line: where in `edge` or `node` an op was asked for."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

import torch

import tiga
from tiga.errors import TigaError

_TIGA = str(Path(tiga.__file__).parent)
_LIBRARIES = (str(Path(torch.__file__).parent), _TIGA)
_STANDARD, _PACKAGES = str(Path(os.__file__).parent), ("site-packages", "dist-packages")
_PROGRAMS = str(Path(tiga.__file__).parent / "_cli")
"""The demonstration's kernels are written as a user's are."""

_is_library: dict[str, bool] = {}


def _belongs_to_library(filename: str) -> bool:
    known = _is_library.get(filename)
    if known is None:
        standard = filename.startswith(_STANDARD) and not any(p in filename for p in _PACKAGES)
        library = standard or filename.startswith((*_LIBRARIES, "<frozen"))
        known = library and not filename.startswith(_PROGRAMS)
        _is_library[filename] = known
    return known


def user_line() -> str:
    """`file:line` of the innermost frame outside torch, Tiga and Python's own modules."""
    return line_of_frame(sys._getframe(1))


def line_of_frame(frame: FrameType | None) -> str:
    """The same, of the frames from one on."""
    while frame is not None and _belongs_to_library(frame.f_code.co_filename):
        frame = frame.f_back
    return "<unknown>" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def asking_file() -> str:
    """The file of the code that called Tiga, torch's or a user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_TIGA):
        frame = frame.f_back
    return "<unknown>" if frame is None else frame.f_code.co_filename


def asked_by_user() -> bool:
    """Whether it is code of the user's, and not of torch's, that called Tiga."""
    return not _belongs_to_library(asking_file())


@contextmanager
def located(where: Callable[[], str]) -> Iterator[None]:
    """Give errors that name no line of the user's the one they come from; `where` says which it is
    when they come from no code of the user's."""
    try:
        yield
    except TigaError as error:
        line = _innermost(error.__traceback__) or where()
        file, _, _ = line.rpartition(":")
        if not file or file in str(error):
            raise
        raise type(error)(f"{line}: {error}") from None


def _innermost(traceback: TracebackType | None) -> str | None:
    """The innermost line outside torch and Tiga of those below the caller's."""
    found = None
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if not _belongs_to_library(filename):
            found = f"{filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


def first_of_ours(error: BaseException | None) -> TigaError | None:
    """What we raised before others failed in turn, as torch does on its way out of a transform."""
    while error is not None and not isinstance(error, TigaError):
        error = error.__context__
    return error
