"""Metrics against human judgments: every measure with its interval, controls beside them, and who beats whom."""

from __future__ import annotations

import difflib
import itertools
import math
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from promptmetric import stats
from promptmetric.bench.controls import CONTROLS, control_scores
from promptmetric.bench.measures import MEASURES, check_measures, grouping_of, measure, resample, usual_measures
from promptmetric.bench.results import Correction, Difference, Measured, MetaEvaluation, MetricResult
from promptmetric.datasets import EvalSet, MetricScores, read_scores
from promptmetric.errors import InputError
from promptmetric.execution import Progress
from promptmetric.stats import Comparison, Missing, Statistic, bootstrap
from promptmetric.stats.base import Floats, Grouping
from promptmetric.stats.permutation import Exchange
from promptmetric.texts import counted

TESTED = (
    "kendall-item",
    "kendall",
    "kendall-system",
    "pearson-item",
    "pearson",
    "pearson-system",
    "accuracy-item",
)
"""Measures whose differences can be tested, and so order the table."""


COMPARISONS = 2.5e9
"""Pairs of hypotheses that the tests of all pairs of metrics look at, unless more is asked for: some minutes."""

FEW_SEGMENTS = 30
"""Segments below which a bootstrap of segments is not to be trusted."""


def read_metrics(
    paths: Sequence[str], evalset: EvalSet, only: Sequence[str] = (), whole: EvalSet | None = None
) -> list[MetricScores]:
    """The metrics of several score files.

    Args:
        paths: the files.
        evalset: the set they score.
        only: names to take; none takes all.
        whole: the set with the rows that were left out of it; see `read_scores`.

    Raises:
        InputError: a file does not fit the set, or has none of the named metrics.
    """
    metrics = [metric for path in paths for metric in read_scores(path, evalset, whole)]
    names = [metric.name for metric in metrics]
    for name in only:
        if name not in names:
            raise InputError(f"no file has a metric {name!r}.", hint=f"There is: {', '.join(_near(name, names))}.")
    return [metric for metric in metrics if not only or metric.name in only]


def _near(name: str, names: Sequence[str]) -> list[str]:
    """Names that are much like one or hold it, in any case and with or without `-refA`; else the first ten."""
    folded = {other.rpartition("-")[0].casefold(): other for other in names}
    folded |= {other.casefold(): other for other in names}
    wanted = name.casefold()
    close = [folded[other] for other in difflib.get_close_matches(wanted, folded, n=5, cutoff=0.6)]
    holding = [other for key, other in folded.items() if wanted in key]
    return list(dict.fromkeys((*close, *holding)))[:10] or [*names[:10], *(["…"] if len(names) > 10 else [])]


def affordable(human: Floats, tested: str) -> int:
    """How many metrics can be tested against each other and the controls within minutes.

    A permutation test of Kendall's tau compares all hypotheses of a group with each other; the other tests are quick.
    """
    if not tested.startswith("kendall"):
        return sys.maxsize
    judged = ~np.isnan(human)
    sizes = {"none": judged.sum(), "item": judged.sum(axis=0), "system": judged.sum(axis=1)}[grouping_of(tested)]
    tests = COMPARISONS / float(np.square(sizes, dtype=np.float64).sum())
    return max(2, int((1 + math.sqrt(1 + 8 * tests)) / 2) - len(CONTROLS))  # n metrics make n(n − 1) / 2 tests


