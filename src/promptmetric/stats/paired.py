"""Systems on one test set by one metric: paired differences of their means, and how sure they are."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from promptmetric.errors import InputError
from promptmetric.stats.base import Floats
from promptmetric.stats.bootstrap import Interval, draw_weights, interval
from promptmetric.stats.permutation import ROUNDING
from promptmetric.stats.significance import holm

POWER = 0.8
"""How often a difference that counts as detectable is found."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Two systems compared, the first one having the higher mean.

    Attributes:
        first, second: their positions.
        delta: difference of their means.
        interval: 95 %, by paired bootstrap.
        p: two-sided, by permutation; exact where all exchanges could be tried.
        adjusted: p after Holm's correction for all pairs.
        wins, ties, losses: segments on which the first scores higher, the same, and lower.
        detectable: about the smallest true difference that would be found four times out of five with as many segments,
            by p after the correction; None where no difference could be.
    """

    first: int
    second: int
    delta: float
    interval: Interval
    p: float
    adjusted: float
    wins: int
    ties: int
    losses: int
    detectable: float | None


def paired_differences(
    scores: Floats, *, alpha: float = 0.05, draws: int = 1000, seed: int = 0
) -> tuple[list[Interval], list[PairedDifference]]:
    """Compare all systems, two by two.

    The test exchanges the two systems' scores of a segment: in every possible way where there are no more than `draws`
    of them, else at random (paired approximate randomisation). The bootstrap draws segments, the same ones for all
    systems.

    Args:
        scores: systems × segments, without gaps.
        alpha: significance level, for what is detectable.
        draws: permutations and bootstrap samples; p is (extreme ones + 1) / (draws + 1) where exchanges are drawn.
        seed: of both.

    Returns:
        An interval for each system's mean, and every pair of systems, by position.

    Raises:
        InputError: fewer than two segments, a gap, or fewer than one draw.
    """
    systems, segments = scores.shape
    if segments < 2:
        raise InputError(f"systems cannot be compared on {segments} segments.")
    if np.isnan(scores).any():
        raise InputError("a segment without a score cannot be compared.")
    weights = draw_weights(segments, draws, seed) / segments
    means = weights @ scores.T
    signs = _signs(segments, draws, seed)
    added = 0 if is_exact(segments, draws) else 1  # the observed exchange, which is among all of them
    level = alpha / max(1, math.comb(systems, 2))
    possible = lowest_p(systems, segments, draws) < alpha
    overall = scores.mean(axis=1)
    found = []
    for one, other in itertools.combinations(range(systems), 2):
        first, second = (one, other) if overall[one] >= overall[other] else (other, one)
        difference = scores[first] - scores[second]
        delta = float(difference.mean())
        permuted = signs @ difference / segments
        slack = ROUNDING * float(np.abs(difference).max())
        extreme = int(np.count_nonzero(np.abs(permuted) >= abs(delta) - slack))
        found.append(
            PairedDifference(
                first=first,
                second=second,
                delta=delta,
                interval=interval(means[:, first] - means[:, second]),
                p=(extreme + added) / (len(signs) + added),
                adjusted=math.nan,
                wins=int(np.count_nonzero(difference > 0)),
                ties=int(np.count_nonzero(difference == 0)),
                losses=int(np.count_nonzero(difference < 0)),
                detectable=_detectable(float(difference.std(ddof=1)), segments, level) if possible else None,
            )
        )
    return [interval(means[:, at]) for at in range(systems)], _with_holm(found)


def is_exact(segments: int, draws: int) -> bool:
    """Whether all exchanges are tried."""
    return 2.0**segments <= draws


def lowest_p(systems: int, segments: int, draws: int) -> float:
    """The lowest p that a test can have after the correction: that of the one exchange and its opposite."""
    by_chance = 0.0 if is_exact(segments, draws) else 1 / (draws + 1)
    return min(1.0, max(2 * 0.5**segments, by_chance) * max(1, math.comb(systems, 2)))


def _signs(segments: int, draws: int, seed: int) -> Floats:
    """±1 as draws × segments: every possible exchange where there are few enough."""
    if is_exact(segments, draws):
        return np.array(list(itertools.product((1.0, -1.0), repeat=segments)))
    return np.where(np.random.default_rng(seed).random((draws, segments)) < 0.5, -1.0, 1.0)


def _detectable(deviation: float, segments: int, level: float) -> float:
    """What a two-sided paired t-test at this level finds four times out of five, much like the permutation test."""
    quantiles = _t_quantile(1 - level / 2, segments - 1) + _t_quantile(POWER, segments - 1)
    return quantiles * deviation / math.sqrt(segments)


def _t_quantile(p: float, freedom: int) -> float:
    """Student's t by its expansion in 1/freedom (Abramowitz and Stegun, 1964, 26.7.5), which spares us scipy."""
    z = NormalDist().inv_cdf(p)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return float(z + sum(term / freedom**power for power, term in enumerate(terms, 1)))


def _with_holm(found: list[PairedDifference]) -> list[PairedDifference]:
    adjusted = holm([one.p for one in found])
    return [replace(one, adjusted=float(p)) for one, p in zip(found, adjusted, strict=True)]
