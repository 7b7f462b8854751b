"""What scans within rows combine with: of two runs of edges, a value and how many rows start."""

import triton
import triton.language as tl

from tiga.backends.triton.math_compiled import int_maximum, int_minimum, maximum, minimum


@triton.jit
def segmented_sum(a, starts_a, b, starts_b):
    """The sum from the last start on."""
    return tl.where(starts_b != 0, b, a + b), starts_a + starts_b


@triton.jit
def segmented_prod(a, starts_a, b, starts_b):
    """The product from the last start on."""
    return tl.where(starts_b != 0, b, a * b), starts_a + starts_b


@triton.jit
def segmented_max(a, starts_a, b, starts_b):
    """The largest from the last start on; NaN if one was."""
    return tl.where(starts_b != 0, b, maximum(a, b)), starts_a + starts_b


@triton.jit
def segmented_min(a, starts_a, b, starts_b):
    """The least from the last start on; NaN if one was."""
    return tl.where(starts_b != 0, b, minimum(a, b)), starts_a + starts_b


@triton.jit
def segmented_int_max(a, starts_a, b, starts_b):
    """The largest integer from the last start on."""
    return tl.where(starts_b != 0, b, int_maximum(a, b)), starts_a + starts_b


@triton.jit
def segmented_int_min(a, starts_a, b, starts_b):
    """The least integer from the last start on."""
    return tl.where(starts_b != 0, b, int_minimum(a, b)), starts_a + starts_b
