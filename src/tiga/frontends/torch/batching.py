"""Batches of samples: under `torch.func.vmap`, and as cotangents of vectorized Jacobians.

Samples run together on copies of the graph that lie side by side in one: no value of a node or edge
depends on another copy, so no op needs a rule of its own. What sums over all nodes or edges, or has
samples of a global value, runs sample by sample; so do batches of torch's older kind
(`is_grads_batched`), whose tensors have no data of their own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tiga.relations import Graph
from tiga.relations.on_device import DeviceCsr
from tiga.trace.origin import Origin
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type

MOST_ENTITIES = 1 << 20
"""Nodes and edges of the copies that run together: beyond, a sample alone fills the machine."""

is_batched = torch._C._functorch.is_legacy_batchedtensor


def _level() -> int:
    level = torch._C._vmapmode_increment_nesting()
    torch._C._vmapmode_decrement_nesting()
    return level - 1


def _unwrap(value: Any, level: int) -> Any:
    # The size is read only for values without a batch axis.
    return torch._remove_batch_dim(value, level, 1, 0)


def stacked(runs: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """One tensor per output, of all runs along a new first axis."""
    return [torch.stack(list(parts)) for parts in zip(*runs, strict=True)]


def per_sample(function: Callable[..., Sequence[Any]], values: Sequence[Any]) -> tuple[Any, ...]:
    """`function` of tensors, Nones among them, of which some are batched: one call per sample,
    the results batched again."""
    level = _level()
    batched = [isinstance(v, torch.Tensor) and is_batched(v) for v in values]
    plain = [_unwrap(v, level) if b else v for v, b in zip(values, batched, strict=True)]
    size = next(v.shape[0] for v, b in zip(plain, batched, strict=True) if b)
    runs = [
        function(*(v[i] if b else v for v, b in zip(plain, batched, strict=True)))
        for i in range(size)
    ]
    return tuple(
        None if parts[0] is None else torch._add_batch_dim(torch.stack(parts), 0, level)
        for parts in zip(*runs, strict=True)
    )


def reason_against(program: Program, batched: Sequence[bool]) -> str | None:
    """Why samples of these inputs cannot run together on copies of the graph; None if they can."""
    for node, is_sampled in zip(program.inputs, batched, strict=True):
        if is_sampled and node.type.space == GLOBAL:
            return f"`{node.op.label}` has samples and belongs to no node or edge"
    for node in program.order:
        if node.op.origin is Origin.POSITION:
            return f"{node.op.name} numbers the edges"
        if node.type.space == GLOBAL and any(i.type.space != GLOBAL for i in node.inputs):
            return f"{node.op.name} sums over all nodes or edges"
    if any(node.type.space == GLOBAL for node in program.outputs):
        return "a result belongs to no node or edge"
    return None


def at_once(graph: Graph) -> int:
    """How many samples run together on a graph."""
    entities = graph.num_src + graph.num_dst + graph.num_edges
    return max(1, MOST_ENTITIES // max(entities, 1))


def copies(graph: Graph, count: int) -> Graph:
    """So many copies of a graph side by side in one; kept with the graph."""
    snapshot = graph.snapshot()
    topology = snapshot.topology
    build = _on_device if isinstance(topology, DeviceCsr) else _on_host
    return snapshot.keep(("copies", count), lambda: build(topology, count))


def _on_host(csr: Any, count: int) -> Graph:
    number = np.arange(count, dtype=np.int64)[:, None]
    starts = csr.row_ptr[:-1] + number * csr.num_edges
    sources = csr.col_idx + number * csr.num_src
    pointers = np.append(starts.ravel(), count * csr.num_edges)
    return Graph.from_csr(pointers, sources.ravel(), num_src=count * csr.num_src)


@torch.inference_mode(False)
def _on_device(csr: Any, count: int) -> Graph:
    counts = csr.num_src, csr.num_dst
    pointers, sources = copied_indices("csr", csr.row_ptr, csr.col_idx, counts, count)
    return Graph.from_csr(pointers, sources, num_src=count * csr.num_src)


def copied_indices(
    kind: str, first: torch.Tensor, second: torch.Tensor, counts: Sequence[int], size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The index tensors of so many copies of a graph side by side in one."""
    num_src, num_dst = counts
    number = torch.arange(size, dtype=first.dtype, device=first.device)[:, None]
    if kind == "coo":
        return (first + number * num_src).reshape(-1), (second + number * num_dst).reshape(-1)
    edges, ends = second.shape[0], num_src if kind == "csr" else num_dst
    starts = (first[:-1] + number * edges).reshape(-1)
    last = first[-1:] + (size - 1) * edges
    return torch.cat([starts, last]), (second + number * ends).reshape(-1)


def side_by_side(value: Any, of: Type, count: int, is_sampled: bool) -> Any:
    """A value for copies of the graph, from one per sample or from one that samples share."""
    if of.space == GLOBAL:
        return value
    samples = value if is_sampled else value.expand(count, *value.shape)
    return samples.flatten(0, 1).contiguous()


def taken_apart(value: torch.Tensor, count: int) -> torch.Tensor:
    """A result on copies of the graph as one per sample."""
    return value.reshape(count, value.shape[0] // count, *value.shape[1:])
