"""Fold a user's reducer with torch, for what no program holds: an edge of every row at a time."""

from collections.abc import Sequence
from typing import Any

import torch

from tiga.frontends.trees import leaves_of, mapped, numbered
from tiga.reducers import CustomReducer


def fold_rows(
    reducer: CustomReducer, messages: Sequence[torch.Tensor], keep: Any, row_ptr: torch.Tensor
) -> Any:
    """The results of rows whose edges lie one after the other, `[rows, ...]`, in edge order."""
    wide = [_widened(m) for m in messages]
    lifted = reducer.lift(*wide)
    shape, parts = numbered(lifted), leaves_of(lifted)
    count, rows = len(wide[0]), len(row_ptr) - 1
    start = [torch.as_tensor(leaf) for leaf in leaves_of(reducer.identity())]
    edges = [_filled(part, one, count) for part, one in zip(parts, start, strict=True)]
    if keep is not None:
        edges = [torch.where(_spread(keep, e), e, s) for e, s in zip(edges, start, strict=True)]
    states = [s.to(e.dtype).expand(rows, *e.shape[1:]) for s, e in zip(start, edges, strict=True)]
    degrees = row_ptr.diff()
    for step in range(int(degrees.max()) if rows else 0):
        active = (degrees > step).nonzero().flatten()
        at = row_ptr[active] + step
        sides = ([s[active] for s in states], [e[at] for e in edges])
        pair = [mapped(side.__getitem__, shape) for side in sides]
        made = leaves_of(reducer.combine(*pair))
        states = [s.index_copy(0, active, m) for s, m in zip(states, made, strict=True)]
    narrow = messages[0].dtype
    return mapped(
        lambda leaf: leaf.to(narrow) if _widened(leaf.to(narrow)).dtype != narrow else leaf,
        reducer.finalize(mapped(lambda i: states[i], shape)),
    )


def _widened(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _filled(part: Any, start: torch.Tensor, count: int) -> torch.Tensor:
    """A component of every edge's state, with the shape that the identity gives it."""
    tensor = part if isinstance(part, torch.Tensor) else torch.as_tensor(part).expand(count)
    shape = torch.broadcast_shapes(tensor.shape[1:], start.shape)
    return tensor.expand(count, *shape)


def _spread(keep: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return keep.reshape(*keep.shape, *(1,) * (like.dim() - keep.dim()))
