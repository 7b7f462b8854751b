"""Measurements that need a process of their own: a child prints one JSON object, last."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class ChildFailed(Exception):
    """The child process did not finish; the message is the end of what it printed."""


def run_child(module: str, *arguments: str, seconds: float = 300) -> dict[str, Any]:
    """Run `python -m module arguments` from the repository and return what it measured."""
    # Large blocks go back to the system when freed, so that memory readings mean something.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONWARNINGS": "ignore"}
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
