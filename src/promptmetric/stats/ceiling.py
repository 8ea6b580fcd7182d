"""How well people agree: what one rater reaches against the others."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from promptmetric.errors import InputError
from promptmetric.stats.base import Floats, Statistic


def human_ceiling(ratings: Floats, statistic: Callable[[Floats, Floats], Statistic]) -> Statistic:
    """A rater against the mean of the rest, averaged over raters.

    Not a bound: a metric may agree with the mean of many raters better than one of them does.

    Args:
        ratings: raters × systems × segments; NaN where one did not judge.
        statistic: of (mean of the rest, rater), such as `kendall`.

    Raises:
        InputError: there are fewer than two raters.
    """
    if len(ratings) < 2:
        raise InputError("one rater cannot be held against the rest.")
    found = []
    for rater in range(len(ratings)):
        rest = np.delete(ratings, rater, axis=0)
        known = ~np.isnan(rest)
        count = known.sum(axis=0)
        mean = np.where(known, rest, 0).sum(axis=0) / np.maximum(count, 1)
        both = (count > 0) & ~np.isnan(ratings[rater])
        gold = np.where(both, np.round(mean, 6), math.nan)  # thirds of equal sums must tie
        found.append(statistic(gold, np.where(both, ratings[rater], math.nan)))
    values = [one.value for one in found if not math.isnan(one.value)]
    reason = None if values else found[0].reason
    return Statistic(
        math.fsum(values) / len(values) if values else math.nan,
        max(one.n for one in found),
        len(values),
        len(found) - len(values),
        reason,
    )
