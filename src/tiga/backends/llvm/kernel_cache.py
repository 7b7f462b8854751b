"""Machine code that an earlier process wrote, found by everything that it depends on.

Code is kept under a hash of the module that it was compiled from, as it was before the passes, and
of what turns modules into code: this package's own part of it, the compiler's library and the
processor. So whatever changes what is emitted (the program, its schedule, settings, the version)
changes the module, and with it the name. A module is emitted in any case: what that takes is small,
and a name made of something before it could miss a reason for which code differs.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from tiga import knobs
from tiga.backends.llvm.host import processor
from tiga.backends.llvm.image import Image, LoadedImage
from tiga.backends.llvm.machine_code import compiler_library
from tiga.runtime.cache_files import CacheFiles, cache_files, cache_folder

KIND = "kernels"
"""The folder's name."""

AFTER_EMISSION = (
    "engine.py", "host.py", "image.py", "kernel_cache.py", "machine_code.py", "object_file.py",
    "registered.py",
)  # fmt: skip
"""The files of this package that decide what becomes of a module."""

TRIES = 3
"""Code is looked for again where another thread ends an engine, which changes LLVM's list."""


@dataclass(frozen=True)
class Place:
    """Where the code of one module is kept."""

    key: bytes
    files: CacheFiles

    def load(self) -> LoadedImage | None:
        """What was kept, in memory; None if there is nothing that can be used."""
        data = self.files.read(self.key.hex())
        # A file may have been given another's name.
        if data is None or not data.startswith(self.key):
            return None
        image = Image.unpacked(data[len(self.key) :])
        try:
            return LoadedImage(image) if image.is_known else None
        except OSError:
            return None

    def keep(self, functions: Mapping[str, int]) -> bool:
        """Keep the code of functions at these addresses, the only ones of their module, which LLVM
        has loaded; whether that could be done."""
        image = _loaded_image(functions)
        if image is None or not image.is_known:
            return False
        return self.files.write(self.key.hex(), self.key + image.packed())


def _loaded_image(functions: Mapping[str, int]) -> Image | None:
    """The code of loaded functions; None where it cannot be had."""
    for _ in range(TRIES):
        with suppress(OSError):
            found = _image_in_list(functions)
            if found is not None:
                return found
    return None


def _image_in_list(functions: Mapping[str, int]) -> Image | None:
    # A process that finds all of its kernels is sooner without.
    from tiga.backends.llvm.object_file import image_of
    from tiga.backends.llvm.registered import object_files, own_memory

    with own_memory() as memory:
        found = (image_of(data, functions, memory) for data in object_files(memory))
        return next(filter(None, found), None)


def place_of(module: bytes, settings: Sequence[object]) -> Place | None:
    """Where the code of a module, given as bytes, is kept when it is compiled with `settings`; None
    where nothing is kept."""
    files, writer = kept_files(), _writer()
    if files is None or writer is None:
        return None
    told = f"{writer}\n{tuple(settings)}\n".encode()
    return Place(sha256(sha256(told).digest() + module).digest(), files)


def kept_files() -> CacheFiles | None:
    """The files of code; None where there are none."""
    most, folder = knobs.read("kernel_cache"), cache_folder(KIND)
    if not most or folder is None or not _is_served():
        return None
    return cache_files(folder, most)


def _is_served() -> bool:
    """Whether object files of this machine can be read."""
    return sys.platform == "linux" and os.uname().machine == "x86_64" and sys.maxsize > 2**32


@lru_cache(maxsize=1)
def _writer() -> str | None:
    """What turns modules into code, as text; None if that is not known.

    The compiler is told by its file and not by a version: development builds share numbers.
    """
    here, told = Path(__file__).parent, processor()
    try:
        own = [sha256((here / name).read_bytes()).hexdigest() for name in AFTER_EMISSION]
        library = compiler_library()
        found = library.stat()
    except OSError:
        return None
    if told is None:
        return None
    return "\n".join((*own, f"{library} {found.st_size} {found.st_mtime_ns}", told))
