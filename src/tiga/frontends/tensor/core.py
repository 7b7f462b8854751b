"""`Tensor`: a lazy n-dimensional value with its own storage, differentiable and inspectable."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.frontends.tensor.arrays import address_of, to_host
from tiga.frontends.tensor.devices import CPU, Device
from tiga.frontends.tensor.lazy import LARGE, LazyNode, here
from tiga.runtime.buffer import READY, Buffer, Event
from tiga.runtime.device_array import DeviceArray, row_major
from tiga.types import DType

View = Callable[[np.ndarray], np.ndarray]


class Tensor:
    """A value of some shape and dtype: given, or computed when it is first looked at.

    Made by `tg.tensor`, `tg.zeros`, `tg.from_numpy` and the like, never called directly.
    Arithmetic records an expression; `tolist`, `numpy`, `item`, `realize` and printing compute
    it. Views share storage with what they view.

    Example:
        >>> import tiga as tg
        >>> x = tg.tensor([1.0, 2.0, 3.0])
        >>> y = x * 2.0 + 1.0
        >>> y.shape, y.dtype
        ((3,), float32)
        >>> y.tolist()
        [3.0, 5.0, 7.0]
    """

    __slots__ = (
        "__weakref__", "_apart", "_array", "_buffer", "_execution", "_expression", "_grad", "_leaf",
        "_node", "_plan", "_source", "_viewers",
    )  # fmt: skip
    # numpy leaves mixed expressions to us.
    __array_priority__ = 1000
    __array_ufunc__ = None

    _node: LazyNode  # the expression of the value
    _grad: bool  # whether derivatives with respect to it, or through it, can be asked for
    _leaf: bool  # whether the value was given, not computed
    _array: np.ndarray | None  # the value, once it is in memory
    _buffer: Buffer | None  # the memory that it shows, which other tensors may show as well
    _source: tuple["Tensor", View] | None  # of a waiting view: of what, and how it is seen
    _viewers: "list[ref[Tensor]] | None"  # views of it that wait for its value
    _apart: Any  # what tensors of one call of `detach` have in common, None for others
    _plan: Any  # a `GradientPlan` that will give it its value
    _execution: Any  # how it was computed
    _expression: Any  # what it was computed by, a node or a recipe, to be shown

    def __init__(self, node: LazyNode, grad: bool) -> None:
        self._node = node
        self._grad = grad
        self._leaf = False
        self._apart = self._array = self._buffer = self._source = None
        self._viewers = self._execution = self._expression = self._plan = None

    if TYPE_CHECKING:
        # What `methods.install` attaches from its tables of functions.
        def __getattr__(self, name: str) -> Any: ...
        def __neg__(self) -> "Tensor": ...
        def __add__(self, other: Any) -> "Tensor": ...
        def __radd__(self, other: Any) -> "Tensor": ...
        def __sub__(self, other: Any) -> "Tensor": ...
        def __rsub__(self, other: Any) -> "Tensor": ...
        def __mul__(self, other: Any) -> "Tensor": ...
        def __rmul__(self, other: Any) -> "Tensor": ...
        def __truediv__(self, other: Any) -> "Tensor": ...
        def __rtruediv__(self, other: Any) -> "Tensor": ...
        def __pow__(self, other: Any) -> "Tensor": ...
        def __rpow__(self, other: Any) -> "Tensor": ...
        def __matmul__(self, other: Any) -> "Tensor": ...
        def __rmatmul__(self, other: Any) -> "Tensor": ...
        def __lt__(self, other: Any) -> "Tensor": ...
        def __le__(self, other: Any) -> "Tensor": ...
        def __gt__(self, other: Any) -> "Tensor": ...
        def __ge__(self, other: Any) -> "Tensor": ...

    # metadata

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of every axis."""
        return self._node.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._node.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._node.type.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._node.type.size

    def numel(self) -> int:
        """The number of elements."""
        return self.size

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self._node.type.row_bytes

    @property
    def device(self) -> Device:
        """Where the memory is, or will be."""
        array = self._array
        if array.__class__ is DeviceArray:
            return Device("cuda", array.machine.index)
        if array is not None or self._node.largest < LARGE:
            return CPU
        absent = None if self._buffer is None else self._buffer.absent
        if absent is not None:
            return absent.device
        return _evaluation().device_of_node(self._node)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each axis are in memory, in elements."""
        if self._array is None and self._buffer is not None:
            self.realize()
        if self._array is None and self._source is None:
            return row_major(self.shape, 1)
        return tuple(step // self.itemsize for step in _layout(self).strides)

    @property
    def offset(self) -> int:
        """Where the first element is in the storage, in elements."""
        if self._source is not None or self._buffer is not None:
            self.realize()
        if self._array is None or self._buffer is None:
            return 0
        start = address_of(self._buffer.owner)
        return (address_of(self._array) - start) // self.itemsize if start else 0

    @property
    def version(self) -> int:
        """How often the storage was written in place."""
        return self._buffer.version if self._buffer is not None else 0

    @property
    def ready_event(self) -> Event:
        """When the value is ready: on the CPU it is once it is computed, on a GPU when what was
        given to it so far is done (`query()`, `wait()`). Whoever looks at a value waits for it."""
        array: Any = self._array
        return array.machine.event() if array.__class__ is DeviceArray else READY

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps; an axis of one element has none."""
        rows = zip(self.shape, self.strides, row_major(self.shape, 1), strict=True)
        return self.size <= 1 or all(n == 1 or step == whole for n, step, whole in rows)

    @property
    def requires_grad(self) -> bool:
        """Whether derivatives with respect to this tensor, or through it, can be asked for."""
        return self._grad

    @property
    def is_leaf(self) -> bool:
        """Whether the value was given, not computed from other tensors."""
        return self._leaf

    @property
    def execution(self) -> dict[str, Any] | None:
        """How the value was computed; None for given values, views and what is not computed yet."""
        if self._execution is not None:
            self._execution = _evaluation().report(self)
        return self._execution

    @property
    def where(self) -> str | None:
        """The line that built the tensor, `file:line`."""
        return self._node.where

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Ask for derivatives with respect to this tensor, or no longer; returns it. A computed
        tensor becomes a leaf by it: it is computed now, and forgets its operands."""
        if requires_grad and not self.dtype.is_differentiable:
            raise InvalidType(
                f"requires_grad= expected a float or complex tensor, got {self.dtype} ({here()}); "
                "cast it with .astype(tg.float32)."
            )
        if not self._leaf and self._grad and not requires_grad:
            raise InvalidValue(
                f"a computed tensor keeps its history ({here()}); use .detach() for one without."
            )
        if requires_grad and not self._grad and not self._leaf:
            _evaluation().begin(self)
        self._grad = self._node.wanted = requires_grad
        return self

    # values

    def realize(self, *, strict: bool = False) -> "Tensor":
        """Compute the value, if it is not there yet; returns the tensor itself.

        Compiled sums add in lanes and blocks; with `strict`, element after element.
        """
        if self._array is None and strict:
            _evaluation().realize_strictly(self)
        if self._array is None:
            _evaluation().realize(self)
        return self

    def _in_memory(self) -> Any:
        """The value's array: asked for again where another thread moves it out meanwhile."""
        while (array := self._array) is None:
            _evaluation().realize(self)
        return array

    def numpy(self) -> np.ndarray:
        """The value as a numpy array that shares its memory (bfloat16 as ml_dtypes's).

        Raises:
            InvalidType: it is on a GPU; `x.cpu().numpy()` copies it.
        """
        array: np.ndarray = self._in_memory()
        if array.__class__ is DeviceArray:
            raise InvalidType(
                f"numpy() shares memory, and this tensor is on {self.device} ({here()}); copy it "
                "by name: x.cpu().numpy()."
            )
        return array

    def _host(self) -> np.ndarray:
        """The value's elements on the CPU, copied if they are elsewhere."""
        return to_host(self._in_memory())

    to_numpy = numpy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def tolist(self) -> Any:
        """The value as nested lists of Python numbers, a number for a scalar."""
        array = self._host()
        return (array.astype(np.float32) if self.dtype.name == "bfloat16" else array).tolist()

    def item(self) -> Any:
        """The only element as a Python number.

        Raises:
            InvalidValue: there is not exactly one.
        """
        if self.size != 1:
            raise InvalidValue(f"item() expected one element, got shape {self.shape} ({here()}).")
        return self._host().reshape(-1)[:1].tolist()[0]

    def __len__(self) -> int:
        if not self.shape:
            raise InvalidType(f"len() of a tensor without axes ({here()}).")
        return self.shape[0]

    def _scalar(self, what: str) -> Any:
        if self.size != 1:
            raise InvalidValue(
                f"{what} of a tensor of shape {self.shape} is ambiguous ({here()}); use tg.where "
                "to choose per element, or tg.any, tg.all or .item() of one element."
            )
        return self.item()

    def __bool__(self) -> bool:
        return bool(self._scalar("the truth value"))

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise InvalidType(f"an index expected an integer tensor, got {self.dtype} ({here()}).")
        return int(self._scalar("an index"))

    def __iter__(self) -> Any:
        if not self.shape:
            raise InvalidType(f"iteration over a tensor without axes ({here()}).")
        return (self[i] for i in range(self.shape[0]))  # type: ignore[index]

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        grad = ", requires_grad=True" if self._grad else ""
        body = np.array2string(self._host(), separator=", ", prefix="tensor(", threshold=1000)
        place = "" if self.device == CPU else f", device={str(self.device)!r}"
        return f"tensor({body}, dtype={self.dtype}{place}{grad})"


@cache
def _evaluation() -> Any:
    """The module that gives tensors their values; it knows tensors, so they cannot import it."""
    from tiga.frontends.tensor import evaluate

    return evaluate


def _layout(tensor: Tensor) -> np.ndarray:
    """An array with the strides that the tensor's has or will have; its elements mean nothing."""
    if tensor._array is not None:
        return tensor._array
    if tensor._source is None:
        return np.empty(tensor.shape, tensor.dtype.numpy)
    base, through = tensor._source
    return through(_layout(base))
