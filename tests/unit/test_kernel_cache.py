"""Machine code kept on disk: found when all that it depends on is as it was, and only then."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_mlir import ir

from tests.unit.kept import adds, compiled, folder, results, served
from tiga.backends.llvm import kernel_cache
from tiga.backends.llvm.engine import shared_library
from tiga.backends.llvm.kernel_cache import AFTER_EMISSION

__all__ = ["folder"]
pytestmark = [served, pytest.mark.usefixtures("folder")]


def test_code_is_kept_and_found(folder):
    first, second, other = compiled(adds(3)), compiled(adds(3)), compiled(adds(4))
    assert [one.from_disk for one in (first, second, other)] == [False, True, False]
    assert first.names == second.names == ("adds", "doubles")
    assert results(first) == results(second) == [23, 40]
    assert results(other) == [24, 40]
    assert len(list(folder.iterdir())) == 2
    with pytest.raises(KeyError):
        second.address("twice")


def test_shared_libraries_are_found(folder):
    with ir.Context():
        first = shared_library(ir.Module.parse(adds(5)))
    assert results(first) == [25, 40]
    assert not first.from_disk
    del first
    with ir.Context():
        again = shared_library(ir.Module.parse(adds(5)))
        assert shared_library(ir.Module.parse(adds(5))) is again
    assert again.from_disk
    assert results(again) == [25, 40]


def test_nothing_is_kept_on_request(folder, monkeypatch):
    monkeypatch.setenv("TIGA_KERNEL_CACHE", "0")
    assert not compiled(adds(3)).from_disk
    assert not compiled(adds(3)).from_disk
    assert not folder.exists()


def test_nothing_is_found_on_request(folder, monkeypatch):
    compiled(adds(3))
    monkeypatch.setenv("TIGA_KERNEL_CACHE", "off")
    assert not compiled(adds(3)).from_disk


def test_how_a_module_is_compiled_tells_code_apart():
    assert not compiled(adds(3)).from_disk
    assert not compiled(adds(3), opt_level=1).from_disk
    assert not compiled(adds(3), verify=True).from_disk
    assert compiled(adds(3), opt_level=1).from_disk


def test_stages_are_dumped_of_what_is_kept():
    compiled(adds(3))
    stages = []
    library = compiled(adds(3), dump=lambda name, text: stages.append(name))
    assert len(stages) > 2
    assert not library.from_disk
    assert "define i64 @adds" in compiled(adds(3), keep_llvm_ir=True).llvm_ir()


def test_code_for_another_processor_is_not_found(monkeypatch):
    compiled(adds(3))
    here = kernel_cache.processor()
    flags = here.splitlines()[-1]
    for other in (here.replace(flags, flags + " avx1024"), here.replace("model", "model 7", 1)):
        kernel_cache._writer.cache_clear()
        monkeypatch.setattr(kernel_cache, "processor", lambda other=other: other)
        assert not compiled(adds(3)).from_disk
        assert compiled(adds(3)).from_disk


def test_where_the_processor_is_not_known_nothing_is_kept(folder, monkeypatch):
    monkeypatch.setattr(kernel_cache, "processor", lambda: None)
    assert not compiled(adds(3)).from_disk
    assert not folder.exists()


def test_code_of_another_compiler_is_not_found(monkeypatch, tmp_path):
    compiled(adds(3))
    kernel_cache._writer.cache_clear()
    (tmp_path / "compiler").write_bytes(b"of another size")
    monkeypatch.setattr(kernel_cache, "compiler_library", lambda: tmp_path / "compiler")
    assert not compiled(adds(3)).from_disk


def test_code_of_another_version_of_this_package_is_not_found(monkeypatch, tmp_path):
    compiled(adds(3))
    kernel_cache._writer.cache_clear()
    (tmp_path / "changed.py").write_text("# another version\n")
    changed = (*AFTER_EMISSION[1:], str(tmp_path / "changed.py"))
    monkeypatch.setattr(kernel_cache, "AFTER_EMISSION", changed)
    assert not compiled(adds(3)).from_disk


def test_every_file_that_decides_what_becomes_of_a_module_counts():
    package = Path(kernel_cache.__file__).parent
    found, left = set(), ["engine.py"]
    while left:
        name = left.pop()
        if name in found or not (package / name).exists():
            continue
        found.add(name)
        for node in ast.walk(ast.parse((package / name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("tiga.backends.llvm."):
                left.append(node.module.removeprefix("tiga.backends.llvm.") + ".py")
    assert found == set(AFTER_EMISSION)


def test_damaged_code_is_compiled_anew(folder):
    compiled(adds(3))
    (place,) = folder.iterdir()
    whole = place.read_bytes()
    place.write_bytes(whole[:-3] + b"\xcc\xcc\xcc")
    again = compiled(adds(3))
    assert not again.from_disk
    assert results(again) == [23, 40]
    assert compiled(adds(3)).from_disk


def test_code_under_the_name_of_another_is_not_run(folder):
    compiled(adds(3))
    (one,) = folder.iterdir()
    compiled(adds(4))
    (other,) = set(folder.iterdir()) - {one}
    one.replace(other)
    found = compiled(adds(4))
    assert not found.from_disk
    assert results(found) == [24, 40]


def test_a_folder_of_others_is_not_used(folder):
    compiled(adds(3))
    folder.chmod(0o777)
    assert not compiled(adds(3)).from_disk


_CHILD = """
import hashlib, json, sys
import numpy as np
import tiga as tg
from tiga.backends.llvm import engine

