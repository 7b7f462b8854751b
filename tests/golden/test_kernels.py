"""The text of generated kernels, compared with what is stored beside this file.

A change of a kernel shows here as a diff to read. `make golden` rewrites the files.
"""

import os
import subprocess
import sys

import pytest

from tests.golden.programs import PROGRAMS, text
from tests.golden.stored import FOLDER, UPDATE, require_stored


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_of_kernels(name):
    require_stored(f"{name}.mlir", text(name))


def test_every_file_has_a_program():
    assert {path.stem for path in FOLDER.glob("*.mlir")} == set(PROGRAMS)


@pytest.mark.skipif(UPDATE, reason="the files are being written")
def test_text_is_the_same_in_another_process():
    """No order of a hash table and no address gets into a kernel."""
    name = "softmax_attention"
    script = f"from tests.golden.programs import text; print(text({name!r}), end='')"
    for seed in ("1", "2"):
        made = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            cwd=FOLDER.parents[1],
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
        assert made.stdout == (FOLDER / f"{name}.mlir").read_text()
