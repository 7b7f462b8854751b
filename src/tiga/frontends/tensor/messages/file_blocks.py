"""Calls that no walk holds, over a graph in a file: made at once, block of destinations by block.
Derivatives run the blocks again."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from tiga.frontends.message_passing import MessagePassing
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import LARGE, Cell, LazyNode, user_place
from tiga.frontends.tensor.messages.block_orders import BlockCall
from tiga.frontends.tensor.messages.block_rows import BlockRows, node_of
from tiga.frontends.tensor.messages.file_block import Call, results
from tiga.frontends.tensor.messages.paged import computed_array, device_of, tensor_of
from tiga.frontends.trees import mapped
from tiga.relations.paged import PagedGraph
from tiga.relations.row_blocks import Rows


def in_file_blocks(
    kernel: MessagePassing, graph: PagedGraph, fields: Mapping[tuple[str, str], Tensor],
    params: Mapping[str, Any], blocks: tuple[Rows, ...],
) -> Any:  # fmt: skip
    """The results of a call, computed now: a tree of tensors."""
    rows, grads = BlockRows(graph, device_of(graph)), tuple(x._grad for x in fields.values())
    call = Call(kernel, rows, tuple(fields), grads, params, blocks)
    found = results(call, [computed_array(value._node) for value in fields.values()])
    others = tuple(found.others.values())
    call, inputs = replace(call, others=others), (*(x._node for x in fields.values()), *others)
    numbers = count()

    def result(leaf: Tensor) -> Tensor:
        k = next(numbers)
        of = node_of(found.wholes[k]).type
        op = BlockCall(of, call, k, found.on_edges[k])
        node = LazyNode(op, inputs, of, user_place(), 1, LARGE)
        node.cell = Cell(found.wholes[k])
        return tensor_of(node, leaf._grad)

    return mapped(result, found.made)
