"""From p-values to statements: the exact pairs test, Holm's correction, clusters of metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from promptmetric.stats.base import Floats, Grouping, Missing, align, grouped, scipy_stats
from promptmetric.stats.permutation import Comparison
from promptmetric.stats.ties import GroupPairs


def pairs_test(
    human: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    epsilons: tuple[float, float],
    *,
    grouping: Grouping = "item",
    missing: Missing = "error",
) -> Comparison:
    """Test whether the first metric judges more pairs correctly, exchanging the metrics' verdicts pair by pair.

    WMT23 and WMT24 draw these exchanges at random. Where every segment has as many pairs, only those matter which one
    metric gets right and the other wrong, so the test is a sign test, and p is exact: P(Bin(n, ½) ≥ those of the
    first). It takes the pairs of one segment for independent, which they are not, so p is too small; prefer
    `permutation_test` where that matters.

    Args:
        human: systems × segments; NaN where nobody judged.
        first: a metric's scores of the same shape.
        second: another metric's.
        epsilons: the threshold for ties of either metric, which stays fixed.
        grouping: which values make pairs.
        missing: what a judged segment without a score of one of the metrics is.
    """
    h, one, _ = align(human, first, missing)
    h, other, _ = align(h, second, missing)
    one = np.where(np.isnan(h), math.nan, one)
    gold = grouped(h, grouping)
    both = [GroupPairs(gold, grouped(values, grouping)) for values in (one, other)]
    if not both[0].known.any():
        return Comparison(math.nan, math.nan, None)
    right_first, right_second = (pairs.correct(epsilon) for pairs, epsilon in zip(both, epsilons, strict=True))
    only_first = int(np.count_nonzero(right_first & ~right_second))
    only_second = int(np.count_nonzero(right_second & ~right_first))
    shares = [np.nanmean(pairs.accuracy(epsilon)) for pairs, epsilon in zip(both, epsilons, strict=True)]
    stats = scipy_stats()
    p = float(stats.binom.sf(only_first - 1, only_first + only_second, 0.5))
    return Comparison(float(shares[0] - shares[1]), p, None)


def p_matrix(names: int, pairs: Sequence[tuple[int, int]], comparisons: Sequence[Comparison]) -> Floats:
    """One-sided p-values as better × worse, from comparisons in one direction each; NaN on the diagonal.

    Only the better one of a pair can beat the other, so the other direction is 1 − p or, at best, 1.
    """
    matrix = np.full((names, names), math.nan)
    for (first, second), comparison in zip(pairs, comparisons, strict=True):
        matrix[first, second] = comparison.p
        matrix[second, first] = math.nan if math.isnan(comparison.p) else 1.0
    return matrix


def holm(p: ArrayLike) -> Floats:
    """Holm's step-down correction (1979) for as many tests as there are numbers; NaN stays NaN.

    Args:
        p: p-values of any shape.

    Returns:
        Adjusted p-values of the same shape: below α only where the whole family's error stays below α.
    """
    values = np.asarray(p, dtype=np.float64)
    flat = values.ravel()
    order = np.argsort(flat)
    order = order[: np.count_nonzero(~np.isnan(flat))]  # NaN is sorted to the end
    tests = len(order)
    adjusted = np.full_like(flat, math.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(flat[order] * (tests - np.arange(tests))), 1)
    return adjusted.reshape(values.shape)


def beaten_by(p: Floats, alpha: float = 0.05) -> list[int]:
    """How many others beat each metric significantly.

    Those beaten by nobody (0) are the best cluster in the sense of PrExMe's tables. Two of them need not be equal:
    nothing was found to tell them apart.

    Args:
        p: better × worse, one-sided.
        alpha: significance level.
    """
    with np.errstate(invalid="ignore"):
        return [int(count) for count in (p < alpha).sum(axis=0)]


def greedy_ranks(values: Sequence[float], p: Floats, alpha: float = 0.05) -> list[int]:
    """Ranks of significance clusters as in the WMT metrics tasks, from 1.

    Down the list ordered by value, a new cluster begins with the first metric that some member of the current one
    beats. Undefined values come last, in a cluster of their own.

    Args:
        values: the metrics' correlations.
        p: better × worse, one-sided.
        alpha: significance level, itself included.
    """
    order = sorted(range(len(values)), key=lambda i: (math.isnan(values[i]), -values[i]))
    ranks = [0] * len(values)
    rank, cluster = 1, list[int]()
    for at in order:
        ends = math.isnan(values[at]) and any(not math.isnan(values[other]) for other in cluster)
        if ends or any(p[other, at] <= alpha for other in cluster):
            rank, cluster = rank + 1, []
        cluster.append(at)
        ranks[at] = rank
    return ranks
