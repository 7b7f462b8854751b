"""The facts that compilers ask an op for: they do not ask which op it is."""

from typing import ClassVar

from tiga.trace.origin import Origin


class Facts:
    """The facts of an op, each with what holds for most. `tests/conformance/test_facts.py` holds
    ops to what they declare."""

    # where its values come from

    origin: ClassVar[Origin] = Origin.OPERANDS
    """Where its values come from."""
    table: ClassVar[int | None] = None
    """The operand that is a matrix or a table, of which every entity reads what it needs."""
    by_index: ClassVar[bool] = False
    """Whether an operand tells which rows of a table an entity reads, or adds to."""
    stands_alone: ClassVar[bool] = False
    """Whether it is a step of its own on values of nodes: what it reads serves many of them."""
    defers: ClassVar[bool] = False
    """Whether it is a call on what is no part of the program: a plan gives each run its own."""

    # how elements follow from elements

    pointwise: ClassVar[bool] = False
    """Whether each element is made of the same element of every operand."""
    converts: ClassVar[bool] = False
    """Whether it is its operand in another dtype: what makes it needs to know both."""
    identity: ClassVar[bool] = False
    """Whether it is its operand as it is, which says something to a pass or a derivative."""
    moves: ClassVar[bool] = False
    """Whether the value holds elements of the operands, or zeros, at other places of the entity."""
    fills: ClassVar[bool] = False
    """Whether some of the elements of what it moves are zeros, which no operand holds."""
    renames: ClassVar[bool] = False
    """Whether it is its one operand under other axes: added, repeated, merged, split, exchanged."""
    reshapes: ClassVar[bool] = False
    """Whether it renames by keeping all elements in row-major order, under another shape."""
    broadcasts: ClassVar[bool] = False
    """Whether it renames by repeating its operand along new leading axes and axes of extent 1."""
    concatenates: ClassVar[bool] = False
    """Whether the value is its operands after one another along a feature axis."""
    packs: ClassVar[bool] = False
    """Whether the value is its operand, a condition, as bits: gradients read it instead."""
    unpacks: ClassVar[bool] = False
    """Whether the value is the condition whose bits its operand is."""

    # along axes

    axis_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that number axes of the operands."""
    batches: ClassVar[bool] = False
    """Of whole tensors: whether a further leading axis of all operands is one of the value."""
    reduces: ClassVar[bool] = False
    """Whether it combines the elements along axes of its one operand by `combine`."""
    carries: ClassVar[bool] = False
    """Whether it is left by a loop that carries a value from edge to edge, or along an axis."""
    combine: ClassVar[str | None] = None
    """What reduces two elements, or carries on by one, if it is no more than a pointwise op."""

    # algebra

    signs: ClassVar[tuple[int, ...]] = ()
    """Of a sum of the operands: 1 for each that is added, -1 for each that is taken away."""
    trends: ClassVar[tuple[int, ...]] = ()
    """Of a monotone op: 1 for each operand that it never falls with, -1 where it never rises."""
    exchanges: ClassVar[bool] = False
    """Whether exchanging two operands transposes the value."""
    divides: ClassVar[bool] = False
    """Whether it is a quotient or a remainder: of integers these are other code than of floats."""
    steep: ClassVar[bool] = False
    """Of a pointwise op: whether it may be, or have a derivative that is, infinite where its
    operands are finite."""
    finds: ClassVar[str | None] = None
    """Of a comparison with the extremum of many values, the kind of that: it holds for few."""

    # what it takes to compute it

    cost: ClassVar[int] = 1
    """Relative work per element."""
    exact: ClassVar[bool] = False
    """Whether a pointwise op's result needs no rounding to the operands' 16-bit type."""
    widens: ClassVar[bool] = True
    """Of whole tensors: whether 16-bit floats are given to it as float32."""

    @property
    def is_uniform(self) -> bool:
        """Whether the value is the same for every entity, whatever the operands are."""
        return self.origin in (Origin.NUMBER, Origin.GLOBAL)

    @property
    def is_read(self) -> bool:
        """Whether entities read the value, and compute nothing."""
        return self.origin in (Origin.END, Origin.GLOBAL, Origin.ARGUMENT)

    @property
    def is_view(self) -> bool:
        """Whether kernels read the operand under another shape, and move nothing."""
        return self.reshapes or self.broadcasts

    @property
    def selects(self) -> bool:
        """Whether what it reduces to is one of the elements, which have an order then."""
        return False

    @property
    def joined_by(self) -> str | None:
        """What joins values of two parts of the elements that it reduces, if anything does."""
        return self.combine if self.reduces else None

    @property
    def collects(self) -> bool:
        """Whether the value is made from those of many entities at once, or for many at once."""
        gathered = (Origin.ROW, Origin.TOTAL, Origin.OUTER)
        return self.stands_alone or self.origin in gathered
