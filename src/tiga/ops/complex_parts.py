"""Arithmetic of complex numbers on their real and imaginary parts, on any backend."""

from collections.abc import Callable
from typing import Any

from tiga.ops.arithmetic import Arithmetic

Parts = tuple[Any, ...]
"""One value for a real number, two for a complex one."""


def mul(a: Arithmetic, x: Parts, y: Parts) -> Parts:
    """The product of two complex numbers."""
    real = a.sub(a.mul(x[0], y[0]), a.mul(x[1], y[1]))
    return real, a.add(a.mul(x[0], y[1]), a.mul(x[1], y[0]))


def div(a: Arithmetic, x: Parts, y: Parts) -> Parts:
    """Smith's division: by the larger part of y, so that its square does not overflow. What is
    not 0 is infinite over 0."""
    swap = a.compare("lt", a.abs(y[0]), a.abs(y[1]))
    large, small = a.select(swap, y[1], y[0]), a.select(swap, y[0], y[1])
    zero = a.constant(0.0, large)
    nothing = a.compare("eq", a.add(a.abs(large), a.abs(small)), zero)
    ratio = a.select(nothing, zero, a.div(small, large))
    scale = a.select(nothing, zero, a.add(large, a.mul(small, ratio)))
    first, second = a.select(swap, x[1], x[0]), a.select(swap, x[0], x[1])
    real = a.div(a.add(first, a.mul(second, ratio)), scale)
    imag = a.div(a.sub(second, a.mul(first, ratio)), scale)
    return real, a.select(swap, a.neg(imag), imag)


COMPLEX: dict[str, Callable[..., Parts]] = {
    "add": lambda a, x, y: (a.add(x[0], y[0]), a.add(x[1], y[1])),
    "sub": lambda a, x, y: (a.sub(x[0], y[0]), a.sub(x[1], y[1])),
    "mul": mul,
    "div": div,
    "neg": lambda a, x: (a.neg(x[0]), a.neg(x[1])),
    "conj": lambda a, x: (x[0], a.neg(x[1])),
    "real": lambda a, x: (x[0],),
    "imag": lambda a, x: (x[1],),
    "make_complex": lambda a, x, y: (x[0], y[0]),
    "stop_gradient": lambda a, x: x,
}
"""What an op does to parts, by its name; the backend's arithmetic comes first."""
