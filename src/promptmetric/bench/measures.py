"""Every measure of agreement by name: how it is computed, and how its interval is."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from promptmetric import stats
from promptmetric.errors import InputError
from promptmetric.stats import Statistic, bootstrap
from promptmetric.stats.base import Floats, Grouping, align, grouped, mean_over_groups
from promptmetric.stats.correlation import CONSTANT, kendall_by_group, pearson_by_group, spearman_by_group
from promptmetric.stats.ties import accuracy_by_group

Resample = Callable[[Floats, Floats, Floats, Statistic], Floats]
"""Values in each bootstrap draw, from human and metric scores, weights, and the statistic itself (for its ε)."""


class Measure(NamedTuple):
    """A measure of agreement.

    Attributes:
        compute: from human and metric scores as systems × segments without a gap in only one of them.
        meaning: one line.
        resample: how an interval is drawn; None where none is.
    """

    compute: Callable[[Floats, Floats], Statistic]
    meaning: str
    resample: Resample | None = None


def _by_item(values: Callable[[Floats, Floats, Statistic], Floats]) -> Resample:
    """Means over segments: each segment's value is computed once and then drawn."""

    def resample(human: Floats, metric: Floats, weights: Floats, found: Statistic) -> Floats:
        per_item = values(grouped(human, "item"), grouped(metric, "item"), found)
        return bootstrap.resample_means(per_item, weights)

    return resample


def grouping_of(name: str) -> Grouping:
    """The grouping a measure's name ends in."""
    return "item" if name.endswith("-item") else "system" if name.endswith("-system") else "none"


def _means(function: Callable[[Floats, Floats], Statistic]) -> Callable[[Floats, Floats], Statistic]:
    return lambda human, metric: function(stats.system_scores(human), stats.system_scores(metric))


def _kendall_or_zero(h: Floats, m: Floats) -> Floats:
    """Tau-b by group; a metric that does not tell hypotheses apart that humans do gets 0 for it."""
    tau = kendall_by_group(h, m)
    told_apart = ~np.isnan(kendall_by_group(h, h))
    return np.where(np.isnan(tau) & told_apart, 0.0, tau)


def _kendall_item_zeros(human: Floats, metric: Floats) -> Statistic:
    values = _kendall_or_zero(grouped(human, "item"), grouped(metric, "item"))
    return mean_over_groups(values, int(np.count_nonzero(~np.isnan(human))), "item", CONSTANT)


def _spa(human: Floats, metric: Floats, weights: Floats, _: Statistic) -> Floats:
    whole = ~np.isnan(human).any(axis=0)
    return bootstrap.resample_spa(human[:, whole], metric[:, whole], weights[:, whole])


