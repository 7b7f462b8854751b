"""Right answers in float64, block of destinations by block, so that they fit in memory."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from benchmarks.graphs import Csr

ROWS_AT_ONCE = 500


def outputs_and_gradients(
    run: Callable[..., torch.Tensor], graph: Csr, inputs: Sequence[torch.Tensor], seed: torch.Tensor
) -> list[np.ndarray]:
    """The output [N, F] of `run(*inputs, source, destination)`, then the gradient to each input.

    Rows of the output may depend only on the edges that enter them.
    """
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    out = torch.empty_like(seed, dtype=torch.float64)
    gradients = [torch.zeros_like(tensor) for tensor in wide]
    source, destination = torch.from_numpy(graph.source), torch.from_numpy(graph.destination)
    for first in range(0, graph.num_nodes, ROWS_AT_ONCE):
        rows = slice(first, min(first + ROWS_AT_ONCE, graph.num_nodes))
        edges = slice(graph.row_ptr[rows.start], graph.row_ptr[rows.stop])
        part = run(*wide, source[edges], destination[edges])[rows]
        out[rows] = part.detach()
        found = torch.autograd.grad(part, wide, seed[rows].double())
        for total, gradient in zip(gradients, found, strict=True):
            total += gradient
    return [out.numpy(), *(np.asarray(gradient.detach()) for gradient in gradients)]
