"""The PrExMe grid as a grammar: `prexme:<base>/<description>/<format>` (Leiter and Eger, 2024, Appendix A).

3 zero-shot bases × 24 descriptions × 10 formats are the 720 published prompts; the three one-shot bases take the same
parts. Parts known to be broken stand as published and, under an id ending in `-fixed`, mended.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from promptmetric.errors import PromptError
from promptmetric.prompts.spec import PromptSpec, Provenance, Turn
from promptmetric.scale import Scale

PREFIX = "prexme:"


class Part(BaseModel):
    """A base, description or format: an id, its published name and its text (a Jinja template)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    published: str | None = None
    table: str | None = None
    text: str
    defect: str | None = None
    fixes: str | None = None


class Base(Part):
    """A base: knows what announces the judgment where an explanation comes first."""

    marker: str | None = None


class Format(Part):
    """A format requirement: also knows the scale it asks for."""

    scale: Scale


_P = TypeVar("_P", bound=Part)


class Grid(BaseModel):
    """The axes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    max_tokens: int
    bases: tuple[Base, ...] = Field(min_length=1)
    descriptions: tuple[Part, ...] = Field(min_length=1)
    formats: tuple[Format, ...] = Field(min_length=1)


@cache
def grid() -> Grid:
    """The grid as shipped."""
    return Grid.model_validate(tomllib.loads((files(__package__) / "data/prexme.toml").read_text("utf-8")))


def ids() -> Iterator[str]:
    """Every id, in the published order (base, then description, then format)."""
    axes = grid()
    for base, description, form in itertools.product(axes.bases, axes.descriptions, axes.formats):
        yield f"{PREFIX}{base.id}/{description.id}/{form.id}"


def build(prompt_id: str) -> PromptSpec:
    """Compose the prompt of an id.

    Raises:
        PromptError: the id does not have three parts, or a part is unknown.
    """
    parts = prompt_id.removeprefix(PREFIX).split("/")
    if len(parts) != 3:
        raise PromptError(
            f"{prompt_id!r} is not a prompt of the grid.",
            hint="Write prexme:<base>/<description>/<format>; `promptmetric prompts list` prints the parts.",
        )
    axes = grid()
    base = _part(axes.bases, parts[0], "base", prompt_id)
    description = _part(axes.descriptions, parts[1], "description", prompt_id)
    form = _part(axes.formats, parts[2], "format", prompt_id)
    content = base.text.replace("{{ task_description }}", description.text)
    content = content.replace("{{ format_requirement }}", form.text)
    chosen = (base, description, form)
    published = all(part.published for part in chosen)
    return PromptSpec(
        id=prompt_id,
        description=f"{description.text} {form.text}",
        messages=(Turn(role="user", content=content),),
        scale=form.scale,
        max_tokens=axes.max_tokens,
        marker=base.marker,
        provenance=Provenance(
            paper=axes.paper,
            table=", ".join(part.table or "mended" for part in chosen),
            row=", ".join(part.published or part.id for part in chosen) if published else None,
        ),
        defect=" ".join(part.defect for part in chosen if part.defect) or None,
    )


def _part(parts: tuple[_P, ...], part_id: str, axis: str, prompt_id: str) -> _P:
    for part in parts:
        if part.id == part_id:
            return part
    known = ", ".join(part.id for part in parts)
    raise PromptError(f"{prompt_id!r}: unknown {axis} {part_id!r}.", hint=f"Known: {known}.")
