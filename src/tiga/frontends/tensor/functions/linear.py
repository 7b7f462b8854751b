"""Matrix products, by numpy's BLAS."""

import math
import string
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.equations import cheapest_pair
from tiga.frontends.tensor.arguments import integer, normalize_axis
from tiga.frontends.tensor.build import apply, as_tensor, broadcast_shapes, convert, result
from tiga.frontends.tensor.core import Tensor
from tiga.frontends.tensor.dtypes import result_dtype
from tiga.frontends.tensor.functions import reductions
from tiga.frontends.tensor.functions.selection import conj
from tiga.frontends.tensor.lazy import here
from tiga.frontends.tensor.storage import helper
from tiga.ops import pointwise as p
from tiga.ops.feature import broadcast, permute, reshape
from tiga.ops.tensor_matmul import Matmul
from tiga.ops.tensor_reduce import sum_axes
from tiga.trace.node import Node


def _pair(a: Any, b: Any, what: str) -> tuple[list[Node], list[Tensor]]:
    tensors = [as_tensor(a), as_tensor(b)]
    dtype = result_dtype(*(t.dtype for t in tensors))
    if dtype.kind == "b":
        raise InvalidType(f"{what} of truth values ({here()}); cast with .astype(...).")
    return [convert(t._node, dtype) for t in tensors], tensors


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """The matrix product over the last two axes; leading axes broadcast, vectors as in numpy.

    Example:
        >>> import tiga as tg
        >>> (tg.eye(2) @ tg.tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    (a, b), tensors = _pair(x1, x2, "matmul")
    if not a.type.shape or not b.type.shape:
        raise InvalidValue(f"matmul of a tensor without axes ({here()}); use *.")
    left, right = len(a.type.shape) == 1, len(b.type.shape) == 1
    a = reshape(a, (1, *a.type.shape)) if left else a
    b = reshape(b, (*b.type.shape, 1)) if right else b
    if a.type.shape[-1] != b.type.shape[-2]:
        raise InvalidValue(
            f"matmul of shapes {tensors[0].shape} and {tensors[1].shape}: inner extents "
            f"{a.type.shape[-1]} and {b.type.shape[-2]} differ ({here()})."
        )
    product = _batched(a, b)
    shape = list(product.type.shape)
    if right:
        shape.pop(-1)
    if left:
        shape.pop(-1 if right else -2)
    return result(reshape(product, tuple(shape)) if left or right else product, *tensors)


def _batched(a: Node, b: Node) -> Node:
    """a @ b with leading axes broadcast; one matrix for all rows needs no copies of it."""
    lead_a, lead_b = a.type.shape[:-2], b.type.shape[:-2]
    if lead_a and not lead_b:
        rows = reshape(a, (math.prod(a.type.shape[:-1]), a.type.shape[-1]))
        flat = apply(Matmul(), rows, b)
        return reshape(flat, (*a.type.shape[:-1], b.type.shape[-1]))
    lead = broadcast_shapes(lead_a, lead_b)
    a = broadcast(a, (*lead, *a.type.shape[-2:]))
    b = broadcast(b, (*lead, *b.type.shape[-2:]))
    return apply(Matmul(), a, b)


def einsum(equation: str, *tensors: Any) -> Tensor:
    """Sums of products as an equation says, such as `"bij,bjk->bik"`.

    Raises:
        InvalidType: there is no equation, or there are no tensors.
        InvalidValue: the equation does not fit the operands.

    Example:
        >>> import tiga as tg
        >>> tg.einsum("ij,j->i", tg.ones((2, 3)), tg.ones(3)).tolist()
        [3.0, 3.0]
    """
    if not isinstance(equation, str) or not tensors:
        raise InvalidType(f"einsum expected an equation and tensors, got {equation!r} ({here()}).")
    known = [as_tensor(t) for t in tensors]
    dtype = result_dtype(*(t.dtype for t in known))
    terms, output = _equation(equation, known)
    extents = _extents(equation, terms, known)
    factors = [
        _diagonal(convert(_spread(t, term, extents), dtype), term)
        for t, term in zip(known, terms, strict=True)
    ]
    while len(factors) > 1:
        i, j = cheapest_pair([names for _, names in factors], extents)
        (b, lb), (a, la) = factors.pop(j), factors.pop(i)
        later = output + "".join(names for _, names in factors)
        factors.insert(i, _contract(a, la, b, lb, later))
    node, labels = _drop(*factors[0], output)
    order = tuple(labels.index(label) for label in output)
    return result(permute(node, order) if order != tuple(range(len(order))) else node, *known)


def _extents(equation: str, terms: list[str], known: list[Tensor]) -> dict[str, int]:
    """The extent of every label; those of 1 broadcast."""
    extents: dict[str, int] = {}
    for term, tensor in zip(terms, known, strict=True):
        for label, extent in zip(term, tensor.shape, strict=True):
            there = extents.get(label, 1)
            if 1 not in (there, extent) and there != extent:
                raise InvalidValue(
                    f"einsum: {label!r} is {there} and {extent} in {equation!r} ({here()})."
                )
            extents[label] = extent if there == 1 else there
    return extents


def _spread(tensor: Tensor, term: str, extents: dict[str, int]) -> Node:
    """The operand with its axes of extent 1 repeated to what others have under their labels."""
    target = tuple(extents[label] for label in term)
    return tensor._node if target == tensor.shape else broadcast(tensor._node, target)


def _equation(equation: str, known: list[Tensor]) -> tuple[list[str], str]:
    """The labels of every operand and of the output, ellipses written out."""
    wrong = sorted(set(equation) - set(string.ascii_letters + ",->. "))
    if wrong:
        raise InvalidValue(
            f"einsum: labels are letters, got {wrong[0]!r} in {equation!r} ({here()})."
        )
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(known):
        raise InvalidValue(
            f"einsum: {equation!r} has {len(terms)} operands, got {len(known)} ({here()})."
        )
    hidden = [_axes_of_ellipsis(t, x.ndim) for t, x in zip(terms, known, strict=True)]
    free = [c for c in string.ascii_letters if c not in equation]
    spare = "".join(free[: max(hidden)])
    filled = [
        term.replace("...", spare[len(spare) - count :])
        for term, count in zip(terms, hidden, strict=True)
    ]
    labels = "".join(filled)
    if not arrow:
        right = "..." + "".join(sorted(c for c in set(labels) - set(spare) if labels.count(c) == 1))
    output = right.replace("...", spare)
    if not set(output) <= set(labels) or len(set(output)) != len(output):
        raise InvalidValue(f"einsum: the output of {equation!r} does not fit ({here()}).")
    return filled, output


def _axes_of_ellipsis(term: str, rank: int) -> int:
    """How many axes the ellipsis of a term stands for."""
    count = rank - len(term.replace("...", ""))
    if count < 0 or (count and "..." not in term):
        raise InvalidValue(f"einsum: {term!r} for a tensor with {rank} axes ({here()}).")
    return count


def _diagonal(node: Node, labels: str) -> tuple[Node, str]:
    """A value whose repeated labels are one: sums against an identity."""
    for label in labels:
        while labels.count(label) > 1:
            first, second = labels.index(label), labels.rindex(label)
            count = node.type.shape[first]
            mask = helper(np.eye(count, dtype=node.type.dtype.numpy))._node
            shape = [1] * len(labels)
            shape[first] = shape[second] = count
            node = p.mul(node, broadcast(reshape(mask, tuple(shape)), node.type.shape))
            node = sum_axes(node, (second,))
            labels = labels[:second] + labels[second + 1 :]
    return node, labels


def _drop(node: Node, labels: str, needed: str) -> tuple[Node, str]:
    """The sum over labels that nothing needs."""
    gone = tuple(i for i, label in enumerate(labels) if label not in needed)
    return sum_axes(node, gone), "".join(label for label in labels if label in needed)


def _contract(a: Node, la: str, b: Node, lb: str, needed: str) -> tuple[Node, str]:
    """The product of two values, summed over labels of both that nothing else needs."""
    a, la = _drop(a, la, needed + lb)
    b, lb = _drop(b, lb, needed + la)
    both = [label for label in la if label in lb]
    batch = [label for label in both if label in needed]
    summed = [label for label in both if label not in needed]
    rows = [label for label in la if label not in lb]
    columns = [label for label in lb if label not in la]
    left = permute(a, tuple(la.index(label) for label in (*batch, *rows, *summed)))
    right = permute(b, tuple(lb.index(label) for label in (*batch, *summed, *columns)))
    nb, nr, ns = len(batch), len(rows), len(summed)
    batches, row_shape = left.type.shape[:nb], left.type.shape[nb : nb + nr]
    inner, column_shape = left.type.shape[nb + nr :], right.type.shape[nb + ns :]
    k = math.prod(inner)
    left = reshape(left, (*batches, math.prod(row_shape), k))
    right = reshape(right, (*batches, k, math.prod(column_shape)))
    product = apply(Matmul(), left, right)
    labels = "".join((*batch, *rows, *columns))
    return reshape(product, (*batches, *row_shape, *column_shape)), labels


def _axis_pairs(axes: Any, left: int, right: int) -> tuple[list[int], list[int]]:
    """The axes of either operand that a product sums over."""
    if not isinstance(axes, (tuple, list)):
        count = integer(axes, "axes=", 0)
        if count > min(left, right):
            raise InvalidValue(f"axes={count} for tensors with {left} and {right} axes ({here()}).")
        return list(range(left - count, left)), list(range(count))
    known = len(axes) == 2 and all(isinstance(part, (tuple, list)) for part in axes)
    if not known or len(axes[0]) != len(axes[1]):
        raise InvalidValue(f"axes= expected two sequences of one length, got {axes!r} ({here()}).")
    pairs = [[normalize_axis(i, rank) for i in part]
             for part, rank in zip(axes, (left, right), strict=True)]  # fmt: skip
    return pairs[0], pairs[1]


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over pairs of axes: the last `axes` of x1 with the first of x2, or pairs.

    Example:
        >>> import tiga as tg
        >>> tg.tensordot(tg.ones((2, 3)), tg.ones((3, 2)), axes=1).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """
    a, b = as_tensor(x1), as_tensor(x2)
    pairs = _axis_pairs(axes, a.ndim, b.ndim)
    names = iter(string.ascii_letters)
    la, lb = [next(names) for _ in range(a.ndim)], [next(names) for _ in range(b.ndim)]
    for i, j in zip(*pairs, strict=True):
        lb[j] = la[i]
    output = [c for c in la if c not in lb] + [c for c in lb if c not in la]
    return einsum(f"{''.join(la)},{''.join(lb)}->{''.join(output)}", a, b)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The sum over an axis of conj(x1) * x2.

    Example:
        >>> import tiga as tg
        >>> tg.vecdot(tg.tensor([[1, 2]]), tg.tensor([[3, 4]])).tolist()
        [11]
    """
    product = conj(as_tensor(x1)) * as_tensor(x2)
    return reductions.sum(product, axis=axis, dtype=product.dtype)


def outer(x1: Any, x2: Any, /) -> Tensor:
    """The products of all pairs of elements of two vectors.

    Example:
        >>> import tiga as tg
        >>> tg.outer(tg.tensor([1, 2]), tg.tensor([3, 4])).tolist()
        [[3, 4], [6, 8]]
    """
    return einsum("i,j->ij", x1, x2)
