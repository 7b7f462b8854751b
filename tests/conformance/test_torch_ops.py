"""Every ATen mapping against torch itself: values, dtypes and first derivatives, kinks included."""

import math

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

import tiga as tg
from tests.oracle import OracleExecutable
from tiga.frontends.torch import unit
from tiga.frontends.torch.capture.aten import TABLE

KINKS = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 0.5, -0.5, 6.0, 2.0, -2.0, 1.5]
W = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(6, 4)
V = torch.linspace(-0.7, 1.2, 6, dtype=torch.float64)


def rows(seed, low=-2.0, high=2.0):
    """[24, 6] float64 values, a third of them at the kinks of common functions if in range."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(24, 6, generator=generator, dtype=torch.float64) * (high - low) + low
    inside = torch.tensor([k for k in KINKS if low <= k <= high] or [low], dtype=torch.float64)
    at = torch.randint(0, len(inside), (24, 6), generator=generator)
    chosen = torch.rand(24, 6, generator=generator) < 0.33
    return torch.where(chosen, inside[at], x)


# Functions of a and b [E, 6]; anything that torch gives for them row by row.
WIDE = {
    "add": lambda a, b: a + b,
    "add_alpha": lambda a, b: torch.add(a, b, alpha=0.3),
    "sub": lambda a, b: a - b,
    "sub_alpha": lambda a, b: torch.sub(a, b, alpha=2),
    "rsub": lambda a, b: torch.rsub(a, b, alpha=3),
    "radd": lambda a, b: 2 + a,
    "rsub_number": lambda a, b: 1.5 - a,
    "mul": lambda a, b: a * b,
    "mul_number": lambda a, b: a * 0.1,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: a.abs(),
    "sign": lambda a, b: a.sign() * b,
    "square": lambda a, b: a.square(),
    "pow_2": lambda a, b: a**2,
    "pow_3": lambda a, b: a**3,
    "pow_0": lambda a, b: a**0 * b,
    "exp": lambda a, b: a.exp(),
    "exp2": lambda a, b: a.exp2(),
    "expm1": lambda a, b: a.expm1(),
    "sin": lambda a, b: a.sin(),
    "cos": lambda a, b: a.cos(),
    "tan": lambda a, b: (a / 2).tan(),
    "sinh": lambda a, b: a.sinh(),
    "cosh": lambda a, b: a.cosh(),
    "tanh": lambda a, b: a.tanh(),
    "erf": lambda a, b: a.erf(),
    "erfc": lambda a, b: a.erfc(),
    "asin": lambda a, b: (a / 2.5).asin(),
    "acos": lambda a, b: (a / 2.5).acos(),
    "atan": lambda a, b: a.atan(),
    "atan2": lambda a, b: torch.atan2(a + 0.01, b),
    "sigmoid": lambda a, b: a.sigmoid(),
    "relu": lambda a, b: a.relu(),
    "leaky_relu": lambda a, b: F.leaky_relu(a, 0.2),
    "elu": lambda a, b: F.elu(a, 1.3),
    "elu_large": lambda a, b: F.elu(a * 500),
    "selu": lambda a, b: F.selu(a),
    "celu": lambda a, b: F.celu(a, 0.7),
    "gelu": lambda a, b: F.gelu(a),
    "gelu_tanh": lambda a, b: F.gelu(a, approximate="tanh"),
    "silu": lambda a, b: F.silu(a),
    "mish": lambda a, b: F.mish(a),
    "mish_large": lambda a, b: F.mish(a * 400),
    "softplus": lambda a, b: F.softplus(a),
    "softplus_beta": lambda a, b: F.softplus(a, beta=3.0, threshold=2.0),
    "softplus_large": lambda a, b: F.softplus(a * 500),
    "logsigmoid": lambda a, b: F.logsigmoid(a),
    "logsigmoid_large": lambda a, b: F.logsigmoid(a * 500),
    "hardtanh": lambda a, b: F.hardtanh(a),
    "relu6": lambda a, b: F.relu6(a * 3),
    "hardsigmoid": lambda a, b: F.hardsigmoid(a * 1.5),
    "hardswish": lambda a, b: F.hardswish(a * 1.5),
    "hardshrink": lambda a, b: F.hardshrink(a, 0.5),
    "softshrink": lambda a, b: F.softshrink(a, 0.5),
    "tanhshrink": lambda a, b: F.tanhshrink(a),
    "softsign": lambda a, b: F.softsign(a),
    "threshold": lambda a, b: F.threshold(a, 0.5, 7.0),
    "glu": lambda a, b: F.glu(a),
    "prelu": lambda a, b: F.prelu(a, V[:1]),
    "clamp": lambda a, b: a.clamp(-1, 1),
    "clamp_min": lambda a, b: a.clamp_min(0.5),
    "clamp_max": lambda a, b: a.clamp_max(0.5),
    "clamp_tensor": lambda a, b: torch.clamp(a, min=b),
    "clamp_tensors": lambda a, b: torch.clamp(a, b - 1, b + 1),
    "clip": lambda a, b: torch.clip(a, max=1.0),
    "maximum": lambda a, b: torch.maximum(a, b),
    "minimum": lambda a, b: torch.minimum(a, b),
    "floor": lambda a, b: a.floor() * b,
    "ceil": lambda a, b: a.ceil() * b,
    "trunc": lambda a, b: a.trunc() * b,
    "round": lambda a, b: a.round() * b,
    "frac": lambda a, b: a.frac(),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "lerp_high": lambda a, b: torch.lerp(a, b, 0.8),
    "lerp_tensor": lambda a, b: torch.lerp(a, b, V),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.3),
    "where": lambda a, b: torch.where(a > b, a, b * 2),
    "where_number": lambda a, b: torch.where(a >= 0, a, 0.0),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 3.0),
    "compare": lambda a, b: ((a < b) | (a == 1) & (b != 0)) * a,
    "compare_ge": lambda a, b: torch.where((a >= b) ^ (a <= 0.5), a, b),
    "logical": lambda a, b: torch.logical_and(a, b).logical_not().logical_or(a > 1) * b,
    "isfinite": lambda a, b: torch.where(torch.isfinite(a) & ~torch.isnan(b), a, b),
    "nan_to_num": lambda a, b: torch.nan_to_num(a / a.abs().clamp_min(0.0), 0.5, 2.0, -2.0),
    "logaddexp": lambda a, b: torch.logaddexp(a, b),
    "copysign": lambda a, b: torch.copysign(a.abs() + 0.5, b + 0.1),
    "sum": lambda a, b: a.sum(-1),
    "sum_keep": lambda a, b: a.sum(1, keepdim=True) * b,
    "mean": lambda a, b: a.mean(-1),
    "amax": lambda a, b: a.amax(-1),
    "amin": lambda a, b: a.amin(1, keepdim=True),
    "var": lambda a, b: a.var(-1),
    "var_population": lambda a, b: a.var(-1, correction=0, keepdim=True),
    "std": lambda a, b: a.std(-1),
    "var_mean": lambda a, b: torch.var_mean(a, -1)[0] * torch.var_mean(a, -1)[1],
    "norm": lambda a, b: a.norm(dim=-1),
    "norm_1": lambda a, b: a.norm(p=1, dim=-1),
    "norm_inf": lambda a, b: (a + V).norm(p=math.inf, dim=-1),
    "norm_3": lambda a, b: torch.linalg.vector_norm(a, 3, dim=-1, keepdim=True),
    "norm_zero": lambda a, b: (a * 0).norm(dim=-1),
    "normalize": lambda a, b: F.normalize(a, dim=-1),
    "cosine": lambda a, b: F.cosine_similarity(a, b, dim=-1),
    "softmax": lambda a, b: a.softmax(-1),
    "softmax_large": lambda a, b: (a * 1e3).softmax(-1),
    "log_softmax": lambda a, b: F.log_softmax(a, -1),
    "logsumexp": lambda a, b: a.logsumexp(-1),
    "prod": lambda a, b: a.prod(-1),
    "cumsum": lambda a, b: a.cumsum(-1),
    "any_all": lambda a, b: ((a > 1).any(-1) & (b < 3).all(-1)) * a.sum(-1),
    "layer_norm": lambda a, b: F.layer_norm(a, (6,), V, V + 1),
    "group_norm": lambda a, b: F.group_norm(a, 2, V, V + 1),
    "rms_norm": lambda a, b: F.rms_norm(a, (6,), V),
    "batch_norm": lambda a, b: F.batch_norm(a, V, V.square() + 1, V, V),
    "cat": lambda a, b: torch.cat([a, b, a], -1),
    "stack": lambda a, b: torch.stack([a, b], 1),
    "slice": lambda a, b: a[:, 1:5:2] * b[:, :2],
    "select": lambda a, b: a[:, 0] * b[..., -1],
    "index": lambda a, b: a[:, [0, 2, 2]],
    "index_select": lambda a, b: a.index_select(1, torch.tensor([5, 0, 5])),
    "gather": lambda a, b: a.gather(1, (b.abs()[:, :3] * 2).long() % 6),
    "gather_heads": lambda a, b: a.view(-1, 2, 3).gather(
        1, (b.abs().view(-1, 3, 2) * 2).long() % 2
    ),
    "take_along_dim": lambda a, b: torch.take_along_dim(
        a.view(-1, 2, 3), (b.abs()[:, :1, None] * 2).long() % 3, dim=-1
    ),
    "split": lambda a, b: a.split(4, -1)[1] * b.split([1, 2, 3], -1)[1],
    "chunk": lambda a, b: a.chunk(2, -1)[0] + b.chunk(3, 1)[2].sum(-1, keepdim=True),
    "unbind": lambda a, b: a.unbind(-1)[2] * b.unbind(1)[0],
    "view": lambda a, b: a.view(-1, 2, 3) * b.reshape(-1, 2, 3),
    "unflatten": lambda a, b: a.unflatten(-1, (3, 2)).flatten(1),
    "unsqueeze": lambda a, b: a.unsqueeze(-1) * b[:, None, :],
    "squeeze": lambda a, b: a[:, :1].squeeze(-1) + b[:, 1:2].squeeze(1),
    "expand": lambda a, b: a[:, :1].expand(-1, 3) * b[:, :3],
    "expand_as": lambda a, b: V.expand_as(a) * b,
    "repeat": lambda a, b: a.repeat(1, 2),
    "tile": lambda a, b: a.tile(2),
    "permute": lambda a, b: a.view(-1, 2, 3).permute(0, 2, 1).reshape(-1, 6) * b,
    "transpose": lambda a, b: a.view(-1, 2, 3).transpose(1, 2),
    "mT": lambda a, b: a.view(-1, 2, 3).mT.flatten(1),
    "flip": lambda a, b: a.flip(-1),
    "roll": lambda a, b: a.roll(2, -1),
    "pad": lambda a, b: F.pad(a, (1, 2)),
    "pad_value": lambda a, b: F.pad(a, (1, 0), value=2.0),
    "movedim": lambda a, b: a.view(-1, 2, 3).movedim(1, 2),
    "mm": lambda a, b: a @ W,
    "mv": lambda a, b: a @ V,
    "linear": lambda a, b: F.linear(a, W.T, V[:4]),
    "linear_heads": lambda a, b: F.linear(a.view(-1, 2, 3), W[:3].T),
    "matmul_left": lambda a, b: W.T @ a.unsqueeze(-1),
    "bmm": lambda a, b: torch.bmm(a.view(-1, 2, 3), b.view(-1, 3, 2)),
    "matmul_batch": lambda a, b: a.view(-1, 2, 3) @ b.view(-1, 3, 2),
    "matmul_heads": lambda a, b: a.view(-1, 2, 1, 3) @ W[:3],
    "einsum_contract": lambda a, b: torch.einsum("ef,fg->eg", a, W),
    "einsum_dot": lambda a, b: torch.einsum("ef,ef->e", a, b),
    "einsum_heads": lambda a, b: torch.einsum("ehd,hd->eh", a.view(-1, 2, 3), W[:2, :3]),
    "einsum_outer": lambda a, b: torch.einsum("ea,eb->eab", a, b[:, :2]),
    "einsum_three": lambda a, b: torch.einsum("ea,eb,abc->ec", a, b[:, :4], W.view(6, 4, 1)),
    "addmm": lambda a, b: torch.addmm(V[:4], a, W, beta=0.5, alpha=2),
    "cross": lambda a, b: torch.linalg.cross(a[:, :3], b[:, 3:]),
    "zeros_like": lambda a, b: torch.zeros_like(a) + torch.ones_like(b) * a,
    "full_like": lambda a, b: torch.full_like(a, 2.5) * b,
    "new_zeros": lambda a, b: torch.cat([a.new_zeros(a.shape[0], 2), b], 1),
    "ones_extent": lambda a, b: torch.ones(a.size(0), 6, dtype=a.dtype) * a,
    "arange": lambda a, b: a * torch.arange(6) + torch.linspace(0, 1, 6, dtype=a.dtype),
    "in_place": lambda a, b: (a * 1).add_(b).mul_(2).relu_(),
    "detach": lambda a, b: a.detach() * b,
    "no_grad": lambda a, b: _without_gradient(a) * b,
    "clone": lambda a, b: a.clone().contiguous() * b,
    "float_cast": lambda a, b: a.float().double() * b,
    "long_cast": lambda a, b: (a * 2).long().double() * b,
    "one_hot": lambda a, b: F.one_hot(a.abs().long()[:, 0], 4).double() * b[:, :1],
    "min_dim": lambda a, b: (a + 0.01 * V).min(-1).values,
    "max_dim": lambda a, b: (a + 0.01 * V).max(dim=1, keepdim=True).values,
    "parameters_only": lambda a, b: a * torch.softmax(V, 0),
}  # fmt: skip

# Where the domain is positive, or division must stay away from zero.
POSITIVE = {
    "log": lambda a, b: a.log(),
    "log2": lambda a, b: a.log2(),
    "log10": lambda a, b: a.log10(),
    "log1p": lambda a, b: a.log1p(),
    "sqrt": lambda a, b: a.sqrt(),
    "rsqrt": lambda a, b: a.rsqrt(),
    "reciprocal": lambda a, b: a.reciprocal(),
    "div": lambda a, b: a / b,
    "div_number": lambda a, b: a / 3,
    "rdiv": lambda a, b: 2 / a,
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div_trunc": lambda a, b: torch.div(-a, b, rounding_mode="trunc"),
    "floor_divide": lambda a, b: (-a.detach()) // b.detach() * a,
    "fmod": lambda a, b: torch.fmod(-a, b),
    "remainder": lambda a, b: (-a) % b,
    "pow_half": lambda a, b: a**0.5,
    "pow_negative": lambda a, b: a**-1.5,
    "pow_tensor": lambda a, b: a**b,
    "pow_scalar_base": lambda a, b: 2.0**a,
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.3),
    "hypot": lambda a, b: torch.hypot(a, b),
    "xlogy": lambda a, b: torch.xlogy(a, b),
    "norm_half": lambda a, b: a.norm(p=0.5, dim=-1),
}


def _without_gradient(a):
    with torch.no_grad():
        return torch.exp(a)


def kernel_of(function):
    """A kernel whose message is the function of both ends."""

    class Kernel(tg.MessagePassing):
        def edge(self, src, dst, edge):
            return function(src.a, dst.b)

    return Kernel()


@pytest.fixture
def oracle(monkeypatch):
    """Mappings are checked on the numpy oracle: what backends make of ops is checked elsewhere."""
    monkeypatch.setattr(unit, "executable", OracleExecutable)


GRAPH = tg.Graph.from_coo(torch.arange(24), torch.arange(24))


def check(function, a, b, rtol=1e-9, atol=1e-10):
    kernel = kernel_of(function)
    got = kernel(graph=GRAPH, src={"a": a}, dst={"b": b})
    assert not kernel.diagnostics, kernel.diagnostics
    want = function(a, b)
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if not want.requires_grad:
        assert not got.requires_grad or got.grad_fn is not None
        return
    cotangent = torch.linspace(0.5, 1.5, want.numel(), dtype=want.dtype).reshape(want.shape)
    expected = torch.autograd.grad(want, (a, b), cotangent, allow_unused=True)
    found = torch.autograd.grad(got, (a, b), cotangent, allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        zero = torch.zeros_like(a)
        torch.testing.assert_close(
            zero if one is None else one, zero if other is None else other, rtol=rtol, atol=atol,
            equal_nan=True,
        )  # fmt: skip


@pytest.mark.parametrize("name", WIDE)
def test_mapping_agrees_with_torch(name, oracle):
    a, b = rows(1).requires_grad_(), rows(2).requires_grad_()
    # torch itself rounds constants of these derivatives to float32.
    tolerance = 1e-6 if name in ("celu", "hardsigmoid") else 1e-9
    check(WIDE[name], a, b, tolerance, tolerance)


@pytest.mark.parametrize("name", POSITIVE)
def test_mapping_agrees_with_torch_on_positive_numbers(name, oracle):
    a, b = rows(1, 0.3, 4).requires_grad_(), rows(2, 0.4, 3).requires_grad_()
    check(POSITIVE[name], a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [n for n in WIDE if n not in ("float_cast",)])
def test_mapping_keeps_dtypes(name, dtype, oracle, monkeypatch):
    monkeypatch.setitem(globals(), "W", W.to(dtype))
    monkeypatch.setitem(globals(), "V", V.to(dtype))
    a, b = rows(1).to(dtype), rows(2).to(dtype)
    tolerance = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    check(WIDE[name], a, b, rtol=tolerance, atol=tolerance)


INTEGERS = {
    "add": lambda a, b: a + b,
    "mul_number": lambda a, b: a * 3,
    "true_division": lambda a, b: a / 4,
    "floor_division": lambda a, b: a // 3,
    "remainder": lambda a, b: a % 3,
    "times_float": lambda a, b: a * 0.5,
    "where": lambda a, b: torch.where(a == b, a, 0),
    "sum": lambda a, b: a.sum(-1),
    "sum_bool": lambda a, b: (a > b).sum(-1),
    "power": lambda a, b: a**2,
    "maximum": lambda a, b: torch.maximum(a, b),
    "abs_neg": lambda a, b: (-a).abs(),
    "float": lambda a, b: a.float().exp(),
    "clamp": lambda a, b: a.clamp(0, 1),
    "bits_and": lambda a, b: a & b,
    "bits_or": lambda a, b: a | 6,
    "bits_xor": lambda a, b: a ^ b,
    "bits_not": lambda a, b: ~a,
    "shift_left": lambda a, b: a << (b & 7),
    "shift_right": lambda a, b: a >> 2,
    "shift_out": lambda a, b: torch.bitwise_left_shift(a, 70) + torch.bitwise_right_shift(b, 70),
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_integer_fields(name, dtype, oracle):
    a, b = rows(1).mul(3).to(dtype), rows(2).mul(3).to(dtype)
    check(INTEGERS[name], a, b, rtol=1e-6)


def test_every_entry_of_the_table_names_an_overload_of_aten():
    for name in TABLE:
        base, _, overload = name.partition(".")
        assert hasattr(getattr(torch.ops.aten, base), overload), name
