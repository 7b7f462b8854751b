"""What ops do to the parts of complex numbers, by name."""

from collections.abc import Callable

from tiga.ops import complex_functions, complex_inverses
from tiga.ops.complex_parts import Parts

FUNCTIONS: dict[str, Callable[..., Parts]] = {
    **complex_functions.FUNCTIONS, **complex_inverses.INVERSES,
}  # fmt: skip
"""Functions of parts; the backend's arithmetic comes first."""

IN_DOUBLE = frozenset(("pow", *complex_inverses.INVERSES))
"""Functions that lose digits on the way: of complex64 they are computed in complex128."""
