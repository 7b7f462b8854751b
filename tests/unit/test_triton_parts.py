"""Vectors joined from parts of one size, and taken apart, without a thread asking another."""

from tests.gpu.harness import DST
from tests.interpreted import run_interpreted
from tests.unit.test_triton_scans import walks
from tiga.backends.triton.compiled import compile_kernel
from tiga.backends.triton.equal_parts import part_size
from tiga.ops.feature import concat, put, take
from tiga.ops.leaf import Input
from tiga.types import Type, float32


def value(label, *shape):
    return Input(label, Type(float32, shape, DST))()


def test_parts_are_of_one_size_and_lie_at_its_multiples():
    x, y, z = value("x", 8), value("y", 8), value("z", 4)
    joined = concat(0, x, y, x)
    assert part_size(joined) == 8
    assert part_size(concat(0, x, z)) == 0
    assert part_size(take(joined, 0, tuple(range(8, 16)))) == 8
    assert part_size(take(joined, 0, tuple(range(4, 12)))) == 0
    assert part_size(take(joined, 0, (3, 2, 1, 0))) == 0
    assert part_size(put(z, 0, tuple(range(4, 8)), 12)) == 4
    assert part_size(put(z, 0, tuple(range(6, 10)), 12)) == 0
    assert part_size(concat(0, value("a", 2, 4), value("b", 2, 4))) == 0


def test_the_interpreter_agrees_with_the_oracle():
    run_interpreted("tests/gpu/test_parts.py", "-k", "float32")


def test_states_of_two_components_stay_in_their_threads():
    forward, back = (made.sources(has_chunks=False) for made in walks("affine", (64,)))
    folds = [next(s for s in made if s.name.endswith("_rows")) for made in (forward, back)]
    assert all("tl.gather(" not in source.text for source in folds)
    aligned = [p.type.startswith("*") for p in folds[0].parameters]
    assert "shfl" not in compile_kernel(folds[0], 90, aligned).asm["ptx"]
