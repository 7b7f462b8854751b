"""Evaluate a program on torch tensors with the numpy oracle."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tiga.backends.reference import EdgeList, evaluate
from tiga.frontends.torch.devices import device_of
from tiga.frontends.torch.dtypes import torch_dtype
from tiga.relations import Graph
from tiga.trace.program import Program
from tiga.types import DType


def to_numpy(value: Any, dtype: DType) -> np.ndarray:
    """A tensor or number as an array; bfloat16 keeps its bits."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value, dtype.numpy)
    tensor = value.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(dtype.numpy)
    return tensor.numpy()


def to_torch(array: np.ndarray, dtype: DType) -> torch.Tensor:
    """The array as a tensor of its own."""
    array = np.ascontiguousarray(array)
    if dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy()).to(torch_dtype(dtype))


def evaluate_program(program: Program, values: Sequence[Any], graph: Graph) -> list[torch.Tensor]:
    """The outputs of a program for tensors and numbers in the order of its inputs, on the device of
    the graph; computed on the host."""
    arrays = [to_numpy(v, n.type.dtype) for v, n in zip(values, program.inputs, strict=True)]
    edges = EdgeList.of(graph.csr())
    results = evaluate(program, arrays, dict.fromkeys(program.relations, edges))
    device = device_of(graph)
    found = [to_torch(a, n.type.dtype) for a, n in zip(results, program.outputs, strict=True)]
    return [value.to(device) for value in found]
