"""Snapshots: whole or not there, checked before use, read by others."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import tiga as tg
from tiga.errors import InvalidFile, InvalidType, InvalidValue

DTYPES = [
    tg.float16, tg.bfloat16, tg.float32, tg.float64, tg.int8, tg.int16, tg.int32, tg.int64,
    tg.uint8, tg.bool, tg.complex64, tg.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (4, 5)], ids=str)
def test_every_dtype_and_shape_comes_back(dtype: object, shape: tuple, tmp_path: Path) -> None:
    size = int(np.prod(shape))
    x = tg.arange(size).reshape(shape).astype(dtype)
    back = tg.load(tg.save(x, tmp_path / "x.tiga"))
    assert (back.shape, back.dtype) == (x.shape, x.dtype)
    assert back.residency["backing"] == "snapshot"
    assert not back.requires_grad
    assert back.tolist() == x.tolist()


def test_other_readers_read_it(tmp_path: Path) -> None:
    x, y = tg.arange(6).reshape(2, 3).T, tg.tensor([1 + 2j])
    path = tg.save({"x": x, "y": y}, tmp_path / "xy.tiga")
    arrays = load_file(path)
    assert arrays["x"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert arrays["y"].tolist() == [[1.0, 2.0]]
    with safe_open(path, "np") as file:
        assert "tiga" in file.metadata()


def test_a_dict_comes_back_by_name_and_lazily(tmp_path: Path) -> None:
    path = tg.save({"a": tg.ones(3), "b": tg.zeros((2, 2))}, tmp_path / "d.tiga")
    found = tg.load(path)
    assert sorted(found) == ["a", "b"]
    assert not any(t.residency["resident"] for t in found.values())
    assert (found["a"].sum() + found["b"].sum()).item() == 3


def test_no_overwrite_unless_asked_and_readers_keep_the_old(tmp_path: Path) -> None:
    path = tg.save(tg.ones(3), tmp_path / "x.tiga")
    old = tg.load(path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        tg.save(tg.zeros(3), path)
    tg.zeros(3).save(path, overwrite=True)
    assert old.tolist() == [1.0] * 3
    assert tg.load(path).tolist() == [0.0] * 3
    path.unlink()
    assert [p.name for p in tmp_path.iterdir()] == []


def test_writing_in_place_stays_in_memory(tmp_path: Path) -> None:
    path = tg.save(tg.ones(3), tmp_path / "x.tiga")
    x = tg.load(path)
    x.add_(1.0)
    x.spill()
    assert x.residency["backing"] == "temporary-spill"
    assert x.tolist() == [2.0] * 3
    assert tg.load(path).tolist() == [1.0] * 3


def test_what_was_not_written_goes_back_to_the_snapshot(tmp_path: Path) -> None:
    x = tg.load(tg.save(tg.arange(1000), tmp_path / "x.tiga"))
    assert x[999].item() == 999
    with tg.execution(memory={"nvme": 0}):
        x.spill()
    assert x.residency["backing"] == "snapshot"
    assert x.sum().item() == 499500


def test_attached_tensors_enter_programs_and_get_gradients(tmp_path: Path) -> None:
    x = tg.load(tg.save(tg.tensor([1.0, 2.0]), tmp_path / "x.tiga")).requires_grad_()
    (grad,) = tg.autograd.grad((x * x).sum(), [x])
    assert grad.tolist() == [2.0, 4.0]


def test_attaching_reads_no_bytes(tmp_path: Path) -> None:
    path = tmp_path / "big.tiga"
    tg.save(tg.zeros(4 * 2**20), path)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    x = tg.load(path)
    with pytest.raises(InvalidFile, match="checksum"):
        x.tolist()
    assert tg.load(path, verify=False).sum().item() > 0


@pytest.mark.parametrize("value", [3, [1], {"a": 1}, "text", None])
def test_other_values_are_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidType, match=r"tg\.save"):
        tg.save(value, tmp_path / "x.tiga")
    assert list(tmp_path.iterdir()) == []


def test_bad_names_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="names"):
        tg.save({"": tg.ones(1)}, tmp_path / "x.tiga")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        tg.save(tg.ones(1), tmp_path / "none" / "x.tiga")
    with pytest.raises(FileNotFoundError):
        tg.load(tmp_path / "none.tiga")


def test_foreign_and_newer_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_file({"x": np.ones(3)}, path)
    with pytest.raises(InvalidFile, match="safetensors package"):
        tg.load(path)
    data = tg.save(tg.ones(3), tmp_path / "y").read_bytes()
    path.write_bytes(data.replace(b'\\"format\\": 1', b'\\"format\\": 9'))
    with pytest.raises(InvalidFile, match="newer"):
        tg.load(path)
    for junk in (b"", b"short", b"\x00" * 100, b"\xff" * 100, os.urandom(1000), b"[" * 5000):
        path.write_bytes(junk)
        with pytest.raises(InvalidFile):
            tg.load(path)
    path.write_bytes(struct.pack("<Q", 5000) + b"[" * 5000)
    with pytest.raises(InvalidFile):
        tg.load(path)


def _read(path: Path) -> dict:
    return {name: x.tolist() for name, x in tg.load(path).items()}


def test_no_mutation_gives_a_wrong_value(tmp_path: Path, rng: np.random.Generator) -> None:
    """Cut, lengthened and flipped anywhere: each file is refused before a value comes of it."""
    path = tmp_path / "x.tiga"
    tg.save({"a": tg.arange(50), "b": tg.ones((3, 2))}, path)
    whole = path.read_bytes()
    mutations = [whole[:n] for n in rng.integers(0, len(whole), 100)]
    mutations += [whole + b"\x00", whole + whole]
    for _ in range(600):
        flipped = bytearray(whole)
        flipped[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        mutations.append(bytes(flipped))
    for mutation in mutations:
        path.write_bytes(mutation)
        with pytest.raises(InvalidFile, match=r"x\.tiga"):
            _read(path)
    path.write_bytes(whole)
    assert _read(path)["a"] == list(range(50))


def test_cut_after_it_was_attached(tmp_path: Path) -> None:
    path = tg.save(tg.zeros(100_000), tmp_path / "x.tiga")
    x = tg.load(path)
    os.truncate(path, 5000)
    with pytest.raises(InvalidFile, match="cut"):
        x.tolist()


def test_leftovers_of_dead_processes_go(tmp_path: Path) -> None:
    dead = tmp_path / ".tiga-save-999999999-5-ab"
    dead.write_bytes(b"x")
    tg.save(tg.ones(1), tmp_path / "x.tiga")
    assert not dead.exists()


def test_a_folder_is_no_snapshot(tmp_path: Path) -> None:
    for attach in (tg.load, tg.Graph.open):
        with pytest.raises(IsADirectoryError, match=f"{tmp_path.name} is a folder"):
            attach(tmp_path)


def test_a_link_leads_to_the_file_that_is_written(tmp_path: Path) -> None:
    real = tg.save(tg.ones(3), tmp_path / "real.tiga")
    link, dangling = tmp_path / "link.tiga", tmp_path / "dangling.tiga"
    link.symlink_to(real)
    dangling.symlink_to(tmp_path / "new.tiga")
    with pytest.raises(FileExistsError):
        tg.save(tg.zeros(3), link)
    assert tg.save(tg.zeros(3), link, overwrite=True) == link
    assert tg.save(tg.ones(2), dangling) == dangling
    assert link.is_symlink()
    assert tg.load(real).tolist() == [0.0, 0.0, 0.0]
    assert tg.load(tmp_path / "new.tiga").tolist() == [1.0, 1.0]


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidFile, match="pipe"):
        tg.load(tmp_path / "pipe")  # rather than wait for a writer
    with pytest.raises(IsADirectoryError, match="is a folder"):
        tg.save(tg.ones(1), tmp_path, overwrite=True)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        tg.Graph.write_csr(tmp_path, [([0], [0])], num_nodes=1, overwrite=True)
    for path in (None, 3, b"x.tiga"):
        for call in (tg.load, lambda p: tg.save(tg.ones(1), p), tg.Graph.open):
            with pytest.raises(InvalidType, match="expected a path"):
                call(path)
    with pytest.raises(InvalidType, match="expected a path"), tg.execution(spill_dir=3):
        pass
