"""Dense work on nodes: which steps it becomes on a GPU, and what their kernels keep."""

from tests.gpu import harness, programs
from tiga.backends.triton.compiled import compile_kernel
from tiga.backends.triton.executable import compile_program
from tiga.backends.triton.launch import RowStep
from tiga.backends.triton.schedule import choose_tile
from tiga.ops.align import expand_to
from tiga.ops.contract import contract, outer_sum
from tiga.ops.feature import feature_sum, permute, reshape
from tiga.ops.functions import tanh
from tiga.ops.leaf import Input
from tiga.ops.message import gather, reduce_all, sum_to
from tiga.ops.pointwise import add, mul
from tiga.passes.rows import LibraryCall
from tiga.trace.derivatives import gradient, training
from tiga.trace.program import Program
from tiga.types import GLOBAL, Type, float32, float64

R = harness.RELATION


def value(label, space, *shape, dtype=float32):
    return Input(label, Type(dtype, shape, space))()


def steps_of(*outputs, inputs):
    return compile_program(Program(inputs, outputs)).steps


def described(steps):
    """What each step is: "walk", "rows" with its goals by name, or the library's op."""
    found = []
    for step in steps:
        if isinstance(step, LibraryCall):
            found.append(step.node.op.name)
        elif step.program.relation is not None:
            found.append("walk")
        else:
            goals = step.program.writes
            found.append(tuple(sorted(n.op.name for n in goals)))
    return found


def test_products_of_one_value_share_a_step_before_the_walk_that_reads_them():
    x, a, b = value("x", harness.SRC, 32), value("a", GLOBAL, 16, 32), value("b", GLOBAL, 32, 16)
    first, second = contract(x, permute(a, (1, 0))), contract(x, b)
    sent = mul(gather(R, "src", first), gather(R, "src", second))
    steps = steps_of(sum_to(R, "dst", sent), inputs=(x, a, b))
    assert described(steps) == [("mul",), "walk"]
    assert set(steps[0].program.reads) == {x, a, b}, "the matrix is read as it is, and turned there"


def test_products_after_the_last_walk_share_a_step_with_what_adds_them_up():
    case = programs.node_network(float32)
    full = training(case.program, case.wanted, harness.RULES)
    made = gradient(full, case.wanted, range(len(case.program.outputs)), harness.RULES).program
    steps = compile_program(made).steps
    assert not any(isinstance(step, LibraryCall) for step in steps)
    last = [goals for goals in described(steps)[-3:] if isinstance(goals, tuple)]
    assert any("outer_sum" in goals for goals in last)


def test_a_total_that_rows_read_is_complete_before_they_start():
    x, y = value("x", harness.DST, 32), value("y", harness.DST, 32)
    square = outer_sum(x, y)
    steps = steps_of(contract(x, square), inputs=(x, y))
    assert described(steps) == [("outer_sum",), ("contract",)]


def test_large_and_double_products_go_to_the_library():
    x, wide = value("x", harness.DST, 128), value("w", GLOBAL, 128, 128)
    assert described(steps_of(contract(x, wide), inputs=(x, wide))) == ["contract"]
    x, w = (
        value(n, s, 32, *m, dtype=float64)
        for n, s, m in (("x", harness.DST, ()), ("w", GLOBAL, (32,)))
    )
    assert described(steps_of(contract(x, w), inputs=(x, w))) == ["contract"]


def test_totals_of_stored_values_leave_the_walk_for_the_step_that_reads_them_anyway():
    x, w = value("x", harness.SRC, 32), value("w", GLOBAL, 32, 32)
    y = value("y", harness.DST, 32)
    rows = sum_to(R, "dst", gather(R, "src", x))
    steps = steps_of(rows, outer_sum(y, rows), reduce_all(rows), inputs=(x, y, w))
    assert described(steps) == ["walk", ("outer_sum", "reduce_all")]


def test_kernels_of_four_products_keep_within_the_shared_memory_of_a_gpu():
    x = value("x", harness.DST, 64)
    matrices = [value(f"w{i}", GLOBAL, 64, 64) for i in range(4)]
    total = contract(x, matrices[0])
    for matrix in matrices[1:]:
        total = add(total, contract(x, matrix))
    steps = compile_program(Program((x, *matrices), (total,))).steps
    assert all(isinstance(step, RowStep) for step in steps)
    for step in steps:
        for _, source in step.sources(step.typical()):
            aligned = [p.type.startswith("*") for p in source.parameters]
            made = compile_kernel(source, 90, aligned)
            assert made.metadata.shared <= 227 * 1024
            assert "wgmma" in made.asm["ptx"]


def walk_of(message, *inputs):
    (walk,) = [s.program for s in steps_of(sum_to(R, "dst", message), inputs=inputs)]
    return walk


def product_walk(width):
    x, weight = value("x", harness.SRC, width), value("weight", R.edge, width)
    matrix = value("matrix", GLOBAL, width, 16)
    message = tanh(contract(mul(gather(R, "src", x), weight), matrix))
    return walk_of(message, x, weight, matrix)


def test_products_of_few_rows_take_more_edges_of_each():
    walk = product_walk(64)
    tiles = [choose_tile(walk, degree, few) for degree, few in ((16, 0), (16, 2048), (4, 2048))]
    assert [(t.rows, t.edges) for t in tiles] == [(32, 2), (8, 8), (32, 2)]
    assert len({t.warps for t in tiles}) == 1
    assert choose_tile(walk, 1024, 16).rows == 2


def test_products_of_very_wide_values_take_few_edges():
    for width, entities in ((128, 64), (1024, 16), (2048, 16), (4096, 8), (16384, 2)):
        tile = choose_tile(product_walk(width), 16)
        assert tile.rows * tile.edges == entities


def test_walks_with_few_wide_values_take_twice_as_many_edges():
    x, weight = value("x", harness.SRC, 4, 16), value("weight", R.edge, 4)
    few = walk_of(
        mul(gather(R, "src", x), expand_to(reshape(weight, (4, 1)), (4, 16), R.edge)), x, weight
    )
    tile = choose_tile(few, 16)
    assert (tile.rows * tile.edges, tile.warps) == (8, 1)
    y, z = value("y", harness.DST, 4, 16), value("z", harness.DST, 4, 16)
    score = feature_sum(mul(gather(R, "src", x), gather(R, "dst", z)), 1)
    scaled = mul(gather(R, "src", x), expand_to(reshape(score, (4, 1)), (4, 16), R.edge))
    many = choose_tile(walk_of(mul(scaled, gather(R, "dst", y)), x, y, z), 16)
    assert (many.rows * many.edges, many.warps, many.ahead) == (8, 2, 0)
    y = value("y", harness.SRC, 4, 16)
    gathers_two = choose_tile(walk_of(mul(scaled, gather(R, "src", y)), x, y, z), 16)
    assert (gathers_two.rows * gathers_two.edges, gathers_two.ahead) == (8, 3)
