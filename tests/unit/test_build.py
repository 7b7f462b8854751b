"""Distributions built from a checkout, from a copy without git and from a source archive agree."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
FILES = ["pyproject.toml", "README.md", "LICENSE", "src"]

pytestmark = pytest.mark.slow


def _run(*command: str, cwd: Path) -> None:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def _copy(folder: Path) -> Path:
    for name in FILES:
        source = ROOT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(source, folder / name)
    return folder


def _wheel(source: Path, out: Path) -> tuple[str, str]:
    """Build a wheel; return the version in its name and the version in its metadata."""
    _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(out), ".", cwd=source)
    (wheel,) = out.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("METADATA")]
        lines = archive.read(name).decode().splitlines()
        assert "tiga/py.typed" in archive.namelist()
    (version,) = [line.split(": ")[1] for line in lines if line.startswith("Version: ")]
    assert Version(version)
    return wheel.name.split("-")[1], version


def test_copy_without_git(tmp_path: Path) -> None:
    copy = _copy(tmp_path / "copy")
    assert _wheel(copy, tmp_path / "out") == ("0.1.0.dev0", "0.1.0.dev0")


def test_tag_and_source_archive(tmp_path: Path) -> None:
    copy = _copy(tmp_path / "copy")
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    _run("git", "init", "-q", cwd=copy)
    _run("git", "add", ".", cwd=copy)
    _run("git", *identity, "commit", "-q", "-m", "x", cwd=copy)
    untagged = _wheel(copy, tmp_path / "untagged")[1]
    assert untagged.startswith("0.1.0.dev1+g")

    _run("git", *identity, "tag", "-a", "v1.2.3", "-m", "x", cwd=copy)
    assert _wheel(copy, tmp_path / "tagged") == ("1.2.3", "1.2.3")

    build = "import hatchling.build as b; b.build_sdist('.')"
    _run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--target",
        str(tmp_path / "tools"),
        "hatchling",
        "hatch-vcs",
        cwd=copy,
    )
    _run("env", f"PYTHONPATH={tmp_path / 'tools'}", sys.executable, "-c", build, cwd=copy)
    (archive,) = copy.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "archive", filter="data")
    (source,) = (tmp_path / "archive").iterdir()
    assert _wheel(source, tmp_path / "from_archive") == ("1.2.3", "1.2.3")
