"""The `gf_iter` dialect: how the rows of a space are visited, and what is computed where.

    %w = "gf_iter.walk"() ({                       rows are nodes at `side` of the relation
      %a = "gf_iter.array"(%x) : ...               the arrays that it reads, whole
      %p = "gf_iter.phase"() ({                    one loop over the row's edges
        %v = "gf_iter.read"(%a) {at = "other"} : (...) -> tensor<4xf32, "src">
        ...                                        ops of `gf`, on values of one entity
        "gf_iter.carry"(%r) {slot = 0 : i64}       a reduction or scan that this loop completes
      }) : () -> !gf_iter.done
      %sum = "gf_iter.result"(%p) {slot = 0 : i64} : (!gf_iter.done) -> tensor<4xf32, "dst">
      "gf_iter.store"(%sum) {slot = 0 : i64}       array 0 that the walk writes, at this row
    }) {relation = @edges, side = "dst"} : () -> !gf_iter.done
    %y = "gf_iter.result"(%w) {slot = 0 : i64} : (!gf_iter.done) -> tensor<?x4xf32, "dst">

A loop carries reductions at its rows (`gf.reduce`) and scans (`gf.scan_after`), all of them in one
direction. `gf.scan_before` is the carry of such a scan before the edge, in the loop that carries it
or in a later one. A reduction at the other end is stored from within the loop: it is scattered.

A read is `at` the row, at the edge, or at the edge's other end; a global array is read as it is.
`gf_iter.rows` visits rows without edges. What a walk or a phase computes is taken from its one
result by slot, as IRDL wants all results of a variadic op to be of one type.
"""

from collections.abc import Iterator

from torch_mlir import ir

from tiga.ir.dialects import ANY, INTEGER, STRING, SYMBOL, TENSOR, Check, Dialect, OpSpec
from tiga.ir.encoding import decode_space, decode_type, is_one, relations_of
from tiga.passes.roles import EDGE, OTHER, ROW
from tiga.types import Relation, Space

WALK = "gf_iter.walk"
ROWS = "gf_iter.rows"
PHASE = "gf_iter.phase"
ARRAY = "gf_iter.array"
READ = "gf_iter.read"
CARRY = "gf_iter.carry"
STORE = "gf_iter.store"
RESULT = "gf_iter.result"
LAUNCH = "gf_kernel.launch"
REDUCE = "gf.reduce"
SCAN_AFTER = "gf.scan_after"

DONE = "!gf_iter.done"
DONE_CONSTRAINT = "@gf_iter::@done"


def body_of(operation: ir.Operation) -> list[ir.Operation]:
    """The operations in the one block of an operation's one region."""
    return [view.operation for view in operation.regions[0].blocks[0].operations]


def walk_of(operation: ir.Operation) -> ir.Operation:
    """A walk, or the walk that a launch runs."""
    return body_of(operation)[0] if operation.name == LAUNCH else operation


def slot_of(operation: ir.Operation) -> int:
    """The number of what a loop stores or carries."""
    return operation.attributes["slot"].value


def rows_of(operation: ir.Operation) -> tuple[Space, Relation | None, str]:
    """The space of the rows, the relation walked if any, and the side of its edges they are at.

    Raises:
        ValueError: the relation or the side does not exist.
    """
    if operation.name == ROWS:
        return decode_space(operation.attributes["space"]), None, "dst"
    name, side = operation.attributes["relation"].value, operation.attributes["side"].value
    relation = relations_of(operation).get(name)
    if relation is None or side not in ("src", "dst"):
        raise ValueError(f"no side {side!r} of a declared relation @{name}")
    return relation.end(side), relation, side


def _spaces_of(operation: ir.Operation) -> dict[str, Space]:
    """The space at each coordinate of a walk."""
    space, relation, side = rows_of(operation)
    if relation is None:
        return {ROW: space}
    return {ROW: space, OTHER: relation.other_end(side), EDGE: relation.edge}


def _walk_around(operation: ir.Operation) -> ir.Operation:
    while operation.name not in (WALK, ROWS):
        if operation.parent is None:
            raise ValueError("it belongs in the body of a walk")
        operation = operation.parent.operation
    return operation


def _makes(one: ir.Type, whole: ir.Type) -> bool:
    """Whether a value of type `one`, at every entity, makes an array of type `whole`."""
    if one.encoding is None:
        return one == whole
    return is_one(one) and not is_one(whole) and decode_type(one) == decode_type(whole)


def _slots(operation: ir.Operation) -> Iterator[ir.Operation]:
    """What fills the slots of a walk, stores in its phases included, or of a phase."""
    wanted = CARRY if operation.name == PHASE else STORE
    for inner in body_of(operation):
        if inner.name == PHASE:
            yield from (nested for nested in body_of(inner) if nested.name == wanted)
        if inner.name == wanted:
            yield inner


