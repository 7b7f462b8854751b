"""What `edge` and `node` are called with, for fields of given names and types: made once."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tiga.frontends.tensor.messages.capture import ByStructure, Field, Place
from tiga.frontends.tensor.messages.entities import EDGES, NODES
from tiga.frontends.tensor.messages.fields import FieldView, Spec, stand_in
from tiga.trace.node import Node
from tiga.types import Relation, Space, dtype_named

RELATION = Relation("edges", Space("src", "node"), Space("dst", "node"))
SQUARE = Relation("edges", Space("node", "node"), Space("node", "node"))


@dataclass(frozen=True, eq=False)
class Template:
    """What `edge` and `node` are called with, for fields of given names and types, and what was
    made of what they built."""

    relation: Relation
    edge_views: tuple[FieldView, ...]
    node_view: FieldView
    on_edges: dict[Node, Place]
    on_nodes: dict[Node, Place]
    rows: ByStructure = field(default_factory=ByStructure)


@lru_cache(maxsize=256)
def template_of(fields: tuple[Any, ...]) -> Template:
    """The template for fields, of which `Spec` says what they are."""
    specs = [Spec(*one) for one in fields]
    square = any(spec.namespace == "ndata" for spec in specs)
    relation = SQUARE if square else RELATION
    edges: dict[Node, Place] = {}
    nodes: dict[Node, Place] = {}

    def view(end: str, on_edges: bool) -> FieldView:
        values = {}
        for spec in specs:
            if spec.namespace != end and not (spec.namespace == "ndata" and end != "edge"):
                continue
            space = relation.edge if end == "edge" else relation.end(end)
            dtype = dtype_named(spec.dtype)
            made = stand_in(dtype, spec.shape, EDGES if on_edges else NODES, spec.grad)
            place = Place(Field(spec.namespace, spec.name), space, dtype, spec.shape, end, on_edges)
            (edges if on_edges else nodes)[made._node] = place
            values[spec.name] = made
        return FieldView(end, values)

    views = tuple(view(end, True) for end in ("src", "dst", "edge"))
    return Template(relation, views, view("dst", False), edges, nodes)
