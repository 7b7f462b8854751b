"""How large blocks of destinations are: what an edge and a row take, measured on a few of them."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from tiga.errors import OutOfBudget
from tiga.frontends.message_passing import PerEdge
from tiga.frontends.torch.block_fields import BlockFields, RowBlock
from tiga.frontends.torch.blocks import ROOM, Allocations, RefuseTraining, measure
from tiga.frontends.trees import leaves_of
from tiga.knobs import current
from tiga.relations.row_blocks import Pointers, cut_rows
from tiga.runtime.tiers import size_text

PILOT = 64
"""Rows, and edges, that are tried first, at most."""

SHARE = 4
"""Edges may take one part in so many of what a budget leaves, and rows another."""

Seen = tuple[tuple[str, str, str], ...]
"""End, namespace and name of fields that were read."""


@dataclass(frozen=True)
class Sizes:
    """Bytes that an edge of a block takes, a row, and the messages along an edge; what `edge` and
    `node` read; and of each result whether it is on edges, and the bytes of a row of it."""

    edge: int
    row: int
    message: int
    by_edge: Seen
    by_node: Seen
    results: tuple[tuple[bool, int], ...]


def pilot_of(pointers: Pointers) -> RowBlock:
    """A few edges of a few rows; the last row may have more of them."""
    rows = pointers.num_rows
    low = min(pointers.row_at(0), max(rows - 1, 0))
    high = min(low + PILOT, rows)
    return RowBlock(low, high, 0, min(PILOT, pointers.start(high)), PILOT)


def measured(job: Any, fields: BlockFields) -> Sizes:
    """What a call takes, by trying it.

    Raises:
        InvalidValue: messages depend on which edges are evaluated together.
    """
    block, state = pilot_of(fields.pointers), torch.get_rng_state()
    edge_bytes = measure(job.kernel, fields, block.edges, job.edge_params) if block.edges else 1
    with torch.no_grad(), RefuseTraining():
        fields.seen = {}
        sent, messages, _ = job.messages(fields, block)
        by_edge, fields.seen = tuple(fields.seen), {}
        with Allocations() as allocations:
            made = leaves_of(job.rows(fields, block, sent, messages))
    torch.set_rng_state(state)
    on_edges = [isinstance(leaf, PerEdge) for leaf in made]
    values = [leaf.value if on else leaf for leaf, on in zip(made, on_edges, strict=True)]
    widths = [v[:1].numel() * v.element_size() if len(v) else 0 for v in values]
    return Sizes(
        edge_bytes, math.ceil(ROOM * allocations.total / max(block.rows, 1)),
        sum(m.nbytes for m in messages) // max(block.edges, 1),
        by_edge, tuple(fields.seen), tuple(zip(on_edges, widths, strict=True)),
    )  # fmt: skip


@dataclass(frozen=True)
class Blocks:
    """The blocks of a call, and the bytes that one takes at most."""

    each: tuple[RowBlock, ...]
    nbytes: int


def planned(fields: BlockFields, sizes: Sizes, reason: Exception) -> Blocks:
    """Blocks within the memory bound, and within the budget where that is less.

    Raises:
        OutOfBudget: a row that cannot be divided exceeds the budget.
    """
    edge_bytes, row_bytes = sizes.edge + fields.edge_bytes, sizes.row + fields.row_bytes
    bound, left = current().memory_bound, fields.memory
    most, most_rows = _most(bound, sizes.edge), _most(bound, sizes.row)
    if left is not None:
        most = min(most, _most(left // SHARE, edge_bytes))
        most_rows = min(most_rows, _most(left // SHARE, row_bytes))
    blocks, largest = [], 0
    for rows in cut_rows(fields.pointers, most, most_rows):
        block = RowBlock(*rows, most)
        nbytes = min(block.edges, most) * edge_bytes + block.rows * row_bytes
        nbytes += block.in_parts * ROOM * block.edges * sizes.message
        if left is not None and nbytes > left:
            raise OutOfBudget(_refusal(block, nbytes, left, reason))
        blocks.append(block)
        largest = max(largest, nbytes)
    return Blocks(tuple(blocks), largest)


def _most(nbytes: int, each: int) -> int:
    return max(1, nbytes // max(each, 1))


def _refusal(block: RowBlock, nbytes: int, left: int, reason: Exception) -> str:
    return (
        f"destination {block.low} has {block.edges} edges, whose messages are all in memory at "
        f"once where a call runs through torch ({reason}): that takes {nbytes} bytes "
        f"({size_text(nbytes)}), and the budget leaves {left} ({size_text(left)}). Raise "
        "memory={'host': ...} of tg.execution, or write `edge` and `node` with ops that fuse."
    )
