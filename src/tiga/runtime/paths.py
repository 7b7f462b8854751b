"""Paths that users give: checked before anything is read or written."""

import os
from pathlib import Path
from typing import Any

from tiga.errors import InvalidFile, InvalidType
from tiga.runtime.caller import user_line


def as_path(path: Any) -> Path:
    """The path that text or a path-like object names.

    Example:
        >>> from tiga.runtime.paths import as_path
        >>> as_path("x.tiga").name
        'x.tiga'
    """
    try:
        return Path(path)
    except TypeError:
        raise InvalidType(
            f"expected a path as text or pathlib.Path, got {path!r} ({user_line()})."
        ) from None


def to_write(path: Any, overwrite: bool) -> Path:
    """The file to write under a name: where a symbolic link leads, as for `open`.

    Raises:
        FileExistsError: there is a file, and no `overwrite`.
        OSError: it is a folder, or is to be in one that does not exist.
    """
    path = as_path(path)
    if path.is_dir():
        raise IsADirectoryError(f"save: {path} is a folder; expected the name of a file.")
    if not overwrite and path.exists():
        raise FileExistsError(f"save: {path} exists; choose another name, or pass overwrite=True.")
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not path.parent.is_dir():
        raise FileNotFoundError(f"save: the folder {path.parent} does not exist; create it first.")
    return path


def to_read(path: Any) -> Path:
    """The path of a file that may be read: opening a pipe would wait for a writer.

    Raises:
        OSError: there is none, or it is a folder.
        InvalidFile: it is a pipe or a device.
    """
    path = as_path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; expected the file of a snapshot.")
    if path.exists() and not path.is_file():
        raise InvalidFile(f"{path} is a pipe or a device; expected the file of a snapshot.")
    return path
