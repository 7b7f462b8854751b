"""How much shared memory a kernel takes, found before LLVM and ptxas write its machine code.

These take four fifths of the time of a large kernel: one that does not fit would be written for
nothing. Triton has no call for it, so this runs its first stages as its `compile` does.
"""

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

_FILE = "shared_bytes"


def shared_bytes(ast: Any, target: Any, options: dict[str, Any]) -> int | None:
    """The bytes of shared memory that a program of a kernel takes, kept in Triton's cache; None
    where this version of Triton does not tell.

    Args:
        ast: the `ASTSource` of the kernel.
        target: the `GPUTarget`.
        options: as for `triton.compile`.
    """
    from triton.runtime.cache import get_cache_manager

    facts = (ast.hash(), repr(target), repr(sorted(options.items())), version("triton"), _FILE)
    cache = get_cache_manager(hashlib.sha256("\n".join(facts).encode()).hexdigest())
    known = cache.get_file(_FILE)
    if known is not None:
        return int(Path(known).read_text())
    try:
        found = _measured(ast, target, options)
    except (AttributeError, ImportError, KeyError, TypeError):
        return None  # another Triton's insides: compiling tells as well
    cache.put(str(found), _FILE, binary=False)
    return found


def _measured(ast: Any, target: Any, given: dict[str, Any]) -> int:
    from triton._C.libtriton import ir, nvidia, passes
    from triton.backends.nvidia.compiler import get_ptx_version_from_options
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    options = backend.parse_options({**given, **ast.parse_options()})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, ast.language)
    functions = backend.get_codegen_implementation(options)
    module = ast.make_ir(target, options, functions, backend.get_module_map(), context)
    metadata = dict(vars(options))
    for stage in ("ttir", "ttgir"):
        module = stages[stage](module, metadata)
    manager = ir.pass_manager(module.context)
    passes.ttgpuir.add_combine_tensor_select_and_if(manager)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    passes.convert.add_scf_to_cf(manager)
    passes.gluon.add_inliner(manager)
    ptx_version = get_ptx_version_from_options(options, target.arch)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, target.arch, ptx_version)
    manager.run(module, "shared_memory")
    found: int = module.get_int_attr("ttg.shared")
    return found
