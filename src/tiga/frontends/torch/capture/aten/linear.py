"""Products with matrices: a contraction with a global matrix, or products summed per entity."""

import math
from collections.abc import Sequence
from string import ascii_letters

from tiga.errors import InvalidType
from tiga.frontends.equations import cheapest_pair, kept_letters
from tiga.frontends.torch.capture.aten.arithmetic import scaled
from tiga.frontends.torch.capture.aten.table import (
    Call,
    Value,
    aligned,
    arithmetic,
    aten,
    promoted,
    rank,
    to_dtype,
    torch_shape,
)
from tiga.ops import pointwise as p
from tiga.ops.align import align
from tiga.ops.contract import contract
from tiga.ops.feature import feature_sum, permute, reshape
from tiga.trace.node import Node
from tiga.types import GLOBAL


def _swapped(x: Node) -> Node:
    """The last two feature axes exchanged."""
    axes = list(range(len(x.type.shape)))
    axes[-2:] = axes[-1], axes[-2]
    return permute(x, tuple(axes))


def _check_inner(call: Call, a: Node, b: Node, left: int, right: int) -> None:
    if left != right:
        raise call.refuse_axis(
            f"aten.{call.name} of {torch_shape(a)} and {torch_shape(b)} does not fit, or sums over"
        )


def _times_matrix(call: Call, x: Node, matrix: Node) -> Node:
    """x [..., K] times a global [K, M] or [K]."""
    if not x.type.shape:
        raise call.refuse_axis(f"aten.{call.name} sums over")
    _check_inner(call, x, matrix, x.type.shape[-1], matrix.type.shape[0])
    if len(matrix.type.shape) == 2:
        return contract(x, matrix)
    column = contract(x, reshape(matrix, (matrix.type.shape[0], 1)))
    return reshape(column, x.type.shape[:-1])


def _matrix_times(call: Call, matrix: Node, x: Node) -> Node:
    """A global [N, K] or [K] times x [..., K, M]."""
    if len(x.type.shape) < 2:
        raise call.refuse_axis(f"aten.{call.name} of {torch_shape(x)} on the right sums over")
    _check_inner(call, matrix, x, matrix.type.shape[-1], x.type.shape[-2])
    turned = _times_matrix(call, _swapped(x), permute(matrix, tuple(range(rank(matrix)))[::-1]))
    return turned if len(matrix.type.shape) == 1 else _swapped(turned)


def _batched(call: Call, a: Node, b: Node) -> Node:
    """[..., N, K] times [..., K, M] with leading axes broadcast: products summed over K."""
    dtype = a.type.dtype
    if any(x.type.space != GLOBAL and len(x.type.shape) < 2 for x in (a, b)):
        raise call.refuse_axis(f"aten.{call.name} of {torch_shape(a)} and {torch_shape(b)} mixes")
    _check_inner(call, a, b, a.type.shape[-1], b.type.shape[-2])
    left = reshape(a, (*a.type.shape, 1))
    lead, (inner, columns) = b.type.shape[:-2], b.type.shape[-2:]
    right = reshape(b, (*lead, 1, inner, columns))
    x, y = aligned(call, to_dtype(left, dtype.compute), to_dtype(right, dtype.compute))
    products = p.mul(x, y)
    return p.cast(feature_sum(products, len(products.type.shape) - 2), dtype)


@aten("mm", "mv", "dot", "bmm", "matmul")
def matmul(call: Call, a: Node, b: Node) -> Node:
    """torch.matmul, on whichever side and with whatever axes it is meant per entity."""
    if a.type.dtype != b.type.dtype:
        raise InvalidType(
            f"{call.where}: aten.{call.name} takes operands of one dtype; got {a.type.dtype} and "
            f"{b.type.dtype}. Convert one of them, `x.to(y.dtype)`."
        )
    if b.type.space == GLOBAL and rank(b) <= 2:
        return _times_matrix(call, a, b)
    if a.type.space == GLOBAL and rank(a) <= 2 and b.type.space != GLOBAL:
        return _matrix_times(call, a, b)
    if rank(a) == 1 and a.type.space == GLOBAL:
        row = _batched(call, reshape(a, (1, *a.type.shape)), b)
        return reshape(row, (*row.type.shape[:-2], row.type.shape[-1]))
    return _batched(call, a, b)


