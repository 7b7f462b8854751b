"""Values and gradients of every kind of program against the numpy oracle, run twice each."""

import numpy as np
import pytest

from tests.gpu import harness, programs
from tiga.reducers import Each, EdgeSoftmax, LogSumExp, Max, Mean, Min, Prod, Std, Sum, Var
from tiga.types import bfloat16, float16, float32, float64, int32, int64

ON_GPU = harness.device() is not None and harness.device().type == "cuda"

REDUCERS = {
    type(r).__name__: r
    for r in (
        Sum(),
        Mean(),
        Max(),
        Min(),
        Std(),
        Var(correction=1),
        Prod(),
        LogSumExp(),
        Each(),
        EdgeSoftmax(),
    )
}
SHAPES = ((), (1,), (3,), (64,), (2, 8), (200,)) if ON_GPU else ((), (3,), (2, 8), (130,))
DTYPES = (float32, float64, bfloat16, float16)


def graphs(rng: np.random.Generator) -> dict[str, harness.Problem]:
    """Empty and short rows; a row that is split in chunks; nothing at all."""
    short = rng.integers(0, 12, 29)
    short[[3, 7]] = 0
    split = rng.integers(0, 9, 29)
    split[[2, 11]] = 600, 257
    return {
        "short": harness.problem(rng, 23, 29, short),
        "split": harness.problem(rng, 23, 29, split),
        "no_edges": harness.problem(rng, 5, 4, np.zeros(4, np.int64)),
    }


GRAPHS = graphs(np.random.default_rng(3))


def sampled(*keys: object) -> bool:
    """The interpreter is slow: it runs a fixed fraction of the matrix."""
    if ON_GPU:
        return True
    return sum(map(ord, repr(keys))) % 5 == 0


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize("name", REDUCERS)
def test_reducers(rng, name, shape, dtype, graph):
    if not sampled(name, shape, dtype, graph):
        pytest.skip("not in the sample that is interpreted")
    case = programs.reducer(REDUCERS[name], dtype, shape)
    where = GRAPHS[graph]
    arrays = harness.fields(rng, where, case.program.inputs)
    harness.check(case.program, arrays, where, case.wanted, order=1)


@pytest.mark.parametrize("graph", ["short", "split"])
@pytest.mark.parametrize("name", REDUCERS)
def test_second_derivatives(rng, name, graph):
    if not sampled(name, graph):
        pytest.skip("not in the sample that is interpreted")
    case = programs.reducer(REDUCERS[name], float64, (3,))
    where = GRAPHS[graph]
    arrays = harness.fields(rng, where, case.program.inputs)
    harness.check(case.program, arrays, where, case.wanted, order=2)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("dtype", [float32, float64], ids=repr)
@pytest.mark.parametrize("name", programs.MAKERS)
def test_programs(rng, name, dtype, graph):
    if not sampled(name, dtype, graph) and (dtype, graph) != (float32, "split"):
        pytest.skip("not in the sample that is interpreted")
    case = programs.MAKERS[name](dtype)
    where = GRAPHS[graph]
    arrays = harness.fields(rng, where, case.program.inputs)
    harness.check(case.program, arrays, where, case.wanted, order=1)


@pytest.mark.parametrize("dtype", [int32, int64], ids=repr)
@pytest.mark.parametrize("name", ["Sum", "Max", "Min", "Prod"])
def test_integers(rng, name, dtype):
    from tiga.ops.leaf import Input
    from tiga.ops.message import gather
    from tiga.reducers import Messages
    from tiga.trace.program import Program
    from tiga.types import Type

    x = Input("x", Type(dtype, (3,), harness.SRC))()
    message = gather(harness.RELATION, "src", x)
    out = REDUCERS[name].rows(Messages(harness.RELATION, (message,)))
    where = GRAPHS["split"]
    program = Program((x,), (out,))
    harness.check(program, harness.fields(rng, where, (x,)), where, (), order=0)
