"""`promptmetric models list`."""

from __future__ import annotations

import json

import click


@click.group()
def models() -> None:
    """Models with measured prompts."""


@models.command("list")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_models(output_format: str) -> None:
    """Print the presets: name for -m, preferred pattern, median Kendall of that pattern, hub id."""
    from promptmetric.prompts.presets import evidence
    from promptmetric.prompts.presets import models as presets
    from promptmetric.report.tables import table

    choices = {choice.model: choice for choice in evidence().choices}
    if output_format == "json":
        rows = [
            {
                **model.model_dump(exclude={"paper_name"}),
                "choice": choices[model.name].model_dump(exclude={"model"}) if model.name in choices else None,
            }
            for model in presets()
        ]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    click.echo(
        table(
            ["name", "pattern", "Kendall", "hub id", "note"],
            [
                [
                    model.name,
                    choices[model.name].pattern if model.name in choices else "-",
                    f"{choices[model.name].pattern_median:.3f}" if model.name in choices else "-",
                    model.hub_id,
                    model.note,
                ]
                for model in presets()
            ],
        )
    )
    click.echo(f"\nKendall: median over descriptions and datasets of the train split; {evidence().source}.")
