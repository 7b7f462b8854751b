"""The examples import one another as scripts of one folder do."""

import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Where Python itself puts the folder of a script.
sys.path.insert(0, str(EXAMPLES))

pytest.importorskip("torch")
pytest.importorskip("sklearn")
