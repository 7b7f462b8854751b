"""A program on one topology of the CPU: all that a run looks up but its tensors, found once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tiga.runtime.parallel import thread_count

CPU = torch.device("cpu")


@dataclass(frozen=True)
class BoundRun:
    """Runs a program whose inputs are all tensors.

    `outputs` are shapes and dtypes; `launch` takes addresses of inputs and outputs, and a number
    of threads; `alone` says that one is enough.
    """

    outputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    launch: Callable[[Sequence[int], Sequence[int], int], None]
    alone: bool

    def __call__(self, values: Sequence[Any]) -> list[torch.Tensor]:
        """The outputs for contiguous tensors on the CPU."""
        outputs = [torch.empty(s, dtype=dtype, device=CPU) for s, dtype in self.outputs]
        threads = 1 if self.alone else thread_count(torch.get_num_threads())
        self.launch([v.data_ptr() for v in values], [o.data_ptr() for o in outputs], threads)
        return outputs
