"""System level: do metric and humans rank the systems alike? Pearson, pairwise accuracy, soft pairwise accuracy."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from promptmetric.stats.base import Floats, Missing, Statistic, align, scipy_stats
from promptmetric.stats.correlation import pearson_by_group

SPA_DRAWS = 1000
SPA_SEED = 4
"""Draws and seed of the WMT24 shared task, whose figures are met exactly with them."""


def system_scores(scores: ArrayLike) -> Floats:
    """Mean of each row of systems × segments, over the segments it has; NaN for a system without any."""
    values = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    known = ~np.isnan(values)
    n = known.sum(axis=1)
    return without_noise(np.where(n > 0, np.where(known, values, 0).sum(axis=1) / np.maximum(n, 1), math.nan))


def without_noise(means: Floats) -> Floats:
    """Rounded at the 13th digit of the largest, since equal means of different numbers must tie."""
    largest = float(np.max(np.abs(means), initial=0.0, where=~np.isnan(means)))
    return np.asarray(np.round(means, 12 - math.floor(math.log10(largest)))) if largest else means


def system_pearson(human: ArrayLike, metric: ArrayLike) -> Statistic:
    """Pearson's correlation of system scores.

    Args:
        human: one score a system; NaN where nobody judged it. WMT takes the mean over the annotated segments.
        metric: the same. WMT takes what participants submitted, which may cover more segments.

    A system that either side has no score of is left out; `n` counts the others.
    """
    h, m, dropped = align(human, metric, "drop")
    value = float(pearson_by_group(h, m)[0])
    reason = "fewer than two systems, or all of them score the same" if math.isnan(value) else None
    return Statistic(value, int(np.count_nonzero(~np.isnan(h))), reason=reason, dropped=dropped)


def system_accuracy(human: ArrayLike, metric: ArrayLike) -> Statistic:
    """Share of the pairs of systems that metric and humans order alike (Kocmi et al., 2021). Two ties agree.

    `n` of the result counts pairs, so that sets can be pooled. Arguments as for `system_pearson`.
    """
    h, m, dropped = align(human, metric, "drop")
    (value,), (pairs,) = accuracy_by_row(h, m)
    if not pairs:
        return Statistic(math.nan, 0, 0, 1, "fewer than two systems", dropped=dropped)
    return Statistic(float(value), int(pairs), dropped=dropped)


def accuracy_by_row(human: Floats, metric: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """The same of each row of system scores, NaN without a pair; and how many pairs have a score on both sides."""
    one, other = np.triu_indices(human.shape[1], 1)
    dh, dm = human[:, one] - human[:, other], metric[:, one] - metric[:, other]
    agree = np.count_nonzero(np.sign(dh) == np.sign(dm), axis=1)  # NaN equals nothing
    pairs = np.count_nonzero(~np.isnan(dh) & ~np.isnan(dm), axis=1)
    return np.where(pairs > 0, agree / np.maximum(pairs, 1), math.nan), pairs


def soft_pairwise_accuracy(
    human: ArrayLike,
    metric: ArrayLike,
    *,
    method: Literal["draws", "normal"] = "draws",
    draws: int = SPA_DRAWS,
    seed: int = SPA_SEED,
    missing: Missing = "error",
) -> Statistic:
    """Whether metric and humans are equally sure of each pair of systems (Thompson et al., 2024).

    1 − the mean of |p of the humans − p of the metric| over pairs of systems, p being that of a paired permutation
    test of the difference of their means.

    Args:
        human: systems × segments; segments that some system lacks are left out.
        metric: the same shape.
        method: `draws` permutes as WMT24 does, in single precision and with its seed, so that the published figures
            come out; a p-value of 1,000 draws is up to .03 off. `normal` uses the limit for many segments.
        draws: of the permutation.
        seed: of the permutation.
        missing: what a judged segment without a metric score is.

    Raises:
        InputError: see `align`.
    """
    h, m, dropped = align(human, metric, missing)
    whole = ~np.isnan(h).any(axis=0)
    h, m = h[:, whole], m[:, whole]
    systems, segments = h.shape
    if systems < 2 or segments == 0:
        return Statistic(math.nan, 0, 0, 1, "fewer than two systems share a judged segment", dropped=dropped)
    if method == "draws":
        signs = _signs(segments, draws, seed)
        p_human, p_metric = (_p_by_draws(scores, signs) for scores in (h, m))
    else:
        weights = np.ones((1, segments))
        p_human, p_metric = (p_normal(scores, weights)[0] for scores in (h, m))
    return Statistic(float(1 - np.abs(p_human - p_metric).mean()), h.size, dropped=dropped)


def _signs(segments: int, draws: int, seed: int) -> Floats:
    """±1 for each draw and segment. Drawn as single-precision numbers, for the sake of the published seed."""
    drawn = np.random.default_rng(seed).random((draws, segments), dtype=np.float32)
    return np.where(drawn > np.float32(0.5), 1.0, -1.0)


def _p_by_draws(scores: Floats, signs: Floats) -> Floats:
    """One-sided p-values by sign flips.

    Human scores are so coarse that permuted differences often equal the observed one, and single precision decides
    which of them count. Summing in double precision before rounding makes that the same on every machine.
    """
    single = np.ascontiguousarray(scores, dtype=np.float32)  # the order of summation depends on the layout
    one, other = np.triu_indices(len(single), 1)
    sums = single.sum(axis=1)
    permuted = (signs @ single.astype(np.float64).T).astype(np.float32)
    return np.asarray((permuted[:, one] - permuted[:, other] >= sums[one] - sums[other]).mean(axis=0))


def p_normal(scores: Floats, weights: Floats) -> Floats:
    """One-sided p-values of the differences between systems, as the permutation test has them for many segments.

    Args:
        scores: systems × segments without gaps.
        weights: draws × segments: how often each segment counts.

    Returns:
        Draws × pairs of systems. Two equal systems get .5.
    """
    stats = scipy_stats()
    one, other = np.triu_indices(len(scores), 1)
    difference = scores[one] - scores[other]
    total = weights @ difference.T
    spread = np.sqrt(weights @ (difference**2).T)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.where(spread > 0, total / spread, 0.0)
    return np.asarray(stats.norm.sf(z))