def meta_evaluate(
    evalset: EvalSet,
    metrics: Sequence[MetricScores],
    *,
    aspect: str | None = None,
    measures: Sequence[str] | None = None,
    tested: str | None = None,
    exchange: Exchange = "both",
    correction: Correction = "none",
    alpha: float = 0.05,
    draws: int = 1000,
    seed: int = 0,
    missing: Missing = "error",
    most_tested: int | None = None,
    progress_bar: bool = True,
) -> MetaEvaluation:
    """Hold metrics against the human judgments of a set.

    Args:
        evalset: the set.
        metrics: their scores, one a row of the set.
        aspect: which judgments; None takes the set's first.
        measures: names out of `MEASURES`; None takes all that the set allows and that take seconds.
        tested: the measure to order and test by, out of `TESTED`; None takes `kendall-item` where the set has several
            hypotheses for a segment, else `kendall`.
        exchange: what the permutation tests of correlations exchange: single scores, segments or systems. Accuracy is
            tested by the pairs test.
        correction: `holm` lets clusters rest on p-values corrected for all pairs, in either direction; `none`, as usual
            in the field, on one-sided ones.
        alpha: significance level.
        draws: permutations and bootstrap draws.
        seed: of both.
        missing: what a judged hypothesis without a metric score is.
        most_tested: with more metrics, only so many are tested and get intervals: the best by the tested measure.
            None takes all that can be tested within minutes (`affordable`).
        progress_bar: show progress on stderr when it takes longer than two seconds.

    Raises:
        InputError: an argument is unknown, two metrics share a name, or a score is missing and may not be.
    """
    human = evalset.human(aspect)
    chosen = check_measures(measures) if measures else usual_measures(human)
    tested = _check_tested(tested, human)
    controls = {name: evalset.matrix(values) for name, values in control_scores(evalset).items()}
    scores = _matrices(evalset, metrics, human, missing) | controls
    wanted = tuple(dict.fromkeys((tested, *chosen)))
    most = affordable(human, tested) if most_tested is None else most_tested
    competing = _best(list(scores), scores, human, tested, most, set(controls))
    with Progress(len(scores) * len(wanted), "measures computed", shown=progress_bar) as progress:
        weights = bootstrap.draw_weights(human.shape[1], draws, seed)
        found, drawn = _measured(human, scores, wanted, tested, competing, weights, progress)
    with Progress(math.comb(len(competing), 2), "pairs of metrics tested", shown=progress_bar) as progress:
        differences, test = _tests(
            human, scores, found, drawn, competing, tested, exchange=exchange, draws=draws, seed=seed, progress=progress
        )
    p = _p_matrix(competing, differences, correction)
    values = [found[name][tested].statistic.value for name in competing]
    ranks = dict(zip(competing, stats.greedy_ranks(values, p, alpha), strict=True))
    beaten = dict(zip(competing, stats.beaten_by(p, alpha), strict=True))
    notes = {metric.name: metric.notes for metric in metrics}
    results = [
        MetricResult(
            name=name,
            is_control=name in controls,
            measures=found[name],
            tie_rate=stats.tie_rate(np.where(np.isnan(human), math.nan, matrix), grouping_of(tested)),
            rank=ranks.get(name),
            beaten_by=beaten.get(name),
            notes=notes.get(name, ()),
        )
        for name, matrix in scores.items()
    ]
    results.sort(key=lambda result: _order(result.measures[tested].statistic.value))
    groupings: tuple[Grouping, ...] = ("none", "item") if _has_items(human) else ("none",)
    return MetaEvaluation(
        name=evalset.name,
        aspect=aspect or evalset.aspects[0],
        langs=evalset.langs,
        judgments=int(np.count_nonzero(~np.isnan(human))),
        systems=len(evalset.systems),
        segments=len(evalset.segments),
        measures=wanted,
        tested=tested,
        test=test,
        alpha=alpha,
        correction=correction,
        draws=draws,
        seed=seed,
        human_ties={by: stats.tie_rate(human, by) for by in groupings},
        chance={what: _chance(what, human) for what in wanted},
        ceiling=_ceilings(evalset, aspect, wanted),
        metrics=tuple(results),
        differences=tuple(differences),
        notes=_notes(evalset, human, wanted),
    )


_Found = dict[str, dict[str, Measured]]
"""Measures by metric and name."""