@aten("addmm", "addmv", "baddbmm", "addbmm")
def _addmm(call: Call, bias: Node, a: Node, b: Node, *, beta: Value = 1, alpha: Value = 1) -> Node:
    if call.name.startswith("addbmm"):
        raise call.unfusable("a sum over a batch of products")
    product = matmul(call, a, b)
    return arithmetic(call, lambda x, y: p.add(scaled(x, beta), scaled(y, alpha)), bias, product)


def linear(call: Call, x: Node, weight: Node, bias: Node | None = None) -> Node:
    """torch.nn.functional.linear: x @ weight.T + bias."""
    if weight.type.space != GLOBAL:
        raise call.unfusable("a weight that differs between edges")
    turned = permute(weight, (1, 0)) if rank(weight) == 2 else weight
    product = matmul(call, x, turned)
    return product if bias is None else arithmetic(call, p.add, product, bias)


def outer(call: Call, a: Node, b: Node) -> Node:
    """torch.outer of two global vectors."""
    if a.type.space != GLOBAL or b.type.space != GLOBAL:
        raise call.refuse_axis("torch.outer mixes")
    column = reshape(a, (a.type.shape[0], 1))
    return arithmetic(call, p.mul, column, reshape(b, (1, b.type.shape[0])))


def _parse(call: Call, equation: str, terms: Sequence[Node]) -> tuple[list[str], str]:
    equation = _spelled_out(equation.replace(" ", ""), terms)
    left, arrow, right = equation.partition("->")
    inputs = left.split(",")
    if "." in equation or len(inputs) != len(terms):
        raise call.unfusable(f"the equation {equation!r}")
    if any(len(set(s)) != len(s) for s in inputs):
        raise call.unfusable(f"a diagonal in {equation!r}")
    if not arrow:
        letters = "".join(inputs)
        right = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    for letters, term in zip(inputs, terms, strict=True):
        if len(letters) != rank(term):
            raise call.refuse_axis(
                f"einsum {equation!r}: {letters!r} doesn't fit {torch_shape(term)}, which includes"
            )
    return inputs, right


def _spelled_out(equation: str, terms: Sequence[Node]) -> str:
    """An equation with letters for the axes that each `...` stands for, the last ones the same."""
    left, arrow, right = equation.partition("->")
    inputs = left.split(",")
    if "..." not in left or len(inputs) != len(terms):
        return equation
    free = [c for c in ascii_letters if c not in equation]
    extra = [
        max(0, rank(x) - len(s) + 3) if "..." in s else 0
        for s, x in zip(inputs, terms, strict=True)
    ]
    letters = "".join(free[: max(extra)])
    named = [
        s.replace("...", letters[len(letters) - n :]) for s, n in zip(inputs, extra, strict=True)
    ]
    if not arrow:
        once = sorted(c for c in set(left) - set(".,") if left.count(c) == 1)
        right = "..." + "".join(once)
    return ",".join(named) + "->" + right.replace("...", letters)


def _without_entities(
    call: Call, inputs: list[str], right: str, terms: Sequence[Node]
) -> tuple[list[str], str]:
    """The letters of feature axes only; the entity letter must lead everywhere it stands."""
    leads = {s[0] for s, x in zip(inputs, terms, strict=True) if x.type.space != GLOBAL}
    if not leads:
        return inputs, right
    (entity, *others) = leads
    features = [s[1:] if x.type.space != GLOBAL else s for s, x in zip(inputs, terms, strict=True)]
    if others or right[:1] != entity or any(entity in s for s in [*features, right[1:]]):
        raise call.refuse_axis("einsum sums over or moves")
    return features, right[1:]


def _as_contraction(left: str, matrix: str, right: str) -> tuple[str, str] | None:
    """Inner and outer letters if `left, matrix -> right` is one matrix product, else None."""
    inner = "".join(c for c in matrix if c in left)
    outer = "".join(c for c in matrix if c not in left)
    fits = inner and not any(c in right for c in inner) and all(c in right for c in outer)
    return (inner, outer) if fits else None


def _presummed(x: Node, letters: str, kept: set[str]) -> tuple[Node, str]:
    for axis in reversed(range(len(letters))):
        if letters[axis] not in kept:
            x = feature_sum(x, axis)
            letters = letters[:axis] + letters[axis + 1 :]
    return x, letters


