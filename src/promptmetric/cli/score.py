"""`promptmetric score`."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from promptmetric.errors import InputError, PromptmetricError


class _SeveralValues(click.Command):
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


@click.command(cls=_SeveralValues)
@click.option("-s", "--sources", required=True, metavar="FILE", help="Sources, one a line; or .jsonl with src.")
@click.option(
    "-t",
    "--translations",
    "--hypotheses",
    "hypotheses",
    multiple=True,
    metavar="FILE...",
    help="Hypotheses, one a line; several files may follow. Not needed where the source .jsonl holds them.",
)
@click.option("-l", "--langs", metavar="PAIR", help="Language pair, such as en-de.")
@click.option("--task", type=click.Choice(["translation", "summarization"]), default="translation", show_default=True)
@click.option(
    "-m",
    "--model",
    default="auto",
    show_default=True,
    help="Preset, hub id, model folder, .gguf file, or .jsonl of recorded answers.",
)
@click.option("-p", "--prompt", help="Prompt id or .toml file.  [default: the one chosen for the model]")
@click.option("--backend", type=click.Choice(["auto", "transformers", "replay"]), default="auto", show_default=True)
@click.option(
    "--decode",
    type=click.Choice(["auto", "text", "as-published"]),
    default="auto",
    show_default=True,
    help="How answers are read: by our parser (auto, text), or as the PrExMe paper did.",
)
@click.option(
    "--fallback",
    type=click.Choice(["mean", "nan", "error", "retry"]),
    default="mean",
    show_default=True,
    help="What an answer without a score becomes.",
)
@click.option("-b", "--batch-size", type=click.IntRange(min=1), default=16, show_default=True)
@click.option("--gpus", type=click.IntRange(min=0), default=1, show_default=True, help="0 computes on the CPU.")
@click.option("--revision", help="Commit, branch or tag of the model on the hub.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "jsonl", "tsv"]),
    default="text",
    show_default=True,
)
@click.option("-o", "--output", metavar="FILE", help="Write scores to a file instead of stdout (-).")
@click.option("--only-system", is_flag=True, help="Print the system scores alone.")
@click.option("-q", "--quiet", is_flag=True, help="Only errors on stderr.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Score the first N segments of each file.")
@click.option("--offline", is_flag=True, help="Fetch nothing.")
@click.option("--record", metavar="FILE", help="Keep every answer in a .jsonl file, and reuse those it holds.")
@click.option(
    "--max-failed",
    type=click.FloatRange(0, 1),
    default=0.2,
    show_default=True,
    help="Exit with 3 if more of a file's segments hold no score.",
)
@click.pass_context
def score(
    ctx: click.Context,
    /,
    sources: str,
    hypotheses: tuple[str, ...],
    output_format: Any,
    output: str | None,
    only_system: bool,
    quiet: bool,
    limit: int | None,
    max_failed: float,
    batch_size: int,
    gpus: int,
    **scorer_options: Any,
) -> None:
    """Score translations or summaries: 0 is worst, 1 best.

    Prints COMET's lines: one a segment, then one a file. `-` reads stdin; .gz files are unpacked.
    """
    from promptmetric.inputs import STDIN, read_samples
    from promptmetric.report.predictions import format_predictions
    from promptmetric.scorer import Scorer
    from promptmetric.types import Prediction

    logger = logging.getLogger("promptmetric")
    if quiet:
        logger.setLevel(logging.ERROR)
    if math.isnan(max_failed):
        raise InputError("--max-failed must be a number from 0 to 1.")
    systems = read_samples(sources, hypotheses, limit)
    if output == STDIN:
        output = None
    if output:
        needed = (scorer_options[name] for name in ("record", "model", "prompt"))
        _check_output(output, [sources, *hypotheses, *needed])
    with Scorer(**scorer_options) as scorer:
        together = [sample for samples in systems.values() for sample in samples]
        whole = scorer.predict(together, batch_size, gpus, progress_bar=not quiet)
    predictions = {}
    start = 0
    for name, samples in systems.items():
        segments = whole.segments[start : start + len(samples)]
        start += len(samples)
        renumbered = [dataclasses.replace(segment, index=i) for i, segment in enumerate(segments)]
        predictions[name] = Prediction.from_segments(renumbered, whole.signature)
    text = format_predictions(predictions, output_format, only_system=only_system)
    if output:
        _write(output, text)
    else:
        _print(text)
    logger.info("signature %s", whole.signature)
    too_many = [name for name, prediction in predictions.items() if prediction.failed_share > max_failed]
    for name in too_many:
        share = predictions[name].failed_share
        message = f"Error: {name}: {share:.1%} of the segments hold no score, more than --max-failed {max_failed:.1%}."
        click.echo(message, err=True)
    if too_many:
        ctx.exit(3)


def _print(text: str) -> None:
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise PromptmetricError(f"stdout: cannot be written: {error.strerror}.") from error


def _check_output(output: str, taken: Sequence[str | None]) -> None:
    """Refuse, before anything is computed, an output that cannot be written or would overwrite what the run needs."""
    target = Path(output)
    if any(name and _is_same_file(target, Path(name)) for name in taken):
        raise InputError(f"{output}: is also an input, a recording or the model; it would be overwritten.")
    if target.is_dir():
        raise InputError(f"{output}: is a folder.")
    folder = target.resolve().parent if target.is_symlink() else target.absolute().parent
    if not folder.is_dir() and not target.exists():
        raise InputError(f"{output}: there is no folder {folder}.")
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise InputError(f"{output}: cannot be written: permission denied.")


def _is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths name one file, be it there already or not."""
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))


def _write(output: str, text: str) -> None:
    """Replace a file in one step, so that a crash leaves the old one or the new one; write through to anything else."""
    target = Path(output)
    try:
        if target.exists() and not target.is_file():  # a pipe or device
            target.write_text(text, encoding="utf-8")
            return
        target = target.resolve()
        scratch = target.with_name(f".{target.name}.part")
        scratch.write_text(text, encoding="utf-8")
        if target.exists():
            shutil.copymode(target, scratch)
        scratch.replace(target)
    except OSError as error:
        raise PromptmetricError(f"{output}: cannot be written: {error.strerror}.") from error
