"""Systems on one test set by one metric: paired differences of their means, and how sure they are."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from promptmetric.errors import InputError
from promptmetric.stats.base import Floats
from promptmetric.stats.bootstrap import Interval, draw_weights, interval
from promptmetric.stats.permutation import ROUNDING
from promptmetric.stats.significance import holm

POWER_FACTOR = 1.959964 + 0.841621
"""Standard errors between zero and a difference that a two-sided test at .05 finds four times out of five."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Two systems compared, the first one having the higher mean.

    Attributes:
        first, second: their positions.
        delta: difference of their means.
        interval: 95 %, by paired bootstrap.
        p: two-sided, by permutation.
        adjusted: p after Holm's correction for all pairs.
        wins, ties, losses: segments on which the first scores higher, the same, and lower.
        detectable: the smallest true difference that would be found four times out of five with as many segments.
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
    detectable: float


def paired_differences(
    scores: Floats, *, draws: int = 1000, seed: int = 0
) -> tuple[list[Interval], list[PairedDifference]]:
    """Compare all systems, two by two.

    The test exchanges the two systems' scores of a segment at random (paired approximate randomisation); the
    bootstrap draws segments, the same ones for all systems.

    Args:
        scores: systems × segments, without gaps.
        draws: permutations and bootstrap samples; p is (extreme ones + 1) / (draws + 1).
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
    signs = np.where(np.random.default_rng(seed).random((draws, segments)) < 0.5, -1.0, 1.0)
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
                p=(extreme + 1) / (draws + 1),
                adjusted=math.nan,
                wins=int(np.count_nonzero(difference > 0)),
                ties=int(np.count_nonzero(difference == 0)),
                losses=int(np.count_nonzero(difference < 0)),
                detectable=POWER_FACTOR * float(difference.std(ddof=1)) / math.sqrt(segments),
            )
        )
    return [interval(means[:, at]) for at in range(systems)], _with_holm(found)


def _with_holm(found: list[PairedDifference]) -> list[PairedDifference]:
    adjusted = holm([one.p for one in found])
    return [replace(one, adjusted=float(p)) for one, p in zip(found, adjusted, strict=True)]
