"""Public names and where they live: read by `tiga.__init__`, which loads nothing by itself."""

FUNCTIONS = {
    "tiga.frontends.tensor.memory.execution": ("execution",),
    "tiga.frontends.tensor.functions.composed": (
        "allclose", "array_equal", "diagonal", "dot", "elu", "exp2", "isclose", "isin",
        "leaky_relu", "lerp", "logsigmoid", "nan_to_num", "one_hot", "positive", "rms_norm",
        "tril", "triu",
    ),
    "tiga.frontends.tensor.memory.snapshot": ("load", "save"),
    "tiga.frontends.tensor.functions.grids": ("arange", "eye", "linspace", "meshgrid"),
    "tiga.frontends.tensor.functions.selection": (
        "abs", "angle", "astype", "clip", "conj", "detach", "divide", "imag", "logical_and",
        "logical_not", "logical_or", "logical_xor", "pow", "real", "sign", "where",
    ),
    "tiga.functions": (
        "argmax", "argmin", "logsumexp", "max", "mean", "min", "prod", "softmax", "std", "sum",
        "var",
    ),
    "tiga.frontends.tensor.functions.creation": (
        "asarray", "from_dlpack", "from_numpy", "from_torch", "tensor",
    ),
    "tiga.frontends.tensor.functions.filled": (
        "empty", "empty_like", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like",
    ),
    "tiga.frontends.tensor.functions.elementwise": (
        "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
        "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
        "bitwise_xor", "ceil", "copysign", "cos", "cosh", "equal", "erf", "exp", "expm1",
        "floor", "floor_divide", "fmod", "gelu", "greater", "greater_equal", "hypot",
        "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2",
        "logaddexp", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal",
        "reciprocal", "relu", "remainder", "round", "rsqrt", "sigmoid", "signbit", "silu",
        "sin", "sinh", "softplus", "sqrt", "square", "subtract", "tan", "tanh", "trunc",
    ),
    "tiga.frontends.tensor.functions.indexing": (
        "gather", "masked_fill", "scatter_add", "scatter_add_along_axis", "segment_sum", "take",
        "take_along_axis",
    ),
    "tiga.frontends.tensor.functions.linear": ("einsum", "matmul", "outer", "tensordot", "vecdot"),
    "tiga.frontends.tensor.functions.losses": (
        "binary_cross_entropy_with_logits", "cross_entropy", "huber_loss", "layer_norm",
        "mse_loss", "nll_loss", "norm",
    ),
    "tiga.frontends.tensor.functions.along": (
        "cumsum", "cumulative_prod", "cumulative_sum", "diff",
    ),
    "tiga.frontends.tensor.functions.reductions": (
        "all", "amax", "amin", "any", "count_nonzero", "log_softmax",
    ),
    "tiga.frontends.tensor.functions.sorting": (
        "argsort", "nonzero", "searchsorted", "sort", "topk", "unique", "unique_all",
        "unique_counts", "unique_inverse", "unique_values",
    ),
    "tiga.frontends.tensor.functions.pieces": (
        "concat", "flip", "narrow", "pad", "repeat", "roll", "split", "stack", "tile",
        "unstack",
    ),
    "tiga.frontends.tensor.functions.views": (
        "broadcast_arrays", "broadcast_to", "expand", "expand_dims", "flatten",
        "matrix_transpose", "moveaxis", "permute_dims", "ravel", "reshape", "squeeze",
        "transpose", "unsqueeze",
    ),
    "tiga.frontends.tensor.core": ("Device", "Tensor"),
    "tiga.types": (
        "DType", "bfloat16", "complex64", "complex128", "float16", "float32", "float64", "int8",
        "int16", "int32", "int64", "uint8",
    ),
    "tiga.frontends.tensor.functions.namespace": (
        "__array_namespace_info__", "can_cast", "e", "finfo", "iinfo", "inf", "isdtype", "nan",
        "newaxis", "pi", "result_type",
    ),
}  # fmt: skip
"""The names that each module gives to the package."""

SERVED = frozenset((
    "all", "amax", "amin", "any", "argsort", "binary_cross_entropy_with_logits",
    "broadcast_to", "concat", "count_nonzero", "cross_entropy", "cumsum", "cumulative_prod",
    "cumulative_sum", "diff", "einsum", "empty_like", "expand", "expand_dims", "flatten",
    "flip", "full_like", "gather", "huber_loss", "layer_norm", "log_softmax", "masked_fill",
    "matmul", "matrix_transpose", "moveaxis", "mse_loss", "nll_loss", "nonzero", "norm",
    "one_hot", "ones_like", "outer", "pad", "permute_dims", "ravel", "repeat", "reshape",
    "rms_norm", "roll", "sort", "split", "squeeze", "stack", "take", "take_along_axis",
    "tile", "topk", "transpose", "tril", "triu", "unique_values", "unsqueeze", "unstack",
    "vecdot", "zeros_like",
))  # fmt: skip
"""Names of functions that torch tensors may be given to as well: see `tiga.served`."""
