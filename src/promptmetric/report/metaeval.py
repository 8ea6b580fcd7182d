"""A meta-evaluation as text, JSON, TSV, markdown or LaTeX."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Literal

from promptmetric.bench.controls import CONTROLS
from promptmetric.bench.measures import MEASURES
from promptmetric.bench.results import Measured, MetaEvaluation, MetricResult
from promptmetric.report.tables import latex_table, markdown_table, table
from promptmetric.texts import counted

MetaFormat = Literal["text", "json", "tsv", "markdown", "latex"]

SHOWN = ("kendall-item", "kendall", "pearson", "accuracy-item", "spa", "system-pearson")
"""Columns of the tables that are to be read, where the user names none; JSON and TSV have all."""


def format_meta_evaluation(found: MetaEvaluation, output: MetaFormat, shown: Sequence[str] | None = None) -> str:
    """Write a meta-evaluation.

    Args:
        found: what was found.
        output: the format.
        shown: measures to show in a table to be read; None takes the usual ones.

    Returns:
        The whole output, ending in a line feed.
    """
    if output == "json":
        return json.dumps(as_json(found), ensure_ascii=False, indent=1) + "\n"
    if output == "tsv":
        return _tsv(found)
    columns = [name for name in shown or SHOWN if name in found.measures]
    if found.tested not in columns:
        columns.insert(0, found.tested)
    columns.sort(key=lambda name: name != found.tested)
    writers: dict[str, Callable[[Sequence[str], Sequence[Sequence[str]]], str]] = {
        "text": table,
        "markdown": markdown_table,
        "latex": latex_table,
    }
    grid = writers[output](*_grid(found, columns))
    if output == "latex":
        return grid + "\n"
    lines = [*_head(found), "", grid, "", *_foot(found, columns)]
    return "\n".join(lines if output == "text" else _as_markdown(lines, grid)) + "\n"


def _as_markdown(lines: Sequence[str], grid: str) -> list[str]:
    """Paragraphs and items instead of lines, around the table."""
    return [line if line == grid or not line else f"- {line.lstrip('- ')}" for line in lines]


def _grid(found: MetaEvaluation, shown: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    columns = ["cluster", "metric", *shown, "groups", "ties"]
    rows = []
    for result in found.metrics:
        star = "*" if result.beaten_by == 0 and not math.isnan(_tested(found, result)) else ""
        name = f"({result.name})" if result.is_control else result.name
        cells = [_cell(result.measures[what], with_interval=what in (found.tested, shown[0])) for what in shown]
        groups = result.measures[found.tested].statistic.groups
        cluster = f"{result.rank}{star}" if result.rank is not None else "-"
        rows.append([cluster, name, *cells, str(groups), _percent(result.tie_rate.value)])
    return columns, rows


def _tested(found: MetaEvaluation, result: MetricResult) -> float:
    return result.measures[found.tested].statistic.value


def _cell(measured: Measured, *, with_interval: bool) -> str:
    text = _number(measured.statistic.value)
    if with_interval and measured.interval is not None and not math.isnan(measured.interval.low):
        text += f" [{measured.interval.low:.3f}, {measured.interval.high:.3f}]"
    if measured.statistic.epsilon is not None and not math.isnan(measured.statistic.value):
        text += f" (ε {measured.statistic.epsilon:.3g})"
    return text


def _number(value: float) -> str:
    return "nan" if math.isnan(value) else f"{value:.3f}"


def _percent(value: float) -> str:
    return "nan" if math.isnan(value) else f"{value:.1%}"


def _head(found: MetaEvaluation) -> list[str]:
    lines = [
        f"{found.name}, {found.aspect}: {counted(found.judgments, 'judgment')}, {counted(found.systems, 'system')}, "
        f"{counted(found.segments, 'segment')}"
    ]
    ties = ", ".join(
        f"{_percent(rate.value)} of the pairs {'for one segment' if by == 'item' else 'of all hypotheses'}"
        for by, rate in found.human_ties.items()
    )
    lines.append(f"Humans tie on {ties}.")
    chance = {name: value for name, value in found.chance.items() if not math.isnan(value) and value > 0}
    listed = ", ".join(f"{name} {value:.3f}" for name, value in chance.items())
    lines.append(f"By chance: {'; '.join(filter(None, (listed, 'every correlation is 0')))}.")
    if found.ceiling:
        listed = ", ".join(f"{name} {_number(one.value)}" for name, one in found.ceiling.items() if name in SHOWN)
        lines.append(f"One rater against the rest: {listed}.")
    return lines


def _foot(found: MetaEvaluation, shown: Sequence[str]) -> list[str]:
    p = "p after Holm's correction, in either direction," if found.correction == "holm" else "one-sided p"
    lines = [
        f"Ordered and tested by {found.tested}: {found.test}, {p} < {found.alpha:g}. Metrics "
        "of one cluster were not told apart, which does not make them equal; * beaten by none.",
        f"[…]: 95 % bootstrap interval, segments drawn with all their hypotheses, {found.draws} draws, seed "
        f"{found.seed}.",
        f"Groups: those of {found.tested} with a value; in the others the metric or the humans give one score. Ties: "
        "share of pairs to which the metric gives one score.",
        *(f"{name}: {MEASURES[name].meaning}." for name in shown),
        *(f"({name}): control, {meaning}." for name, meaning in CONTROLS.items() if _has(found, name)),
        "Read the other way round, a control has the negated correlation: one far below zero warns as one above does.",
        *found.notes,
    ]
    untested = sum(result.rank is None for result in found.metrics)
    if untested:
        tested = sum(result.rank is not None and not result.is_control for result in found.metrics)
        lines.append(
            f"Only the best {tested} of {tested + untested} metrics are tested and have intervals, for the time it "
            f"takes (--most-tested {tested + untested} tests them all); they were chosen on these very judgments."
        )
    lines += [f"{_some(names)}: {note.removesuffix('.')}." for note, names in _notes_by_text(found).items()]
    return lines


def _some(names: Sequence[str]) -> str:
    """A few names, or their number with examples."""
    return ", ".join(names) if len(names) <= 6 else f"{len(names)} metrics, such as {', '.join(names[:3])}"


def _has(found: MetaEvaluation, name: str) -> bool:
    return any(result.name == name for result in found.metrics)


def _notes_by_text(found: MetaEvaluation) -> dict[str, list[str]]:
    """Which metrics each note is about."""
    notes: dict[str, list[str]] = {}
    for result in found.metrics:
        statistic = result.measures[found.tested].statistic
        reason = statistic.reason
        own = [f"{found.tested} is undefined: {reason}"] if reason else []
        if statistic.n < found.judgments:
            own.append(f"rests on {statistic.n} of {found.judgments} judgments, those it has a score for")
        for note in (*own, *result.notes):
            notes.setdefault(note, []).append(result.name)
    return notes


def as_json(found: MetaEvaluation) -> dict[str, Any]:
    """Everything, with null for what is undefined."""
    content = asdict(found)
    for result, fields in zip(found.metrics, content["metrics"], strict=True):
        fields["measures"] = {name: flat(one) for name, one in result.measures.items()}
    return dict(without_nan(content))


def flat(measured: Measured) -> dict[str, Any]:
    """A measure as one flat record; `low` and `high` are null where there is no interval."""
    interval = measured.interval
    return {
        **asdict(measured.statistic),
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
    }


def without_nan(value: Any) -> Any:
    """The same with None for NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _tsv(found: MetaEvaluation) -> str:
    """A row a metric and measure; empty where undefined."""
    columns = ["set", "aspect", "metric", "control", "cluster", "beaten_by", "measure", "value", "low", "high"]
    columns += ["epsilon", "n", "groups", "undefined", "dropped", "reason"]
    out = io.StringIO()
    writer = csv.writer(out, dialect="excel-tab", lineterminator="\n")
    writer.writerow(columns)
    for result in found.metrics:
        for name, measured in result.measures.items():
            fields = without_nan(flat(measured))
            own = [found.name, found.aspect, result.name, int(result.is_control), result.rank, result.beaten_by, name]
            writer.writerow([*own, *(fields[column] for column in columns[len(own) :])])
    return out.getvalue()
