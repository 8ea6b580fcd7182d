"""Systems on one test set, by our scores: means with intervals, paired tests, clusters, wins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from promptmetric import stats
from promptmetric.errors import InputError
from promptmetric.stats import Comparison, Interval
from promptmetric.stats.paired import PairedDifference, is_exact, lowest_p, paired_differences
from promptmetric.texts import counted
from promptmetric.types import Prediction, Sample


@dataclass(frozen=True)
class SystemResult:
    """A system: its mean score with the 95 % interval, and its cluster, 1 being the best."""

    name: str
    score: float
    interval: Interval
    rank: int


@dataclass(frozen=True)
class SystemComparison:
    """What was found.

    Attributes:
        systems: from best to worst.
        differences: every pair; positions are those in `systems`.
        segments: how many were compared.
        left_out: segments for which some system has no score that was read from an answer.
        alpha: significance level, for p after Holm's correction.
        draws: bootstrap samples, and permutations unless the test is exact.
        seed: of both.
        signature: of the scores.
        exact: whether the test tried every possible exchange.
        lowest: the lowest p that a test of so many systems and segments can have after the correction.
    """

    systems: tuple[SystemResult, ...]
    differences: tuple[PairedDifference, ...]
    segments: int
    left_out: int
    alpha: float
    draws: int
    seed: int
    signature: str
    exact: bool
    lowest: float


def check_systems(names: Collection[str]) -> None:
    """Refuse fewer than two systems, before anything is scored."""
    if len(names) < 2:
        raise InputError(
            "one system alone cannot be compared." if names else "there are no systems to compare.",
            hint='Name two or more: -t a.txt b.txt; or give -s JSON lines with "system" in each.',
        )


def check_alignment(systems: Mapping[str, Sequence[Sample]]) -> None:
    """Refuse systems that did not get the same sources in the same order, before anything is scored.

    Raises:
        InputError: the first two systems and the first segment that differ.
    """
    (name, mine), *others = systems.items()
    for other, theirs in others:
        if len(theirs) != len(mine):
            raise InputError(
                f"systems of different lengths cannot be compared: {name} has {len(mine)} segments, {other} "
                f"{len(theirs)}.",
                hint="Each system needs a hypothesis for every source.",
            )
        for number, (one, two) in enumerate(zip(mine, theirs, strict=True), 1):
            if one.src != two.src:
                raise InputError(
                    f"segment {number} of {name} and of {other} have different sources: {one.src[:40]!r} and "
                    f"{two.src[:40]!r}.",
                    hint="Each system needs a hypothesis for every source, in the same order.",
                )


def compare_systems(
    predictions: Mapping[str, Prediction], *, alpha: float = 0.05, draws: int = 1000, seed: int = 0
) -> SystemComparison:
    """Compare systems that translated or summarised the same sources.

    Imputed scores say nothing of a segment, so a segment counts only where every system's score was read.

    Args:
        predictions: by the system's name, their segments in the same order.
        alpha: significance level, for p-values after Holm's correction.
        draws: permutations and bootstrap samples.
        seed: of both.

    Raises:
        InputError: fewer than two systems, systems of different length, or fewer than two segments left.
    """
    check_systems(predictions)
    lengths = {len(prediction.segments) for prediction in predictions.values()}
    if len(lengths) > 1:
        raise InputError(f"the systems have different numbers of segments: {', '.join(map(str, sorted(lengths)))}.")
    columns = zip(*(prediction.segments for prediction in predictions.values()), strict=True)
    read = np.array([not any(segment.status in ("imputed", "failed") for segment in column) for column in columns])
    scores = np.array([prediction.scores for prediction in predictions.values()])[:, read]
    if len(read) < 2:
        raise InputError(
            f"the systems have only {counted(len(read), 'segment')}.",
            hint="With one segment, nothing tells a difference from chance: a test needs two or more, an "
            "informative one hundreds.",
        )
    if scores.shape[1] < 2:
        raise InputError(
            f"a test needs two segments or more with a score for every system, and {scores.shape[1]} of {len(read)} "
            "have one.",
            hint="See the statuses that `promptmetric score` prints.",
        )
    names = list(predictions)
    order = sorted(range(len(names)), key=lambda at: (-scores[at].mean(), names[at]))
    scores = scores[order]
    exact = is_exact(scores.shape[1], draws)
    intervals, differences = paired_differences(scores, alpha=alpha, draws=draws, seed=seed)
    p = stats.p_matrix(
        len(names),
        [(one.first, one.second) for one in differences],
        [Comparison(one.delta, one.adjusted, None if exact else draws) for one in differences],
    )
    means = scores.mean(axis=1).tolist()
    ranks = stats.greedy_ranks(means, p, alpha)
    return SystemComparison(
        systems=tuple(
            SystemResult(names[at], mean, interval, rank)
            for at, mean, interval, rank in zip(order, means, intervals, ranks, strict=True)
        ),
        differences=tuple(differences),
        segments=scores.shape[1],
        left_out=int(np.count_nonzero(~read)),
        alpha=alpha,
        draws=draws,
        seed=seed,
        signature=next(iter(predictions.values())).signature,
        exact=exact,
        lowest=lowest_p(len(names), scores.shape[1], draws),
    )
