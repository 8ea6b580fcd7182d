"""`promptmetric bench`."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from promptmetric.errors import InputError


@click.command()
@click.argument("suite")
@click.option("-o", "--output", metavar="FOLDER", help="Keeps answers, scores and the report.  [default: bench-SUITE]")
@click.option("-m", "--model", "models", multiple=True, help="Measure these models instead of the suite's.")
@click.option("--data", metavar="FOLDER", help="Look for sets of human judgments here first.")
@click.option("--plan", is_flag=True, help="Print what would be measured, and stop.")
@click.option("-b", "--batch-size", type=click.IntRange(min=1), default=16, show_default=True)
@click.option("--gpus", type=click.IntRange(min=0), default=1, show_default=True, help="0 computes on the CPU.")
@click.option("--draws", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--offline", is_flag=True, help="Fetch nothing.")
@click.option("-q", "--quiet", is_flag=True, help="Only errors on stderr.")
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    suite: str,
    output: str | None,
    models: tuple[str, ...],
    data: str | None,
    plan: bool,
    batch_size: int,
    gpus: int,
    draws: int,
    offline: bool,
    quiet: bool,
) -> None:
    """Measure models and prompts on sets of human judgments; the same command goes on where it was stopped.

    SUITE is quick, eval4nlp, wmt23, summeval, summeval-aspects or a .toml file, whose keys the README's section
    Benchmarks shows. Writes report.md, results.json and figures. `quick` needs the sets wmt23/en-de and summeval:
    `promptmetric data list` tells where they are or come from.
    """
    from promptmetric.bench.run import planned_cells, run_suite
    from promptmetric.bench.suite import load_suite
    from promptmetric.report.bench import write_results
    from promptmetric.report.figures import figure_class

    if quiet:
        logging.getLogger("promptmetric").setLevel(logging.ERROR)
    loaded = load_suite(suite)
    folder = Path(data).expanduser() if data else None
    if folder is not None and not folder.is_dir():
        raise InputError(f"{data}: no such folder.")
    if plan:
        cells, left_out = planned_cells(loaded, models, folder)
        click.echo("set\thypotheses\tmodel\tprompt\tdecode")
        for cell, size in cells:
            click.echo(f"{cell.use.name}\t{size}\t{cell.model}\t{cell.prompt}\t{cell.decode}")
        for one in left_out:
            click.echo(f"Left out: {one.what}: {one.reason}", err=True)
        if left_out:
            ctx.exit(InputError.exit_code)
        return
    figure_class()  # what the report needs is asked for before hours are spent
    target = Path(output or f"bench-{loaded.name}")
    try:
        result = run_suite(
            loaded,
            target,
            models=models,
            data=folder,
            batch_size=batch_size,
            gpus=gpus,
            offline=offline,
            draws=draws,
            progress_bar=not quiet,
        )
    except KeyboardInterrupt:
        click.echo(f"Interrupted. {target} keeps every answer; the same command goes on.", err=True)
        ctx.exit(130)
    click.echo(write_results(result, target))
    for one in result.not_run:
        click.echo(f"Not run: {one.what}: {one.reason}", err=True)
    if result.not_run:
        ctx.exit(1)
