"""Intervals by a paired bootstrap: segments are drawn with all their hypotheses, the same ones for every metric.

Sources are what a test set samples, so they are what is drawn; hypotheses for one source are not independent. A draw
is a weight for each segment, and every statistic here is a function of sums over segments, or over pairs of segments,
that are computed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from promptmetric.errors import InputError
from promptmetric.stats.base import Floats, Missing, align, to_unit
from promptmetric.stats.correlation import pearson_by_group
from promptmetric.stats.systems import accuracy_by_row, p_normal, without_noise

BLOCK = 1 << 23
"""Pairs of scores compared at once."""

FLAT = 1e-12
"""A sum of squares of differences from the mean that is smaller, relative to that of the values, is rounding."""

UNDEFINED_SHARE = 0.05
"""With more undefined draws than this share, an interval is not given."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval; NaN at both ends where too many draws are undefined."""

    low: float
    high: float


def draw_weights(segments: int, draws: int = 1000, seed: int = 0) -> Floats:
    """How often each segment is in each bootstrap sample: draws × segments.

    Raises:
        InputError: fewer than one draw.
    """
    if draws < 1:
        raise InputError(f"draws must be a whole number from 1, not {draws}.")
    rng = np.random.default_rng(seed)
    return rng.multinomial(segments, np.full(segments, 1 / segments), size=draws).astype(np.float64)


def interval(values: Floats, level: float = 0.95) -> Interval:
    """The middle `level` of bootstrap values."""
    defined = values[~np.isnan(values)]
    if len(defined) < (1 - UNDEFINED_SHARE) * len(values) or not len(defined):
        return Interval(math.nan, math.nan)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def resample_means(values: Floats, weights: Floats) -> Floats:
    """The mean over segments in each draw, for statistics that are one: a value a segment, NaN where undefined.

    Args:
        values: one a segment.
        weights: draws × segments.
    """
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(weights @ np.where(known, values, 0) / (weights @ known))


