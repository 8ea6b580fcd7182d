"""What came of an evaluation: of one metric, of a set, of a suite."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from promptmetric.bench.suite import Cell, SetUse, Suite
from promptmetric.datasets import EvalSet
from promptmetric.stats import Interval, Statistic
from promptmetric.stats.base import Grouping

Correction = Literal["none", "holm"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure of one metric. `interval` is None where the measure has none."""

    statistic: Statistic
    interval: Interval | None


@dataclass(frozen=True)
class MetricResult:
    """What was found of one metric.

    Attributes:
        name: the metric.
        is_control: whether it is one of the controls.
        measures: by name.
        tie_rate: share of pairs within the tested measure's groups to which the metric gives one score.
        rank: its cluster in the greedy ranking of WMT, from 1; None where it was not tested.
        beaten_by: how many others are significantly better; 0 is the best cluster in the sense of PrExMe.
        notes: what its file says or lacks.
    """

    name: str
    is_control: bool
    measures: dict[str, Measured]
    tie_rate: Statistic
    rank: int | None
    beaten_by: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """A tested pair: the first metric has the higher value.

    Attributes:
        better, worse: the metrics.
        delta: difference of the tested measure.
        interval: 95 %, by paired bootstrap: both metrics are computed on the same draws. None where there is none.
        p: one-sided.
        adjusted: p after Holm's correction for all pairs, doubled first: the data chose the direction.
    """

    better: str
    worse: str
    delta: float
    interval: Interval | None
    p: float
    adjusted: float


@dataclass(frozen=True)
class MetaEvaluation:
    """A set, the metrics from best to worst by the tested measure, and the tests.

    Attributes:
        name: of the set.
        aspect: of the judgments.
        langs: the language pair, where there is one.
        judgments, systems, segments: how many there are.
        measures: the names, in order.
        tested: the measure by which metrics are ordered and tested.
        test: what test that was, in words, with its draws.
        alpha: the significance level of the clusters.
        correction: of the p-values that clusters rest on.
        draws: bootstrap draws, and permutations where these are drawn.
        seed: of both.
        human_ties: share of tied pairs among the human scores, by grouping.
        chance: what a metric that knows nothing reaches, by measure.
        ceiling: what one rater reaches against the rest, by measure; empty where ratings are not known.
        metrics: the results.
        differences: every pair of metrics.
        notes: what else has to be said.
    """

    name: str
    aspect: str
    langs: str | None
    judgments: int
    systems: int
    segments: int
    measures: tuple[str, ...]
    tested: str
    test: str
    alpha: float
    correction: Correction
    draws: int
    seed: int
    human_ties: dict[Grouping, Statistic]
    chance: dict[str, float]
    ceiling: dict[str, Statistic]
    metrics: tuple[MetricResult, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Scored:
    """One column of scores, from a cell, a baseline or a file.

    Attributes:
        label: how it is called in tables.
        scores: one a row of the set.
        statuses: how many segments have each status; empty where that is not known.
        signature: what pins the scores.
        cell: what was asked; None for baselines and files.
        notes: what else has to be said.
    """

    label: str
    scores: list[float]
    statuses: dict[str, int]
    signature: str
    cell: Cell | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SetResult:
    """What was found on one set by one aspect.

    Attributes:
        title: of the run.
        use: the set's name in the suite, and how it is cut.
        evalset: the part of the set that was scored.
        whole: how many segments and rows the whole set has.
        scored: everything that was scored.
        found: its evaluation; what holds no scores is not in it.
    """

    title: str
    use: SetUse
    evalset: EvalSet
    whole: tuple[int, int]
    scored: tuple[Scored, ...]
    found: MetaEvaluation


@dataclass(frozen=True)
class NotRun:
    """Something that could not be measured, and why."""

    what: str
    reason: str


@dataclass(frozen=True)
class SuiteResult:
    """Everything that came of a suite."""

    suite: Suite
    sets: tuple[SetResult, ...]
    not_run: tuple[NotRun, ...]
