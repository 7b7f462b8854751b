"""Index arrays as users hand them in: torch tensors, numpy arrays or lists of integers."""

import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tiga.errors import InvalidType, InvalidValue
from tiga.relations.traced import is_tracing
from tiga.runtime.device_array import DeviceArray, download
from tiga.runtime.platform import index_arrays

INT32_MAX = 2**31 - 1
MOST_NODES = 2**60
_TENSOR_DTYPES = ("torch.int32", "torch.int64", "int32", "int64")


def is_tensor(value: Any) -> bool:
    """Whether `value` is a torch tensor, told by its interface: this module must not load torch."""
    return _is_tensor_type(type(value))  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def _is_tensor_type(kind: Any) -> bool:
    return all(hasattr(kind, name) for name in ("detach", "numpy", "is_inference"))


def is_native_on_gpu(value: Any) -> bool:
    """Whether `value` is a native tensor in the memory of a GPU, told by its interface as well."""
    return hasattr(type(value), "_gpu_indices") and value.device.type == "cuda"


def on_host(array: Any) -> np.ndarray:
    """An array of a GPU as numpy has it; waits for the work that makes it."""
    if isinstance(array, DeviceArray):
        return download(array)
    host: np.ndarray = array.cpu().numpy()
    return host


@dataclass(eq=False)  # two are made for every new graph
class Indices:
    """One index array of a relation, as it was given.

    `data` is the user's own tensor, shared and watched through its version counter, or a private
    numpy copy of an input that carries no version (numpy arrays, lists, inference tensors). `made`
    makes tensors in which results go back to the user, where that is not told by `data`.
    """

    name: str
    data: Any
    made: Any = None

    @property
    def template(self) -> Any:
        """An empty tensor of the dtype and device in which results go back to the user, of native
        tensors what makes them; None for numpy."""
        if self.made is None and is_tensor(self.data):
            self.made = self.data.detach().new_empty(0)
        return self.made

    @property
    def place(self) -> Any:
        """The device of the array as its library has it; None for numpy."""
        of = self.data if self.made is None else self.made
        return None if isinstance(of, np.ndarray) else of.device

    @property
    def is_shared(self) -> bool:
        return not isinstance(self.data, np.ndarray)

    @property
    def dtype(self) -> np.dtype:
        return _numpy_dtype(self.data.dtype)

    @property
    def device(self) -> str:
        place = self.place
        return "cpu" if place is None else str(place)

    def version(self) -> tuple[int, ...]:
        """Changes whenever torch sees a write to the array, or its storage is replaced."""
        data = self.data
        if isinstance(data, np.ndarray):
            return ()
        return (data._version, data.data_ptr()) if is_tensor(data) else (data.version,)

    def read(self) -> np.ndarray:
        """The indices as a rank-1 numpy array of int32 or int64, without a copy where possible."""
        if not self.is_shared:
            return self.data
        if is_native_on_gpu(self.data):
            return download(self.data._gpu_indices())
        # Checked again at each reading: an in-place `resize_` or `set_` may change all of it.
        return _tensor_array(self.name, self.data)

    def on_gpu(self) -> Any:
        """The indices as a rank-1 tensor on a GPU; None if they lie elsewhere."""
        if is_native_on_gpu(self.data):
            return self.data._gpu_indices()
        if not is_on_gpu(self.data):
            return None
        _require_tensor(self.name, self.data)
        return self.data.detach()

    def public(self) -> Any:
        """The array in the kind given: the user's own tensor, or a read-only numpy array."""
        if self.is_shared:
            return self.data
        return to_kind(self.data, self.template)


@lru_cache(maxsize=64)
def _numpy_dtype(dtype: Any) -> np.dtype:
    return np.dtype(str(dtype).removeprefix("torch."))


def read_both(first: Indices, second: Indices) -> tuple[np.ndarray, np.ndarray]:
    """What `read` gives of two; the rows of one tensor on a GPU come in one copy."""
    a, b = first.data, second.data
    if not (is_on_gpu(a) and is_on_gpu(b) and _are_rows(a, b)):
        return first.read(), second.read()
    _require_tensor(first.name, a)
    rows = _tensor_array(first.name, a.detach().as_strided((2, len(a)), (len(a), 1)).flatten())
    return rows[: len(a)], rows[len(a) :]


def _are_rows(a: Any, b: Any) -> bool:
    """Whether two tensors are the rows of one that is contiguous."""
    alike = a.dtype == b.dtype and a.shape == b.shape and a.ndim == 1
    if not (alike and a.is_contiguous() and b.is_contiguous()):
        return False
    one_memory = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return one_memory and b.data_ptr() == a.data_ptr() + a.nbytes


def to_kind(array: np.ndarray, template: Any) -> Any:
    """`array` as a tensor like `template` (None: as a read-only numpy array), dtype kept."""
    if hasattr(template, "made"):
        return template.made(array)
    if template is None:
        view = array.view()
        view.flags.writeable = False
        return view
    like = template.long() if array.dtype == np.int64 else template.int()
    # A read-only array would draw a warning from torch although its data are copied.
    return like.new_tensor(array if array.flags.writeable else array.copy())