def resample_kendall(human: ArrayLike, metric: ArrayLike, weights: Floats, missing: Missing = "error") -> Floats:
    """Ungrouped tau-b in each draw.

    Args:
        human: systems × segments; NaN where nobody judged.
        metric: the same shape.
        weights: draws × segments.
        missing: what a judged segment without a metric score is.
    """
    h, m, _ = align(human, metric, missing)
    pairs = _PairSums(h, m, None)
    order, untied_h, untied_m, _ = pairs.resample(weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(order / np.sqrt(untied_h * untied_m))


def resample_accuracy(
    human: ArrayLike, metric: ArrayLike, weights: Floats, epsilon: float, missing: Missing = "error"
) -> Floats:
    """Ungrouped pairwise accuracy in each draw, for a fixed ε. A hypothesis and its own copies are no pair."""
    h, m, _ = align(human, metric, missing)
    _, _, _, correct = _PairSums(h, m, epsilon).resample(weights)
    known = (~np.isnan(h)).sum(axis=0)
    n = weights @ known
    pairs = n**2 - (weights**2) @ known
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(correct / pairs)


class _PairSums:
    """Sums over all pairs of hypotheses of two segments, for every pair of segments.

    With weights w, the sum over the pairs of a bootstrap sample is w'Kw, a copy of a hypothesis being tied with it.
    """

    def __init__(self, h: Floats, m: Floats, epsilon: float | None) -> None:
        segment = np.broadcast_to(np.arange(h.shape[1]), h.shape)
        known = ~np.isnan(h)
        order = np.argsort(segment[known], kind="stable")
        self._segment = segment[known][order]
        self._h, self._m = h[known][order], m[known][order]
        self._epsilon = epsilon

    def resample(self, weights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """In each draw: concordant minus discordant pairs, pairs untied for humans, for the metric, correct pairs."""
        present, starts = np.unique(self._segment, return_index=True)
        ends = np.append(starts[1:], len(self._segment))
        drawn = weights[:, present]
        sums = np.zeros((4, len(weights)))
        at = 0
        while at < len(present):
            # as many segments as fit into a block, against all segments that do not come before them
            columns = len(self._segment) - starts[at]
            last = at + max(1, int(np.searchsorted(ends[at:] - starts[at], BLOCK // columns, side="right")))
            last = min(last, len(present))
            rows, rest = slice(starts[at], ends[last - 1]), slice(starts[at], None)
            row_starts, rest_starts = starts[at:last] - starts[at], starts[at:] - starts[at]
            for kind, table in enumerate(self._tables(rows, rest)):
                summed = np.add.reduceat(table, rest_starts, axis=1, dtype=np.int32)
                summed = np.add.reduceat(summed, row_starts, axis=0)
                inner = summed[:, : last - at].astype(np.float64)
                outer = summed[:, last - at :].astype(np.float64)
                mine = drawn[:, at:last]
                sums[kind] += ((mine @ inner) * mine).sum(axis=1) + 2 * ((drawn[:, last:] @ outer.T) * mine).sum(axis=1)
            at = last
        return sums[0], sums[1], sums[2], sums[3]

    def _tables(self, rows: slice, rest: slice) -> list[np.ndarray]:
        human, metric = _signs(self._h[rows], self._h[rest]), _signs(self._m[rows], self._m[rest])
        tables = [human * metric, np.abs(human), np.abs(metric)]
        if self._epsilon is not None:
            near = np.abs(self._m[rows, None] - self._m[None, rest]) <= self._epsilon
            correct = np.where(near, human == 0, human * metric > 0).astype(np.int8)
            same = np.arange(len(self._m))[rows, None] == np.arange(len(self._m))[None, rest]
            tables.append(np.where(same, np.int8(0), correct))
        return tables


def _signs(one: Floats, other: Floats) -> np.ndarray:
    above = (one[:, None] > other[None, :]).view(np.int8)
    return np.asarray(above - (one[:, None] < other[None, :]).view(np.int8))


def resample_pearson(human: ArrayLike, metric: ArrayLike, weights: Floats, missing: Missing = "error") -> Floats:
    """Ungrouped Pearson's correlation in each draw. Arguments as for `resample_kendall`."""
    h, m, _ = align(human, metric, missing)
    known = ~np.isnan(h)
    h, m = (np.where(known, values - np.nanmean(values), 0) for values in (to_unit(h), to_unit(m)))
    n, sh, sm, shh, smm, shm = (
        weights @ part.sum(axis=0) for part in (known.astype(np.float64), h, m, h * h, m * m, h * m)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        spread_h, spread_m = shh - sh**2 / n, smm - sm**2 / n
        r = (shm - sh * sm / n) / np.sqrt(spread_h * spread_m)
        flat = (spread_h <= FLAT * shh) | (spread_m <= FLAT * smm)
    return np.where(flat | (n == 0), math.nan, np.clip(r, -1, 1))


def resample_system_scores(scores: Floats, weights: Floats) -> Floats:
    """Mean of each system in each draw: draws × systems; NaN where a draw has none of its segments."""
    known = ~np.isnan(scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        return without_noise((weights @ np.where(known, scores, 0).T) / (weights @ known.T))


def resample_system_pearson(human: Floats, metric: Floats, weights: Floats) -> Floats:
    """Pearson's correlation of system scores in each draw; a system that a draw has no judged segment of is left out.

    Args:
        human: systems × segments; NaN where nobody judged.
        metric: the same shape, NaN in the same places.
        weights: draws × segments.
    """
    return pearson_by_group(*(resample_system_scores(scores, weights) for scores in (human, metric)))


def resample_system_accuracy(human: Floats, metric: Floats, weights: Floats) -> Floats:
    """Pairwise accuracy of system scores in each draw. Arguments as for `resample_system_pearson`."""
    return accuracy_by_row(*(resample_system_scores(scores, weights) for scores in (human, metric)))[0]


def resample_spa(human: Floats, metric: Floats, weights: Floats) -> Floats:
    """Soft pairwise accuracy in each draw, its p-values by the limit for many segments. Systems × segments, no gaps."""
    difference = np.abs(p_normal(human, weights) - p_normal(metric, weights))
    return 1 - difference.mean(axis=1) if difference.shape[1] else np.full(len(weights), math.nan)
