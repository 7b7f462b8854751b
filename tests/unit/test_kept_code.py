"""What of machine code is kept, and how it is loaded: only what runs, and nothing else changes."""

import ctypes
import re
import signal
from pathlib import Path

import pytest

from tests.unit.kept import UNARY, adds, compiled, folder, results, served
from tiga.backends.llvm import image, registered
from tiga.backends.llvm.image import Image
from tiga.backends.llvm.object_file import image_of

__all__ = ["folder"]
pytestmark = [served, pytest.mark.usefixtures("folder")]

CALLED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def test_code_with_addresses_of_this_process_is_not_kept(folder):
    @UNARY
    def minus(a):
        return -a

    text = """
      llvm.func @outside(i64) -> i64
      llvm.func @f(%a: i64) -> i64 {
        %c = llvm.call @outside(%a) : (i64) -> i64
        llvm.return %c : i64
      }"""
    address = ctypes.cast(minus, ctypes.c_void_p).value
    for _ in range(2):
        library = compiled(text, symbols={"outside": address})
        assert not library.from_disk
        assert UNARY(library.address("f"))(7) == -7


def test_code_that_writes_to_memory_of_its_own_is_not_kept(folder):
    text = """
      llvm.mlir.global internal @count(5 : i64) : i64
      llvm.func @counts(%a: i64) -> i64 {
        %at = llvm.mlir.addressof @count : !llvm.ptr
        %old = llvm.load %at : !llvm.ptr -> i64
        %new = llvm.add %old, %a : i64
        llvm.store %new, %at : i64, !llvm.ptr
        llvm.return %new : i64
      }"""
    for _ in range(2):
        library = compiled(text)
        assert not library.from_disk
        call = UNARY(library.address("counts"))
        assert [call(2), call(2)] == [7, 9]
    assert not folder.exists()


def test_constants_and_functions_of_the_process_are_found():
    """A table, vectors of numbers, a choice among many and a call that the compiler makes."""
    text = """
      llvm.mlir.global internal constant @table(dense<[3, 1, 4, 1, 5, 9, 2, 6]> : tensor<8xi64>)
        : !llvm.array<8 x i64>
      func.func @f(%x: !llvm.ptr, %n: i64) {
        %zero = arith.constant 0 : i8
        "llvm.intr.memset"(%x, %zero, %n) <{isVolatile = false}> : (!llvm.ptr, i8, i64) -> ()
        %steps = arith.constant dense<[0.5, 1.5, 2.0, -4.0]> : vector<4xf64>
        llvm.store %steps, %x {alignment = 8 : i64} : vector<4xf64>, !llvm.ptr
        %table = llvm.mlir.addressof @table : !llvm.ptr
        %seven = arith.constant 7 : i64
        %i = arith.andi %n, %seven : i64
        %at = llvm.getelementptr %table[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %found = llvm.load %at : !llvm.ptr -> i64
        %to = llvm.getelementptr %x[4] : (!llvm.ptr) -> !llvm.ptr, i64
        llvm.store %found, %to : i64, !llvm.ptr
        return
      }"""
    answers = []
    for from_disk in (False, True):
        library = compiled(text)
        assert library.from_disk is from_disk
        values = (ctypes.c_double * 8)(*[7.0] * 8)
        CALLED(library.address("f"))(ctypes.addressof(values), 61)
        answers.append(bytes(values))
    assert answers[0] == answers[1]
    assert list(values[:4]) == [0.5, 1.5, 2.0, -4.0]
    assert ctypes.c_int64.from_buffer(values, 32).value == 9
    assert values[5:7] == [0.0, 0.0]


def test_a_choice_among_many_is_kept():
    cases = ", ".join(f"{i}: ^b{i}" for i in range(12))
    blocks = "\n".join(
        f"^b{i}:\n  %r{i} = llvm.call @g(%c{i * i % 7}) : (i64) -> i64\n  llvm.return %r{i} : i64"
        for i in range(12)
    )
    numbers = "\n".join(f"%c{i} = llvm.mlir.constant({i + 100} : i64) : i64" for i in range(7))
    text = f"""
      llvm.func internal @g(%a: i64) -> i64 attributes {{no_inline}} {{
        llvm.inline_asm has_side_effects "", "" : () -> ()
        llvm.return %a : i64
      }}
      llvm.func @f(%a: i64) -> i64 {{
        {numbers}
        llvm.switch %a : i64, ^other [{cases}]
      {blocks}
      ^other:
        llvm.return %a : i64
      }}"""
    for from_disk in (False, True):
        library = compiled(text, opt_level=0)
        assert library.from_disk is from_disk
        expected = [100 + i * i % 7 for i in range(12)] + [12, 13]
        assert [UNARY(library.address("f"))(i) for i in range(14)] == expected