def as_given(indices: Any, template: Any) -> Any:
    """Indices on a GPU in int64, as a tensor of the kind given."""
    wide = index_arrays(indices).cast(indices, 64)
    return template.made(wide) if hasattr(template, "made") else wide


def as_indices(name: str, value: Any) -> Indices:
    """Take an index input; raises InvalidType or InvalidValue when it is not one."""
    if is_tracing():
        return Indices(name, value)
    if is_native_on_gpu(value):
        _require_tensor(name, value)
        return Indices(name, value, value._index_template())
    if not is_tensor(value):
        return Indices(name, _own_copy(name, value))
    if value.is_inference():
        array = _tensor_array(name, value).copy()
        return Indices(name, array, value.detach().new_empty(0))
    try:
        value.data_ptr()
    except RuntimeError:
        _tensor_array(name, value)  # says what it is
        raise
    return Indices(name, value)  # checked when it is read, at once and after each edit


def as_rows(edge_index: Any) -> tuple[Indices, Indices]:
    """The two rows of an edge index as index inputs."""
    if not (is_tensor(edge_index) or is_native_on_gpu(edge_index)):
        edge_index = as_array("edge_index", edge_index)
    shape = tuple(edge_index.shape)
    if len(shape) != 2 or shape[0] != 2:
        raise InvalidValue(
            f"Graph.from_edge_index: `edge_index` must have shape [2, num_edges], got "
            f"{list(shape)}."
        )
    return as_indices("src", edge_index[0]), as_indices("dst", edge_index[1])


def is_on_gpu(data: Any) -> bool:
    """Whether indices lie on an NVIDIA GPU, where they are checked and sorted as well."""
    return bool(getattr(data, "is_cuda", False))


def as_array(name: str, value: Any) -> np.ndarray:
    """`value` as numpy sees it; an empty list holds int64."""
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(
            f"Graph: `{name}` must be an array of integers, got a {type(value).__name__} that "
            f"numpy refuses: {error}"
        ) from None
    if array.size == 0 and not isinstance(value, np.ndarray):
        return array.astype(np.int64)  # numpy calls it float64
    return array


def require_same_device(*indices: Indices) -> None:
    """Index arrays of one relation must lie on one device."""
    if all(i.place == indices[0].place for i in indices):
        return
    devices = {i.name: i.device for i in indices}
    if len(set(devices.values())) > 1:
        found = ", ".join(f"`{name}` on {device}" for name, device in devices.items())
        raise InvalidType(f"Graph: index arrays must lie on one device, got {found}.")


def as_count(name: str, value: Any) -> int | None:
    """A number of nodes as a Python int, or None when it was left out."""
    if value is None or is_tracing():
        return value
    if isinstance(value, (bool, np.bool_)):
        raise InvalidType(f"Graph: `{name}` must be an integer, got {value!r}.")
    try:
        count = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise InvalidType(f"Graph: `{name}` must be an integer, got {kind} {value!r}.") from None
    if count < 0:
        raise InvalidValue(f"Graph: `{name}` must be at least 0, got {count}.")
    if count >= MOST_NODES:
        raise InvalidValue(f"Graph: `{name}` must be below 2^60, got {count}.")
    return count


def index_dtype(*extents: int) -> np.dtype:
    """int32 where every extent fits, else int64."""
    return np.dtype(np.int32 if max(extents) <= INT32_MAX else np.int64)


def _require_tensor(name: str, tensor: Any) -> None:
    _require_integers(name, str(tensor.dtype), str(tensor.dtype) in _TENSOR_DTYPES)
    _require_rank_one(name, tuple(tensor.shape))


def _tensor_array(name: str, tensor: Any) -> np.ndarray:
    _require_tensor(name, tensor)
    try:
        return (tensor if tensor.is_cpu else tensor.detach().cpu()).numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        where = f"a {type(tensor).__name__} on {tensor.device}"
        raise InvalidType(
            f"Graph: `{name}` must hold plain index data, got {where}: {error}"
        ) from None


def _own_copy(name: str, value: Any) -> np.ndarray:
    array = as_array(name, value)
    kind_ok = array.dtype.kind == "i" and array.dtype.itemsize in (4, 8)
    _require_integers(name, str(array.dtype), kind_ok)
    _require_rank_one(name, array.shape)
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", subok=False)


def _require_integers(name: str, dtype: str, accepted: bool) -> None:
    if not accepted:
        raise InvalidType(
            f"Graph: `{name}` must hold int32 or int64 indices, got {dtype}. "
            "Cast it (torch: `.long()`, numpy: `.astype(np.int64)`)."
        )


def _require_rank_one(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 1:
        raise InvalidValue(f"Graph: `{name}` must have one axis, got shape {shape}.")
