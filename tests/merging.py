"""Reducers as users write them, whose algebra says how they may be computed."""

import torch

import tiga as tg

INF = float("inf")


class Online(tg.Reducer):
    """An online softmax with an infinite start and a guard for rows without a finite score."""

    associative = commutative = True
    start = -INF

    def identity(self):
        return {"peak": self.start, "total": 0.0, "mean": 0.0}

    def lift(self, score, value):
        return {"peak": score, "total": torch.ones_like(score), "mean": value}

    def weight(self, old, new):
        shift = torch.where(torch.isinf(new), torch.zeros_like(new), new)
        return torch.exp(old - shift)

    def combine(self, left, right):
        peak = torch.maximum(left["peak"], right["peak"])
        a, b = self.weight(left["peak"], peak), self.weight(right["peak"], peak)
        return {
            "peak": peak,
            "total": a * left["total"] + right["total"] * b,
            "mean": left["mean"] * a[..., None] + b[..., None] * right["mean"],
        }

    def finalize(self, state):
        return state["mean"] / state["total"].clamp(min=1e-9)[..., None]


class Tempered(Online):
    start = -1e30
    temperature = 0.5

    def weight(self, old, new):
        return torch.exp((old - new) / self.temperature)


class PowersOfTwo(Online):
    start = -1e30

    def weight(self, old, new):
        return torch.exp2(old) * torch.exp2(-new)


class Guarded(Online):
    def weight(self, old, new):
        known = old > -INF
        gap = torch.where(known, old, 0.0) - torch.where(known, new, 0.0)
        return torch.where(known, torch.exp(gap), torch.zeros_like(old))


class LogSumExp(tg.Reducer):
    associative = commutative = True

    def identity(self):
        return -INF

    def combine(self, left, right):
        return torch.logaddexp(left, right)


class Stable(LogSumExp):
    def identity(self):
        return -1e30

    def combine(self, left, right):
        peak = torch.maximum(left, right)
        return peak + torch.log(torch.exp(left - peak) + torch.exp(right - peak))


class Gap(Stable):
    def combine(self, left, right):
        return torch.maximum(left, right) + torch.log1p(torch.exp(-(left - right).abs()))


class Plain(LogSumExp):
    def combine(self, left, right):
        return torch.log(left.exp() + right.exp())


class Merge(tg.Reducer):
    """Softmax-weighted means with the logarithm of their weight."""

    associative = commutative = True

    def identity(self):
        return -1e30, 0.0

    def combine(self, left, right):
        total = torch.logaddexp(left[0], right[0])
        parts = (side[1] * torch.exp(side[0] - total)[..., None] for side in (left, right))
        return total, sum(parts)

    def finalize(self, state):
        return state[1]


class RunningMean(tg.Reducer):
    associative = commutative = True

    def identity(self):
        return 0.0, 0.0

    def lift(self, message):
        return torch.ones_like(message), message

    def combine(self, left, right):
        number = left[0] + right[0]
        return number, (left[0] * left[1] + right[0] * right[1]) / number

    def finalize(self, state):
        return state[1]


class Chan(tg.Reducer):
    """Number, mean and squared deviations of runs, merged as Chan does."""

    associative = commutative = True

    def identity(self):
        return 0.0, 0.0, 0.0

    def lift(self, message):
        return torch.ones_like(message), message, torch.zeros_like(message)

    def combine(self, left, right):
        number = left[0] + right[0]
        share, gap = right[0] / number.clamp(min=1), right[1] - left[1]
        return number, left[1] + gap * share, left[2] + right[2] + gap * gap * left[0] * share

    def finalize(self, state):
        return state[2] / state[0].clamp(min=1)


class Welford(Chan):
    """The same by the distances from the old mean and the new."""

    def combine(self, left, right):
        number = left[0] + right[0]
        mean = (left[0] * left[1] + right[0] * right[1]) / number.clamp(min=1.0)
        spread = left[0] * (left[1] - mean) ** 2 + right[0] * (right[1] - mean) ** 2
        return number, mean, left[2] + right[2] + spread


class Mixed(tg.Reducer):
    """A sum, a product, extrema, and a component that depends on the order of edges."""

    def identity(self):
        return 0.0, 1.0, -INF, INF, 0.0

    def lift(self, message):
        return (message,) * 5

    def combine(self, left, right):
        return (
            right[0] + left[0],
            left[1] * right[1],
            torch.maximum(right[2], left[2]),
            torch.minimum(left[3], right[3]),
            left[4] * 0.5 + right[4],
        )

    def finalize(self, state):
        return torch.stack(state, -1)
