"""`promptmetric compare`."""

from __future__ import annotations

from typing import Any

import click

from promptmetric.cli.output import deliver
from promptmetric.cli.scoring import SeveralValues, exit_if_too_many_failed, score_files, scoring_options
from promptmetric.errors import InputError


@click.command(cls=SeveralValues)
@scoring_options
@click.option("--alpha", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True)
@click.option("--draws", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "markdown", "json", "tsv"]),
    default="text",
    show_default=True,
)
@click.option("-o", "--output", metavar="FILE", help="Write to a file instead of stdout (-).")
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    output_format: Any,
    output: str | None,
    alpha: float,
    draws: int,
    seed: int,
    max_failed: float,
    **scoring: Any,
) -> None:
    """Compare systems on one test set: scores with intervals, paired tests, clusters, wins.

    Systems are the files of -t; or those of -s, JSON lines that name their `system`, each with the same sources.
    """
    from promptmetric.bench.compare import check_alignment, check_systems, compare_systems
    from promptmetric.inputs import STDIN, read_samples
    from promptmetric.report.compare import format_comparison

    if scoring["hypotheses"]:
        check_systems(scoring["hypotheses"])
    elif scoring["sources"] == STDIN:
        raise InputError("stdin (-) can hold the sources, not the systems too.", hint="Put them into a .jsonl file.")
    else:
        systems = read_samples(scoring["sources"], (), scoring["limit"])
        check_systems(systems)
        check_alignment(systems)
    predictions = score_files(output, max_failed=max_failed, **scoring)
    found = compare_systems(predictions, alpha=alpha, draws=draws, seed=seed)
    deliver(format_comparison(found, output_format), output)
    exit_if_too_many_failed(ctx, predictions, max_failed)
