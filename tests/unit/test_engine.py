"""Compiling MLIR modules: addresses, outside symbols, dumps, lifetime."""

import ctypes
import gc
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch_mlir import ir

from tiga.backends.llvm.engine import PIPELINE, Library, compile_module, shared_library
from tiga.backends.llvm.machine_code import generate_side_by_side

BINARY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
UNARY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)

TWO_FUNCTIONS = """
func.func @plus(%a: i64, %b: i64) -> i64 {
  %c = arith.addi %a, %b : i64
  return %c : i64
}
func.func private @twice(%a: i64) -> i64 {
  %c = arith.addi %a, %a : i64
  return %c : i64
}
llvm.func internal @hidden(%a: i64) -> i64 {
  llvm.return %a : i64
}
llvm.func @four_times(%a: i64) -> i64 {
  %b = func.call @twice(%a) : (i64) -> i64
  %c = func.call @twice(%b) : (i64) -> i64
  llvm.return %c : i64
}
"""


def library_of(text, **options):
    with ir.Context():
        return compile_module(ir.Module.parse(text), **options)


def test_public_functions_have_addresses():
    library = library_of(TWO_FUNCTIONS, verify=True)
    assert set(library.names) == {"plus", "four_times"}
    assert BINARY(library.address("plus"))(40, 2) == 42
    assert UNARY(library.address("four_times"))(-3) == -12
    with pytest.raises(KeyError):
        library.address("absent")


def test_code_lives_as_long_as_its_library():
    libraries = [
        library_of(f"func.func @f() -> i64 {{ %c = arith.constant {i} : i64 return %c : i64 }}")
        for i in range(8)
    ]
    gc.collect()
    call = ctypes.CFUNCTYPE(ctypes.c_int64)
    assert [call(library.address("f"))() for library in libraries] == list(range(8))


def test_libraries_keep_no_mlir_context():
    """A context takes several times the memory of compiled code."""
    gc.collect()
    before = ir.Context._get_live_count()
    library = library_of(TWO_FUNCTIONS)
    gc.collect()
    assert ir.Context._get_live_count() == before
    assert UNARY(library.address("four_times"))(2) == 8


def test_symbols_are_resolved_to_addresses():
    @BINARY
    def minus(a, b):
        return a - b

    address = ctypes.cast(minus, ctypes.c_void_p).value
    library = library_of(
        """
        llvm.func @outside(i64, i64) -> i64
        llvm.func @f(%a: i64, %b: i64) -> i64 {
          %c = llvm.call @outside(%a, %b) : (i64, i64) -> i64
          llvm.return %c : i64
        }""",
        symbols={"outside": address},
    )
    assert library.names == ("f",)
    assert BINARY(library.address("f"))(50, 8) == 42


def test_dump_receives_every_stage():
    stages = []
    library_of(TWO_FUNCTIONS, dump=lambda name, text: stages.append((name, text)))
    assert [name for name, _ in stages] == ["input", *PIPELINE, "llvm-ir"]
    assert "arith.addi" in stages[0][1]
    assert "arith.addi" not in stages[-2][1]
    assert "define i64 @plus" in stages[-1][1]


def test_llvm_ir_is_kept_on_request():
    assert library_of(TWO_FUNCTIONS).llvm_ir() is None
    assert "define i64 @plus" in library_of(TWO_FUNCTIONS, keep_llvm_ir=True).llvm_ir()


def test_functions_are_compiled_once():
    """Not again within the entries that the engine adds for them."""
    text = library_of(TWO_FUNCTIONS, keep_llvm_ir=True).llvm_ir()
    names = text.split("attributes #")
    apart = [number for number, body in enumerate(names[1:]) if "noinline" in body]
    assert len(apart) == 1
    assert f"@plus(i64 %0, i64 %1) #{apart[0]}" in text
    assert f"@four_times(i64 %0) #{apart[0]}" in text


