"""Machine code taken out of the object files that LLVM has loaded: ELF for x86-64.

LLVM writes code for a process of its own with absolute addresses. Few kinds of relocations come of
that, and code with any other is not taken: it is compiled anew by each process.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tiga.backends.llvm.image import Image, address_of
from tiga.backends.llvm.registered import Memory

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")

_MAGIC = b"\x7fELF\x02\x01\x01"  # 64 bits, the least byte first
_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _SYMBOLS, _RELOCATIONS, _UNWINDING = 1, 2, 4, 0x70000001
_WRITABLE, _LOADED, _CODE, _PER_THREAD = 1, 2, 4, 0x400
_UNDEFINED = 0
_ABSOLUTE = 1
_FORMS = {_ABSOLUTE: "<Q", 2: "<i", 4: "<i", 24: "<q"}
"""How relocations are written, by their numbers: an address, or how far it is away."""

LEAST_ALIGNMENT = 16


class _Refused(Exception):
    """Something that blocks do not have."""


def image_of(data: bytes, functions: Mapping[str, int], memory: Memory) -> Image | None:
    """The code and constants of a loaded object file as one block.

    Args:
        data: the object file, with the addresses at which its sections are.
        functions: the functions that the block is for, and their addresses.
        memory: reads what is loaded. It has to be what comes of the file by the relocations of this
            module, so nothing is taken that is not the code that runs.

    Returns:
        None if the file is of other functions or for another machine, or has what blocks cannot:
        memory that is written to, or relocations that LLVM's code for a process does not need.

    Raises:
        OSError: there is no memory where the file says.
    """
    try:
        found = _Object.of(data)
        _require(bool(functions) and functions.items() <= found.functions(found.loaded_at).items())
        found.compare(memory)
        places = found.placed()
        entries = found.functions(places)
        own, outside = found.open_places(places)
        code = found.block(places)
    except (_Refused, struct.error, ValueError, IndexError):
        return None
    return Image(code, {name: entries[name] for name in functions}, own, outside)


def _require(holds: bool) -> None:
    if not holds:
        raise _Refused


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int

    @property
    def is_loaded(self) -> bool:
        """What unwinding needs is left out: kernels raise nothing."""
        return bool(self.flags & _LOADED and self.size) and self.type != _UNWINDING

    def bytes_of(self, data: bytes) -> bytes:
        _require(self.offset + self.size <= len(data))
        return data[self.offset : self.offset + self.size]


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int


class _Relocation(NamedTuple):
    """At a place of a section: a symbol's address and so much, or how far that is away."""

    section: int
    offset: int
    form: str
    is_absolute: bool
    symbol: _Symbol
    addend: int


@dataclass(frozen=True)
class _Object:
    """The sections of a file that are loaded, by their numbers, with their bytes; and what the file
    tells of them."""

    sections: Mapping[int, _Section]
    contents: Mapping[int, bytes]
    symbols: Sequence[_Symbol]
    relocations: Sequence[_Relocation]

    @staticmethod
    def of(data: bytes) -> "_Object":
        every = _sections(data)
        sections = {number: section for number, section in enumerate(every) if section.is_loaded}
        for section in sections.values():
            _require(section.type == _PROGBITS and not section.flags & (_WRITABLE | _PER_THREAD))
        contents = {number: section.bytes_of(data) for number, section in sections.items()}
        symbols = _symbols(data, every)
        tables = [one for one in every if one.type == _RELOCATIONS and one.info in sections]
        relocations = [r for table in tables for r in _relocations(table, data, symbols)]
        for one in relocations:
            known = one.is_absolute and bool(one.symbol.name)
            _require(known if one.symbol.section == _UNDEFINED else one.symbol.section in sections)
        return _Object(sections, contents, symbols, relocations)

    @property
    def loaded_at(self) -> dict[int, int]:
        """The addresses of sections."""
        return {number: section.address for number, section in self.sections.items()}

    def placed(self) -> dict[int, int]:
        """Places for sections in one block, code first."""
        places, end = dict[int, int](), 0
        for number in sorted(self.sections, key=lambda i: not self.sections[i].flags & _CODE):
            section = self.sections[number]
            end += -end % max(section.alignment, LEAST_ALIGNMENT)
            places[number] = end
            end += section.size
        return places

    def functions(self, starts: Mapping[int, int]) -> dict[str, int]:
        """Where functions are, if sections start there."""
        named = (s for s in self.symbols if s.name and s.section in starts)
        return {s.name: starts[s.section] + s.value for s in named}

    def relocated(
        self, starts: Mapping[int, int], outside: Callable[[str], int]
    ) -> dict[int, bytearray]:
        """The bytes of sections that start there; `outside` gives addresses of other functions."""
        made = {number: bytearray(content) for number, content in self.contents.items()}
        for one in self.relocations:
            name, section, value = one.symbol
            start = outside(name) if section == _UNDEFINED else starts[section] + value
            target = start + one.addend
            away = target - starts[one.section] - one.offset
            written = target % 2**64 if one.is_absolute else away
            struct.pack_into(one.form, made[one.section], one.offset, written)
        return made

    def compare(self, memory: Memory) -> None:
        """Refuse what is not in memory as it would be after relocation."""
        for number, content in self.relocated(self.loaded_at, address_of).items():
            _require(memory(self.sections[number].address, len(content)) == content)

    def open_places(
        self, places: Mapping[int, int]
    ) -> tuple[tuple[int, ...], tuple[tuple[int, str, int], ...]]:
        """`own` and `outside` of the image."""
        own, outside = [], []
        for one in filter(lambda one: one.is_absolute, self.relocations):
            at = places[one.section] + one.offset
            if one.symbol.section == _UNDEFINED:
                outside.append((at, one.symbol.name, one.addend))
            else:
                own.append(at)
        return tuple(own), tuple(outside)

    def block(self, places: Mapping[int, int]) -> bytes:
        """The sections at their places, with places where addresses will be."""
        made = bytearray()
        sections = self.relocated(places, lambda name: 0)
        for number in sorted(places, key=places.__getitem__):
            made.extend(bytes(places[number] - len(made)))
            made.extend(sections[number])
        return bytes(made)


def _sections(data: bytes) -> list[_Section]:
    magic, kind, machine, _, _, _, start, _, _, _, _, size, count, _ = _HEADER.unpack_from(data)
    _require(magic.startswith(_MAGIC) and (kind, machine) == (_RELOCATABLE, _X86_64))
    _require(size == _SECTION.size)
    return [_Section(*_SECTION.unpack_from(data, start + size * i)) for i in range(count)]


def _symbols(data: bytes, sections: Sequence[_Section]) -> list[_Symbol]:
    tables = [section for section in sections if section.type == _SYMBOLS]
    _require(len(tables) == 1)
    (table,) = tables
    return list(_named(table.bytes_of(data), sections[table.link].bytes_of(data)))


def _named(table: bytes, strings: bytes) -> Iterator[_Symbol]:
    for at, _, _, section, value, _ in _SYMBOL.iter_unpack(table):
        name = strings[at : strings.index(b"\0", at)].decode()
        yield _Symbol(name, section, value)


def _relocations(table: _Section, data: bytes, symbols: Sequence[_Symbol]) -> Iterator[_Relocation]:
    for offset, kind, number, addend in _RELOCATION.iter_unpack(table.bytes_of(data)):
        _require(kind in _FORMS)
        is_absolute = kind == _ABSOLUTE
        yield _Relocation(table.info, offset, _FORMS[kind], is_absolute, symbols[number], addend)
