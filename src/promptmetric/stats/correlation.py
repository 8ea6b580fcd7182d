"""Kendall's tau-b and tau-c, Pearson, Spearman, and the Pearson correlation of pairwise differences."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from promptmetric.stats.base import (
    Floats,
    Grouping,
    Missing,
    Statistic,
    align,
    grouped,
    mean_over_groups,
    scipy_stats,
    to_unit,
    without_gaps,
)

CONSTANT = "fewer than two judgments, or all human or all metric scores are equal"

SHORT = 64
"""Groups up to this size are compared all at once, by tables of signs; longer ones one by one, by sorting."""


def kendall(
    human: ArrayLike,
    metric: ArrayLike,
    grouping: Grouping = "none",
    *,
    variant: Literal["b", "c"] = "b",
    missing: Missing = "error",
) -> Statistic:
    """Kendall's tau, which corrects for ties on both sides (b), or for differing numbers of classes (c).

    Args:
        human: systems × segments; NaN where nobody judged.
        metric: the same shape.
        grouping: which values are compared with each other.
        variant: b or c (Stuart).
        missing: what a judged segment without a metric score is.

    Raises:
        InputError: see `align`.
    """
    h, m, dropped = align(human, metric, missing)
    values = kendall_by_group(grouped(h, grouping), grouped(m, grouping), variant)
    return mean_over_groups(values, _count(h), grouping, CONSTANT, dropped=dropped)


def kendall_by_group(h: Floats, m: Floats, variant: Literal["b", "c"] = "b") -> Floats:
    """Tau of each row of groups × members; NaN where it is undefined."""
    if not h.size:
        return np.full(len(h), math.nan)
    if h.shape[1] > SHORT:
        return np.array([_kendall_by_sorting(*without_gaps(*row), variant) for row in zip(h, m, strict=True)])
    step = max(1, 4_000_000 // h.shape[1] ** 2)
    chunks = [_kendall_by_signs(h[i : i + step], m[i : i + step], variant) for i in range(0, len(h), step)]
    return np.concatenate(chunks)


def _kendall_by_sorting(h: Floats, m: Floats, variant: str) -> float:
    if len(h) < 2 or is_constant(h) or is_constant(m):
        return math.nan
    stats = scipy_stats()
    return float(stats.kendalltau(h, m, variant=variant).statistic)


def _kendall_by_signs(h: Floats, m: Floats, variant: str) -> Floats:
    signs_h, signs_m = pair_signs(h), pair_signs(m)
    difference = np.einsum("gst,gst->g", signs_h, signs_m, dtype=np.float64)  # every pair twice
    untied_h = np.count_nonzero(signs_h, axis=(1, 2)).astype(np.float64)
    untied_m = np.count_nonzero(signs_m, axis=(1, 2)).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        if variant == "b":
            return np.asarray(difference / np.sqrt(untied_h * untied_m))
        n = np.count_nonzero(~np.isnan(h), axis=1)
        classes = np.minimum(_distinct(h), _distinct(m)).astype(np.float64)
        tau = difference / (n**2 * (classes - 1) / classes)
        return np.where(classes > 1, tau, math.nan)


def pair_signs(rows: Floats) -> Floats:
    """Sign of every difference within each row, as groups × members × members; 0 where a value is missing."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(np.sign(rows[:, :, None] - rows[:, None, :]), copy=False))


def _distinct(rows: Floats) -> Floats:
    """How many different values each row has."""
    ordered = np.sort(rows, axis=1)  # missing ones come last
    with np.errstate(invalid="ignore"):
        steps = np.count_nonzero(np.diff(ordered, axis=1) > 0, axis=1)
    return np.where(np.isnan(rows).all(axis=1), 0, steps + 1).astype(np.float64)


def pearson(
    human: ArrayLike, metric: ArrayLike, grouping: Grouping = "none", *, missing: Missing = "error"
) -> Statistic:
    """Pearson's product-moment correlation. Arguments as for `kendall`."""
    h, m, dropped = align(human, metric, missing)
    values = pearson_by_group(grouped(h, grouping), grouped(m, grouping))
    return mean_over_groups(values, _count(h), grouping, CONSTANT, dropped=dropped)


