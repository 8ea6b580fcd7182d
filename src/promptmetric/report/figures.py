"""Figures of a benchmark, through matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from promptmetric.bench.results import MetaEvaluation, MetricResult
from promptmetric.errors import MissingExtraError

MOST_SHOWN = 30
LONGEST_NAME = 61
WIDTH = 9
"""Inches."""
LINE = 100
"""Characters that fit on a line of this width."""


def figure_class() -> Any:
    """Matplotlib's figure.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "bench") from error
    return Figure


def save_figure(found: MetaEvaluation, title: str, path: Path) -> list[str]:
    """Draw the tested metrics with their intervals, controls in grey, as a PNG; what is undefined is named below.

    Returns:
        The names of what was drawn, the best first.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    tested = [one for one in found.metrics if one.rank is not None]
    defined = [one for one in tested if not math.isnan(_value(one, found))][:MOST_SHOWN]
    undefined = [_name(one) for one in tested if math.isnan(_value(one, found))]
    below = _below(found, undefined)
    height = 1.2 + 0.32 * len(defined) + 0.2 * len(below)
    figure = figure_class()(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    for at, one in enumerate(reversed(defined)):
        interval = one.measures[found.tested].interval
        colour = "0.6" if one.is_control else "tab:blue"
        if interval is not None and not math.isnan(interval.low):
            axes.plot([interval.low, interval.high], [at, at], color=colour, linewidth=2)
        axes.plot([_value(one, found)], [at], "o", color=colour)
    axes.axvline(found.chance.get(found.tested, 0.0), color="0.3", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(defined)), [_name(one) for one in reversed(defined)])
    axes.set_xlabel(found.tested)
    axes.grid(axis="x", alpha=0.3)
    # Titles of the figure, not of the axes, which long names leave little room.
    figure.suptitle("\n".join(textwrap.wrap(f"{title} (n = {found.judgments})", LINE)), fontsize="medium")
    figure.supxlabel("\n".join(below), fontsize="small")
    figure.savefig(path, dpi=120)
    return [one.name for one in defined]


def _below(found: MetaEvaluation, undefined: Sequence[str]) -> list[str]:
    """The lines under a figure."""
    lines = [f"95 % intervals by {found.draws} bootstrap draws of segments; dashed: chance"]
    if undefined:
        lines += textwrap.wrap(f"Undefined, so not drawn: {', '.join(undefined)}", LINE)
    return lines


def _value(one: MetricResult, found: MetaEvaluation) -> float:
    return one.measures[found.tested].statistic.value


def _name(one: MetricResult) -> str:
    """Cut in the middle where it is long: names differ in the model, and in how its answers were read."""
    text = f"({one.name})" if one.is_control else one.name
    kept = (LONGEST_NAME - 1) // 2
    return text if len(text) <= LONGEST_NAME else f"{text[:kept]}…{text[-kept:]}"
