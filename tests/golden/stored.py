"""The text of kernels as users read it, kept beside this file: a change must be meant."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent

UPDATE = "TIGA_GOLDEN_UPDATE" in os.environ


def require_stored(name: str, text: str) -> None:
    """Compare with the file of a name; `make golden` writes it anew."""
    path = FOLDER / name
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{name} is missing: run `make golden` and read what it writes"
    stored = path.read_text(encoding="utf-8")
    assert text == stored, "a kernel changed: if it should, run `make golden`"