def _measured(
    human: Floats,
    scores: Mapping[str, Floats],
    wanted: Sequence[str],
    tested: str,
    competing: Sequence[str],
    weights: Floats,
    progress: Progress,
) -> tuple[_Found, dict[str, Floats]]:
    """Every measure of every metric, with an interval for those that compete; and their draws of the tested one."""
    found: _Found = {name: {} for name in scores}
    drawn: dict[str, Floats] = {}
    for name, what in itertools.product(scores, wanted):
        statistic = measure(what, human, scores[name])
        values = resample(what, human, scores[name], weights, statistic) if name in competing else None
        found[name][what] = Measured(statistic, None if values is None else bootstrap.interval(values))
        if what == tested and values is not None:
            drawn[name] = values
        progress.advance()
    return found, drawn


def _tests(
    human: Floats,
    scores: Mapping[str, Floats],
    found: _Found,
    drawn: Mapping[str, Floats],
    competing: Sequence[str],
    tested: str,
    *,
    exchange: Exchange,
    draws: int,
    seed: int,
    progress: Progress,
) -> tuple[list[Difference], str]:
    """Every pair of metrics, the better one first; and what test it was, in words."""
    by_value = sorted(competing, key=lambda name: _order(found[name][tested].statistic.value))
    pairs = list(itertools.combinations(by_value, 2))
    comparisons = []
    for better, worse in pairs:
        both = (scores[better], scores[worse])
        if tested == "accuracy-item":
            epsilons = (found[better][tested].statistic.epsilon or 0.0, found[worse][tested].statistic.epsilon or 0.0)
            comparison = stats.pairs_test(human, *both, epsilons, seed=seed, missing="drop")
        else:
            comparison = stats.permutation_test(
                human,
                *both,
                statistic="kendall" if tested.startswith("kendall") else "pearson",
                grouping=grouping_of(tested),
                exchange=exchange,
                draws=draws,
                seed=seed,
                missing="drop",
            )
        comparisons.append(comparison)
        progress.advance()
    # One-sided in a direction that the data chose, which a promise about the whole family has to pay for.
    adjusted = stats.holm(np.minimum([2 * one.p for one in comparisons], 1))
    differences = []
    for (better, worse), one, corrected in zip(pairs, comparisons, adjusted, strict=True):
        both_drawn = better in drawn and worse in drawn
        interval = bootstrap.interval(drawn[better] - drawn[worse]) if both_drawn else None
        differences.append(Difference(better, worse, one.delta, interval, one.p, float(corrected)))
    return differences, _test_in_words(tested, exchange, comparisons)


def usual_tested(human: Floats) -> str:
    """The measure to test by where none is named."""
    return "kendall-item" if _has_items(human) else "kendall"


def _check_tested(tested: str | None, human: Floats) -> str:
    if tested is None:
        return usual_tested(human)
    if tested not in TESTED:
        raise InputError(f"differences of {tested!r} cannot be tested.", hint=f"These can: {', '.join(TESTED)}.")
    return tested


def _has_items(human: Floats) -> bool:
    return bool(((~np.isnan(human)).sum(axis=0) > 1).any())


def _matrices(evalset: EvalSet, metrics: Sequence[MetricScores], human: Floats, missing: Missing) -> dict[str, Floats]:
    """Scores by metric, checked, with gaps where they are allowed."""
    taken = set(control_scores(evalset))
    matrices: dict[str, Floats] = {}
    for metric in metrics:
        if metric.name in matrices or metric.name in taken:
            raise InputError(
                f"{metric.path}: there already is a metric {metric.name!r}.",
                hint="Metrics are called by their file or column; rename one.",
            )
        matrix = evalset.matrix(metric.values)
        lacking = ~np.isnan(human) & np.isnan(matrix)
        if lacking.any() and missing == "error":
            systems = [name for name, gaps in zip(evalset.systems, lacking, strict=True) if gaps.any()]
            shown = ", ".join(systems[:5]) + (", …" if len(systems) > 5 else "")
            raise InputError(
                f"{metric.path}: {metric.name} has no score for {int(lacking.sum())} of "
                f"{int((~np.isnan(human)).sum())} judged hypotheses of {evalset.name} (systems: {shown}).",
                hint="Score them, or leave them out knowingly with missing='drop' (--missing drop).",
            )
        if np.isinf(matrix).any():
            raise InputError(f"{metric.path}: {metric.name} has an infinite score.")
        matrices[metric.name] = matrix
    return matrices


