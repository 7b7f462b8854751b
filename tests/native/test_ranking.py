"""The order of one program's elements: its PTX, taken by a machine for straight PTX."""

import numpy as np
import pytest

from tests.native.lockstep import Lockstep
from tiga.backends.triton.ranking import counted_lines, ordered_lines


@pytest.mark.parametrize(("each", "bits", "warps"), [(16, 8, 8), (8, 4, 2), (2, 6, 1), (4, 9, 4)])
@pytest.mark.parametrize("spread", [1.0, 0.05])
def test_values_in_the_order_of_their_digits(
    each: int, bits: int, warps: int, spread: float
) -> None:
    threads = 32 * warps
    rng = np.random.default_rng(each)
    digit = (rng.random(threads * each) * spread * 2**bits).astype(np.uint64)
    value = rng.integers(0, 2**64, threads * each, dtype=np.uint64)
    # A layout as a compiler might choose: elements of a thread lie apart, in any order.
    place = rng.permutation(threads * each).reshape(each, threads)
    machine = Lockstep(threads)
    for e in range(each):
        machine.registers[f"${each + e}"] = value[place[e]]
        machine.registers[f"${2 * each + e}"] = digit[place[e]]
        machine.registers[f"${3 * each + e}"] = place[e]
    machine.run(ordered_lines(each, bits, warps))
    found = np.empty_like(value)
    for e in range(each):
        found[place[e]] = machine.registers[f"${e}"]
    assert (found == value[np.argsort(digit, kind="stable")]).all()


def test_counts_of_digits() -> None:
    each, bits, warps = 4, 6, 2
    digit = np.random.default_rng(0).integers(0, 2**bits + 1, (each, 32 * warps))
    machine = Lockstep(32 * warps)
    place = np.arange(digit.size).reshape(digit.shape)
    for e in range(each):
        machine.registers[f"${each + e}"] = digit[e]
        machine.registers[f"${2 * each + e}"] = place[e]
    for _ in range(2):  # as in a loop
        machine.run(counted_lines(each, bits, warps))
    found = np.stack([machine.registers[f"${e}"] for e in range(each)]).ravel()
    want = np.bincount(digit.ravel(), minlength=2**bits + 1)[: 2**bits]
    assert (found[: 2**bits] == want).all()
    assert not found[2**bits :].any()
