"""The command line: parses, calls, prints."""

from __future__ import annotations

import logging
from typing import Any

import click

from promptmetric import __version__
from promptmetric.cli.bench import bench
from promptmetric.cli.cache import cache
from promptmetric.cli.compare import compare
from promptmetric.cli.data import data
from promptmetric.cli.meta_eval import meta_eval
from promptmetric.cli.models import models
from promptmetric.cli.prompts import prompts
from promptmetric.cli.score import score
from promptmetric.errors import PromptmetricError

INTERRUPTED = 130


class _Group(click.Group):
    """Turns the package's own errors into a message and their exit code; everything else is a bug and may show."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PromptmetricError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("Interrupted. The same command goes on with what was kept (nothing, with --no-cache).", err=True)
            ctx.exit(INTERRUPTED)


class _Stderr(logging.Handler):
    """Prints notes to stderr, whatever that is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"promptmetric: {self.format(record)}", err=True)


def _dashes(name: str) -> str:
    """Accept `--batch_size` for `--batch-size`, as COMET writes it."""
    return name.replace("_", "-")


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _dashes, "max_content_width": 100},
)
@click.version_option(__version__, prog_name="promptmetric")
def cli() -> None:
    """Reference-free quality scores for translations and summaries from open language models."""
    logger = logging.getLogger("promptmetric")
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        logger.addHandler(_Stderr())
    logger.setLevel(logging.INFO)


for command in (score, compare, meta_eval, bench, prompts, models, data, cache):
    cli.add_command(command)
