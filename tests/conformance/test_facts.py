"""What ops declare of themselves holds for their numpy meaning and the types that they infer."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.conformance.samples import EDGES, NAMES, Sample, samples_of
from tiga.ops import REGISTRY
from tiga.ops.monoid import COMBINED_BY
from tiga.trace.origin import Origin
from tiga.types import GLOBAL, Type, float64

SAMPLES = [sample for name in NAMES for sample in samples_of(name)]
RNG = np.random.default_rng(11)

SPACES = {
    Origin.END: {EDGES.edge},
    Origin.POSITION: {EDGES.edge},
    Origin.CARRY: {EDGES.edge},
    Origin.DEGREE: {EDGES.src, EDGES.dst},
    Origin.ROW: {EDGES.src, EDGES.dst},
    Origin.TOTAL: {GLOBAL},
    Origin.OUTER: {GLOBAL},
}
"""Where the values of an origin are."""


def declares(fact: str) -> list[Sample]:
    found = [s for s in SAMPLES if getattr(s.op, fact) not in ((), None, False)]
    assert found, f"no op declares {fact}"
    return found


def names(samples: list[Sample]) -> list[str]:
    return [sample.label for sample in samples]


def types_of(sample: Sample) -> list[Type]:
    dtype = float64 if float64 in sample.dtypes else sample.dtypes[-1]
    return [operand.type(dtype, EDGES.edge) for operand in sample.operands]


def numbers(sample: Sample, count: int = 4) -> list[np.ndarray]:
    """Random operands for so many entities, one where an operand is global."""
    return [
        RNG.uniform(0.5, 2.0, (1 if t.space == GLOBAL else count, *t.shape)).astype(t.dtype.numpy)
        for t in types_of(sample)
    ]


@pytest.mark.parametrize("sample", SAMPLES, ids=names(SAMPLES))
def test_values_are_where_their_origin_says(sample: Sample) -> None:
    given = types_of(sample)
    made = sample.op.infer(*given)
    if sample.op.origin in SPACES:
        assert made.space in SPACES[sample.op.origin]
    elif sample.op.origin is Origin.OPERANDS:
        spaces = {t.space for t in given} - {GLOBAL}
        assert {made.space} - {GLOBAL} <= spaces


@pytest.mark.parametrize("sample", declares("signs"), ids=names(declares("signs")))
def test_sums_have_these_signs(sample: Sample) -> None:
    given = numbers(sample)
    want = sum(sign * x for sign, x in zip(sample.op.signs, given, strict=True))
    np.testing.assert_array_equal(sample.op.reference(*given), want)


@pytest.mark.parametrize("sample", declares("trends"), ids=names(declares("trends")))
def test_results_follow_their_operands(sample: Sample) -> None:
    given = numbers(sample)
    for place, trend in enumerate(sample.op.trends):
        more = [x + (i == place) * 0.5 for i, x in enumerate(given)]
        change = sample.op.reference(*more) - sample.op.reference(*given)
        assert (trend * change >= 0).all()


def smooth() -> list[Sample]:
    """Samples of pointwise ops of real numbers that do not declare to be steep."""
    found = [s for s in SAMPLES if s.op.pointwise and not s.op.steep]
    return [s for s in found if s.operands and all(t.dtype == float64 for t in types_of(s))]


@pytest.mark.parametrize("sample", smooth(), ids=names(smooth()))
def test_no_slope_is_infinite_unless_declared(sample: Sample) -> None:
    """At 0, 1 and -1, where functions have their poles and roots; steps are no slopes."""
    width = 1e-9
    for corner in itertools.product((0.0, 1.0, -1.0), repeat=len(sample.operands)):
        given = [np.full_like(x, c) for x, c in zip(numbers(sample), corner, strict=True)]
        here = sample.op.reference(*given).astype(float)
        assert np.isfinite(here).all()
        for place in range(len(given)):
            near = [x + width * (i == place) for i, x in enumerate(given)]
            change = np.abs(sample.op.reference(*near).astype(float) - here)
            assert ((change < 100 * width) | (change > 0.5)).all()


@pytest.mark.parametrize("sample", declares("exchanges"), ids=names(declares("exchanges")))
def test_exchanged_operands_transpose(sample: Sample) -> None:
    first, second = numbers(sample)
    want = sample.op.reference(first, second)
    np.testing.assert_allclose(sample.op.reference(second, first), want.swapaxes(1, 2))


@pytest.mark.parametrize("sample", declares("concatenates"), ids=names(declares("concatenates")))
def test_joined_values_hold_all_elements(sample: Sample) -> None:
    given = numbers(sample)
    joined = np.concatenate([x.reshape(len(x), -1) for x in given], axis=1)
    made = sample.op.reference(*given).reshape(len(given[0]), -1)
    np.testing.assert_array_equal(np.sort(made, axis=1), np.sort(joined, axis=1))


@pytest.mark.parametrize("sample", declares("moves"), ids=names(declares("moves")))
def test_moved_values_hold_elements_of_their_operands(sample: Sample) -> None:
    given = numbers(sample)
    made = sample.op.reference(*given)
    known = np.concatenate([x.ravel() for x in given])
    assert np.isin(made, [*known, 0]).all()
    if sample.op.renames:
        assert np.isin(known, made).all()


@pytest.mark.parametrize("sample", declares("fills"), ids=names(declares("fills")))
def test_filled_values_hold_zeros_beside_their_operand(sample: Sample) -> None:
    (x,) = numbers(sample)
    made = sample.op.reference(x)
    assert np.count_nonzero(made) == x.size < made.size


@pytest.mark.parametrize("sample", declares("divides"), ids=names(declares("divides")))
def test_division_by_one_leaves_all_or_nothing(sample: Sample) -> None:
    whole, _ = (np.floor(10 * x) for x in numbers(sample))
    made = sample.op.reference(whole, np.ones_like(whole))
    assert (made == whole).all() or not made.any()


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.op.inner_extent(*types_of(s))])
def test_products_sum_as_many_as_their_inner_extent(sample: Sample) -> None:
    ones = [np.ones_like(x) for x in numbers(sample)]
    assert (sample.op.reference(*ones) == sample.op.inner_extent(*types_of(sample))).all()


@pytest.mark.parametrize("sample", declares("is_view"), ids=names(declares("is_view")))
def test_views_keep_elements_in_order(sample: Sample) -> None:
    (x,) = numbers(sample)
    made = sample.op.reference(x)
    if sample.op.reshapes:
        want = x.reshape(made.shape)
    else:
        new = made.ndim - x.ndim
        want = np.broadcast_to(x.reshape(len(x), *(1,) * new, *x.shape[1:]), made.shape)
    np.testing.assert_array_equal(made, want)


@pytest.mark.parametrize("sample", declares("pointwise"), ids=names(declares("pointwise")))
def test_elements_are_made_of_the_same_elements(sample: Sample) -> None:
    given = numbers(sample)
    made = sample.op.reference(*given)
    part = sample.op.reference(*(x[..., :1] if x.ndim > 1 else x[:1] for x in given))
    np.testing.assert_array_equal(part, made[..., :1] if made.ndim > 1 else made[:1])


@pytest.mark.parametrize("sample", declares("converts"), ids=names(declares("converts")))
def test_conversions_change_the_dtype_alone(sample: Sample) -> None:
    (given,) = types_of(sample)
    assert sample.op.infer(given) == given.with_dtype(sample.op.infer(given).dtype)


@pytest.mark.parametrize("sample", declares("identity"), ids=names(declares("identity")))
def test_identities_are_their_operand(sample: Sample) -> None:
    (x,) = numbers(sample)
    np.testing.assert_array_equal(sample.op.reference(x), x)


@pytest.mark.parametrize("sample", declares("reduces"), ids=names(declares("reduces")))
def test_reductions_combine_along_their_axis(sample: Sample) -> None:
    (x,) = numbers(sample)
    want = COMBINED_BY[sample.op.combine].ufunc.reduce(x, axis=sample.op.axis + 1)
    np.testing.assert_allclose(sample.op.reference(x), want, rtol=1e-12)
    if sample.op.selects:
        assert np.isin(want, x).all()


@pytest.mark.parametrize("sample", declares("finds"), ids=names(declares("finds")))
def test_extrema_are_found(sample: Sample) -> None:
    x, _ = numbers(sample)
    best = np.full_like(x, {"max": x.max, "min": x.min}[sample.op.finds]())
    np.testing.assert_array_equal(sample.op.reference(x, best), x == best)


@pytest.mark.parametrize("sample", declares("unpacks"), ids=names(declares("unpacks")))
def test_unpacked_bits_are_those_that_were_packed(sample: Sample) -> None:
    (packing,) = {type(s.op) for s in declares("packs")}
    conditions = RNG.random((4, *sample.op.to)) < 0.5
    again = sample.op.reference(packing().reference(conditions))
    np.testing.assert_array_equal(again, conditions)


def test_tables_are_global_operands() -> None:
    for sample in declares("table"):
        assert types_of(sample)[sample.op.table].space == GLOBAL


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_fields_that_number_axes(name: str) -> None:
    """`vmap` moves them one further, where a fact is all that it knows of an op."""
    op = REGISTRY[name]
    fields = {field.name for field in dataclasses.fields(op)}
    assert set(op.axis_fields) <= fields
