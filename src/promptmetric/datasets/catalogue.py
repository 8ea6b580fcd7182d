"""The sets known by name: those the package describes in `catalogue.toml`, and those the user registered."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from platformdirs import user_data_path
from pydantic import BaseModel, ConfigDict, model_validator

from promptmetric.backends.embedded import cache_folder
from promptmetric.datasets.files import column_names
from promptmetric.errors import InputError
from promptmetric.types import Task

Format = Literal["eval4nlp", "mtme", "paired", "rose", "seahorse", "summeval", "table", "wmt-mqm"]
FOLDER_VARIABLE = "PROMPTMETRIC_DATA"


class SetSpec(BaseModel):
    """How a set is found and read.

    Attributes:
        id: its name.
        format: which reader takes it.
        task: what was judged.
        langs: the language pair; the language of the rows to keep, for SEAHORSE.
        files: relative to a data folder. A second one holds the scores (eval4nlp), the sources (summeval, seahorse)
            or a table to join (table).
        folder: where the files are, for what the user registered.
        columns, aspects, where, on, marked: see `read_table`.
        systems, segments, rows: the counts to expect.
        lines: how many segments the test set has that this was drawn from, which score files may hold.
        address: where the set comes from.
        licence: under which it is published.
        get: how to get it by hand.
        sha256: of each file, in their order.
        urls: of each file, in their order; a zip archive holds the file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    format: Format
    task: Task = "translation"
    langs: str | None = None
    files: tuple[str, ...]
    folder: Path | None = None
    columns: dict[str, str] = {}
    aspects: tuple[str, ...] = ()
    where: dict[str, str] = {}
    on: tuple[str, ...] = ()
    marked: bool = False
    systems: int | None = None
    segments: int | None = None
    rows: int | None = None
    lines: int | None = None
    address: str | None = None
    licence: str | None = None
    get: str | None = None
    sha256: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> SetSpec:
        for name, given in (("sha256", self.sha256), ("urls", self.urls)):
            if given and len(given) != len(self.files):
                raise ValueError(f"{name} has {len(given)} entries for {len(self.files)} files")
        if self.urls and not self.sha256:
            raise ValueError("urls need sha256")
        return self


@cache
def catalogue() -> dict[str, SetSpec]:
    """The sets the package describes."""
    content = tomllib.loads((files(__package__) / "catalogue.toml").read_text(encoding="utf-8"))
    specs = [SetSpec.model_validate(entry) for entry in content["set"]]
    return {spec.id: spec for spec in specs}


def registry_file() -> Path:
    """Where registered sets are written down."""
    named = os.environ.get("PROMPTMETRIC_CACHE")
    return (Path(named).expanduser() if named else user_data_path("promptmetric")) / "sets.json"


def registered() -> dict[str, SetSpec]:
    """The sets the user registered.

    Raises:
        InputError: their file is malformed.
    """
    path = registry_file()
    if not path.exists():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {spec.id: spec for spec in map(SetSpec.model_validate, entries)}
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not a list of sets: {error}.", hint="Mend or delete it.") from error


def known_sets() -> tuple[SetSpec, ...]:
    """Every set with a name: the package's, then what else the user registered."""
    own = registered()
    known = catalogue()
    return (*(own.get(name, spec) for name, spec in known.items()), *(own[name] for name in own if name not in known))


def get_spec(name: str) -> SetSpec:
    """The set of this name.

    Raises:
        InputError: there is none; the message suggests near ones.
    """
    known = {spec.id: spec for spec in known_sets()}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`promptmetric data list` prints what there is."
    raise InputError(
        f"no set and no file is named {name!r}.", hint=f"{hint} A test set of mt-metrics-eval is FOLDER:en-de."
    )


def data_folder() -> Path:
    """Where downloaded sets are kept."""
    return cache_folder() / "data"


def guess_format(path: Path) -> Format:
    """The format of a file, by the names of its columns; of a folder, mt-metrics-eval's."""
    if path.is_dir():
        return "mtme"
    names = column_names(path)
    for found, needed in _HEADERS.items():
        if needed <= names:
            return found
    return "table"


_HEADERS: dict[Format, set[str]] = {
    "wmt-mqm": {"rater", "category", "severity", "target"},
    "summeval": {"expert_annotations"},
    "rose": {"system_outputs", "annotations"},
    "paired": {"source", "system_output", "scores"},
    "seahorse": {"gem_id", "question1"},
    "eval4nlp": {"SRC", "HYP"},
}
"""Columns that only files of a format have."""