def spearman(
    human: ArrayLike, metric: ArrayLike, grouping: Grouping = "none", *, missing: Missing = "error"
) -> Statistic:
    """Spearman's rank correlation: Pearson's of the ranks, ties sharing their mean. Arguments as for `kendall`."""
    h, m, dropped = align(human, metric, missing)
    values = spearman_by_group(grouped(h, grouping), grouped(m, grouping))
    return mean_over_groups(values, _count(h), grouping, CONSTANT, dropped=dropped)


def spearman_by_group(h: Floats, m: Floats) -> Floats:
    """Spearman's correlation of each row of groups × members."""
    if not h.size:
        return np.full(len(h), math.nan)
    return pearson_by_group(_ranks(h), _ranks(m))


def _ranks(rows: Floats) -> Floats:
    stats = scipy_stats()
    return np.asarray(stats.rankdata(rows, axis=1, nan_policy="omit"))


def pearson_by_group(h: Floats, m: Floats) -> Floats:
    """Pearson's correlation of each row of groups × members; NaN where it is undefined."""
    known = ~np.isnan(h)
    n = np.maximum(known.sum(axis=1), 1)
    dh, dm = (_centred(to_unit(rows, axis=1), known, n) for rows in (h, m))
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (dh * dm).sum(axis=1) / np.sqrt((dh**2).sum(axis=1) * (dm**2).sum(axis=1))
    flat = constant_rows(h) | constant_rows(m)
    return np.where(flat, math.nan, np.clip(r, -1, 1))


def _centred(rows: Floats, known: np.ndarray, n: np.ndarray) -> Floats:
    filled = np.where(known, rows, 0.0)
    return np.asarray(np.where(known, rows - (filled.sum(axis=1) / n)[:, None], 0.0))


def constant_rows(rows: Floats) -> np.ndarray:
    """Whether a row has no two different values. Asked of the values themselves: their variance may be rounding."""
    known = ~np.isnan(rows)
    highest = rows.max(axis=1, initial=-math.inf, where=known)
    lowest = rows.min(axis=1, initial=math.inf, where=known)
    return np.asarray(highest <= lowest)


def is_constant(values: Floats) -> bool:
    """Whether no two values differ."""
    return len(values) == 0 or bool((values == values[0]).all())


def pairwise_difference_pearson(human: ArrayLike, metric: ArrayLike, *, missing: Missing = "error") -> Statistic:
    """Pearson's correlation of all differences between two systems on one segment, in both directions.

    Over all segments at once, so that segments with large differences weigh more.
    """
    h, m, dropped = align(human, metric, missing)
    h, m = to_unit(h), to_unit(m)
    products = [_difference_products(one, other) for one, other in ((h, m), (h, h), (m, m))]
    covariance, human_variance, metric_variance = (float(part.sum()) for part in products)
    flat = any(bool(constant_rows(x.T).all()) for x in (h, m))
    if flat or human_variance <= 0 or metric_variance <= 0:
        return Statistic(math.nan, _count(h), 0, 1, "no two systems differ on any segment", dropped=dropped)
    return Statistic(covariance / math.sqrt(human_variance * metric_variance), _count(h), dropped=dropped)


def _difference_products(one: Floats, other: Floats) -> Floats:
    """Sum over pairs of systems of the product of their differences, for each segment."""
    known = ~np.isnan(one)
    n = known.sum(axis=0)
    safe = np.maximum(n, 1)
    d_one = np.where(known, one - np.where(known, one, 0).sum(axis=0) / safe, 0)
    d_other = np.where(known, other - np.where(known, other, 0).sum(axis=0) / safe, 0)
    return np.asarray(n * (d_one * d_other).sum(axis=0))


def _count(h: Floats) -> int:
    return int(np.count_nonzero(~np.isnan(h)))
