"""sin and cos on f32 and f64 lanes, exact reduction at every size of argument.

Up to a limit, x - k · pi/2 is taken with pi/2 as a sum of three floats (W. J. Cody and W. Waite,
1980); with fma the first difference is exact. Beyond, a lane is reduced with as many bits of 2/pi
as it needs (M. H. Payne and R. N. Hanek, SIGNUM Newsletter 18, 1983), by one scalar function per
module. Which way a lane goes depends on its own value only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import func, scf, vector

from tiga.backends.llvm import coefficients as tables
from tiga.backends.llvm.functions import Format, format_of
from tiga.backends.llvm.lanes import Lanes, constant_of, integer, polynomial, resized_integer, where

_REDUCE = "tiga_reduce_large_angle"
_TABLE = "tiga_two_over_pi"
_REDUCE_MODULE = f"""
llvm.mlir.global internal constant @{_TABLE}(dense<{list(tables.TWO_OVER_PI)}>
  : tensor<{len(tables.TWO_OVER_PI)}xi64>) : !llvm.array<{len(tables.TWO_OVER_PI)} x i64>

// x = m 2^e, finite and at least 2^14, as q · pi/2 + r: (r, q mod 4). Bits of 2/pi that give whole
// turns are skipped; 192 bits from there, times the 53 of m, are the fixed-point quarter turns.
func.func private @{_REDUCE}(%x: f64) -> (f64, i64)
    attributes {{llvm.linkage = #llvm.linkage<internal>, passthrough = ["noinline", "cold"]}} {{
  %bits = arith.bitcast %x : f64 to i64
  %c52 = arith.constant 52 : i64
  %field = arith.shrui %bits, %c52 : i64
  %mask = arith.constant {2**52 - 1} : i64
  %hidden = arith.constant {2**52} : i64
  %low_bits = arith.andi %bits, %mask : i64
  %m = arith.ori %low_bits, %hidden : i64
  // Offset into the table, after its zero word: e - 2 + 64 with e = field - 1075.
  %bias = arith.constant {1075 + 2 - 64} : i64
  %offset = arith.subi %field, %bias : i64
  %c6 = arith.constant 6 : i64
  %c63 = arith.constant 63 : i64
  %word = arith.shrui %offset, %c6 : i64
  %shift = arith.andi %offset, %c63 : i64
  %table = llvm.mlir.addressof @{_TABLE} : !llvm.ptr
  %at = llvm.getelementptr %table[%word] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %at1 = llvm.getelementptr %at[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %at2 = llvm.getelementptr %at[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %at3 = llvm.getelementptr %at[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %t0 = llvm.load %at : !llvm.ptr -> i64
  %t1 = llvm.load %at1 : !llvm.ptr -> i64
  %t2 = llvm.load %at2 : !llvm.ptr -> i64
  %t3 = llvm.load %at3 : !llvm.ptr -> i64
  %w0 = llvm.intr.fshl(%t0, %t1, %shift) : (i64, i64, i64) -> i64
  %w1 = llvm.intr.fshl(%t1, %t2, %shift) : (i64, i64, i64) -> i64
  %w2 = llvm.intr.fshl(%t2, %t3, %shift) : (i64, i64, i64) -> i64
  %m_wide = arith.extui %m : i64 to i128
  %w0_wide = arith.extui %w0 : i64 to i128
  %w1_wide = arith.extui %w1 : i64 to i128
  %w2_wide = arith.extui %w2 : i64 to i128
  %c64 = arith.constant 64 : i128
  %p0 = arith.muli %m_wide, %w0_wide : i128
  %p1 = arith.muli %m_wide, %w1_wide : i128
  %p2 = arith.muli %m_wide, %w2_wide : i128
  %high = arith.shli %p0, %c64 : i128
  %low = arith.shrui %p2, %c64 : i128
  %sum0 = arith.addi %high, %p1 : i128
  %turn = arith.addi %sum0, %low : i128
  // Two bits of quarter turns, then the fraction, which is signed around the nearest quarter.
  %c1 = arith.constant 1 : i128
  %c2 = arith.constant 2 : i128
  %c125 = arith.constant 125 : i128
  %halves = arith.shrui %turn, %c125 : i128
  %halves_up = arith.addi %halves, %c1 : i128
  %quarter_wide = arith.shrui %halves_up, %c1 : i128
  %quarter = arith.trunci %quarter_wide : i128 to i64
  %fraction = arith.shli %turn, %c2 : i128
  %upper_wide = arith.shrui %fraction, %c64 : i128
  %upper = arith.trunci %upper_wide : i128 to i64
  %lower = arith.trunci %fraction : i128 to i64
  %upper_float = arith.sitofp %upper : i64 to f64
  %lower_float = arith.uitofp %lower : i64 to f64
  %unit = arith.constant {2.0**-64!r} : f64
  %total = math.fma %lower_float, %unit, %upper_float : f64
  %half_pi = arith.constant {tables.HALF_PI_F64[0] * 2.0**-64!r} : f64
  %rest = arith.mulf %total, %half_pi : f64
  return %rest, %quarter : f64, i64
}}
"""


@dataclass(frozen=True)
class AngleFormat:
    """Tables of one float format; `limit` is where the short reduction ends."""

    half_pi: tuple[float, ...]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    limit: float


_ANGLES = {
    32: AngleFormat(tables.HALF_PI_F32, tables.SIN_F32, tables.COS_F32, 2.0**15),
    64: AngleFormat(tables.HALF_PI_F64, tables.SIN_F64, tables.COS_F64, 2.0**27),
}
_TWO_OVER_PI = 0.6366197723675814


@dataclass(frozen=True)
class Angle:
    """quarter · pi/2 + rest; only the two low bits of `quarter` count."""

    rest: Lanes
    quarter: Lanes


def sin(x: Lanes) -> Lanes:
    """Sine; NaN at infinity, the sign of zero kept."""
    angle = reduce_angle(x.abs(), format_of(x))
    sign = x.bits() & (-1 << (x.width - 1))
    return _quarter_wave(angle.rest, angle.quarter, sign)


def cos(x: Lanes) -> Lanes:
    """Cosine: a sine one quarter further on; NaN at infinity."""
    angle = reduce_angle(x.abs(), format_of(x))
    return _quarter_wave(angle.rest, angle.quarter + 1, angle.quarter.like(0))


def _quarter_wave(rest: Lanes, quarter: Lanes, sign: Lanes) -> Lanes:
    """sin(quarter · pi/2 + rest), its sign bit flipped by `sign`."""
    angles = _ANGLES[rest.width]
    square = rest * rest
    sine = (rest * square).fma(polynomial(square, angles.sin), rest)
    cosine = square.fma(polynomial(square, (-0.5, *angles.cos)), 1.0)
    value = where((quarter & 1).compare("ne", 0), cosine, sine)
    flip = ((quarter & 2) << (rest.width - 2)) ^ sign
    return (value.bits() ^ flip).as_float()


def reduce_angle(size: Lanes, format_: Format) -> Angle:
    """Split size >= 0 (infinity and NaN give NaN)."""
    angles = _ANGLES[format_.width]
    shifted = size.fma(_TWO_OVER_PI, format_.shift)
    count = shifted - format_.shift
    rest = size
    for part in angles.half_pi:
        rest = count.fma(-part, rest)
    near = Angle(rest, shifted.bits())
    large = (size > angles.limit) & (size < float("inf"))
    return _with_large_lanes(size, large, near)


def _with_large_lanes(size: Lanes, large: Lanes, near: Angle) -> Angle:
    """`near`, with the lanes in `large` reduced by the scalar function instead."""
    _ensure_reduce_function()
    kinds = [near.rest.type, near.quarter.type]
    branch = scf.IfOp(_any(large), kinds, has_else=True)
    with ir.InsertionPoint(branch.then_block):
        scf.yield_(_reduced_lanes(size, large, near))
    with ir.InsertionPoint(branch.else_block):
        scf.yield_([near.rest.value, near.quarter.value])
    return Angle(Lanes(branch.results[0]), Lanes(branch.results[1]))


def _any(mask: Lanes) -> ir.Value:
    if not isinstance(mask.type, ir.VectorType):
        return mask.value
    return vector.reduction(integer(1), vector.CombiningKind.OR, mask.value)


def _reduced_lanes(size: Lanes, large: Lanes, near: Angle) -> list[ir.Value]:
    if not isinstance(size.type, ir.VectorType):
        return [lane.value for lane in _reduced_lane(size)]
    index = ir.IndexType.get()
    first, step = constant_of(0, index), constant_of(1, index)
    last = constant_of(size.type.shape[0], index)
    loop = scf.ForOp(first, last, step, [near.rest.value, near.quarter.value])
    with ir.InsertionPoint(loop.body):
        scf.yield_(_reduced_at(loop.induction_variable, size, large, loop.inner_iter_args))
    return list(loop.results)


def _reduced_at(
    at: ir.Value, size: Lanes, large: Lanes, carried: Sequence[ir.Value]
) -> list[ir.Value]:
    """The carried vectors with lane `at` replaced, if it is large."""
    dynamic = [ir.ShapedType.get_dynamic_size()]
    chosen = vector.extract(large.value, [at], dynamic)
    branch = scf.IfOp(chosen, [value.type for value in carried], has_else=True)
    with ir.InsertionPoint(branch.then_block):
        lanes = _reduced_lane(Lanes(vector.extract(size.value, [at], dynamic)))
        scf.yield_(
            [
                vector.insert(lane.value, whole, [at], dynamic)
                for lane, whole in zip(lanes, carried, strict=True)
            ]
        )
    with ir.InsertionPoint(branch.else_block):
        scf.yield_(list(carried))
    return list(branch.results)


def _reduced_lane(size: Lanes) -> tuple[Lanes, Lanes]:
    wide = size.extended() if size.width == 32 else size
    results = [ir.F64Type.get(), integer(64)]
    rest, quarter = func.CallOp(results, _REDUCE, [wide.value]).results
    if size.width == 64:
        return Lanes(rest), Lanes(quarter)
    return Lanes(rest).truncated(), resized_integer(Lanes(quarter), 32)


def _ensure_reduce_function() -> None:
    """Define the scalar reduction in the enclosing module, unless it is there."""
    operation = ir.InsertionPoint.current.block.owner
    while operation.name != "builtin.module":
        operation = operation.operation.parent
    if _REDUCE in ir.SymbolTable(operation.operation):
        return
    body = ir.InsertionPoint(operation.operation.regions[0].blocks[0])
    for defined in ir.Module.parse(_REDUCE_MODULE).body:
        defined.operation.clone(body)
