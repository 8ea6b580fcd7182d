"""From p-values to statements: the exact pairs test, Holm's correction, clusters of metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from promptmetric.stats.base import Floats, Grouping, Missing, align, grouped, scipy_stats
from promptmetric.stats.permutation import ROUNDING, Comparison
from promptmetric.stats.ties import verdicts_by_group

PAIRS_TEST_DRAWS = 99_999
"""Draws of the pairs test where it is not exact."""


def pairs_test(
    human: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    epsilons: tuple[float, float],
    *,
    grouping: Grouping = "item",
    seed: int = 0,
    missing: Missing = "error",
) -> Comparison:
    """Test whether the first metric judges more pairs correctly, exchanging the metrics' verdicts pair by pair.

    Only the pairs matter which one metric gets right and the other wrong. Where they all belong to groups with as many
    pairs each, the test is a sign test, and p is exact: P(Bin(n, ½) ≥ those of the first). Otherwise a pair weighs
    1 / (pairs of its group), as it does in the mean over groups. The null distribution is then the sum, over the
    sizes of groups, of weight × (2 Bin(n, ½) − n): it is drawn 99,999 times, and p is (extreme ones + 1) / 100,000.
    WMT23 and WMT24 draw every exchange. The test takes the pairs of one segment for independent, which they are not,
    so p is too small; prefer `permutation_test` where that matters.

    Args:
        human: systems × segments; NaN where nobody judged.
        first: a metric's scores of the same shape.
        second: another metric's.
        epsilons: the threshold for ties of either metric, which stays fixed.
        grouping: which values make pairs.
        seed: of the draws.
        missing: what a judged segment without a score of one of the metrics is.

    Returns:
        The difference, p and the draws: None where p is exact.
    """
    h, one, _ = align(human, first, missing)
    h, other, _ = align(h, second, missing)
    one = np.where(np.isnan(h), math.nan, one)
    if np.isnan(h).all():
        return Comparison(math.nan, math.nan, None)
    gold, mine, theirs = (grouped(values, grouping) for values in (h, one, other))
    only_first, only_second, pairs = verdicts_by_group(gold, mine, theirs, epsilons)
    if not pairs.any():
        return Comparison(math.nan, math.nan, None)
    delta = float(np.mean((only_first - only_second)[pairs > 0] / pairs[pairs > 0]))
    disputed = only_first + only_second
    sizes, size_of = np.unique(pairs[disputed > 0], return_inverse=True)
    if len(sizes) < 2:
        p = float(scipy_stats().binom.sf(only_first.sum() - 1, disputed.sum(), 0.5))
        return Comparison(delta, p, None)
    counts, balance = (
        np.bincount(size_of, part[disputed > 0]).astype(np.int64) for part in (disputed, only_first - only_second)
    )
    return Comparison(delta, _p_of_weighted_signs(balance, counts, 1 / sizes, seed), PAIRS_TEST_DRAWS)


def _p_of_weighted_signs(balance: NDArray[np.int64], counts: NDArray[np.int64], weights: Floats, seed: int) -> float:
    """P(the weighted sum of balances ≥ the observed one) where every one of the counted signs is a coin's."""
    rng = np.random.default_rng(seed)
    drawn = 2 * rng.binomial(counts, 0.5, size=(PAIRS_TEST_DRAWS, len(counts))) - counts
    slack = ROUNDING * float(weights @ counts)
    extreme = int(np.count_nonzero(drawn @ weights >= balance @ weights - slack))
    return (extreme + 1) / (PAIRS_TEST_DRAWS + 1)


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
        p: p-values of any shape. One-sided ones in a direction that the data chose must be doubled first: such a test
            errs in either direction, so α is exceeded twice as often.

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
    beats: with p < α, as everywhere here (the reference tool's ranking takes p ≤ α). Undefined values come last, in a
    cluster of their own.

    Args:
        values: the metrics' correlations.
        p: better × worse, one-sided.
        alpha: significance level.
    """
    order = sorted(range(len(values)), key=lambda i: (math.isnan(values[i]), -values[i]))
    ranks = [0] * len(values)
    rank, cluster = 1, list[int]()
    for at in order:
        ends = math.isnan(values[at]) and any(not math.isnan(values[other]) for other in cluster)
        if ends or any(p[other, at] < alpha for other in cluster):
            rank, cluster = rank + 1, []
        cluster.append(at)
        ranks[at] = rank
    return ranks
