"""Graphs from index tensors alone, as a library op gets them, without sorting at every call."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tiga.relations import Graph

CAPACITY = 64
"""Graphs that are kept."""

LOOKED_AT = 2
"""Graphs of which it is seen, when another one is made, whether they are still in use."""

SAMPLE = 16
"""Numbers of an array that are compared before all are."""

Counts = tuple[int, int]


@dataclass(eq=False)
class Topology:
    """A graph, the arrays that it was made from, and the storages known to hold these.

    `ready` is for callers to keep what they made for it, by the text of a program. Orders may be
    kept for backward, whatever the mode is that they are made in.
    """

    graph: Graph
    arrays: tuple[Any, Any]
    storages: list[StorageWeakRef] = field(default_factory=list)
    ready: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays."""
        return _shapes(self.arrays)

    @cached_property
    def sample(self) -> tuple[int, ...]:
        """Some of the arrays' numbers."""
        return _sample(self.arrays)

    @cached_property
    def extents(self) -> dict[str, int]:
        """Sizes by the names of spaces and of the relation."""
        num_src, num_dst = self.graph.num_src, self.graph.num_dst
        return {"src": num_src, "dst": num_dst, "node": num_dst, "edges": self.graph.num_edges}

    @cached_property
    @torch.inference_mode(False)
    def order(self) -> torch.Tensor | None:
        """The order that leads from the user's edges to CSR; None where they are one."""
        if not self.graph.permutes_edges:
            return None
        order = self.graph.edge_permutation
        return order.clone() if isinstance(order, torch.Tensor) else torch.from_numpy(order.copy())

    @cached_property
    @torch.inference_mode(False)
    def inverse(self) -> torch.Tensor:
        """The order that leads back."""
        assert self.order is not None
        return torch.argsort(self.order)


@dataclass(frozen=True)
class Last:
    """The tensors met last, held weakly, as they were: the same again mean the same topology."""

    kind: str
    counts: Counts
    tensors: tuple[ref[torch.Tensor], ref[torch.Tensor]]
    state: tuple[int, int, int, int]
    topology: Topology

    @staticmethod
    def of(
        kind: str, first: torch.Tensor, second: torch.Tensor, counts: Counts, topology: Topology
    ) -> "Last":
        return Last(kind, counts, (ref(first), ref(second)), _state(first, second), topology)

    def serves(self, kind: str, first: torch.Tensor, second: torch.Tensor, counts: Counts) -> bool:
        """Whether these are the same tensors, not written to since."""
        one, other = self.tensors
        if one() is not first or other() is not second:
            return False
        same_call = kind == self.kind and counts == self.counts
        return same_call and _state(first, second) == self.state


def _state(first: torch.Tensor, second: torch.Tensor) -> tuple[int, int, int, int]:
    return first._version, second._version, first.data_ptr(), second.data_ptr()


@dataclass
class Topologies:
    """Graphs by the storage, place and version of their index tensors.

    A storage is held weakly, so its address means it and no other. A tensor of an unknown storage
    is compared with the graphs of its size before a graph is built.
    """

    known: "OrderedDict[Any, Topology]" = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    last: "Last | None" = None

    def get(self, kind: str, first: torch.Tensor, second: torch.Tensor, counts: Counts) -> Topology:
        """The topology of two index tensors.

        Args:
            kind: "coo", from sources and destinations; "csr", from row pointers and sources;
                "transposed", the transpose of the latter.
            counts: sources and destinations of the result.
        """
        last = self.last
        if last is not None and last.serves(kind, first, second, counts):
            return last.topology
        key = (kind, counts, _identity(first), _identity(second))
        found = self.known.get(key)
        if found is None:
            with self.lock:
                found = self.known.get(key) or self._make(key, first, second)
        if not (first.is_inference() or second.is_inference()):
            self.last = Last.of(kind, first, second, counts, found)
        return found

    def _make(self, key: Any, first: torch.Tensor, second: torch.Tensor) -> Topology:
        kind, counts = key[:2]
        arrays = _array(first), _array(second)
        found = self._equal(kind, counts, arrays)
        if found is None:
            # A graph copies arrays; tensors it shares: not with the caller.
            given = (arrays[0].clone(), arrays[1].clone()) if first.is_cuda else arrays
            graph = _build(kind, *given, counts)
            one, other = graph.input.arrays()
            found = Topology(graph, (one, other))
        if not (first.is_inference() or second.is_inference()):
            found.storages += [StorageWeakRef(t.untyped_storage()) for t in (first, second)]
            self._forget()
            self.known[key] = found
        return found

    def _equal(self, kind: str, counts: Counts, arrays: Any) -> Topology | None:
        shapes = _shapes(arrays)
        alike = [
            known
            for (other, sizes, *_), known in self.known.items()
            if other == kind and sizes == counts and known.shapes == shapes
        ]
        sample = _sample(arrays) if alike else ()
        for known in alike:
            if known.sample == sample and all(map(_are_equal, known.arrays, arrays)):
                return known
        return None

    def _forget(self) -> None:
        """Drop graphs whose tensors are gone, and the oldest beyond capacity. Only a few are looked
        at, in turn: where every step has a graph of its own, each comes here."""
        for _ in range(min(LOOKED_AT, len(self.known))):
            key, known = self.known.popitem(last=False)
            if not all(s.expired() for s in known.storages):
                self.known[key] = known
        while len(self.known) >= CAPACITY:
            self.known.popitem(last=False)


def _array(tensor: torch.Tensor) -> Any:
    """Indices as numpy sees them, on a GPU as they are."""
    return tensor.detach() if tensor.is_cuda else tensor.detach().numpy()


def _shapes(arrays: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(array.shape) for array in arrays)


def _sample(arrays: Any) -> tuple[int, ...]:
    """A few of the numbers of both arrays: most that differ, differ there."""
    parts = [array[:: max(1, len(array) // SAMPLE)] for array in arrays]
    if isinstance(parts[0], torch.Tensor):
        return tuple(torch.cat(parts).tolist())
    return tuple(np.concatenate(parts).tolist())


def _are_equal(known: Any, array: Any) -> bool:
    if isinstance(known, torch.Tensor) and isinstance(array, torch.Tensor):
        return known.device == array.device and torch.equal(known, array)
    return type(known) is type(array) and np.array_equal(known, array)


def _identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.is_inference():
        return (object(),)
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.data_ptr(), tensor._version, tensor.shape, tensor.stride()


def _build(kind: str, first: Any, second: Any, counts: Counts) -> Graph:
    num_src, num_dst = counts
    if kind == "coo":
        return Graph.from_coo(first, second, num_src=num_src, num_dst=num_dst)
    if kind == "csr":
        return Graph.from_csr(first, second, num_src=num_src)
    return Graph.from_csr(first, second, num_src=num_dst).transpose()