def test_where_no_object_file_can_be_had_nothing_is_kept(folder, monkeypatch):
    def refuse(memory):
        raise OSError("an entry is gone")
        yield

    for files in (refuse, lambda memory: iter(()), lambda memory: iter([b"", bytes(200)])):
        monkeypatch.setattr(registered, "object_files", files)
        library = compiled(adds(3))
        assert results(library) == [23, 40]
        assert not folder.exists()


def test_only_what_is_in_memory_is_kept(folder, monkeypatch):
    """An object file that is not, to the last byte, what runs is not taken."""
    files = registered.object_files

    def changed(memory):
        for data in files(memory):
            code = (20).to_bytes(8, "little")
            assert code in data
            yield data.replace(code, (21).to_bytes(8, "little"))

    text = """
      llvm.mlir.global internal constant @table(dense<[20, 30, 40, 50]> : tensor<4xi64>)
        : !llvm.array<4 x i64>
      llvm.func @f(%i: i64) -> i64 {
        %table = llvm.mlir.addressof @table : !llvm.ptr
        %at = llvm.getelementptr %table[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        %found = llvm.load %at : !llvm.ptr -> i64
        llvm.return %found : i64
      }"""
    monkeypatch.setattr(registered, "object_files", lambda memory: changed(memory))
    monkeypatch.setattr(registered, "MOST_ENTRIES", 1)
    assert UNARY(compiled(text).address("f"))(0) == 20
    assert not folder.exists()
    monkeypatch.setattr(registered, "object_files", files)
    assert UNARY(compiled(text).address("f"))(0) == 20
    again = compiled(text)
    assert again.from_disk
    assert UNARY(again.address("f"))(0) == 20


def test_signals_are_handled_as_before():
    """LLVM has functions that take over the signals of a process."""
    got = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
    try:
        caught = re.findall("^Sig(?:Cgt|Ign|Blk):.*$", status(), re.MULTILINE)
        compiled(adds(6))
        assert compiled(adds(6)).from_disk
        assert re.findall("^Sig(?:Cgt|Ign|Blk):.*$", status(), re.MULTILINE) == caught
        signal.raise_signal(signal.SIGUSR1)
        assert got == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def status():
    return Path("/proc/self/status").read_text()


def test_where_memory_cannot_be_executed_code_is_compiled(monkeypatch):
    compiled(adds(3))

    def refuse(base, nbytes):
        raise OSError("denied")

    monkeypatch.setattr(image, "_make_executable", refuse)
    library = compiled(adds(3))
    assert not library.from_disk
    assert results(library) == [23, 40]


def test_memory_of_code_cannot_be_written_to():
    compiled(adds(3))
    library = compiled(adds(3))
    address = library.address("adds")
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            assert line.split()[1] == "r-xp"
            return
    pytest.fail("the code is in no memory of this process")


def test_images_come_back_from_bytes():
    made = Image(b"\x90" * 32, {"f": 0, "g": 16}, (3, 8), ((20, "memset", -4),))
    assert Image.unpacked(made.packed()) == made
    assert made.is_known
    assert not Image(b"\x90", {}, (), ((0, "tiga_no_such_function", 0),)).is_known


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" * 100, bytes(200)])
def test_what_is_no_object_file_is_not_taken(data):
    assert image_of(data, {"f": 0}, lambda address, nbytes: bytes(nbytes)) is None


def test_memory_is_read_wherever_it_is():
    held = ctypes.create_string_buffer(b"something")
    with registered.own_memory() as memory:
        assert memory(ctypes.addressof(held), 9) == b"something"
        for address in (0, 2**47, 2**64 - 8):
            with pytest.raises(OSError, match=r"memory|Input/output"):
                memory(address, 8)
