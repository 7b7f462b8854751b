"""Products of node values that are not in memory, by blocks of rows; see `paged`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import lcm
from typing import Any

import numpy as np

from tiga.backends.llvm.library import (
    BLOCK_ROWS,
    Matmul,
    call_library,
    contract_rows,
    matrix_at,
    outer_sum,
)
from tiga.backends.llvm.node_products import Cut, ProductStep
from tiga.backends.llvm.paged.team import Team
from tiga.paging.cost import bytes_in_files
from tiga.paging.pipeline import Job, never
from tiga.paging.plan import Limits, arenas_for
from tiga.paging.span import Span, Spans
from tiga.passes.rows import LibraryCall
from tiga.runtime.arena import Arena, slack
from tiga.runtime.pages import Rows
from tiga.trace.node import Node
from tiga.types import GLOBAL, Space

BLOCK_BYTES = 8 * 2**20
"""Bytes of a block of rows that is not made larger."""


@dataclass(frozen=True)
class Block:
    """Where rows of a product's operands and result lie."""

    left: int
    right: int
    out: int
    finish: list[Callable[[], None]]


@dataclass(frozen=True)
class Products:
    """The dense products of one run, over the same blocks of rows as in memory."""

    extents: Mapping[Space, int]
    addresses: Mapping[Node, int]
    homes: Mapping[Node, Rows]
    limits: Limits
    team: Team
    matmul: Matmul

    def of(self, step: ProductStep | LibraryCall) -> Spans:
        """What a step moves, and the blocks of rows that it is cut into."""
        return self.library_spans(step.node) if isinstance(step, LibraryCall) else self.spans(step)

    def spans(self, step: ProductStep) -> Spans:
        """The blocks of rows of a product."""
        a, b = step.node.inputs
        lead, extent = a.type.size // a.type.shape[-1], self.extents[a.type.space]
        cut = self.cut(step)
        staged = sum(n.type.row_bytes for n in (a, b, step.node) if n.type.space != GLOBAL)
        unit = lcm(cut.size, lead) // lead if step.sums else 1
        read, written = self._moved(step.node)
        for arenas in (arenas_for(self.limits, read > 0, written > 0), 1):
            most = min(BLOCK_BYTES, self.limits.nbytes // arenas)
            size = max(1, min((most - slack(most, 3)) // max(1, staged), extent) // unit) * unit
            nbytes = size * staged + slack(most, 3)
            if arenas * nbytes <= self.limits.nbytes:
                break
        blocks = [(low, min(low + size, extent)) for low in range(0, extent, size)]
        pages = tuple(
            Span(i, i + 1, (low, high), ((0, 0),), nbytes=nbytes,
                 read=(high - low) * read, written=(high - low) * written)
            for i, (low, high) in enumerate(blocks)
        )  # fmt: skip
        return Spans(pages, min(arenas, max(1, len(pages))), stored=extent * read)

    def cut(self, step: ProductStep) -> Cut:
        """The tasks of a product: fixed by the number of all its rows."""
        a = step.node.inputs[0]
        return step.cut(self.extents[a.type.space] * a.type.size // a.type.shape[-1])

    def library_spans(self, node: Node) -> Spans:
        """What a library call moves; its blocks of rows are few and not staged."""
        entities = [n for n in (*node.inputs, node) if n.type.space != GLOBAL]
        extent = max((self.extents[n.type.space] for n in entities), default=0)
        read, written = (extent * nbytes for nbytes in self._moved(node))
        page = Span(0, 1, (0, extent), ((0, 0),), read=read, written=written)
        return Spans((page,) if read or written else (), 0, stored=read)

    def _moved(self, node: Node) -> tuple[int, int]:
        """Bytes per row that a product reads from files and writes to them."""
        return bytes_in_files(self.homes, node.inputs), bytes_in_files(self.homes, [node])

    def jobs(self, step: ProductStep, spans: Spans, pieces: np.ndarray) -> Iterator[Job]:
        """The blocks of a product; of a sum, each stores some `pieces`."""
        a = step.node.inputs[0]
        lead = a.type.size // a.type.shape[-1]
        cut, done = self.cut(step), 0
        for page in spans.pages:
            assert isinstance(page, Span)
            low, high = page.rows
            rows, at = (high - low) * lead, pieces.ctypes.data + done * cut.piece_bytes
            yield Job(
                partial(self._staged, step.node, low, high),
                partial(self._compute, step, rows, cut.size, at),
                never,
            )
            done += -(-rows // cut.size)

    def _staged(self, node: Node, low: int, high: int, arena: Arena) -> "Block":
        left, right = (self._block(n, low, high, arena) for n in node.inputs)
        out, block = self._out(node, low, high, arena)
        return Block(left, right, out, [partial(self._store, node, low, block)])

    def _compute(
        self, step: ProductStep, rows: int, size: int, pieces: int, block: "Block"
    ) -> None:
        one, _table = step.on_rows(block.left, block.right, block.out, pieces, rows, size)
        self.team.run([one])

    def _block(self, node: Node, low: int, high: int, arena: Arena) -> int:
        """The address of rows [low, high) of a value."""
        if node.type.space == GLOBAL:
            return self.addresses[node]
        home = self.homes[node]
        if home.address:
            return home.address + low * home.row_bytes
        block = arena.rows(high - low, home.row_bytes, low)
        home.read_into(low, block)
        return block.ctypes.data

    def _out(self, node: Node, low: int, high: int, arena: Arena) -> tuple[int, Any]:
        """The address for rows [low, high) of a result, and the block that is to be stored."""
        home = self.homes.get(node)
        if home is None or home.address:
            return self._block(node, low, high, arena), None
        block = arena.rows(high - low, home.row_bytes, low)
        return block.ctypes.data, block

    def _store(self, node: Node, low: int, block: Any) -> None:
        if block is not None:
            self.homes[node].write(low, block)

    def library(self, node: Node) -> None:
        nodes = (*node.inputs, node)
        homes = {n: self.homes[n] for n in nodes if n.type.space != GLOBAL}
        if all(home.address for home in homes.values()):
            known = {n: homes[n].address if n in homes else self.addresses[n] for n in nodes}
            call_library(node, known, self.extents, self.matmul)
            return
        assert node.op.stands_alone, "what is rearranged is global, and in memory"
        if node.op.by_index:
            self._index_sum(node)
        elif node.op.table is not None:
            self._contract(node)
        else:
            self._outer_sum(node)

    def _contract(self, node: Node) -> None:
        a, b = node.inputs
        for low, high in self._row_blocks(node):
            out = np.empty((high - low, self.homes[node].row_bytes), np.uint8)
            contract_rows(
                _matrix(a, self._read(a, low, high)), self._global(b),
                _matrix(node, out), self.matmul,
            )  # fmt: skip
            self.homes[node].write(low, out)

    def _index_sum(self, node: Node) -> None:
        """In the order of the entities, as in memory."""
        total = self._global(node).reshape(node.type.shape)
        total[...] = 0
        for low, high in self._row_blocks(node.inputs[0]):
            parts = (self._read(n, low, high).view(n.type.dtype.numpy) for n in node.inputs)
            shapes = ((high - low, *n.type.shape) for n in node.inputs)
            node.op.add_to(total, *(p.reshape(s) for p, s in zip(parts, shapes, strict=True)))

    def _outer_sum(self, node: Node) -> None:
        a, b = node.inputs

        def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for low, high in self._row_blocks(a):
                left, right = (self._read(n, low, high) for n in (a, b))
                yield _matrix(a, left), _matrix(b, right)

        outer_sum(blocks(), self._global(node), self.matmul)

    def _read(self, node: Node, low: int, high: int) -> np.ndarray:
        block = np.empty((high - low, self.homes[node].row_bytes), np.uint8)
        self.homes[node].read_into(low, block)
        return block

    def _row_blocks(self, node: Node) -> Iterator[tuple[int, int]]:
        """Ranges of rows that hold whole blocks of the library's."""
        extent = self.extents[node.type.space]
        for low in range(0, extent, BLOCK_ROWS):
            yield low, min(low + BLOCK_ROWS, extent)

    def _global(self, node: Node) -> np.ndarray:
        return matrix_at(node, self.addresses[node])


def _matrix(node: Node, block: np.ndarray) -> np.ndarray:
    return block.reshape(-1).view(node.type.dtype.numpy).reshape(-1, node.type.shape[-1])
