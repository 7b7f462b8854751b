"""A program: named inputs and outputs around a trace."""

from dataclasses import dataclass
from functools import cached_property

from tiga.trace.node import Node, Rule, rewrite, topological
from tiga.trace.origin import Origin
from tiga.types import Relation, Space


@dataclass(frozen=True)
class Program:
    """Outputs computed from inputs. `inputs` are the `Input` nodes in argument order."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @cached_property
    def order(self) -> tuple[Node, ...]:
        """Every node that the outputs need, inputs first in argument order."""
        needed = topological(self.outputs)
        inputs = set(self.inputs)
        assert all(n in inputs for n in needed if not n.inputs and n.op.origin is Origin.ARGUMENT)
        return (*self.inputs, *(n for n in needed if n not in inputs))

    def rewritten(self, rule: Rule) -> "Program":
        """The program with outputs that a rule rewrites; see `rewrite`."""
        return Program(self.inputs, tuple(rewrite(self.outputs, rule)))

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """The relations that the program walks, each once."""
        found = {n.op.relation: None for n in self.order if hasattr(n.op, "relation")}
        return tuple(found)

    @cached_property
    def edges(self) -> dict[Space, Relation]:
        """The relations by the space of their edges."""
        return {relation.edge: relation for relation in self.relations}
