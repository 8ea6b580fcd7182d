"""`promptmetric meta-eval`."""

from __future__ import annotations

import logging
from typing import Any

import click

from promptmetric.cli.output import check_output, deliver


@click.command("meta-eval")
@click.argument("scores", nargs=-1, required=True, metavar="SCORES...")
@click.option("-d", "--data", "evalset", required=True, metavar="SET", help="Set of human judgments: name or path.")
@click.option("--aspect", help="Which judgments.  [default: the set's first]")
@click.option("--metric", "only", multiple=True, metavar="NAME", help="Take only these of a table's metrics.")
@click.option("--measure", "measures", multiple=True, metavar="NAME", help="Compute and show only these measures.")
@click.option("--by", "tested", metavar="NAME", help="Measure to order and test by.  [default: kendall-item]")
@click.option(
    "--most-tested",
    type=click.IntRange(min=2),
    metavar="N",
    help="Of more metrics, test only the best N.  [default: as many as minutes allow]",
)
@click.option(
    "--exchange",
    type=click.Choice(["both", "input", "systems"]),
    default="both",
    show_default=True,
    help="What the permutation test exchanges: single scores, segments or systems.",
)
@click.option("--correction", type=click.Choice(["none", "holm"]), default="none", show_default=True)
@click.option("--alpha", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True)
@click.option("--draws", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--missing",
    type=click.Choice(["error", "drop"]),
    default="error",
    show_default=True,
    help="What a judged hypothesis without a metric score is.",
)
@click.option("--humans", is_flag=True, help="Keep judged human translations among the systems.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "tsv", "markdown", "latex"]),
    default="text",
    show_default=True,
)
@click.option("-o", "--output", metavar="FILE", help="Write to a file instead of stdout (-).")
@click.option("-q", "--quiet", is_flag=True, help="Only errors on stderr.")
def meta_eval(
    scores: tuple[str, ...],
    evalset: str,
    only: tuple[str, ...],
    measures: tuple[str, ...],
    humans: bool,
    output_format: Any,
    output: str | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Hold metrics against human judgments, with intervals, significance clusters and controls.

    SCORES are files of any metric: JSON of comet-score, .seg.score of mt-metrics-eval, outputs of promptmetric
    score, tables with columns system, segment and any metrics, or a number a line, in the order of `promptmetric data
    export SET`. `promptmetric data list` prints the sets.
    """
    from promptmetric.bench.metaeval import meta_evaluate, read_metrics
    from promptmetric.datasets import load_set
    from promptmetric.report.metaeval import format_meta_evaluation

    if quiet:
        logging.getLogger("promptmetric").setLevel(logging.ERROR)
    check_output(output, [*scores, evalset])
    whole = load_set(evalset)
    judged = whole if humans else whole.without_humans()
    metrics = read_metrics(scores, judged, only, whole)
    found = meta_evaluate(judged, metrics, measures=measures or None, progress_bar=not quiet, **options)
    deliver(format_meta_evaluation(found, output_format, measures or None), output)
