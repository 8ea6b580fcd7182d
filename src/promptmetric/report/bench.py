"""What came of a suite: `results.json` for programs, `report.md` with figures for people."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from promptmetric import __version__
from promptmetric.bench.results import Difference, MetaEvaluation, MetricResult, Scored, SetResult, SuiteResult
from promptmetric.errors import PromptmetricError
from promptmetric.report.figures import save_figure
from promptmetric.report.metaeval import flat, format_meta_evaluation, without_nan
from promptmetric.report.tables import markdown_table
from promptmetric.texts import counted


def write_results(result: SuiteResult, folder: Path) -> Path:
    """Write `results.json`, `report.md` and `figures/`.

    Returns:
        The path of the report.

    Raises:
        PromptmetricError: a file cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        content = json.dumps(as_json(result), ensure_ascii=False, indent=1) + "\n"
        (folder / "results.json").write_text(content, encoding="utf-8")
        report = folder / "report.md"
        report.write_text(_report(result, folder), encoding="utf-8")
    except OSError as error:
        raise PromptmetricError(f"{folder}: cannot be written: {error.strerror}.") from error
    return report


def as_json(result: SuiteResult) -> dict[str, Any]:
    """A record a cell, baseline, file of scores and control, for every set and aspect."""
    cells = []
    for number, part in enumerate(result.sets, 1):
        scored = {one.label: one for one in part.scored}
        for metric in part.found.metrics:
            one = scored.get(metric.name)
            cell = one.cell if one else None
            cells.append(
                {
                    "section": number,
                    "run": part.title,
                    "set": part.found.name,
                    "cut": part.use.model_dump(include={"first", "segments", "seed"}) if _cut(part) else None,
                    "aspect": part.found.aspect,
                    "metric": metric.name,
                    "control": metric.is_control,
                    "model": cell.model if cell else None,
                    "prompt": cell.prompt if cell else None,
                    "decode": cell.decode if cell else None,
                    "n": metric.measures[part.found.tested].statistic.n,
                    "judgments": part.found.judgments,
                    "segments": part.found.segments,
                    "statuses": one.statuses if one else {},
                    "signature": one.signature if one else None,
                    "cluster": metric.rank,
                    "beaten_by": metric.beaten_by,
                    "measures": {name: flat(measured) for name, measured in metric.measures.items()},
                }
            )
    content = {
        "suite": result.suite.name,
        "version": __version__,
        "cells": cells,
        "not_run": [{"what": one.what, "reason": one.reason} for one in result.not_run],
    }
    return dict(without_nan(content))


def _report(result: SuiteResult, folder: Path) -> str:
    lines = [
        f"# Benchmark `{result.suite.name}`",
        "",
        *([result.suite.about, ""] if result.suite.about else []),
        "Every hypothesis got a score from each metric, which did not see the human judgments. A model with a prompt "
        "sees source and hypothesis alone; BLEU, chrF, ROUGE and BERTScore compare with a reference. The tables say "
        "how well the scores agree with the judgments. Names in parentheses are controls that know nothing of "
        "quality: a metric that does not clearly beat them has shown nothing.",
        "",
    ]
    for number, part in enumerate(result.sets, 1):
        lines += _section(number, part, folder)
    if result.not_run:
        lines += ["## Not run", "", *(f"- {one.what}: {_one_line(one.reason)}" for one in result.not_run), ""]
    lines += [f"promptmetric {__version__}. `results.json` beside this file has every measure of every metric."]
    return "\n".join(lines) + "\n"


def _cut(part: SetResult) -> str:
    """How the set was cut, in words; empty where it is whole."""
    first = f"first {part.use.first} rows" if part.use.first is not None else ""
    drawn = f"{part.use.segments} segments drawn with seed {part.use.seed}" if part.use.segments is not None else ""
    return ", ".join(filter(None, (first, drawn)))