def _check_slots(operation: ir.Operation) -> str | None:
    slots = sorted(map(slot_of, _slots(operation)))
    whole = slots == list(range(len(slots)))
    return None if whole else f"expected slots 0, 1, ... to be filled once each, got {slots}"


def _check_walk(operation: ir.Operation) -> str | None:
    rows_of(operation)
    return _check_slots(operation)


def _check_phase(operation: ir.Operation) -> str | None:
    if operation.parent.operation.name != WALK:
        return f"it belongs directly in the body of a {WALK}"
    scans = (inner for inner in body_of(operation) if inner.name == SCAN_AFTER)
    directions = {scan.attributes["reverse"].value for scan in scans}
    if len(directions) > 1:
        return "its scans run in one direction, got both"
    return _check_slots(operation)


def _check_array(operation: ir.Operation) -> str | None:
    (operand,), (result,) = operation.operands, operation.results
    if operand.type != result.type:
        return f"expected {operand.type} as it is, got {result.type}"
    inside = operation.parent.operation.name in (WALK, ROWS)
    return None if inside else "it belongs directly in the body of a walk"


def _check_read(operation: ir.Operation) -> str | None:
    array, one = operation.operands[0].type, operation.results[0].type
    at = operation.attributes["at"].value
    if array.encoding is None or not _makes(one, array):
        return f"expected an array and its value at one entity, got {array} and {one}"
    spaces = _spaces_of(_walk_around(operation))
    if spaces.get(at) != decode_space(array.encoding):
        places = ", ".join(f"{place} ({space})" for place, space in spaces.items())
        return f"expected a place that holds {array}, of {places}; got {at!r}"
    in_phase = operation.parent.operation.name == PHASE
    return None if at == ROW or in_phase else f"only a phase reads at {at!r}"


def _check_carry(operation: ir.Operation) -> str | None:
    if operation.parent.operation.name != PHASE:
        return "it belongs directly in a phase"
    value = operation.operands[0].owner
    if isinstance(value, ir.Block) or value.name not in (REDUCE, SCAN_AFTER):
        return "a phase carries reductions and scans"
    _, _, side = rows_of(_walk_around(operation))
    at = value.attributes["side"].value
    return None if at == side else f"expected a result at the rows ({side}), got one at {at}"


def is_scattered(value: ir.Operation) -> bool:
    """Whether a value of a phase is a reduction at the other end of the edges."""
    return value.name == REDUCE and value.parent.operation.name == PHASE


def _check_store(operation: ir.Operation) -> str | None:
    walk, value = _walk_around(operation), operation.operands[0].owner
    if isinstance(value, ir.Block) or not is_scattered(value):
        return None
    kind, at = (value.attributes[key].value for key in ("kind", "side"))
    if at == rows_of(walk)[2]:
        return "a phase carries a reduction at its rows, and stores one at the other end"
    return None if kind == "sum" else f"only sums are scattered, got {kind}"


def _check_result(operation: ir.Operation) -> str | None:
    source = walk_of(operation.operands[0].owner.operation)
    filled = {slot_of(filler): filler for filler in _slots(source)}
    slot, type = slot_of(operation), operation.results[0].type
    if slot not in filled:
        return f"expected a slot below {len(filled)}, got {slot}"
    value = filled[slot].operands[0].type
    right = value == type if source.name == PHASE else _makes(value, type)
    return None if right else f"slot {slot} holds {value}, got {type}"


def _visiting(name: str, check: Check, attributes: dict[str, str]) -> OpSpec:
    return OpSpec(
        name, 0, 1, attributes, ("body",), outcome=DONE_CONSTRAINT, traits=("no_terminator",),
        check=check,
    )  # fmt: skip


GF_ITER = Dialect(
    "gf_iter",
    (
        _visiting("walk", _check_walk, {"relation": SYMBOL, "side": STRING}),
        _visiting("rows", _check_walk, {"space": ANY}),
        _visiting("phase", _check_phase, {}),
        OpSpec("array", 1, 1, check=_check_array),
        OpSpec("read", 1, 1, {"at": STRING}, check=_check_read),
        OpSpec("carry", 1, 0, {"slot": INTEGER}, check=_check_carry),
        OpSpec("store", 1, 0, {"slot": INTEGER}, check=_check_store),
        OpSpec(
            "result", 1, 1, {"slot": INTEGER}, values=DONE_CONSTRAINT, outcome=TENSOR,
            check=_check_result,
        ),
    ),
    types=("done",),
)  # fmt: skip
"""The dialect of walks, rows and phases."""
