"""Reducers: how the messages of a row combine."""

from tiga.reducers.base import Bound, Messages, Reducer
from tiga.reducers.moments import Mean, Std, Sum, Var
from tiga.reducers.selection import Max, Min, Prod
from tiga.reducers.softmax import LogSumExp, Softmax

__all__ = [
    "Bound", "LogSumExp", "Max", "Mean", "Messages", "Min", "Prod", "Reducer", "Softmax", "Std",
    "Sum", "Var",
]  # fmt: skip
