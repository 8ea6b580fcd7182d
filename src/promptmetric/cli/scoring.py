"""What every command takes that scores files, and the scoring itself."""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args

import click

from promptmetric.cli.output import check_output
from promptmetric.decoding import Decode
from promptmetric.errors import InputError

if TYPE_CHECKING:
    from promptmetric.report.predictions import JsonLines
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
        help="Preset, hub id, model folder, .gguf file, address of a server, or .jsonl of recorded answers.",
    ),
    click.option("-p", "--prompt", help="Prompt id or .toml file.  [default: the one chosen for the model]"),
    click.option(
        "--backend",
        type=click.Choice(["auto", "transformers", "vllm", "openai", "replay"]),
        default="auto",
        show_default=True,
    ),
    click.option(
        "--engine",
        multiple=True,
        metavar="NAME=VALUE",
        help="Argument of the engine, such as dtype=bfloat16, max_model_len=4096 or concurrency=64. Repeatable.",
    ),
    click.option(
        "--decode",
        type=click.Choice(["auto", *get_args(Decode)]),
        default="auto",
        show_default=True,
        help="text, as-published: parse the answer. expected: mean of the labels by their probability, without "
        "waiting for text. likelihood(-pmi): probability of the hypothesis.  [auto: as the prompt says]",
    ),
    click.option(
        "--samples", type=click.IntRange(min=1), default=1, show_default=True, help="Answers drawn and averaged."
    ),
    click.option(
        "--structured",
        is_flag=True,
        help="Hold the model to answers that are labels of the scale (vLLM, and servers that are vLLM or SGLang).",
    ),
    click.option(
        "--fallback",
        type=click.Choice(["mean", "nan", "error", "retry"]),
        default="mean",
        show_default=True,
        help="What an answer without a score becomes. retry: asked for again up to three times where one answer is "
        "read as text; with --samples or --decode expected or likelihood(-pmi) it is as nan.",
    ),
    click.option("-b", "--batch-size", type=click.IntRange(min=1), default=16, show_default=True),
    click.option(
        "--gpus",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="0 computes on the CPU; with several, each gets a process of its own.",
    ),
    click.option("--revision", help="Commit, branch or tag of the model on the hub."),
    click.option("-q", "--quiet", is_flag=True, help="Only errors on stderr."),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Score the first N segments of each file."),
    click.option("--offline", is_flag=True, help="Fetch nothing."),
    click.option("--record", metavar="FILE", help="Keep every answer in a .jsonl file, and reuse those it holds."),
    click.option("--no-cache", is_flag=True, help="Neither reuse answers given before nor keep new ones."),
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
    no_cache: bool,
    engine: tuple[str, ...],
    writer: JsonLines | None = None,
    **scorer_options: Any,
) -> dict[str, Prediction]:
    """Read, score, and note the signature. By hypothesis file.

    Args:
        output: where the result will go, which is checked before anything is computed.
        writer: gets every segment as it comes.
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
    each = writer.begin({name: len(samples) for name, samples in systems.items()}) if writer else None
    with Scorer(**scorer_options, **_engine_arguments(engine), cache=not no_cache) as scorer:
        predictions = scorer.predict_systems(systems, batch_size, gpus, progress_bar=not quiet, each=each)
    logger.info("signature %s", next(iter(predictions.values())).signature)
    return predictions


def _engine_arguments(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Values are read as JSON where they are JSON, else as text."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--engine {pair}: not NAME=VALUE.")
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    return arguments


def exit_if_too_many_failed(ctx: click.Context, predictions: Mapping[str, Prediction], max_failed: float) -> None:
    """Exit with 3 where more of a file's answers hold no score than is allowed."""
    too_many = [name for name, prediction in predictions.items() if prediction.failed_share > max_failed]
    for name in too_many:
        share = predictions[name].failed_share
        message = f"Error: {name}: {share:.1%} of the segments hold no score, more than --max-failed {max_failed:.1%}."
        click.echo(message, err=True)
    if too_many:
        ctx.exit(3)
