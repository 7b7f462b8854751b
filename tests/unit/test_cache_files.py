"""Files kept for later processes: whole or missing, ours alone, the oldest out."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tiga.runtime import cache_files
from tiga.runtime.cache_files import CacheFiles, Held, cache_folder


@pytest.fixture
def files(tmp_path: Path) -> CacheFiles:
    return CacheFiles(tmp_path / "tiga" / "things", 2**20)


def place(files: CacheFiles, name: str) -> Path:
    return files.folder / f"{name}.cached"


def test_what_is_written_is_read(files: CacheFiles) -> None:
    assert files.read("a") is None
    assert files.held() == Held(0, 0)
    assert files.write("a", b"one")
    assert files.write("b", b"")
    assert files.write("a", b"other")
    assert (files.read("a"), files.read("b")) == (b"other", b"")
    assert {path.name for path in files.folder.iterdir()} == {"a.cached", "b.cached"}
    held = files.held()
    assert held is not None
    assert held == Held(2, place(files, "a").stat().st_size + place(files, "b").stat().st_size)


def test_nobody_else_can_write(files: CacheFiles) -> None:
    files.write("a", b"one")
    assert files.folder.stat().st_mode & 0o777 == 0o700
    assert place(files, "a").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:10],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: bytes(len(data)),
    ],
)
def test_what_is_damaged_is_missing(files: CacheFiles, damage) -> None:
    files.write("a", b"something long enough")
    whole = place(files, "a").read_bytes()
    place(files, "a").write_bytes(damage(whole))
    assert files.read("a") is None
    assert files.write("a", b"again")
    assert files.read("a") == b"again"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to_is_not_used(files: CacheFiles, mode: int) -> None:
    files.write("a", b"one")
    files.folder.chmod(mode)
    assert files.read("a") is None
    assert not files.write("b", b"two")
    assert files.held() is None
    files.folder.chmod(0o755)
    assert files.read("a") == b"one"


def test_a_file_that_others_can_write_to_is_not_used(files: CacheFiles) -> None:
    files.write("a", b"one")
    place(files, "a").chmod(0o666)
    assert files.read("a") is None


def test_what_belongs_to_somebody_else_is_not_used(
    files: CacheFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("a", b"one")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert files.read("a") is None
    assert not files.write("b", b"two")


def test_links_and_pipes_are_not_followed(files: CacheFiles, tmp_path: Path) -> None:
    files.write("a", b"one")
    place(files, "b").symlink_to(place(files, "a"))
    os.mkfifo(place(files, "c"), 0o600)
    assert files.read("b") is None
    assert files.read("c") is None
    (tmp_path / "link").symlink_to(files.folder)
    assert CacheFiles(tmp_path / "link", 2**20).read("a") is None


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    files = CacheFiles(tmp_path / "file", 2**20)
    assert not files.write("a", b"one")
    assert files.read("a") is None
    assert (tmp_path / "file").read_text() == "no folder"


def aged(files: CacheFiles, ages: dict[str, int]) -> None:
    for name, days in ages.items():
        os.utime(place(files, name), (0, 10**9 - days * 86400))


def test_the_oldest_go_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    files = CacheFiles(tmp_path, 1000)
    for name in "abcd":
        files.write(name, bytes(200))
    aged(files, {"a": 1, "b": 4, "c": 3, "d": 2})
    (tmp_path / "of another").write_bytes(bytes(5000))
    files.write("e", bytes(400))
    assert sorted(path.stem for path in tmp_path.glob("*.cached")) == ["a", "d", "e"]
    assert (tmp_path / "of another").exists()


def test_what_other_processes_wrote_counts(tmp_path: Path) -> None:
    one, other = CacheFiles(tmp_path, 1600), CacheFiles(tmp_path, 1600)
    one.write("first", bytes(200))
    for number in range(20):
        other.write(str(number), bytes(200))
        held = other.held()
        assert held is not None
        assert held.nbytes <= 1600 + 1600 // cache_files.LOOKS + 300
    one.write("last", bytes(200))
    assert one.read("last") == bytes(200)


def test_what_is_read_is_not_old(tmp_path: Path) -> None:
    files = CacheFiles(tmp_path, 1000)
    for name in "abc":
        files.write(name, bytes(200))
    for name in "abc":
        os.utime(place(files, name), (0, 0))
    assert files.read("b") == bytes(200)
    files.write("d", bytes(400))
    assert files.read("b") == bytes(200)
    assert files.read("a") is None


def test_many_writers_leave_whole_files(files: CacheFiles) -> None:
    contents = {f"{n}": bytes([n]) * (1000 + n) for n in range(4)}

    def write_and_read(number: int) -> bool:
        name = str(number % 4)
        wrote = CacheFiles(files.folder, 2**20).write(name, contents[name])
        return wrote and files.read(name) == contents[name]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write_and_read, range(64)))
    assert {path.stem for path in files.folder.iterdir()} == set(contents)


def test_files_that_others_remove_meanwhile_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CacheFiles(tmp_path, 300)
    files.write("a", bytes(100))
    listed = cache_files._listed

    def then_removed(folder: int) -> list[tuple[int, int, str]]:
        found = listed(folder)
        place(files, "a").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(cache_files, "_listed", then_removed)
    assert files.write("b", bytes(400))


def test_folders_are_those_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("things") == tmp_path / "tiga" / "things"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("things") == tmp_path / ".cache" / "tiga" / "things"

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder("things") is None
