"""System level: do metric and humans rank the systems alike? Pearson, pairwise accuracy, soft pairwise accuracy."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

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
    return np.where(n > 0, np.where(known, values, 0).sum(axis=1) / np.maximum(n, 1), math.nan)


def system_pearson(human: ArrayLike, metric: ArrayLike) -> Statistic:
    """Pearson's correlation of system scores.

    Args:
        human: one score a system. WMT takes the mean over the annotated segments.
        metric: the same. WMT takes what participants submitted, which may cover more segments.
    """
    h, m = (np.asarray(scores, dtype=np.float64) for scores in (human, metric))
    h, m, _ = align(h, m)
    value = float(pearson_by_group(h, m)[0])
    reason = "fewer than two systems, or all of them score the same" if math.isnan(value) else None
    return Statistic(value, h.size, reason=reason)


def system_accuracy(human: ArrayLike, metric: ArrayLike) -> Statistic:
    """Share of the pairs of systems that metric and humans order alike (Kocmi et al., 2021). Two ties agree.

    `n` of the result counts pairs, so that sets can be pooled. Arguments as for `system_pearson`.
    """
    h, m, _ = align(np.asarray(human, dtype=np.float64), np.asarray(metric, dtype=np.float64))
    one, other = np.triu_indices(h.size, 1)
    agree = np.sign(h[0, one] - h[0, other]) == np.sign(m[0, one] - m[0, other])
    if not len(agree):
        return Statistic(math.nan, 0, 0, 1, "fewer than two systems")
    return Statistic(float(agree.mean()), len(agree))


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
