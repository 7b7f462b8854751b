"""An executable that evaluates a program with the numpy oracle, at the addresses it is given."""

import ctypes
import math

import numpy as np

from tiga.backends.reference import EdgeList, evaluate
from tiga.types import GLOBAL


def _array(address, shape, dtype):
    nbytes = math.prod(shape) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * nbytes).from_address(address)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


class OracleExecutable:
    """Has the interface of a compiled program."""

    def __init__(self, program):
        self.program = program

    def run(self, graphs, inputs, outputs, threads, extents=None, unneeded=()):
        sizes = dict(extents or {})
        topologies = {}
        for relation, graph in zip(self.program.relations, graphs, strict=True):
            sizes[relation.src], sizes[relation.dst] = graph.num_src, graph.num_dst
            sizes[relation.edge] = graph.num_edges
            topologies[relation] = EdgeList.of(graph.csr)

        def bound(node, address):
            lead = () if node.type.space == GLOBAL else (sizes[node.type.space],)
            return _array(address, (*lead, *node.type.shape), node.type.dtype.numpy)

        arrays = [bound(n, a) for n, a in zip(self.program.inputs, inputs, strict=True)]
        results = evaluate(self.program, arrays, topologies)
        for node, address, result in zip(self.program.outputs, outputs, results, strict=True):
            bound(node, address)[...] = result