made = []
init = engine.Library.__init__
def noted(library, *arguments):
    init(library, *arguments)
    made.append(library)
engine.Library.__init__ = noted

class Attention(tg.MessagePassing):
    reducer = tg.softmax()
    def edge(self, src, dst, edge):
        return self.reducer(tg.tanh(src.x - dst.x).sum(-1), src.x * 2.0)

rng = np.random.default_rng(1)
src, dst = rng.integers(0, 40, (2, 300))
graph = tg.Graph.from_coo(src, dst, num_src=40, num_dst=40)
x = tg.tensor(rng.standard_normal((40, 6)).astype(np.float32), requires_grad=True)
attention = Attention()
y = attention(graph=graph, ndata={"x": x})
total = (y * y).sum()
(slope,) = tg.autograd.grad(total, [x])
z = (tg.ones((200, 200)) * 3.0 + tg.arange(200)).sum(axis=1).realize()
told = hashlib.sha256()
for value in (y, total, slope, z):
    told.update(value.numpy().tobytes())
kernel = z.execution
explained = [line for line in attention.explain().splitlines() if "from disk" in line]
print(json.dumps({"bits": told.hexdigest(), "made": len(made),
                  "from_disk": sum(one.from_disk for one in made),
                  "kernels": kernel["kernels"], "told": kernel["kernels_from_disk"],
                  "explained": explained}))
"""


def start_child(folder, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(folder), **environment},
    )  # fmt: skip


def answer(child):
    printed, _ = child.communicate()
    assert child.returncode == 0
    return json.loads(printed)


def test_later_processes_compute_the_same_bits_without_compiling(tmp_path):
    without = answer(start_child(tmp_path, TIGA_KERNEL_CACHE="0"))
    # At once: they write the same files.
    writers = [answer(child) for child in [start_child(tmp_path) for _ in range(2)]]
    reader = answer(start_child(tmp_path))
    assert without["from_disk"] == without["told"] == 0
    assert reader["from_disk"] == reader["made"] == without["made"] > 2
    assert reader["told"] == reader["kernels"] == 1
    assert without["explained"] == []
    assert reader["explained"]
    for line in reader["explained"]:
        assert re.fullmatch(r" *code of (\d+) of \1 kernels from disk", line)
    assert {one["bits"] for one in (without, *writers, reader)} == {without["bits"]}
