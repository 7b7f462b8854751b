"""Row programs are split where kernels compute the parts better."""

from tests.gpu import harness, programs
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.schedule import choose_tile
from tiga.trace.derivatives import gradient, training
from tiga.types import float32


def walks(program):
    steps = compile_program(program).steps
    return [s.program for s in steps if isinstance(s, RowStep) and s.program.relation]


def gradient_of(case):
    full = training(case.program, case.wanted, harness.RULES)
    return gradient(full, case.wanted, [0], harness.RULES).program


def test_sums_of_outer_products_have_a_walk_of_their_own():
    found = walks(gradient_of(programs.edge_network(float32, 16, 32)))
    alone = [w for w in found if w.outer_sums]
    assert len(alone) == 1
    assert not alone[0].stores
    assert not any(w.totals for w in found)


def test_rows_that_mix_features_leave_the_walk():
    """The walk takes windows of features, as if nothing were joined after it."""
    case = programs.joined_rows(float32)
    for program in (case.program, gradient_of(case)):
        assert all(choose_tile(w, 16).is_flat for w in walks(program))


def test_values_read_from_arrays_are_no_products():
    """A product of node values is an array to the walk that gathers it."""
    (walk,) = walks(programs.difference_network(float32).program)
    assert choose_tile(walk, 16).is_flat
