"""A message-passing program as one op of whole tensors, with derivatives of every order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tiga.compiler import executable
from tiga.ops.dense import Dense
from tiga.passes.differentiate import RULES
from tiga.relations import Graph
from tiga.runtime import parallel
from tiga.runtime.pool import POOL
from tiga.trace.derivatives import gradient, tangent, training
from tiga.trace.node import Node
from tiga.trace.program import Program
from tiga.types import GLOBAL, Space, Type


@dataclass(eq=False)
class Walked:
    """A program over the edges of one graph as it was when the call was made."""

    program: Program
    graph: Graph
    token: Any

    def extent(self, space: Space) -> int:
        """How many entities a space has."""
        if space == GLOBAL:
            return 1
        for relation in self.program.relations:
            if space == relation.edge:
                return self.graph.num_edges
            if space == relation.src:
                return self.graph.num_src
            if space == relation.dst:
                return self.graph.num_dst
        return {"src": self.graph.num_src, "edges": self.graph.num_edges}.get(
            space.name, self.graph.num_dst
        )

    def whole(self, type_: Type) -> Type:
        """The type of all entities' values as one tensor."""
        if type_.space == GLOBAL:
            return type_
        return Type(type_.dtype, (self.extent(type_.space), *type_.shape), GLOBAL)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """All outputs."""
        self.graph.require_unchanged(self.token)
        inputs = [np.ascontiguousarray(array) for array in arrays]
        types = [self.whole(node.type) for node in self.program.outputs]
        outputs = [POOL.array(t.shape, t.dtype.numpy) for t in types]
        spaces = {n.type.space for n in (*self.program.inputs, *self.program.outputs)}
        executable(self.program).run(
            (self.graph,) * len(self.program.relations),
            [array.__array_interface__["data"][0] for array in inputs],
            [array.__array_interface__["data"][0] for array in outputs],
            parallel.thread_count(),
            {space: self.extent(space) for space in spaces if space != GLOBAL},
        )
        return outputs


@dataclass(frozen=True, eq=False)
class GraphCall(Dense):
    """Output number `index` of a program over a graph."""

    name: ClassVar[str] = "graph_call"
    __eq__ = object.__eq__  # the base class compares fields only of its own
    __hash__ = object.__hash__
    walked: Walked
    index: int

    def infer(self, *types: Type) -> Type:
        return self.walked.whole(self.walked.program.outputs[self.index].type)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self.walked.run(arrays)[self.index]

    def vjp(self, ct: Node, out: Node, *inputs: Node) -> Sequence[Node | None]:
        program, graph = self.walked.program, self.walked.graph
        wanted = [i for i, n in enumerate(program.inputs) if n.type.dtype.is_float]
        if not wanted:
            return (None,) * len(inputs)
        trained = training(program, wanted, RULES)
        walked = self.walked
        if len(trained.outputs) > len(program.outputs):
            walked = Walked(trained, graph, self.walked.token)
        found = gradient(trained, wanted, [self.index], RULES)
        saved = {i: GraphCall(walked, i) for i in range(len(trained.outputs))}
        arguments = [
            inputs[i] if kind == "input" else saved[i](*inputs) if kind == "output" else ct
            for kind, i in found.arguments
        ]
        backward = Walked(found.program, graph, self.walked.token)
        parts: list[Node | None] = [None] * len(inputs)
        for place, i in enumerate(found.wanted):
            parts[i] = GraphCall(backward, place)(*arguments)
        return parts

    def jvp(self, tangents: Sequence[Node | None], out: Node, *inputs: Node) -> Sequence[Node]:
        moving = [i for i, t in enumerate(tangents) if t is not None]
        program, live = tangent(self.walked.program, moving, RULES)
        if self.index not in live:
            return []
        forward = Walked(program, self.walked.graph, self.walked.token)
        given = [t for t in tangents if t is not None]
        return [GraphCall(forward, live.index(self.index))(*inputs, *given)]
