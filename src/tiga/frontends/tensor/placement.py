"""Which device the values of expressions are on, or will be."""

from collections.abc import Sequence

from tiga.errors import InvalidValue
from tiga.frontends.tensor.arrays import device_of
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.lazy import HELPER, LARGE, Leaf
from tiga.frontends.tensor.waiting import pending
from tiga.ops.tensor_transfer import ToDevice
from tiga.runtime.device_array import DeviceArray
from tiga.trace.node import Node
from tiga.trace.origin import Origin


def device_named(name: str) -> Device:
    """The device that `ToDevice` calls so."""
    kind, _, index = name.partition(":")
    return Device(kind, int(index or 0))


def places(order: Sequence[Node], roots: Sequence[Node]) -> list[Device | None]:
    """The device of every root, from the values below it; None where there are none.

    `order` has the nodes to compute, each after its inputs.

    Raises:
        InvalidValue: an op has operands on several devices; the message has its line.
    """
    known: dict[int, Device | None] = {}
    for node in order:
        if isinstance(node.op, ToDevice):
            known[id(node)] = device_named(node.op.device)
            continue
        found = {d for d in (_place(child, known) for child in node.inputs) if d is not None}
        if len(found) > 1:
            names = " and ".join(sorted(map(str, found)))
            raise InvalidValue(
                f"{node.op.name} of values on {names} (built at {node.where}): "
                "move one of them by name: x.to(device)."
            )
        known[id(node)] = found.pop() if found else None
    return [_place(root, known) for root in roots]


def _place(node: Node, known: dict[int, Device | None]) -> Device | None:
    if id(node) in known:
        return known[id(node)]
    if node.cell is None or node.op.origin is Origin.NUMBER:
        return None
    if isinstance(node.op, Leaf) and node.op.label == HELPER:
        return None
    array = node.cell.array
    # A single number on the CPU goes with operands on any device.
    return device_of(array) if isinstance(array, DeviceArray) or array.size > 1 else None


def are_on_cpu(roots: Sequence[Node]) -> bool:
    """Whether nothing of any other device is in expressions, as far as their sizes tell."""
    return all(getattr(root, "largest", LARGE) < LARGE for root in roots)


def is_apart(roots: Sequence[Node]) -> bool:
    """Whether values are on several devices, or need copies between them: no program has both."""
    if are_on_cpu(roots):
        return False
    order = pending(roots)
    return any(isinstance(n.op, ToDevice) for n in order) or len(set(places(order, roots))) > 1


def device_of_node(node: Node) -> Device:
    """Where a value will be that is not computed yet."""
    if are_on_cpu([node]):
        return CPU
    (found,) = places(pending([node]), [node])
    return CPU if found is None else found
