"""What every command takes that scores files, and the scoring itself."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from promptmetric.cli.output import check_output
from promptmetric.errors import InputError

if TYPE_CHECKING:
    from promptmetric.types import Prediction


class SeveralValues(click.Command):
    """Lets `-t a b c` stand for `-t a -t b -t c`, as COMET users write it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = {"-t", "--translations", "--hypotheses"}
        expanded: list[str] = []
        inside = False
        for argument in args:
            is_value = argument == "-" or not argument.startswith("-")
            if is_value and inside and expanded[-1] not in names:
                expanded.append("-t")
            expanded.append(argument)
            inside = argument.partition("=")[0] in names or (inside and is_value)
        return super().parse_args(ctx, expanded)


_OPTIONS = (
    click.option("-s", "--sources", required=True, metavar="FILE", help="Sources, one a line; or .jsonl with src."),
    click.option(
        "-t",
        "--translations",
        "--hypotheses",
        "hypotheses",
        multiple=True,
        metavar="FILE...",
        help="Hypotheses, one a line; several files may follow. Not needed where the source .jsonl holds them.",
    ),
    click.option("-l", "--langs", metavar="PAIR", help="Language pair, such as en-de."),
    click.option(
        "--task", type=click.Choice(["translation", "summarization"]), default="translation", show_default=True
    ),
    click.option(
        "-m",
        "--model",
        default="auto",
        show_default=True,
        help="Preset, hub id, model folder, .gguf file, or .jsonl of recorded answers.",
    ),
    click.option("-p", "--prompt", help="Prompt id or .toml file.  [default: the one chosen for the model]"),
    click.option("--backend", type=click.Choice(["auto", "transformers", "replay"]), default="auto", show_default=True),
    click.option(
        "--decode",
        type=click.Choice(["auto", "text", "as-published"]),
        default="auto",
        show_default=True,
        help="How answers are read: by our parser (auto, text), or as the PrExMe paper did.",
    ),
    click.option(
        "--fallback",
        type=click.Choice(["mean", "nan", "error", "retry"]),
        default="mean",
        show_default=True,
        help="What an answer without a score becomes.",
    ),
    click.option("-b", "--batch-size", type=click.IntRange(min=1), default=16, show_default=True),
    click.option("--gpus", type=click.IntRange(min=0), default=1, show_default=True, help="0 computes on the CPU."),
    click.option("--revision", help="Commit, branch or tag of the model on the hub."),
    click.option("-q", "--quiet", is_flag=True, help="Only errors on stderr."),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Score the first N segments of each file."),
    click.option("--offline", is_flag=True, help="Fetch nothing."),
    click.option("--record", metavar="FILE", help="Keep every answer in a .jsonl file, and reuse those it holds."),
    click.option(
        "--max-failed",
        type=click.FloatRange(0, 1),
        default=0.2,
        show_default=True,
        help="Exit with 3 if more of a file's segments hold no score.",
    ),
)


def scoring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that `score_files` takes."""
    return functools.reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def score_files(
    output: str | None,
    *,
    sources: str,
    hypotheses: tuple[str, ...],
    limit: int | None,
    max_failed: float,
    batch_size: int,
    gpus: int,
    quiet: bool,
    **scorer_options: Any,
) -> dict[str, Prediction]:
    """Read, score, and note the signature. By hypothesis file.

    Args:
        output: where the result will go, which is checked before anything is computed.
    """
    from promptmetric.inputs import read_samples
    from promptmetric.scorer import Scorer

    logger = logging.getLogger("promptmetric")
    if quiet:
        logger.setLevel(logging.ERROR)
    if math.isnan(max_failed):
        raise InputError("--max-failed must be a number from 0 to 1.")
    systems = read_samples(sources, hypotheses, limit)
    check_output(output, [sources, *hypotheses, *(scorer_options[name] for name in ("record", "model", "prompt"))])
    with Scorer(**scorer_options) as scorer:
        predictions = scorer.predict_systems(systems, batch_size, gpus, progress_bar=not quiet)
    logger.info("signature %s", next(iter(predictions.values())).signature)
    return predictions


def exit_if_too_many_failed(ctx: click.Context, predictions: Mapping[str, Prediction], max_failed: float) -> None:
    """Exit with 3 where more of a file's answers hold no score than is allowed."""
    too_many = [name for name, prediction in predictions.items() if prediction.failed_share > max_failed]
    for name in too_many:
        share = predictions[name].failed_share
        message = f"Error: {name}: {share:.1%} of the segments hold no score, more than --max-failed {max_failed:.1%}."
        click.echo(message, err=True)
    if too_many:
        ctx.exit(3)
