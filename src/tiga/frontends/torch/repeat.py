"""A call like the one before it: one pass over its arguments instead of a signature."""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tiga.frontends.torch.capture.program import FieldSource
from tiga.relations.snapshot import Snapshot

Fields = tuple[tuple[str, torch.dtype, torch.Size], ...] | None

NAMESPACES = "src", "dst", "edge", "ndata"
EDGES, NODES = 2, 3
NO_FIELDS: Mapping[str, Any] = {}

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def settings() -> tuple[Any, ...]:
    """The settings of torch that change what a program computes."""
    if not _any_autocast():
        return torch.get_default_dtype(), None, None
    return (
        torch.get_default_dtype(),
        torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
        torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None,
    )


@dataclass(eq=False)  # one is made for every new graph
class Repeat:
    """What a call looked like that a variant served: names, dtypes and shapes of its fields.

    Another call that looks the same on the same topology passes every check that the first one
    passed. `given` holds `src`, `dst`, `edge` and `ndata`, None for what was left out; `places`
    where among them the inputs of the program are, None if not all are there.
    """

    topology: "weakref.ref[Snapshot]"
    given: tuple[Fields, ...]
    device: torch.device
    settings: tuple[Any, ...]
    variant: Any
    places: tuple[tuple[int, str], ...] | None
    in_order: bool
    """Whether edge fields are read as they come."""

    @staticmethod
    def of(
        topology: Snapshot, given: Sequence[Any], device: torch.device, variant: Any
    ) -> "Repeat | None":
        """What to remember of a call that passed its checks; None if it has to be checked anew."""
        if not all(fields is None or type(fields) is dict for fields in given):
            return None
        if not all(type(v) in _PLAIN for fields in given for v in (fields or NO_FIELDS).values()):
            return None
        kinds = tuple(
            None if fields is None else tuple((n, v.dtype, v.shape) for n, v in fields.items())
            for fields in given
        )
        in_order = topology.topology.permutation is None
        return Repeat(
            weakref.ref(topology), kinds, device, settings(), variant, _places(variant), in_order
        )

    def on(self, topology: Snapshot, device: torch.device) -> "Repeat | None":
        """What the same call looks like on another topology; None if it is to be checked anew."""
        nodes = topology.num_src
        if device != self.device or (self.given[NODES] is not None and nodes != topology.num_dst):
            return None
        extents = nodes, topology.num_dst, topology.num_edges, nodes
        given = tuple([
            fields and tuple([(n, t, torch.Size((extent, *shape[1:]))) for n, t, shape in fields])
            for fields, extent in zip(self.given, extents)  # noqa: B905  # both have four
        ])  # fmt: skip
        in_order = topology.topology.permutation is None
        return Repeat(
            weakref.ref(topology), given, device, self.settings, self.variant, self.places, in_order
        )

    def serves(self, topology: Snapshot, given: Sequence[Any]) -> bool:
        """Whether a call without parameters looks the same."""
        if self.topology() is not topology:
            return False
        for fields, known in zip(given, self.given):  # noqa: B905  # both have four
            if fields is None or known is None:
                if fields is not known:
                    return False
            elif type(fields) is not dict or not self._alike(fields, known):
                return False
        return self.settings == settings() and bool(self.variant.fits(NO_FIELDS))

    def _alike(self, fields: Mapping[str, Any], known: Any) -> bool:
        if len(fields) != len(known):
            return False
        device = self.device
        for name, dtype, shape in known:
            value: Any = fields.get(name)
            if type(value) not in _PLAIN or value.dtype is not dtype or value.shape != shape:
                return False
            if value.device != device or value.layout is not _STRIDED:
                return False
        return True

    def _reads_nodes_only(self) -> bool:
        return all(position != EDGES for position, _ in self.places or ())

    def values(self, given: Sequence[Any]) -> list[torch.Tensor] | None:
        """The inputs of the program for a call that looks the same, contiguous; None where they are
        to be looked up one by one."""
        if self.places is None or not (self.in_order or self._reads_nodes_only()):
            return None
        found = [given[position][name] for position, name in self.places]
        for value in found:
            if not value.is_contiguous():
                return [value.contiguous() for value in found]
        return found


def _places(variant: Any) -> tuple[tuple[int, str], ...] | None:
    """Where the inputs of a variant's program are among the fields of a call."""
    captured = variant.captured
    if captured is None or captured.bounds:
        return None
    found = []
    for source in captured.sources:
        if not isinstance(source, FieldSource):
            return None
        found.append((NAMESPACES.index(source.namespace), source.name))
    return tuple(found)
