"""The user's line, for messages of what runs without a program."""

import sys
from pathlib import Path
from types import FrameType

_OWN = str(Path(__file__).parents[1])


def user_line() -> str:
    """`file:line` of the nearest frame outside of Tiga."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