MEASURES: dict[str, Measure] = {
    "kendall": Measure(
        stats.kendall,
        "Kendall's tau-b over all hypotheses",
        lambda h, m, w, _: bootstrap.resample_kendall(h, m, w),
    ),
    "kendall-item": Measure(
        lambda h, m: stats.kendall(h, m, "item"),
        "tau-b among the hypotheses for one segment, mean over segments",
        _by_item(lambda h, m, _: kendall_by_group(h, m)),
    ),
    "kendall-item-zeros": Measure(
        _kendall_item_zeros,
        "kendall-item, with 0 for a segment to whose hypotheses the metric gives one score though humans do not",
        _by_item(lambda h, m, _: _kendall_or_zero(h, m)),
    ),
    "kendall-system": Measure(
        lambda h, m: stats.kendall(h, m, "system"), "tau-b among the segments of one system, mean over systems"
    ),
    "kendall-c-item": Measure(
        lambda h, m: stats.kendall(h, m, "item", variant="c"),
        "tau-c among the hypotheses for one segment, mean over segments",
        _by_item(lambda h, m, _: kendall_by_group(h, m, "c")),
    ),
    "pearson": Measure(
        stats.pearson,
        "Pearson's correlation over all hypotheses",
        lambda h, m, w, _: bootstrap.resample_pearson(h, m, w),
    ),
    "pearson-item": Measure(
        lambda h, m: stats.pearson(h, m, "item"),
        "the same among the hypotheses for one segment, mean over segments",
        _by_item(lambda h, m, _: pearson_by_group(h, m)),
    ),
    "pearson-system": Measure(
        lambda h, m: stats.pearson(h, m, "system"), "the same among the segments of one system, mean over systems"
    ),
    "pearson-differences": Measure(
        stats.pairwise_difference_pearson, "Pearson's correlation of the differences between hypotheses for one segment"
    ),
    "spearman": Measure(stats.spearman, "Spearman's rank correlation over all hypotheses"),
    "spearman-item": Measure(
        lambda h, m: stats.spearman(h, m, "item"),
        "the same among the hypotheses for one segment, mean over segments",
        _by_item(lambda h, m, _: spearman_by_group(h, m)),
    ),
    "spearman-system": Measure(
        lambda h, m: stats.spearman(h, m, "system"), "the same among the segments of one system, mean over systems"
    ),
    "accuracy-item": Measure(
        stats.calibrated_accuracy,
        "share of pairs for one segment ordered as by humans, ties counted, at the best tie threshold ε",
        _by_item(lambda h, m, found: accuracy_by_group(h, m, found.epsilon or 0.0)),
    ),
    "accuracy": Measure(
        lambda h, m: stats.calibrated_accuracy(h, m, "none"),
        "the same over all pairs (slow for many thousand different scores)",
        lambda h, m, w, found: bootstrap.resample_accuracy(h, m, w, found.epsilon or 0.0),
    ),
    "accuracy-as-published": Measure(
        stats.accuracy_as_published, "PrExMe's miscalibrated accuracy, to compare with its tables alone"
    ),
    "spa": Measure(
        stats.soft_pairwise_accuracy, "soft pairwise accuracy: as sure as humans of which system is better", _spa
    ),
    "system-pearson": Measure(
        _means(stats.system_pearson),
        "Pearson's correlation of the systems' means",
        lambda h, m, w, _: bootstrap.resample_system_pearson(h, m, w),
    ),
    "system-accuracy": Measure(
        _means(stats.system_accuracy),
        "share of the pairs of systems ordered as by humans",
        lambda h, m, w, _: bootstrap.resample_system_accuracy(h, m, w),
    ),
}

SLOW = ("accuracy", "accuracy-as-published")
SLOW_ABOVE = 5000
"""Hypotheses above which the slow measures are only computed when asked for."""

NEEDS_ITEMS = (*(name for name in MEASURES if "-item" in name), "pearson-differences")
NEEDS_SYSTEMS = (*(name for name in MEASURES if name.endswith("-system")), "spa", "system-pearson", "system-accuracy")


def usual_measures(human: Floats) -> tuple[str, ...]:
    """The measures that a set allows and that take seconds."""
    judged = ~np.isnan(human)
    has_items = bool((judged.sum(axis=0) > 1).any())
    has_systems = len(human) > 1
    left_out: set[str] = set()
    if judged.sum() > SLOW_ABOVE:
        left_out |= set(SLOW)
    if not has_items:
        left_out |= set(NEEDS_ITEMS)
    if not has_systems:
        left_out |= set(NEEDS_SYSTEMS)
    return tuple(name for name in MEASURES if name not in left_out)


def check_measures(names: Sequence[str]) -> tuple[str, ...]:
    """The names, if all are known.

    Raises:
        InputError: one is not.
    """
    for name in names:
        if name not in MEASURES:
            near = difflib.get_close_matches(name, MEASURES, n=3, cutoff=0.5) or list(MEASURES)
            raise InputError(f"there is no measure {name!r}.", hint=f"There is: {', '.join(near)}.")
    return tuple(names)


def measure(name: str, human: Floats, metric: Floats) -> Statistic:
    """A measure of the hypotheses that have both judgment and score."""
    h, m, dropped = align(human, metric, "drop")
    return dataclasses.replace(MEASURES[name].compute(h, m), dropped=dropped)


def resample(name: str, human: Floats, metric: Floats, weights: Floats, found: Statistic) -> Floats | None:
    """The measure in each bootstrap draw; None where it is undefined or has no interval."""
    chosen = MEASURES[name]
    if chosen.resample is None or found.reason is not None:
        return None
    h, m, _ = align(human, metric, "drop")
    return chosen.resample(h, m, weights, found)
