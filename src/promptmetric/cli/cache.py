"""`promptmetric cache info|clear`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from promptmetric.errors import InputError

if TYPE_CHECKING:
    from promptmetric.execution.cache import CacheInfo


@click.group()
def cache() -> None:
    """Answers of earlier runs, which are not asked for again."""


@cache.command()
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def info(output_format: str) -> None:
    """Print where the answers are, how many there are of each model, and their size."""
    from promptmetric.execution.cache import AnswerCache, CacheInfo, cache_path

    found = CacheInfo(cache_path(), 0, ())
    if found.path.exists():
        with AnswerCache(found.path) as answers:
            found = answers.info()
    click.echo(_as_json(found) if output_format == "json" else _as_text(found))


@cache.command()
@click.option("--model", metavar="MODEL", help="Delete only the answers of this model, named as `cache info` does.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def clear(model: str | None, yes: bool) -> None:
    """Delete the answers."""
    from promptmetric.execution.cache import cache_path, clear_cache, disk_size

    path = cache_path()
    if not path.exists():
        click.echo(f"{path}: there is nothing to delete.")
        return
    if not yes:
        what = "all answers" if model is None else f"the answers of {model}"
        _confirm(f"{path} ({_size(disk_size(path))}): delete {what}?")
    deleted = clear_cache(path, model)
    if deleted == 0 and model is not None:
        raise InputError(f"{path}: holds no answers of {model}.", hint="`promptmetric cache info` names its models.")
    click.echo(f"{path}: {'deleted unread' if deleted is None else f'{deleted} answers deleted'}.")


def _confirm(question: str) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise InputError("nobody can be asked, since stdin is no terminal.", hint="--yes deletes without asking.")
    click.confirm(question, abort=True, err=True)


def _as_text(found: CacheInfo) -> str:
    from promptmetric.report.tables import table

    if not found.models:
        return f"{found.path}: no answers, {_size(found.bytes)}"
    rows = [
        [kept.model, str(kept.answers), _size(kept.bytes), f"{kept.first:%Y-%m-%d}", f"{kept.last:%Y-%m-%d}"]
        for kept in found.models
    ]
    answers = sum(kept.answers for kept in found.models)
    listing = table(["model", "answers", "size", "first", "last"], rows)
    return f"{listing}\n\n{found.path}: {answers} answers, {_size(found.bytes)}"


def _as_json(found: CacheInfo) -> str:
    models = [
        {
            "model": kept.model,
            "answers": kept.answers,
            "bytes": kept.bytes,
            "first": kept.first.isoformat(),
            "last": kept.last.isoformat(),
        }
        for kept in found.models
    ]
    return json.dumps({"path": str(found.path), "bytes": found.bytes, "models": models}, ensure_ascii=False, indent=1)


def _size(count: int) -> str:
    """Bytes in a unit that people read."""
    if count < 1_000_000:
        return f"{count / 1000:.1f} kB"
    return f"{count / 1_000_000:.1f} MB"
