"""Finds prompts by name: the PrExMe grid, the ones shipped beside it, installed ones, and TOML files by path."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

from promptmetric.errors import PromptError
from promptmetric.prompts import grid
from promptmetric.prompts.spec import PromptSpec

ENTRY_POINT_GROUP = "promptmetric.prompts"


def get_prompt(name: str | Path | PromptSpec) -> PromptSpec:
    """The prompt of an id, of a TOML file, or the one given.

    Raises:
        PromptError: there is none; the message suggests the nearest ids.
    """
    if isinstance(name, PromptSpec):
        return name
    if not isinstance(name, str | Path):
        raise PromptError(f"a prompt is an id, a path or a PromptSpec, not {name!r}.")
    if isinstance(name, Path) or name.endswith(".toml"):
        return PromptSpec.load(Path(name))
    if name.startswith(grid.PREFIX):
        return grid.build(name)
    shipped = _shipped()
    if name in shipped:
        return shipped[name]
    installed = _installed()
    if name in installed:
        return installed[name]
    near = difflib.get_close_matches(name, list(prompt_ids()), n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`promptmetric prompts list` prints what there is."
    raise PromptError(f"no prompt is named {name!r}.", hint=f"{hint} A prompt of your own is named by its .toml file.")


def prompt_ids() -> Iterator[str]:
    """Every id: shipped, installed, then the grid in its published order."""
    yield from _shipped()
    yield from _installed()
    yield from grid.ids()


@cache
def _shipped() -> dict[str, PromptSpec]:
    folder = files(__package__) / "data" / "prompts"
    specs = (PromptSpec.load(path) for path in sorted(folder.iterdir(), key=lambda path: path.name))
    return {spec.id: spec for spec in specs}


@cache
def _installed() -> dict[str, PromptSpec]:
    """Prompts other packages bring: an entry point names a `PromptSpec` or the path of a TOML file."""
    found: dict[str, PromptSpec] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        target = entry.load()
        spec = target if isinstance(target, PromptSpec) else PromptSpec.load(Path(target))
        found[spec.id] = spec
    return found