def _best(
    names: Sequence[str], scores: dict[str, Floats], human: Floats, tested: str, most: int, controls: set[str]
) -> list[str]:
    """The metrics to be tested, and the controls."""
    metrics = [name for name in names if name not in controls]
    if len(metrics) <= most:
        return list(names)
    values = {name: measure(tested, human, scores[name]).value for name in metrics}
    best = set(sorted(metrics, key=lambda name: _order(values[name]))[:most])
    return [name for name in names if name in best | controls]


def _order(value: float) -> tuple[bool, float]:
    """Sort key: highest first, undefined last."""
    return (math.isnan(value), -value)


def _test_in_words(tested: str, exchange: Exchange, comparisons: Sequence[Comparison]) -> str:
    drawn = next((one.draws for one in comparisons if one.draws is not None), None)
    if tested == "accuracy-item":
        how = "exact"
        if drawn is not None:
            how = f"{drawn} draws where segments differ in their number of pairs, each pair weighing as in the mean"
        return f"pairs test ({how}; takes the pairs of one segment for independent)"
    what = {"both": "single scores", "input": "segments", "systems": "systems"}[exchange]
    return f"permutation of {what} (permute-{exchange}, {drawn or 0} draws)"


def _p_matrix(names: Sequence[str], differences: Sequence[Difference], correction: Correction) -> Floats:
    at = {name: i for i, name in enumerate(names)}
    pairs = [(at[difference.better], at[difference.worse]) for difference in differences]
    p = [difference.adjusted if correction == "holm" else difference.p for difference in differences]
    return stats.p_matrix(len(names), pairs, [Comparison(0.0, value, None) for value in p])


def _chance(name: str, human: Floats) -> float:
    if name in ("accuracy", "accuracy-item"):
        return stats.chance_accuracy(human, grouping_of(name)).value
    if name == "accuracy-as-published":
        return math.nan
    return 0.5 if name in ("spa", "system-accuracy") else 0.0


def _ceilings(evalset: EvalSet, aspect: str | None, wanted: Sequence[str]) -> dict[str, Statistic]:
    name = aspect or evalset.aspects[0]
    if len(evalset.raters) < 2 or not any(name in row.ratings for row in evalset.rows):
        return {}
    ratings = evalset.ratings(name)
    slow_left_out = [what for what in wanted if what not in ("accuracy", "accuracy-as-published")]
    return {what: stats.human_ceiling(ratings, MEASURES[what].compute) for what in slow_left_out}


def _notes(evalset: EvalSet, human: Floats, wanted: Sequence[str]) -> tuple[str, ...]:
    notes = []
    unjudged = human.size - int(np.count_nonzero(~np.isnan(human)))
    if human.shape[1] < FEW_SEGMENTS:
        notes.append(
            f"With {counted(human.shape[1], 'segment')} the intervals are too narrow and the tests find little."
        )
    if unjudged:
        notes.append(f"{unjudged} of {human.size} combinations of a system and a segment are not judged.")
    if not any(row.src for row in evalset.rows):
        notes.append("The set has no sources: the controls that need them are left out.")
    if any(row.human for row in evalset.rows):
        notes.append("Human translations are among the systems.")
    epsilon = [what for what in wanted if what.startswith("accuracy") and what != "accuracy-as-published"]
    if epsilon:
        notes.append("ε of the accuracy is fitted to these very judgments; its interval takes ε as given.")
    return tuple(notes)
