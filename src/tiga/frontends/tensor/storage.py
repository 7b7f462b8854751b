"""The memory of tensors: given to one, shared with its views, watched while it may be moved."""

from typing import Any
from weakref import ref

import numpy as np

from tiga.frontends.tensor.core import Tensor, View
from tiga.frontends.tensor.lazy import LazyNode, Leaf, helping, leaf, type_of, user_place
from tiga.runtime.buffer import Buffer
from tiga.runtime.scope import active
from tiga.types import Type


def give_array(tensor: Tensor, array: np.ndarray, buffer: Buffer | None = None) -> None:
    """Give a tensor its value, and pass it on to the views that wait for it."""
    tensor._array = array
    tensor._buffer = buffer if buffer is not None else Buffer(array, array.nbytes)
    tensor._source = None
    if buffer is None and active() is not None:
        charge(tensor)
    viewers, tensor._viewers = tensor._viewers, None
    for reference in viewers or ():
        waiting = reference()
        if waiting is not None and waiting._source is not None:
            share(waiting, tensor, waiting._source[1])


def charge(tensor: Tensor) -> None:
    """Charge a tensor's new memory to the scope in force; a GPU's was when it was taken."""
    from tiga.frontends.tensor.memory.residency import adopt

    adopt(tensor)


def share(view: Tensor, base: Tensor, through: View) -> None:
    """Make `view` see the memory of `base`, which has a value."""
    array = base._in_memory()
    assert base._buffer is not None
    # Before the view passes the memory on to its own views, which would then come first.
    if not base._buffer.viewers:
        watch(base, array)
    give_array(view, seen := through(array), base._buffer)
    watch(view, seen)


def watch(view: Tensor, array: Any) -> None:
    """Let the memory know that a tensor, and its expression, show it by an array."""
    assert view._buffer is not None
    view._buffer.note(ref(view), ref(view._node), ref(array))


def wrap(array: np.ndarray, *, requires_grad: bool = False, owner: Any = None) -> Tensor:
    """A given value: a leaf that shares the array's memory; `owner` keeps foreign memory alive."""
    result = Tensor(leaf(array, type_of(array.dtype, array.shape), user_place()), requires_grad)
    if requires_grad:
        result._node.wanted = True
    result._leaf = True
    result._array = array
    result._buffer = Buffer(array if owner is None else owner, array.nbytes)
    return result


def standing_for(of: Type, what: str, grad: bool) -> Tensor:
    """A tensor that stands for values that are not there, such as those of all edges."""
    made = Tensor(LazyNode(Leaf(of, what), (), of, user_place()), grad)
    made._leaf, made._node.wanted = True, grad
    return made


def helper(array: np.ndarray) -> Tensor:
    """A value that Tiga made for itself, such as a mask: it goes with operands on any device."""
    made = wrap(array)
    made._node = helping(made._node)
    return made
