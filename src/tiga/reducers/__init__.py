"""Reducers: how the messages of a row combine."""

from tiga.reducers.base import Bound, Messages, Reducer
from tiga.reducers.custom import CustomReducer
from tiga.reducers.fold import Fold
from tiga.reducers.moments import Mean, Std, Sum, Var
from tiga.reducers.multi import Multi
from tiga.reducers.per_edge import Each, EdgeSoftmax
from tiga.reducers.selection import ArgMax, ArgMin, Max, Min, Prod
from tiga.reducers.softmax import LogSumExp, Softmax

# As users write them: `reducer = tg.sum()`.
sum, mean, var, std = Sum, Mean, Var, Std
max, min, prod = Max, Min, Prod
logsumexp, softmax, online_softmax = LogSumExp, Softmax, Softmax
argmax, argmin, multi = ArgMax, ArgMin, Multi
each, edge_softmax = Each, EdgeSoftmax

__all__ = [
    "ArgMax", "ArgMin", "Bound", "CustomReducer", "Each", "EdgeSoftmax", "Fold", "LogSumExp", "Max",
    "Mean", "Messages", "Min", "Multi", "Prod", "Reducer", "Softmax", "Std", "Sum", "Var", "argmax",
    "argmin", "each", "edge_softmax", "logsumexp", "max", "mean", "min", "multi", "online_softmax",
    "prod", "softmax", "std", "sum", "var",
]  # fmt: skip