def _arranged(x: Node, letters: str, order: str) -> Node:
    return permute(x, tuple(letters.index(c) for c in order))


def _einsum_contract(x: Node, left: str, w: Node, matrix: str, right: str) -> Node | None:
    roles = _as_contraction(left, matrix, right)
    if roles is None:
        return None
    inner, outer = roles
    kept = "".join(c for c in left if c not in inner)
    x, w = _arranged(x, left, kept + inner), _arranged(w, matrix, inner + outer)
    lead = x.type.shape[: len(kept)]
    if x.type.shape[len(kept) :] != w.type.shape[: len(inner)]:
        return None  # an extent of 1 stands for any other
    width = math.prod(x.type.shape[len(kept) :])
    columns = w.type.shape[len(inner) :]
    flat = contract(reshape(x, (*lead, width)), reshape(w, (width, math.prod(columns))))
    return _arranged(reshape(flat, (*lead, *columns)), kept + outer, right)


def _spread_out(x: Node, letters: str, order: str) -> Node:
    """`x` with its axes in `order`, of extent 1 where it has no such letter."""
    x = _arranged(x, letters, "".join(c for c in order if c in letters))
    extents = iter(x.type.shape)
    return reshape(x, tuple(next(extents) if c in letters else 1 for c in order))


def einsum(call: Call, equation: str, terms: Sequence[Node]) -> Node:
    """torch.einsum with the entity axis, where there is one, leading every term and the result."""
    inputs, right = _parse(call, equation, terms)
    inputs, right = _without_entities(call, inputs, right, terms)
    dtype = promoted(call, *terms)
    nodes: list[Node] = []
    letters: list[str] = []
    for i, (x, own) in enumerate(zip(terms, inputs, strict=True)):
        kept = set(right).union(*(s for j, s in enumerate(inputs) if j != i))
        x, own = _presummed(to_dtype(x, dtype.compute), own, kept)
        nodes.append(x)
        letters.append(own)
    extents: dict[str, int] = {}
    for x, own in zip(nodes, letters, strict=True):
        for letter, extent in zip(own, x.type.shape, strict=True):
            extents[letter] = max(extent, extents.get(letter, 1))
    while len(nodes) > 2:
        i, j = cheapest_pair(letters, extents)
        pair, named = [nodes[i], nodes.pop(j)], [letters[i], letters.pop(j)]
        others = "".join((*letters[:i], *letters[i + 1 :]))
        letters[i] = kept_letters("".join(named), right + others)
        nodes[i] = _multiplied(call, pair, named, letters[i])
    return p.cast(_multiplied(call, nodes, letters, right), dtype)


def _multiplied(call: Call, nodes: Sequence[Node], letters: Sequence[str], right: str) -> Node:
    """One or two terms multiplied, and summed over letters that the result has not."""
    product = _as_product(nodes, letters, right)
    return _as_sum(call, nodes, letters, right) if product is None else product


def _as_product(nodes: Sequence[Node], letters: Sequence[str], right: str) -> Node | None:
    """Two terms as a product with a matrix, if one of them is global and it is one."""
    if len(nodes) != 2:
        return None
    pairs = [(i, j) for i, j in ((0, 1), (1, 0)) if nodes[j].type.space == GLOBAL]
    made = (_einsum_contract(nodes[i], letters[i], nodes[j], letters[j], right) for i, j in pairs)
    return next((product for product in made if product is not None), None)


def _as_sum(call: Call, nodes: Sequence[Node], letters: Sequence[str], right: str) -> Node:
    """The terms multiplied element by element, and summed."""
    summed = "".join(sorted(set("".join(letters)) - set(right)))
    order = right + summed
    spread = aligned_features(call, nodes, letters, order)
    product = spread[0]
    for factor in spread[1:]:
        product = p.mul(product, factor)
    for axis in reversed(range(len(right), len(order))):
        product = feature_sum(product, axis)
    return product


def aligned_features(
    call: Call, nodes: Sequence[Node], letters: Sequence[str], order: str
) -> list[Node]:
    """The terms of an einsum with one set of feature axes."""
    try:
        return align(*(_spread_out(x, s, order) for x, s in zip(nodes, letters, strict=True)))
    except ValueError:
        shapes = ", ".join(map(torch_shape, nodes))
        raise call.refuse_axis(f"einsum of {shapes} does not fit, or sums over") from None
