"""Calls that no walk holds, over a graph in a file: made at once, block of destinations by block.
Derivatives run the blocks again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tiga.frontends.message_passing import MessagePassing
from tiga.frontends.tensor.arrays import Array
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.lazy import LARGE, Cell, LazyNode, user_place
from tiga.frontends.tensor.messages.block_orders import BlockCall
from tiga.frontends.tensor.messages.block_rows import BlockRows, node_of, stored
from tiga.frontends.tensor.messages.file_block import Block, Call, values_of
from tiga.frontends.tensor.messages.paged import computed_array, device_of, tensor_of
from tiga.frontends.tensor.program import program_of
from tiga.frontends.trees import leaves_of, mapped
from tiga.relations.paged import PagedGraph
from tiga.relations.row_blocks import Rows
from tiga.trace.node import Node


def in_file_blocks(
    kernel: MessagePassing, graph: PagedGraph, fields: Mapping[tuple[str, str], Tensor],
    params: Mapping[str, Any], blocks: tuple[Rows, ...],
) -> Any:  # fmt: skip
    """The results of a call, computed now: a tree of tensors."""
    rows = BlockRows(graph, device_of(graph))
    operands: list[Node] = [value._node for value in fields.values()]
    grads = tuple(value._grad for value in fields.values())
    call = Call(kernel, rows, tuple(fields), grads, params, blocks)
    arrays = [computed_array(node) for node in operands]
    wholes: list[Array] = []
    others: dict[int, Node] = {}
    made: Any = None
    for block in (Block(call, one, arrays) for one in call.blocks):
        made = block.made()
        tensors = list(leaves_of(made))
        _note_others(block, [x._node for x in tensors], others)
        for k, value in enumerate(values_of([x._node for x in tensors])):
            place = block.place(block.on_edges[k])
            if len(wholes) <= k:
                extent = graph.num_edges if block.on_edges[k] else graph.num_dst
                wholes.append(rows.whole((extent, *value.shape[1:]), np.dtype(value.dtype)))
            stored(wholes[k], place, value)
    last = replace(call, others=tuple(others.values()))
    inputs = (*operands, *last.others)
    numbers = iter(range(len(wholes)))

    def result(leaf: Tensor) -> Tensor:
        k = next(numbers)
        of = node_of(wholes[k]).type
        op = BlockCall(last, k, block.on_edges[k], of)
        node = LazyNode(op, inputs, of, user_place(), 1, LARGE)
        node.cell = Cell(wholes[k])
        return tensor_of(node, leaf._grad)

    return mapped(result, made)


def _note_others(block: Block, nodes: Sequence[Node], others: dict[int, Node]) -> None:
    """Add the tensors that expressions read beside what the block did."""
    own = {id(read.node) for read in block.reads}
    for leaf in program_of(nodes).leaves:
        if id(leaf) not in own and leaf.type.dtype.is_differentiable:
            others[id(leaf)] = leaf
