"""Figures of a benchmark, through matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from promptmetric.bench.metaeval import MetaEvaluation
from promptmetric.errors import MissingExtraError

MOST_SHOWN = 30


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


def save_figure(found: MetaEvaluation, title: str, path: Path) -> None:
    """Draw every tested metric with its interval, controls in grey, as a PNG.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    results = [one for one in found.metrics if one.rank is not None and not math.isnan(_value(one, found))]
    results = results[:MOST_SHOWN][::-1]
    figure = figure_class()(figsize=(8, 1.6 + 0.32 * len(results)), layout="constrained")
    axes = figure.add_subplot()
    for at, one in enumerate(results):
        interval = one.measures[found.tested].interval
        colour = "0.6" if one.is_control else "tab:blue"
        if interval is not None and not math.isnan(interval.low):
            axes.plot([interval.low, interval.high], [at, at], color=colour, linewidth=2)
        axes.plot([_value(one, found)], [at], "o", color=colour)
    axes.axvline(found.chance.get(found.tested, 0.0), color="0.3", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(results)), [_name(one.name, one.is_control) for one in results])
    axes.set_xlabel(f"{found.tested}, 95 % interval by {found.draws} bootstrap draws of segments; dashed: chance")
    axes.set_title(f"{title} (n = {found.judgments})")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=120)


def _value(one: Any, found: MetaEvaluation) -> float:
    return float(one.measures[found.tested].statistic.value)


def _name(name: str, is_control: bool) -> str:
    text = f"({name})" if is_control else name
    return text if len(text) <= 60 else text[:57] + "…"
