"""What every statistic shares: judgments as a matrix, its groups, and a result that says what it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from promptmetric.errors import InputError, MissingExtraError

Floats = NDArray[np.float64]

Grouping = Literal["none", "item", "system"]
"""Which values are compared with each other.

- `none`: all with all.
- `item`: the systems' scores for one segment; then the mean over segments.
- `system`: one system's scores over all segments; then the mean over systems.
"""

Missing = Literal["error", "drop"]
"""What a judged segment without a metric score is: an error, or left out (and counted)."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic and what it rests on.

    Attributes:
        value: NaN where it is undefined.
        n: how many judged segments went in.
        groups: how many groups have a value; `value` is their mean.
        undefined: groups without one (fewer than two judgments, or one side constant); they are left out of the mean.
        reason: why `value` is NaN.
        epsilon: metric differences up to this one count as ties, for statistics that have such a threshold.
        dropped: judged segments without a metric score, left out with `missing="drop"`.
    """

    value: float
    n: int
    groups: int = 1
    undefined: int = 0
    reason: str | None = None
    epsilon: float | None = None
    dropped: int = 0


def align(human: ArrayLike, metric: ArrayLike, missing: Missing = "error") -> tuple[Floats, Floats, int]:
    """Check two matrices of systems × segments, and blank out in both what one of them lacks.

    Args:
        human: human scores; NaN where nobody judged. A vector counts as one system.
        metric: metric scores of the same shape.
        missing: what a judged segment without a metric score is.

    Returns:
        Both matrices, NaN in the same places, and how many judged segments were dropped.

    Raises:
        InputError: shapes differ, a value is infinite, or the metric lacks a judged segment and `missing` is `error`.
    """
    h = np.atleast_2d(np.asarray(human, dtype=np.float64))
    m = np.atleast_2d(np.asarray(metric, dtype=np.float64))
    if h.shape != m.shape or h.ndim != 2:
        raise InputError(f"human scores have the shape {h.shape}, metric scores {m.shape}.")
    if np.isinf(h).any() or np.isinf(m).any():
        raise InputError("a score is infinite.")
    judged = ~np.isnan(h)
    lacking = int((judged & np.isnan(m)).sum())
    if lacking and missing == "error":
        raise InputError(
            f"the metric has no score for {lacking} of {int(judged.sum())} judged segments.",
            hint="Score them, or leave them out knowingly with missing='drop'.",
        )
    known = judged & ~np.isnan(m)
    return np.where(known, h, math.nan), np.where(known, m, math.nan), lacking


def grouped(values: Floats, grouping: Grouping) -> Floats:
    """Groups × members of a matrix of systems × segments."""
    if grouping == "none":
        return values.reshape(1, -1)
    return np.ascontiguousarray(values.T) if grouping == "item" else values


def without_gaps(h: Floats, m: Floats) -> tuple[Floats, Floats]:
    """One group's judged values alone."""
    known = ~np.isnan(h)
    return h[known], m[known]


def to_unit(values: Floats, axis: int | None = None) -> Floats:
    """Divided by a power of two so that the largest is near 1: no digit changes, and squares neither vanish nor
    overflow. Of each row with `axis=1`."""
    largest = np.max(np.abs(values), axis=axis, keepdims=True, initial=0.0, where=~np.isnan(values))
    return np.asarray(np.ldexp(values, -np.frexp(largest)[1]))


def mean_over_groups(
    values: Floats, n: int, grouping: Grouping, why: str, *, dropped: int = 0, epsilon: float | None = None
) -> Statistic:
    """The mean of the defined groups; NaN with the reason where there is none."""
    defined = int(np.count_nonzero(~np.isnan(values)))
    if defined:
        value, reason = float(np.nanmean(values)), None
    else:
        value = math.nan
        reason = why if grouping == "none" else f"no {grouping} with a defined value: {why}"
    return Statistic(value, n, defined, len(values) - defined, reason, epsilon, dropped)


def scipy_stats() -> Any:
    """`scipy.stats`, from the extra."""
    try:
        import scipy.stats
    except ImportError as error:
        raise MissingExtraError("scipy", "bench") from error
    return scipy.stats
