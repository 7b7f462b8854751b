"""Reducers: how the messages of a row combine."""

from tiga.reducers.base import Bound, Messages, Reducer
from tiga.reducers.moments import Mean, Std, Sum, Var
from tiga.reducers.selection import Max, Min, Prod
from tiga.reducers.softmax import LogSumExp, Softmax

# As users write them: `reducer = tg.sum()`.
sum, mean, var, std = Sum, Mean, Var, Std
max, min, prod = Max, Min, Prod
logsumexp, softmax = LogSumExp, Softmax

__all__ = [
    "Bound", "LogSumExp", "Max", "Mean", "Messages", "Min", "Prod", "Reducer", "Softmax", "Std",
    "Sum", "Var", "logsumexp", "max", "mean", "min", "prod", "softmax", "std", "sum", "var",
]  # fmt: skip
