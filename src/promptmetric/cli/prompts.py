"""`promptmetric prompts list|show|recommend`."""

from __future__ import annotations

import fnmatch
import json
from typing import Any

import click

from promptmetric.errors import InputError

_FORMAT = click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
_TASK = click.option(
    "--task", type=click.Choice(["translation", "summarization"]), default="translation", show_default=True
)
_LANGS = click.option("-l", "--langs", metavar="PAIR", help="Language pair, such as en-de.")


@click.group()
def prompts() -> None:
    """Prompts: what there is, what a model sees, which to take."""


@prompts.command("list")
@click.argument("pattern", required=False)
@_FORMAT
def list_prompts(pattern: str | None, output_format: str) -> None:
    """Print prompts whose id matches PATTERN, such as 'prexme:zs/*/0..100'.

    Without a pattern: the prompts outside the grid, and the parts of the PrExMe grid.
    """
    from promptmetric.prompts import get_prompt, grid, prompt_ids
    from promptmetric.report.tables import table

    chosen = [prompt_id for prompt_id in prompt_ids() if fnmatch.fnmatchcase(prompt_id, pattern or "*")]
    if not chosen:
        raise InputError(f"no prompt matches {pattern!r}.", hint="* stands for anything: 'prexme:zs/*/0..100'.")
    if output_format == "json":
        click.echo(json.dumps([_summary(get_prompt(prompt_id)) for prompt_id in chosen], ensure_ascii=False, indent=1))
        return
    if pattern:
        click.echo("".join(f"{prompt_id}\n" for prompt_id in chosen), nl=False)
        return
    outside = [get_prompt(prompt_id) for prompt_id in chosen if not prompt_id.startswith(grid.PREFIX)]
    click.echo(table(["id", "scale", "description"], [[s.id, str(s.scale), s.description] for s in outside]))
    axes = grid.grid()
    click.echo(
        f"\n{grid.PREFIX}<base>/<description>/<format>: the grid of {axes.paper}, {len(chosen) - len(outside)} ids"
    )
    for axis, parts in (("base", axes.bases), ("description", axes.descriptions), ("format", axes.formats)):
        click.echo(f"\n{axis}")
        click.echo(table(["  id", "as published", "note"], [_part_row(part) for part in parts]))


@prompts.command()
@click.argument("prompt")
@_TASK
@_LANGS
@_FORMAT
def show(prompt: str, task: Any, langs: str | None, output_format: str) -> None:
    """Print a prompt (an id or a .toml file) as a model sees it, its scale and where it comes from."""
    from promptmetric.prompts import LanguagePair, get_prompt
    from promptmetric.types import Demonstration, Sample

    spec = get_prompt(prompt)
    pair = LanguagePair.parse(langs or "en-de")
    demonstration = Demonstration("<source>", "<hypothesis>", "<score>")
    example = Sample("<source>", "<hypothesis>", ref="<reference>", examples=(demonstration,))
    if task not in spec.tasks:
        task = spec.tasks[0]
    messages = spec.render(example, task, pair)
    measured = _measured(spec.id)
    if output_format == "json":
        rendered = [{"role": turn.role, "content": turn.content} for turn in messages]
        shown = {**spec.model_dump(mode="json"), "rendered": rendered, "measured": measured}
        click.echo(json.dumps(shown, ensure_ascii=False, indent=1))
        return
    click.echo(f"prompt      {spec.id}")
    click.echo(f"scale       {spec.scale}")
    click.echo(f"max tokens  {spec.max_tokens}")
    if spec.provenance:
        source = "; ".join(part for part in (spec.provenance.paper, spec.provenance.table, spec.provenance.row) if part)
        click.echo(f"source      {source}")
    if spec.defect:
        click.echo(f"defect      {spec.defect}")
    for turn in messages:
        click.echo(f"\n[{turn.role}]\n{turn.content}")
    if measured:
        click.echo("\nmeasured with")
        click.echo(_correlation_table(measured))


@prompts.command()
@click.option("-m", "--model", required=True, help="Preset, hub id or model folder.")
@_TASK
@_LANGS
@click.option("--decode", default="auto", show_default=True, help="How the score is to be got, as for `score`.")
@_FORMAT
def recommend(model: str, task: Any, langs: str | None, decode: str, output_format: str) -> None:
    """Print the prompt to take for a model, and the measurements that speak for it."""
    from promptmetric.arguments import check_preset
    from promptmetric.prompts import LanguagePair
    from promptmetric.prompts import recommend as recommended
    from promptmetric.prompts.presets import evidence

    check_preset(model)
    pair = LanguagePair.parse(langs) if langs else None
    found = recommended(model, task, pair, decode)
    if output_format == "json":
        click.echo(json.dumps(found.model_dump(mode="json"), ensure_ascii=False, indent=1))
        return
    click.echo(found.prompt)
    click.echo(f"  {found.why}")
    choice = found.choice
    if choice is None:
        return
    click.echo(
        f"  pattern {choice.pattern}: median Kendall {choice.pattern_median:.3f}; "
        f"whole grid: median {choice.grid_median:.3f}, best single prompt {choice.grid_max:.3f}"
    )
    of_task = [one for one in choice.correlations if one.task == task]
    of_pair = [one for one in of_task if not pair or one.langs in (None, str(pair))]
    if rows := of_pair or of_task:
        click.echo("")
        click.echo(_correlation_table([{"model": choice.model, **one.model_dump()} for one in rows]))
        click.echo("the prompt was chosen on the rows of train; dev, test and test2 are independent of the choice")
    click.echo(f"\nrule: {evidence().rule}\nsource: {evidence().source}")


def _summary(spec: Any) -> dict[str, Any]:
    fields = spec.model_dump(mode="json", include={"id", "description", "tasks", "scale", "max_tokens", "defect"})
    return {**fields, "content": spec.content_hash}


def _part_row(part: Any) -> list[str]:
    note = f"defect: {part.defect}" if part.defect else f"mends {part.fixes}" if part.fixes else ""
    return [f"  {part.id}", part.published or "-", note]


def _measured(prompt_id: str) -> list[dict[str, Any]]:
    from promptmetric.prompts.presets import evidence

    return [
        {"model": choice.model, **correlation.model_dump()}
        for choice in evidence().choices
        if choice.prompt == prompt_id
        for correlation in choice.correlations
    ]


def _correlation_table(rows: list[dict[str, Any]]) -> str:
    from promptmetric.report.tables import table

    return table(
        ["model", "data", "task", "langs", "n", "Kendall", "Pearson", "Spearman"],
        [
            [
                row["model"],
                row["data"],
                row["task"],
                row["langs"] or "-",
                str(row["n"]),
                *(f"{row[name]:.3f}" for name in ("kendall", "pearson", "spearman")),
            ]
            for row in rows
        ],
    )
