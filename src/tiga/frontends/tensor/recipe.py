"""How a value was computed, told without keeping alive what it was computed from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

from tiga.errors import InvalidValue
from tiga.frontends.tensor.application import Application, Record, Result, part_of
from tiga.frontends.tensor.lazy import (
    Cell,
    LazyNode,
    Leaf,
    Place,
    Unbuilt,
    filled,
    here,
    place_text,
)
from tiga.ops.leaf import Constant
from tiga.trace.node import Node
from tiga.types import Type

Parts = tuple[Any, ...]


class Structure(NamedTuple):
    """Expressions: `parts` tell them from others but for values in memory and graphs; the nodes,
    roots first, with the applications of records; and the places of calls on graphs among them.

    Parts are the roots' places, then of every node its op and the places of its inputs. A value in
    memory is its type alone, a call on a graph the call's form with its type, the result of an
    application its number, and an application its record.
    """

    parts: Parts
    order: list[Any]
    calls: list[int]


def structure(roots: Sequence[Node]) -> Structure:
    """What is computed for roots, which are in any case."""
    places: dict[Any, int] = {}
    for root in roots:
        places.setdefault(root, len(places))
    order, calls = list(places), []
    computed = len(order)
    parts: list[Any] = [places[root] for root in roots]
    add, known = parts.append, places.get
    for place, node in enumerate(order):
        kind = node.__class__
        is_value = place >= computed and node.cell
        if is_value and (kind is Unbuilt or node.op.__class__ is not Constant):
            add(node.type)
            continue
        part = part_of(node) if kind is Unbuilt or kind is Application else None
        if part is not None:
            add(part.mark)
            children = part.children
        else:
            op, children = node.op, node.inputs
            if op.defers:
                calls.append(place)
                add((op.form, node.type))
            else:
                add(op)
        for child in children:
            found = known(child)
            if found is None:
                found = places[child] = len(order)
                order.append(child)
            add(found)
    return Structure(tuple(parts), order, calls)


def with_known(found: Structure, roots: Sequence[Node]) -> Structure:
    """The structure, by single nodes if a value in memory may be within an application."""
    applied = [one for one in found.order if one.__class__ is Application]
    if all(node in found.order for one in applied for node in one.known):
        return found
    for one in applied:
        one.build()
    return structure(roots)


def is_operand(node: Node) -> bool:
    """Whether a node holds a value that was given or computed, and is no number."""
    return node.cell is not None and node.op.__class__ is not Constant


@dataclass(frozen=True)
class Form:
    """Expressions without operands: their parts, the type of every node, and the places of the
    values in memory that are read."""

    parts: Parts
    types: tuple[Type, ...]
    inputs: tuple[int, ...]

    @staticmethod
    def of(found: Structure, inputs: Iterable[int]) -> "Form":
        """The form of a structure."""
        return Form(found.parts, tuple(node.type for node in found.order), tuple(inputs))

    def entries(self) -> list[tuple[Any, list[int]]]:
        """Of every node what stands for its op, and the places of its inputs."""
        numbers = [i for i, part in enumerate(self.parts) if not isinstance(part, int)]
        ends = [*numbers[1:], len(self.parts)]
        return [
            (self.parts[at], list(self.parts[at + 1 : end]))
            for at, end in zip(numbers, ends, strict=True)
        ]


class Recipe:
    """The expression of some values: its operands are referred to, not held."""

    __slots__ = ("_calls", "_form", "_operands", "_places")

    def __init__(self, form: Form, order: Sequence[Node], calls: Sequence[int]) -> None:
        self._form = form
        self._calls = [order[place].op for place in calls] if calls else ()
        self._places: list[Place | None] = [getattr(node, "place", None) for node in order]
        self._operands: list[tuple[ref, ref]] = []
        for place in form.inputs:
            cell: Any = order[place].cell
            self._operands.append((ref(cell.array), ref(cell)))

    def node(self, root: int = 0, *, alive: bool = False) -> LazyNode:
        """The expression of one value. Operands that are gone are stood in for by zeros.

        Raises:
            InvalidValue: an operand is gone, and `alive` asks for it.
        """
        entries, calls = self._form.entries(), iter(self._calls)
        operands = dict(zip(self._form.inputs, self._operands, strict=True))
        nodes = self._empty(entries)
        for place, (part, reads) in enumerate(entries):
            node = nodes[place]
            if part.__class__ is Record:
                continue
            if part.__class__ is Result:
                one = nodes[reads[0]].result(part.number)
                node.op, node.inputs = one.op, one.inputs
                continue
            node.inputs = tuple(nodes[i] for i in reads)
            if part.__class__ is Type:
                node.op, node.cell = Leaf(part), self._cell(operands.get(place), place, alive)
                continue
            node.op = next(calls) if part.__class__ is tuple else part
            if part.__class__ is Constant:
                node.cell = filled(part.value, node.type)
        return nodes[self._form.parts[root]]

    def _empty(self, entries: list[tuple[Any, list[int]]]) -> list[Any]:
        """Nodes without ops and inputs, and the applications among them, which know theirs."""
        typed = zip(self._form.types, self._places, strict=True)
        nodes: list[Any] = [LazyNode(None, (), *of) for of in typed]
        applied = [place for place, (part, _) in enumerate(entries) if part.__class__ is Record]
        for place in applied:
            nodes[place] = Application.of_nothing(entries[place][0], self._places[place])
        for place in applied:
            nodes[place].children = tuple(nodes[i] for i in entries[place][1])
        return nodes

    def _cell(self, operand: tuple[ref, ref] | None, place: int, alive: bool) -> Cell:
        array, cell = (None, None) if operand is None else (operand[0](), operand[1]())
        if array is None and cell is not None:
            return cell
        kind = self._form.types[place]
        if array is None and alive:
            where = place_text(self._places[place])
            raise InvalidValue(
                f"prepare(): an operand, {kind} from {where}, is gone ({here()}): keep it, or "
                "call prepare() before the value is computed."
            )
        return filled(0, kind) if array is None else Cell(array)


class Made:
    """One of several values of a recipe, but the first."""

    __slots__ = ("recipe", "root")

    def __init__(self, recipe: Recipe, root: int) -> None:
        self.recipe = recipe
        self.root = root

    def node(self, *, alive: bool = False) -> LazyNode:
        """See `Recipe.node`."""
        return self.recipe.node(self.root, alive=alive)


def made_by(node: Node) -> Recipe:
    """The recipe of one computed node."""
    found = structure([node])
    given = [i for i, one in enumerate(found.order) if i and is_operand(one)]
    return Recipe(Form.of(found, given), found.order, found.calls)