def test_loops_are_not_unrolled_on_request():
    text = """
      func.func @count(%n: i64) -> i64 {
        %zero = arith.constant 0 : i64
        %one = arith.constant 1 : i64
        %sum = scf.for %i = %zero to %n step %one iter_args(%s = %zero) -> (i64) : i64 {
          %t = arith.xori %s, %i : i64
          scf.yield %t : i64
        } ANNOTATION
        return %sum : i64
      }"""
    annotation = "{llvm.loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}"
    plain = library_of(text.replace("ANNOTATION", ""), keep_llvm_ir=True)
    annotated = library_of(text.replace("ANNOTATION", annotation), keep_llvm_ir=True)
    assert "llvm.loop.unroll.disable" not in plain.llvm_ir()
    assert "llvm.loop.unroll.disable" in annotated.llvm_ir()
    assert UNARY(annotated.address("count"))(4) == 0 ^ 1 ^ 2 ^ 3


def test_the_classes_of_the_llvm_dialect_are_not_imported():
    """There are hundreds; who wants them still gets them."""
    code = """
import sys
import tiga as tg
assert tg.ones((256, 256)).sum().item() == 65536.0
assert "tiga.ir.llvm" in sys.modules and "torch_mlir.dialects.llvm" not in sys.modules
from torch_mlir.dialects import llvm
from torch_mlir import ir
with ir.Context() as context:
    module = ir.Module.parse("llvm.func @f() { llvm.return }")
    assert isinstance(module.body.operations[0], llvm.LLVMFuncOp)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_dialect_of_the_pipeline_lowers():
    library = library_of("""
      func.func @sum(%n: index) -> i64 {
        %zero = arith.constant 0 : index
        %one = arith.constant 1 : index
        %none = arith.constant dense<0.0> : vector<5xf64>
        %step = arith.constant dense<[0.5, 1.5, 2.0, 2.0, 4.0]> : vector<5xf64>
        %total = scf.for %i = %zero to %n step %one iter_args(%s = %none) -> (vector<5xf64>) {
          %next = arith.addf %s, %step : vector<5xf64>
          scf.yield %next : vector<5xf64>
        }
        %root = math.absf %total : vector<5xf64>
        %all = vector.reduction <add>, %root : vector<5xf64> into f64
        %whole = arith.fptosi %all : f64 to i64
        return %whole : i64
      }""")
    assert UNARY(library.address("sum"))(7) == 70


def test_what_does_not_lower_is_an_error():
    with pytest.raises((ir.MLIRError, RuntimeError)):
        library_of("""
          func.func @f(%m: memref<4xf32>) { return }
          func.func @g(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
        """)


def shared(text):
    with ir.Context():
        return shared_library(ir.Module.parse(text))


def constant_function(number):
    return f"func.func @f() -> i64 {{ %c = arith.constant {number} : i64 return %c : i64 }}"


def test_modules_of_one_text_share_a_library_while_it_is_in_use():
    first, other = shared(constant_function(31)), shared(constant_function(32))
    assert shared(constant_function(31)) is first
    assert other is not first
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(shared(constant_function(31)).address("f"))() == 31


def test_libraries_are_generated_side_by_side():
    libraries = [library_of(constant_function(i)) for i in range(5)]
    generate_side_by_side(iter(libraries))
    call = ctypes.CFUNCTYPE(ctypes.c_int64)
    assert [call(library.address("f"))() for library in libraries] == list(range(5))


def test_what_fails_when_it_is_generated_is_raised():
    class Broken:
        def generate(self):
            raise ArithmeticError("no code")

    with pytest.raises(ArithmeticError, match="no code"):
        generate_side_by_side([library_of(constant_function(1)), Broken()])


def test_libraries_are_generated_where_no_thread_can_be_started(monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    made = []
    monkeypatch.setattr(Library, "generate", lambda library: made.append(library))
    library = library_of(constant_function(2))
    generate_side_by_side([library])
    assert made == [library]


def test_threads_that_ask_for_one_library_find_the_same_code():
    library = library_of(TWO_FUNCTIONS)
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(library.address, ["plus"] * 8))
    assert len(found) == 1
    assert BINARY(found.pop())(40, 2) == 42
