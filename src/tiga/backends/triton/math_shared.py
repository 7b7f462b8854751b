"""Functions that kernels call, for the GPU: order within a program, through shared memory."""

from typing import Any

import triton.language as tl

from tiga.backends.triton.layout import WARP
from tiga.backends.triton.ranking import counted_lines, ordered_lines


@tl.core.builtin
def counted(digit: Any, i: Any, bits: Any, warps: Any, _semantic: Any = None) -> Any:
    """How many elements have digit 0, 1, 2, ..., then zeros. A digit has so many bits, or is the
    number after the largest one, which is not counted; `i` is 0, 1, 2, ..."""
    bits, warps = (tl.core._unwrap_if_constexpr(x) for x in (bits, warps))
    each = int(digit.shape[0]) // (WARP * warps)
    text = "\n".join(["{", *counted_lines(each, bits, warps), "}"])
    signs = ",".join(["=&r"] * each + ["r"] * (2 * each))
    return tl.inline_asm_elementwise(
        text, signs, [digit, i], tl.int32, False, each, _semantic=_semantic
    )


@tl.core.builtin
def ordered(value: Any, digit: Any, i: Any, bits: Any, warps: Any, _semantic: Any = None) -> Any:
    """Values of 64 bits in the order of their digits, equal digits in their order. A digit has so
    many bits; `i` is a permutation of 0, 1, 2, ... and says where each value is."""
    bits, warps = (tl.core._unwrap_if_constexpr(x) for x in (bits, warps))
    each = int(value.shape[0]) // (WARP * warps)
    text = "\n".join(["{", *ordered_lines(each, bits, warps), "}"])
    signs = ",".join(["=&l"] * each + ["l"] * each + ["r"] * (2 * each))
    return tl.inline_asm_elementwise(
        text, signs, [value, digit, i], tl.int64, False, each, _semantic=_semantic
    )