def _section(number: int, part: SetResult, folder: Path) -> list[str]:
    """A heading, figure and tables. The number tells apart what is alike but for the models that were asked."""
    found = part.found
    words = [f"{found.name}, {found.aspect}", f" ({_cut(part)})" if _cut(part) else ""]
    title = "".join([*words, f": {part.title}" if part.title else ""])
    segments, rows = part.whole
    size = f"{_hypotheses(len(part.evalset.rows))} of {counted(found.systems, 'system')} for "
    size += counted(found.segments, "segment")
    if rows != len(part.evalset.rows):
        size += f", out of {_hypotheses(rows)} for {counted(segments, 'segment')}"
    figure = f"figures/{number}-{re.sub(r'[^A-Za-z0-9]+', '-', title).strip('-')[-100:]}.png"
    drawn = save_figure(found, title, folder / figure)
    return [
        f"## {number}. {title}",
        "",
        f"{size}. {_in_words(found)}",
        "",
        f"![{_alternative(found, drawn)}]({figure})",
        "",
        format_meta_evaluation(_shortened(found), "markdown").rstrip(),
        *_rest(found),
        "",
        "What became of the answers:",
        "",
        _answers(part.scored),
        "",
    ]


def _alternative(found: MetaEvaluation, drawn: Sequence[str]) -> str:
    """What the figure shows, for who does not see it."""
    which = f"all {len(drawn)}" if len(drawn) == len(found.metrics) else f"{len(drawn)} of {len(found.metrics)}"
    return f"{found.tested} of {which} metrics and controls with its interval, the best on top"


def _hypotheses(number: int) -> str:
    return f"{number} {'hypothesis' if number == 1 else 'hypotheses'}"


def _in_words(found: MetaEvaluation) -> str:
    """The result in two sentences."""
    metrics = [one for one in found.metrics if not one.is_control and one.rank is not None]
    controls = [one for one in found.metrics if one.is_control]
    defined = [one for one in metrics if not math.isnan(_value(found, one))]
    if not defined:
        return f"No metric has a defined {found.tested}: none tells hypotheses apart."
    best = defined[0]
    words = f"Best by {found.tested} is `{best.name}` with {_with_interval(found, best)}."
    strongest = next((one for one in controls if not math.isnan(_value(found, one))), None)
    if strongest is not None:
        pair = _pair(found, best.name, strongest.name)
        beats = pair is not None and pair.better == best.name and pair.p < found.alpha
        words += f" The strongest control, {strongest.name}, has {_value(found, strongest):.3f}: " + (
            "it is beaten." if beats else "**it is not beaten**, so nothing shows that the metric sees quality here."
        )
    undefined = [one.name for one in metrics if math.isnan(_value(found, one))]
    if undefined:
        words += f" Undefined, for want of different scores: {', '.join(f'`{name}`' for name in undefined)}."
    return words


def _value(found: MetaEvaluation, one: MetricResult) -> float:
    return one.measures[found.tested].statistic.value


def _with_interval(found: MetaEvaluation, one: MetricResult) -> str:
    interval = one.measures[found.tested].interval
    text = f"{_value(found, one):.3f}"
    return text if interval is None or math.isnan(interval.low) else f"{text} [{interval.low:.3f}, {interval.high:.3f}]"


def _pair(found: MetaEvaluation, one: str, other: str) -> Difference | None:
    return next((pair for pair in found.differences if {pair.better, pair.worse} == {one, other}), None)


def _shortened(found: MetaEvaluation) -> MetaEvaluation:
    """Without the metrics that were not tested."""
    return replace(found, metrics=tuple(one for one in found.metrics if one.rank is not None))


def _rest(found: MetaEvaluation) -> list[str]:
    values = [_value(found, one) for one in found.metrics if not one.is_control]
    untested = sum(one.rank is None for one in found.metrics)
    if not untested:
        return []
    defined = [value for value in values if not math.isnan(value)]
    return [
        f"- The {len(values) - untested} best of {len(values)} are shown, chosen on these very judgments, which "
        f"flatters them; the median {found.tested} of all is {median(defined):.3f}, and {len(values) - len(defined)} "
        "are undefined."
    ]


def _answers(scored: Sequence[Scored]) -> str:
    """A row a metric: how many of its scores were read, and how many differ."""
    rows = []
    for one in scored:
        defined = [score for score in one.scores if not math.isnan(score)]
        total = sum(one.statuses.values())
        read = total - one.statuses.get("imputed", 0) - one.statuses.get("failed", 0)
        others = ", ".join(f"{count} {status}" for status, count in sorted(one.statuses.items()) if status != "ok")
        rows.append(
            [
                one.label,
                f"{read / total:.1%}" if total else "-",
                others or "-",
                str(len(set(defined))),
                "; ".join(one.notes) or "-",
                f"`{one.signature}`",
            ]
        )
    return markdown_table(["metric", "read", "of these", "different scores", "notes", "signature"], rows)


def _one_line(text: str) -> str:
    return " ".join(text.split())
