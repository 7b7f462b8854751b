"""The package as a whole: version, what importing it loads, the shape of its sources."""

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

import tiga

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "tiga").rglob("*.py"))
CODE = [
    *SOURCES,
    *(
        p
        for folder in ("tests", "benchmarks", "tools")
        for p in sorted((ROOT / folder).rglob("*.py"))
    ),
]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _imports(path: Path) -> set[str]:
    """Top-level names of every module that the file imports, and the names after `from`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_version_is_the_distribution_s() -> None:
    assert tiga.__version__ == importlib.metadata.version("tiga-lang")
    assert str(Version(tiga.__version__))


def test_importing_tiga_loads_no_heavy_library() -> None:
    code = (
        "import sys, tiga; tiga.__version__; dir(tiga)\n"
        "heavy = {'torch', 'triton', 'cuda', 'torch_mlir', 'numpy', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'import tiga loads {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sums'"):
        tiga.sums  # noqa: B018


@pytest.mark.parametrize("path", CODE, ids=_name)
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
    assert path.name != "utils.py"


def _compares_names(node: ast.AST) -> bool:
    """Whether an expression compares `op.name` with a text, or with several that stand there."""
    if not (isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute)):
        return False
    owner = node.left.value
    of_op = "op" in (getattr(owner, "id", None), getattr(owner, "attr", None))
    return of_op and node.left.attr == "name" and isinstance(node.comparators[0], TEXTS)


TEXTS = (ast.Constant, ast.Tuple, ast.List, ast.Set)


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_nothing_asks_for_the_name_of_an_op(path: Path) -> None:
    """What the compiler must know of an op is declared on its class."""
    assert not any(map(_compares_names, ast.walk(ast.parse(path.read_text()))))


FACTS = {
    "Pointwise": "pointwise", "Cast": "converts", "Reshape": "reshapes", "Broadcast": "broadcasts",
    "FeatureReduce": "reduces", "Scan": "carries", "Winner": "finds", "PackBits": "packs",
    "UnpackBits": "unpacks",
}  # fmt: skip
"""What compilers ask instead of whether an op is of one of these classes."""

COMPILERS = [p for p in SOURCES if {"passes", "backends"} & set(p.relative_to(ROOT).parts)]


def _asked_classes(tree: ast.AST) -> set[str]:
    """The names in the second arguments of `isinstance`, but for those of assertions."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Assert):
            continue
        found |= _asked_classes(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            classes = node.args[1:] if node.func.id == "isinstance" else []
            names = (n for c in classes for n in ast.walk(c) if isinstance(n, ast.Name))
            found |= {n.id for n in names}
    return found


@pytest.mark.parametrize("path", COMPILERS, ids=_name)
def test_compilers_ask_for_facts_and_not_for_classes(path: Path) -> None:
    """So that an op which is of no class that they know is compiled as well."""
    asked = _asked_classes(ast.parse(path.read_text())) & set(FACTS)
    assert not asked, f"ask for {', '.join(FACTS[name] for name in sorted(asked))}"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_dialect_files_keep_annotations_as_objects(path: Path) -> None:
    """Postponed annotations make the MLIR op DSL read every operand as an attribute, silently."""
    imports = _imports(path)
    if any(name.startswith("torch_mlir.dialects.ext") for name in imports):
        assert "__future__.annotations" not in imports


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_every_module_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring is not None
    assert len(docstring) > 10
