"""The demonstration learns: its accuracy on the digits that it was not told."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("sklearn")


def test_the_demo_learns_the_digits():
    command = [sys.executable, "-m", "tiga", "demo", "--no-compare"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"test accuracy: ([0-9.]+)%", done.stdout)
    assert accuracy is not None, done.stdout
    assert float(accuracy[1]) > 92
    assert "digits.py:" in done.stdout  # the line of the layer's own message
