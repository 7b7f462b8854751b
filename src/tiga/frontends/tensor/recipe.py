"""How a value was computed, told without keeping alive what it was computed from."""

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import ref

from tiga.errors import InvalidValue
from tiga.frontends.tensor.lazy import Cell, LazyNode, Leaf, Place, filled, here, place_text
from tiga.ops.leaf import Constant
from tiga.trace.node import Node
from tiga.types import Type

Structure = tuple[Any, ...]


def structure(roots: Sequence[Node]) -> tuple[Structure, list[Node]]:
    """What tells expressions from others but the values in memory, and the nodes in order.

    The roots' places come first; then of every node its op (None: a value in memory), its type
    and the places of its inputs.
    """
    order: list[Node] = list({id(root): root for root in roots}.values())
    places = {id(root): place for place, root in enumerate(order)}
    parts: list[Any] = [places[id(root)] for root in roots]
    computed = len(order)
    add, known = parts.append, places.get
    for node in order:
        op = node.op
        if computed:
            computed -= 1
        elif getattr(node, "cell", None) is not None and op.__class__ is not Constant:
            add(None)
            add(node.type)
            continue
        add(op)
        add(node.type)
        for child in node.inputs:
            key = id(child)
            found = known(key)
            if found is None:
                found = places[key] = len(order)
                order.append(child)
            add(found)
    return tuple(parts), order


def _entries(parts: Structure, roots: int) -> list[tuple[Any, Type, list[int]]]:
    """Op, type and places of inputs, node by node."""
    found: list[tuple[Any, Type, list[int]]] = []
    at = roots
    while at < len(parts):
        end = at + 2
        while end < len(parts) and isinstance(parts[end], int):
            end += 1
        found.append((parts[at], parts[at + 1], list(parts[at + 2 : end])))
        at = end
    return found


class Recipe:
    """The expression of some values: its operands are referred to, not held."""

    __slots__ = ("_operands", "_parts", "_places", "_roots")

    def __init__(
        self, roots: int, parts: Structure, order: Sequence[Node], given: Iterable[int]
    ) -> None:
        """`given` are the places of the values in memory."""
        self._roots = roots
        self._parts = parts
        self._places: list[Place | None] = [getattr(node, "place", None) for node in order]
        self._operands: dict[int, tuple[ref, ref]] = {}
        for place in given:
            cell: Any = order[place].cell  # type: ignore[attr-defined]
            self._operands[place] = ref(cell.array), ref(cell)

    def node(self, root: int, *, alive: bool = False) -> LazyNode:
        """The expression of one value. Operands that are gone are stood in for by zeros.

        Raises:
            InvalidValue: an operand is gone, and `alive` asks for it.
        """
        entries = _entries(self._parts, self._roots)
        nodes = [LazyNode(op or Leaf(type), (), type, place)
                 for (op, type, _), place in zip(entries, self._places, strict=True)]  # fmt: skip
        for place, (op, type_, reads) in enumerate(entries):
            nodes[place].inputs = tuple(nodes[i] for i in reads)
            if op is None:
                nodes[place].cell = self._cell(place, type_, alive)
            elif op.__class__ is Constant:
                nodes[place].cell = filled(op.value, type_)
        return nodes[self._parts[root]]

    def _cell(self, place: int, type_: Type, alive: bool) -> Cell:
        operand = self._operands.get(place)
        array = None if operand is None else operand[0]()
        cell = None if operand is None else operand[1]()
        if array is None and cell is not None:
            return cell
        if array is None and alive:
            where = place_text(self._places[place])
            raise InvalidValue(
                f"prepare(): an operand, {type_} from {where}, is gone ({here()}): keep it, or "
                "call prepare() before the value is computed."
            )
        return filled(0, type_) if array is None else Cell(array)


class Made:
    """One value of a recipe."""

    __slots__ = ("recipe", "root")

    def __init__(self, recipe: Recipe, root: int) -> None:
        self.recipe = recipe
        self.root = root

    def node(self, *, alive: bool = False) -> LazyNode:
        """See `Recipe.node`."""
        return self.recipe.node(self.root, alive=alive)


def made_by(node: Node) -> Made:
    """The recipe of one computed node."""
    parts, order = structure([node])
    given = [i for i, one in enumerate(order) if i and has_value(one)]
    return Made(Recipe(1, parts, order, given), 0)


def has_value(node: Node) -> bool:
    """Whether a node holds a value that was given or computed, and is no number."""
    return getattr(node, "cell", None) is not None and node.op.__class__ is not Constant
