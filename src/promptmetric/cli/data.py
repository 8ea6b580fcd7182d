"""`promptmetric data list|add|remove|verify|export`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from promptmetric.errors import InputError

if TYPE_CHECKING:
    from promptmetric.datasets import EvalSet, SetSpec

FORMATS = ("eval4nlp", "mtme", "paired", "rose", "seahorse", "summeval", "table", "wmt-mqm")


@click.group()
def data() -> None:
    """Sets of human judgments: what there is, where yours are."""


@data.command("list")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_sets(output_format: str) -> None:
    """Print the sets known by name, and where they were found or how to get them."""
    from promptmetric.datasets import known_sets
    from promptmetric.report.tables import table

    specs = known_sets()
    if output_format == "json":
        click.echo(json.dumps([_described(spec) for spec in specs], ensure_ascii=False, indent=1))
        return
    click.echo(
        table(
            ["id", "task", "pair", "rows", "systems", "where"],
            [
                [spec.id, spec.task, spec.langs or "-", _count(spec.rows), _count(spec.systems), _where(spec)]
                for spec in specs
            ],
        )
    )


@data.command()
@click.argument("name")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--format", "set_format", type=click.Choice(FORMATS), help="Found by the file's header if left out.")
@click.option("--task", type=click.Choice(["translation", "summarization"]))
@click.option("-l", "--langs", metavar="PAIR", help="Language pair, such as en-de.")
@click.option("--column", "columns", metavar="OURS=THEIRS", multiple=True, help="A table's name for src, hyp, …")
@click.option("--aspect", "aspects", metavar="COLUMN", multiple=True, help="A table's column of human scores.")
@click.option("--where", metavar="COLUMN=VALUE", multiple=True, help="Keep the rows of a table with this value.")
@click.option("--extra", metavar="FILE", type=click.Path(path_type=Path), help="Scores, sources or a table to join.")
@click.option("--on", metavar="COLUMN", multiple=True, help="A column to find rows of the table to join by.")
def add(
    name: str,
    path: Path,
    set_format: Any,
    task: Any,
    langs: str | None,
    columns: tuple[str, ...],
    aspects: tuple[str, ...],
    where: tuple[str, ...],
    extra: Path | None,
    on: tuple[str, ...],
) -> None:
    """Register the set at PATH under NAME: a file, a data folder for a known NAME, or a mt-metrics-eval folder."""
    from promptmetric.datasets import add_set
    from promptmetric.datasets.catalogue import registered

    before = registered().get(name)
    evalset = add_set(
        name,
        path,
        set_format,
        task=task,
        langs=langs,
        columns=_pairs("--column", columns),
        aspects=aspects,
        where=_pairs("--where", where),
        extra=extra,
        on=on,
    )
    click.echo(f"{name}: {_summary(evalset)}")
    if before is not None:
        click.echo(f"This replaces the set registered as {name} before: {_first_file(before)}.", err=True)


def _first_file(spec: SetSpec) -> Path:
    return (spec.folder or Path()) / spec.files[0]


@data.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget the set registered under NAME; its files stay where they are."""
    from promptmetric.datasets import remove_set

    remove_set(name)
    click.echo(f"{name} is no longer registered.")


@data.command()
@click.argument("names", metavar="[NAME…]", nargs=-1)
def verify(names: tuple[str, ...]) -> None:
    """Compare files with their checksums, and sets with the counts they should have; all that are here by default."""
    from promptmetric.datasets import known_sets, verify_set
    from promptmetric.texts import counted

    failed = found = 0
    for name in names or [spec.id for spec in known_sets()]:
        report = verify_set(name)
        if not report.files and not names:
            continue
        found += 1
        failed += not report.ok
        counts = _counts(report.rows, report.systems, report.segments)
        checked = f" ({', '.join(report.checked)} as expected)" if report.checked else " (nothing to compare with)"
        click.echo(f"{name}: " + (f"ok, {counts}{checked}" if report.ok else "\n  ".join(report.problems)))
    if not found:
        click.echo("No set is here. `promptmetric data list` tells where they come from.", err=True)
    if failed:
        raise InputError(f"{counted(failed, 'set')} not as expected.")


@data.command()
@click.argument("name", metavar="SET")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write instead of stdout."
)
def export(name: str, output: Path | None) -> None:
    """Print a set as JSON lines for `promptmetric score -s`, and COMET: a row a hypothesis, in order."""
    from promptmetric.datasets import load_set

    evalset = load_set(name)
    content = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in _rows(evalset))
    if output is None:
        click.echo(content, nl=False)
        return
    try:
        output.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror}.") from error
    click.echo(f"{output}: {_summary(evalset)}", err=True)


def _rows(evalset: EvalSet) -> list[dict[str, Any]]:
    source, _, target = (evalset.langs or "").partition("-")
    langs = {"src_lang": source, "tgt_lang": target} if target else {}
    return [
        {
            "src": row.src,
            "hyp": row.hyp,
            "mt": row.hyp,
            **({"ref": row.refs[0]} if row.refs else {}),
            **langs,
            "system": row.system,
            "segment": row.segment,
            **({"doc": row.doc} if row.doc is not None else {}),
            "scores": {aspect: score for aspect, score in row.scores.items() if not math.isnan(score)},
        }
        for row in evalset.rows
    ]


def _summary(evalset: EvalSet) -> str:
    counts = _counts(len(evalset.rows), len(evalset.systems), len(evalset.segments))
    return f"{counts}, judged for {', '.join(evalset.aspects)}"


def _counts(rows: int, systems: int, segments: int) -> str:
    from promptmetric.texts import counted

    return f"{counted(rows, 'row')}, {counted(systems, 'system')}, {counted(segments, 'segment')}"


def _pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{option} {text}: there is no = in it.")
        pairs[name] = value
    return pairs


def _count(count: int | None) -> str:
    return "-" if count is None else str(count)


def _where(spec: SetSpec) -> str:
    from promptmetric.datasets.load import find_files

    files = find_files(spec)
    if files:
        return str(files[0])
    return "downloaded when first used" if spec.urls else f"not here; {spec.address or 'data add'}"


def _described(spec: SetSpec) -> dict[str, Any]:
    from promptmetric.datasets.load import find_files, how_to_get

    files = find_files(spec)
    fields = spec.model_dump(mode="json", include={"id", "format", "task", "langs", "rows", "systems", "segments"})
    return {
        **fields,
        "address": spec.address,
        "licence": spec.licence,
        "files": [str(file) for file in files or ()],
        "get": None if files else how_to_get(spec),
    }
