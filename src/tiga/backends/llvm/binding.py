"""A plan on one topology: all that a run needs but the addresses of its arrays, worked out once."""

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tiga.backends.llvm.launcher import Launch, launch, launch_sequence, sequence_records
from tiga.backends.llvm.library import Matmul, call_library, numpy_matmul
from tiga.backends.llvm.node_products import ProductStep
from tiga.passes.buffers import Placement
from tiga.runtime.addresses import address
from tiga.trace.node import Node
from tiga.types import Space

NOWHERE = -1
"""The position of a value that has no array: its slot is 0."""


@dataclass
class Run:
    """One execution, with scratch that lives as long as it."""

    threads: int
    matmul: Matmul
    scratch: list[np.ndarray] = field(default_factory=list)

    def allocate(self, nbytes: int, zeroed: bool = False) -> int:
        """The address of `nbytes` of scratch."""
        block = (np.zeros if zeroed else np.empty)(max(nbytes, 1), np.uint8)
        self.scratch.append(block)
        return address(block)


Action = Callable[[Sequence[int], Run], None]
"""A step of a plan on a topology: takes the addresses of all arrays, by position."""


@dataclass(eq=False)  # one is made for every step on every new graph
class Launches:
    """The kernels of a step, which share a table of slots.

    `slots` are numbers, each run of them followed by the positions of arrays; after these come
    `states`, bytes of partial results and whether they start at zero. `kernels` are addresses and
    numbers of tasks. What is in `held` stays alive, as addresses of it are among the slots.
    """

    slots: Sequence[tuple["array[int]", tuple[int, ...]]]
    states: Sequence[tuple[int, bool]]
    kernels: Sequence[tuple[int, int]]
    held: object

    def __call__(self, addresses: Sequence[int], run: Run) -> None:
        table = array("q")
        for numbers, positions in self.slots:
            table.extend(numbers)
            table.extend([addresses[i] for i in positions])
        for nbytes, zeroed in self.states:
            table.append(run.allocate(nbytes, zeroed))
        pointer, _ = table.buffer_info()
        if len(self.kernels) == 1:
            ((kernel, tasks),) = self.kernels
            launch(kernel, pointer, tasks, run.threads)
            return
        launches = [Launch(address, pointer, count) for address, count in self.kernels]
        launch_sequence(sequence_records(launches), len(launches), run.threads)


@dataclass(eq=False)
class Product:
    """A product of node values by kernels; `vectors` counts entities times leading axes."""

    step: ProductStep
    arrays: tuple[int, int, int]
    vectors: int

    def __call__(self, addresses: Sequence[int], run: Run) -> None:
        left, right, out = (addresses[i] for i in self.arrays)
        self.step.run(left, right, out, self.vectors, run.threads, run.allocate)


@dataclass(eq=False)
class LibraryRun:
    """A library call."""

    node: Node
    arrays: Mapping[Node, int]
    extents: Mapping[Space, int]

    def __call__(self, addresses: Sequence[int], run: Run) -> None:
        found = {node: addresses[i] for node, i in self.arrays.items()}
        call_library(self.node, found, self.extents, run.matmul)


@dataclass(eq=False)
class BoundPlan:
    """A plan on a topology.

    Arrays have positions: inputs, outputs, then the values between steps that have memory of their
    own (`placed` says which), of which `scratch` says how many bytes each takes. `copies` are
    outputs that are an input, or the same value as another output: from where, to where, and how
    many bytes.
    """

    extents: Mapping[Space, int]
    placed: Placement
    scratch: Sequence[int]
    actions: Sequence[Action]
    copies: Sequence[tuple[int, int, int]]

    def run(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        threads: int,
        matmul: Matmul = numpy_matmul,
    ) -> None:
        """Compute the outputs; see `Executable.run`."""
        run = Run(threads, matmul)
        addresses = [*inputs, *outputs]
        for nbytes in self.scratch:
            addresses.append(run.allocate(nbytes))
        addresses.append(0)  # NOWHERE
        for action in self.actions:
            action(addresses, run)
        for source, target, nbytes in self.copies:
            if addresses[source] != addresses[target]:
                ctypes.memmove(addresses[target], addresses[source], nbytes)
