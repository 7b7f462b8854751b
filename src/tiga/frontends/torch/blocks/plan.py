"""How large blocks of destinations are: what an edge and a row take, measured on a few of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from tiga.errors import OutOfBudget
from tiga.frontends.message_passing import PerEdge
from tiga.frontends.torch.blocks.fields import BlockFields, Limit, RowBlock
from tiga.frontends.torch.blocks.parts import ROOM, Allocations, RefuseTraining, measure
from tiga.frontends.torch.blocks.random_state import RandomState
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

    def of_order(self, order: int) -> "Sizes":
        """Those where derivatives of an order are made: of each value there is one of each order
        below, too."""
        times = ROOM ** (order - 1)
        return replace(self, edge=times * self.edge, row=times * self.row)


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
    block, state = pilot_of(fields.pointers), RandomState.now(fields.device)
    arguments = job.kernel, fields, block.edges, job.edge_params
    edge_bytes = measure(*arguments, job.bounded.grad_mode) if block.edges else 1
    with torch.no_grad(), RefuseTraining():
        fields.seen = {}
        sent, messages, _ = job.messages(fields, block)
        by_edge, fields.seen = tuple(fields.seen), {}
        job.rows(fields, block, sent, messages)  # what is made once is no part of any block
        with Allocations() as allocations:
            made = leaves_of(job.rows(fields, block, sent, messages))
    state.restore()
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
    """The blocks of a call, and the bytes of each tier that one takes at most."""

    each: tuple[RowBlock, ...]
    nbytes: Mapping[str, int]


def planned(fields: BlockFields, sizes: Sizes, reason: Exception, order: int = 1) -> Blocks:
    """Blocks within the memory bound, and within budgets where these are less. In those for
    derivatives of an order beyond the first all edges of a row are in memory together, not only
    their messages.

    Raises:
        OutOfBudget: a row that cannot be divided exceeds a budget.
    """
    sizes = sizes.of_order(order)
    limits, bound = fields.limits(sizes), current().memory_bound
    most, most_rows = _most(bound, sizes.edge), _most(bound, sizes.row)
    for limit in limits:
        if limit.left is not None:
            most = min(most, _most(limit.left // SHARE, limit.edge))
            most_rows = min(most_rows, _most(limit.left // SHARE, limit.row))
    blocks = tuple(RowBlock(*rows, most) for rows in cut_rows(fields.pointers, most, most_rows))
    return limited(blocks, limits, reason, order)


def limited(
    blocks: tuple[RowBlock, ...], limits: Sequence[Limit], reason: Exception, order: int
) -> Blocks:  # fmt: skip
    """Blocks that budgets hold; see `planned`."""
    largest = {limit.tier: 0 for limit in limits}
    for limit, block in product(limits, blocks):
        nbytes = limit.takes(block, at_once=order > 1)
        if limit.left is not None and nbytes > limit.left:
            raise OutOfBudget(_refusal(block, nbytes, limit, reason, order))
        largest[limit.tier] = max(largest[limit.tier], nbytes)
    return Blocks(blocks, largest)


def _most(nbytes: int, each: int) -> int:
    return max(1, nbytes // max(each, 1))


def _refusal(block: RowBlock, nbytes: int, limit: Limit, reason: Exception, order: int) -> str:
    left = limit.left or 0
    what = f"destination {block.low} has {block.edges} edges, whose messages are"
    if order > 1:
        what += f", for derivatives of order {order} with all that they are made of,"
    if limit.fixed > left:
        what = "rows on their way to the device and back are"
    return (
        f"{what} all in memory at once where a call runs through torch ({reason}): that takes "
        f"{nbytes} bytes ({size_text(nbytes)}) of {limit.tier!r}, and the budget leaves {left} "
        f"({size_text(left)}). Raise memory={{{limit.tier!r}: ...}} of tg.execution, or write "
        "`edge` and `node` with ops that fuse."
    )
