"""`promptmetric score`."""

from __future__ import annotations

from typing import Any

import click

from promptmetric.cli.output import deliver, is_stream, open_stream
from promptmetric.cli.scoring import SeveralValues, exit_if_too_many_failed, score_files, scoring_options


@click.command(cls=SeveralValues)
@scoring_options
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "jsonl", "tsv"]),
    default="text",
    show_default=True,
)
@click.option("-o", "--output", metavar="FILE", help="Write scores to a file instead of stdout (-).")
@click.option("--only-system", is_flag=True, help="Print the system scores alone.")
@click.pass_context
def score(
    ctx: click.Context, /, output_format: Any, output: str | None, only_system: bool, max_failed: float, **scoring: Any
) -> None:
    """Score translations or summaries: 0 is worst, 1 best.

    Prints COMET's lines: one a segment, then one a file. `-` reads stdin; .gz files are unpacked.
    With `--format jsonl`, segments are written as they finish, in that order, with `-o` to FILE.part; FILE, in input
    order, takes its place in the end. On stdout, imputed segments come after all others.
    """
    from promptmetric.report.predictions import JsonLines, format_predictions

    if output_format == "jsonl" and not only_system:
        is_final = is_stream(output)
        with open_stream(output) as write:
            writer = JsonLines(write, puts_off=is_final and scoring["fallback"] == "mean")
            predictions = score_files(output, max_failed=max_failed, writer=writer, **scoring)
            if is_final:
                writer.finish(predictions)
            else:
                deliver(format_predictions(predictions, output_format), output)
    else:
        predictions = score_files(output, max_failed=max_failed, **scoring)
        deliver(format_predictions(predictions, output_format, only_system=only_system), output)
    exit_if_too_many_failed(ctx, predictions, max_failed)
