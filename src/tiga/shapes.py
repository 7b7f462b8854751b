"""Guard and specialise: functions compiled per shape, with extents that must agree by name.

Native tensors need none of it, as their kernels take extents as arguments; it serves compilers of
one's own that want every extent as a number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiga.errors import InvalidType, InvalidValue
from tiga.types import DType, float32


@dataclass(frozen=True)
class Dim:
    """A named extent, with bounds.

    Example:
        >>> Dim("batch", minimum=1, maximum=64, multiple_of=8).check(16)
        >>> Dim("batch", minimum=3, maximum=2)
        Traceback (most recent call last):
        tiga.errors.InvalidValue: Dim 'batch': expected minimum <= maximum, got 3 and 2.
    """

    name: str
    minimum: int = 1
    maximum: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise InvalidValue(f"Dim: expected a name like 'batch', got {self.name!r}.")
        if self.minimum < 0 or self.multiple_of < 1:
            raise InvalidValue(
                f"Dim {self.name!r}: expected minimum >= 0 and multiple_of >= 1, got "
                f"{self.minimum} and {self.multiple_of}."
            )
        if self.maximum is not None and self.maximum < self.minimum:
            raise InvalidValue(
                f"Dim {self.name!r}: expected minimum <= maximum, got {self.minimum} and "
                f"{self.maximum}."
            )

    def check(self, extent: int) -> None:
        """Refuse an extent out of bounds."""
        high = self.maximum is not None and extent > self.maximum
        if extent < self.minimum or high or extent % self.multiple_of:
            limit = "" if self.maximum is None else f" and at most {self.maximum}"
            raise InvalidValue(
                f"Dim {self.name!r}: expected at least {self.minimum}{limit}, a multiple of "
                f"{self.multiple_of}; got {extent}."
            )


@dataclass(frozen=True)
class TensorSpec:
    """What an argument has to be: its extents (numbers or `Dim`s), dtype and device."""

    shape: tuple[int | Dim, ...]
    dtype: DType = field(default=float32, kw_only=True)
    device: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))

    def bind(self, position: int, value: Any, dimensions: dict[str, int]) -> tuple[int, ...]:
        """Check an argument, and note what its named extents are."""
        dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
        if shape is None or dtype is None:
            raise InvalidType(f"argument {position}: expected a tensor, got {value!r}.")
        if dtype != self.dtype:
            raise InvalidType(f"argument {position}: expected {self.dtype}, got {dtype}.")
        if self.device is not None and value.device != self.device:
            raise InvalidValue(f"argument {position}: expected {self.device}, got {value.device}.")
        if len(shape) != len(self.shape):
            raise InvalidValue(
                f"argument {position}: expected {len(self.shape)} axes, got shape {tuple(shape)}."
            )
        for axis, (wanted, extent) in enumerate(zip(self.shape, shape, strict=True)):
            _bind_extent(position, axis, wanted, int(extent), dimensions)
        return tuple(map(int, shape))


def _bind_extent(
    position: int, axis: int, wanted: int | Dim, extent: int, dimensions: dict[str, int]
) -> None:
    if not isinstance(wanted, Dim):
        if extent != wanted:
            raise InvalidValue(
                f"argument {position}, axis {axis}: expected extent {wanted}, got {extent}."
            )
        return
    wanted.check(extent)
    known = dimensions.setdefault(wanted.name, extent)
    if known != extent:
        raise InvalidValue(
            f"argument {position}, axis {axis}: {wanted.name!r} is {known} elsewhere, got {extent}."
        )


@dataclass(frozen=True)
class ShapeBinding:
    """The named extents and the shapes of one call."""

    dimensions: Mapping[str, int]
    concrete_shapes: tuple[tuple[int, ...], ...]


class ShapeSpecializer:
    """A function of tensors, compiled once per shapes: `compiler(binding)` returns the callable.

    Example:
        >>> import tiga as tg
        >>> n = tg.compiler.Dim("n")
        >>> specs = [tg.compiler.TensorSpec((n,)), tg.compiler.TensorSpec((n,))]
        >>> add = tg.compiler.ShapeSpecializer(specs, lambda binding: lambda a, b: a + b)
        >>> add(tg.ones(3), tg.ones(3)).tolist(), add.misses
        ([2.0, 2.0, 2.0], 1)
    """

    def __init__(
        self, specs: Sequence[TensorSpec], compiler: Callable[[ShapeBinding], Callable[..., Any]]
    ) -> None:
        self.specs = tuple(specs)
        self.compiler = compiler
        self.hits = self.misses = 0
        self._made: dict[Any, Callable[..., Any]] = {}

    @property
    def specialization_count(self) -> int:
        """How many functions were compiled."""
        return len(self._made)

    def bind(self, *values: Any) -> ShapeBinding:
        """The extents of a call.

        Raises:
            InvalidType: the wrong number of arguments, or one of the wrong kind or dtype.
            InvalidValue: an extent that does not fit.
        """
        if len(values) != len(self.specs):
            raise InvalidType(f"expected {len(self.specs)} arguments, got {len(values)}.")
        dimensions: dict[str, int] = {}
        pairs = enumerate(zip(self.specs, values, strict=True))
        shapes = tuple(spec.bind(i, value, dimensions) for i, (spec, value) in pairs)
        return ShapeBinding(dimensions, shapes)

    def __call__(self, *values: Any) -> Any:
        binding = self.bind(*values)
        key = (tuple(sorted(binding.dimensions.items())), binding.concrete_shapes)
        if key in self._made:
            self.hits += 1
        else:
            self.misses += 1
            self._made[key] = self.compiler(binding)
        return self._made[key](*values)
