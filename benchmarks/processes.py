"""Measurements that need a process of their own: a child prints one JSON object, last."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


KERNEL_CACHE = "TIGA_KERNEL_CACHE"
NOTHING_KEPT: Mapping[str, str] = {KERNEL_CACHE: "0"}
"""The environment of a child that compiles its kernels, whatever earlier processes left on disk."""


def kept_in(folder: str) -> Mapping[str, str]:
    """The environment of children that leave kernels for one another in a folder, and that is all
    that they find there."""
    return {"XDG_CACHE_HOME": folder, KERNEL_CACHE: "256MiB"}


class ChildFailed(Exception):
    """The child process did not finish; the message is the end of what it printed."""


# Large blocks go back to the system when freed, so that memory readings mean something.
_READABLE = {"MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONWARNINGS": "ignore"}


def run_child(
    module: str, *arguments: str, seconds: float = 300, kernels: Mapping[str, str] = NOTHING_KEPT
) -> dict[str, Any]:
    """Run `python -m module arguments` from the repository and return what it measured; `kernels`
    says which kernels it finds on disk."""
    environment = {**os.environ, **_READABLE, **kernels}
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if result.returncode != 0:
        raise ChildFailed(f"{module} {' '.join(arguments)}: {result.stderr[-800:]}")
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer
