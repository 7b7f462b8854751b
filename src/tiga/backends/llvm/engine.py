"""From an MLIR module of upstream dialects to machine code that ctypes can call."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager

from tiga.backends.llvm.image import LoadedImage
from tiga.backends.llvm.kernel_cache import Place, place_of
from tiga.backends.llvm.machine_code import address_in
from tiga.ir import llvm

PIPELINE = (
    "convert-vector-to-scf", "convert-scf-to-cf", "convert-vector-to-llvm", "convert-math-to-llvm",
    "convert-arith-to-llvm", "convert-func-to-llvm", "convert-cf-to-llvm",
    "reconcile-unrealized-casts",
)  # fmt: skip
"""Passes from arith, math, vector, scf, cf and func to the llvm dialect, in order."""

LOOP_ANNOTATION = "llvm.loop_annotation"
"""The attribute of a loop that tells LLVM what to do with it."""

Dump = Callable[[str, str], None]
"""Receives the name of a stage and its text."""

INPUT_STAGE = "input"
LLVM_IR_STAGE = "llvm-ir"
"""The stages before and after the passes, for `Dump`."""

_in_use: "WeakValueDictionary[bytes, Library]" = WeakValueDictionary()
"""Libraries by a hash of their modules, as long as something holds them."""


class Code(Protocol):
    """Machine code, in memory or yet to be written."""

    from_disk: bool

    def addresses_of(self, names: Sequence[str]) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class EngineCode:
    """Code that an engine writes when it is first asked for, and that is kept for later processes
    if it has a place. The engine has a context of LLVM's, under 1 MiB."""

    engine: ExecutionEngine
    place: Place | None
    from_disk = False

    def addresses_of(self, names: Sequence[str]) -> Mapping[str, int]:
        found = {name: address_in(self.engine, name) for name in names}
        if self.place is not None:
            self.place.keep(found)
        return found


@dataclass(frozen=True)
class KeptCode:
    """Code that an earlier process kept."""

    image: LoadedImage
    from_disk = True

    def addresses_of(self, names: Sequence[str]) -> Mapping[str, int]:
        return self.image.addresses


class Library:
    """Compiled functions. Addresses are valid as long as the library lives.

    Machine code is written when an address is first asked for, unless an earlier process kept it.
    The module and MLIR's context, some 3 MiB, are let go.
    """

    def __init__(self, code: Code, names: tuple[str, ...], text: str | None = None) -> None:
        self._code, self._llvm_ir = code, text
        self._addresses: Mapping[str, int] | None = None
        self.names = names
        """The public functions of the module."""

    @property
    def from_disk(self) -> bool:
        """Whether an earlier process compiled it."""
        return self._code.from_disk

    def generate(self) -> None:
        """Write the machine code, unless it is there; Python's lock is free meanwhile."""
        if self._addresses is None:
            self._addresses = self._code.addresses_of(self.names)

    def address(self, name: str) -> int:
        """The raw machine address of function `name`; KeyError when the module has none."""
        self.generate()
        assert self._addresses is not None
        return self._addresses[name]

    def llvm_ir(self) -> str | None:
        """The LLVM IR before LLVM's own optimisation, if `keep_llvm_ir` was asked for."""
        return self._llvm_ir


def compile_module(
    module: ir.Module,
    *,
    symbols: Mapping[str, int] | None = None,
    verify: bool = False,
    dump: Dump | None = None,
    keep_llvm_ir: bool = False,
    opt_level: int = 3,
) -> Library:
    """Lower `module` in place and compile it with LLVM, or take the code of an equal module that an
    earlier process kept on disk. Code with `symbols` is not kept, and with `dump` or `keep_llvm_ir`
    it is compiled anew.

    Args:
        module: functions (`func.func` or `llvm.func`) over the dialects that PIPELINE lowers.
        symbols: machine addresses of functions that the module declares and does not define.
        verify: run the native verifier after each pass.
        dump: called with (stage, text) before the first pass and after each; slower.
        keep_llvm_ir: keep the text for `Library.llvm_ir`.
        opt_level: LLVM's, 0 to 3; code that does little is sooner there at a low one.

    Returns:
        The library; every public function that the module defines has an address.

    Raises:
        torch_mlir.ir.MLIRError: the module does not verify or does not lower.

    Example:
        >>> with ir.Context():
        ...     module = ir.Module.parse('''
        ...       func.func @seven() -> i64 {
        ...         %c = arith.constant 7 : i64
        ...         return %c : i64
        ...       }''')
        >>> library = compile_module(module)
        >>> ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("seven"))()
        7
    """
    told = Compilation(verify, opt_level)
    if symbols or dump is not None or keep_llvm_ir:
        return _compiled(module, told, None, symbols, dump, keep_llvm_ir)
    return _found_or_compiled(module, _content(module), told)


def shared_library(module: ir.Module, *, verify: bool = False, dump: Dump | None = None) -> Library:
    """`compile_module`, once for equal modules while the library is in use: programs of a model
    have walks and products in common. With `dump` it is compiled anew."""
    if dump is not None:
        return compile_module(module, verify=verify, dump=dump)
    content = _content(module)
    key = sha256(content).digest()
    found = _in_use.get(key)
    if found is None:
        made = _found_or_compiled(module, content, Compilation(verify))
        found = _in_use.setdefault(key, made)
    return found


class Compilation(NamedTuple):
    """How a module is compiled."""

    verify: bool = False
    opt_level: int = 3


def _content(module: ir.Module) -> bytes:
    """All that a module says: bytecode, which is written in a third of the time of text."""
    written = BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def _found_or_compiled(module: ir.Module, content: bytes, told: Compilation) -> Library:
    """A library of code that an earlier process kept, or of code that later ones will find."""
    place = place_of(content, (*told, *PIPELINE))
    image = None if place is None else place.load()
    if image is not None:
        return Library(KeptCode(image), tuple(image.addresses))
    return _compiled(module, told, place)


def _compiled(
    module: ir.Module,
    told: Compilation,
    place: Place | None,
    symbols: Mapping[str, int] | None = None,
    dump: Dump | None = None,
    keep_llvm_ir: bool = False,
) -> Library:
    with module.context, ir.Location.unknown():
        _lower(module, told.verify, dump)
        names = _entries(module)
        text = None
        if keep_llvm_ir or dump is not None:
            text = str(llvm.translate_module_to_llvmir(module.operation))
        if dump is not None:
            dump(LLVM_IR_STAGE, str(text))
        # Object files are not asked for: the engine would keep one more of every module.
        engine = ExecutionEngine(module, opt_level=told.opt_level, enable_object_dump=False)
    for name, address in (symbols or {}).items():
        engine.raw_register_runtime(name, ctypes.c_void_p(address))
    return Library(EngineCode(engine, place), names, text if keep_llvm_ir else None)


def _lower(module: ir.Module, verify: bool, dump: Dump | None) -> None:
    if dump is None:
        _run(module, ",".join(PIPELINE), verify)
        return
    dump(INPUT_STAGE, str(module))
    for name in PIPELINE:
        _run(module, name, verify)
        dump(name, str(module))


def _run(module: ir.Module, passes: str, verify: bool) -> None:
    manager = PassManager.parse(f"builtin.module({passes})")
    manager.enable_verifier(verify)
    manager.run(module.operation)


def _entries(module: ir.Module) -> tuple[str, ...]:
    """The names of the functions that other modules may see; all are made ready for LLVM."""
    functions = [op.operation for op in module.body if op.operation.name == "llvm.func"]
    for function in functions:
        _annotate_loops(function)
    public = list(filter(_is_public, functions))
    for function in public:
        # The engine adds a packed entry for each: a small one would be compiled again within it.
        function.attributes["no_inline"] = ir.UnitAttr.get()
    return tuple(ir.StringAttr(function.attributes["sym_name"]).value for function in public)


def _annotate_loops(function: ir.Operation) -> None:
    """Tell LLVM what loops are annotated with: passes carry it along to the branches under a name
    that means nothing there."""
    for block in function.regions[0]:
        branch = ir.InsertionPoint.at_block_terminator(block).ref_operation.operation.attributes
        if LOOP_ANNOTATION in branch:
            branch["loop_annotation"] = branch[LOOP_ANNOTATION]
            del branch[LOOP_ANNOTATION]


def _is_public(function: ir.Operation) -> bool:
    linkage = str(function.attributes["linkage"]) if "linkage" in function.attributes else ""
    hidden = any(word in linkage for word in ("private", "internal")) or (
        "sym_visibility" in function.attributes
        and ir.StringAttr(function.attributes["sym_visibility"]).value == "private"
    )
    return bool(function.regions[0].blocks) and not hidden
