"""Judgments in a table with named columns: TSV, CSV, JSON, JSON lines or parquet."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from promptmetric.datasets.evalset import EvalSet, Judged
from promptmetric.datasets.files import Table, load_table
from promptmetric.errors import InputError
from promptmetric.types import Task

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "src": ("src", "source"),
    "hyp": ("hyp", "mt", "hypothesis", "translation", "summary", "system_output", "target"),
    "system": ("system", "system_id", "system-name", "model_id", "model"),
    "segment": ("segment", "seg_id", "seg-id", "segment_id", "globalSegId", "doc_id", "id"),
    "doc": ("doc", "document"),
    "domain": ("domain",),
    "ref": ("ref", "reference"),
    "human": ("is_human", "human_written"),
}
"""Names under which a column is looked for where none is given, in this order and in any case."""

ASPECTS = ("score", "human", "mqm", "esa", "da", "da_sqm", "da-sqm", "raw", "z", "overall")
"""Names of human scores looked for where none are given; all that are there are read."""

_MARK = re.compile(r"</?v>")


def read_table(
    path: Path,
    *,
    name: str | None = None,
    task: Task = "translation",
    langs: str | None = None,
    columns: Mapping[str, str] | None = None,
    aspects: Sequence[str] | None = None,
    where: Mapping[str, str] | None = None,
    join: Path | None = None,
    on: Sequence[str] = (),
    marked: bool = False,
) -> EvalSet:
    """Read a table with a row a hypothesis.

    Args:
        path: the file.
        name: how to call the set.
        task: what was judged.
        langs: the language pair.
        columns: the table's own names by ours (the keys of `COLUMNS`).
        aspects: columns with human scores, the most important first.
        where: keep the rows which have this value in this column.
        join: a second table, such as one with the sources, whose row is found by the columns `on`.
        on: columns that both tables have.
        marked: texts hold `<v>…</v>` around errors. The marks are removed, and rows that differ in nothing else are
            one.

    Without a column of systems all rows are of one; without one of segments, rows with the same source are one
    segment (each row is one, where there are no systems either).

    Raises:
        InputError: a column, a value or a row of the second table is missing; or a score is not a number.
    """
    table = load_table(path)
    table = _filter(table, where or {})
    if join:
        table = _join(table, load_table(join), on)
    named = _named(table, columns or {})
    scores = {aspect: table.numbers(aspect) for aspect in aspects or _aspects(table, named)}
    texts = {role: table.texts(named[role]) for role in ("src", "hyp")}
    if marked:
        texts = {role: [unmarked(text) for text in values] for role, values in texts.items()}
    systems = table.texts(named["system"]) if "system" in named else ["system"] * len(table)
    segments = _segments(table, named, texts["src"])
    rows = [
        Judged(
            segment=segments[row],
            system=systems[row],
            src=texts["src"][row],
            hyp=texts["hyp"][row],
            scores={aspect: given[row] for aspect, given in scores.items() if not math.isnan(given[row])},
            refs=_refs(table, named, row),
            doc=_optional(table, named, "doc", row),
            domain=_optional(table, named, "domain", row),
            human=_boolean(table, named, row),
        )
        for row in range(len(table))
    ]
    if marked:
        rows = _merged(rows)
    return EvalSet(name or path.name, task, tuple(rows), tuple(scores), langs)


def unmarked(text: str) -> str:
    """A text without the marks `<v>` and `</v>` around its errors."""
    return _MARK.sub("", text)


def _filter(table: Table, where: Mapping[str, str]) -> Table:
    kept = list(range(len(table)))
    for column, wanted in where.items():
        values = table.column(column)
        kept = [row for row in kept if str(values[row]) == wanted]
        if not kept:
            found = ", ".join(sorted({str(value) for value in values})[:10])
            raise InputError(f"{table.path}: no row has {column} = {wanted!r}.", hint=f"There are: {found}.")
    return _rows(table, kept)


def _rows(table: Table, kept: Sequence[int]) -> Table:
    if len(kept) == len(table):
        return table
    columns = {name: [values[row] for row in kept] for name, values in table.columns.items()}
    return Table(table.path, columns, [table.lines[row] for row in kept], table.unit)


def _join(table: Table, other: Table, on: Sequence[str]) -> Table:
    """The columns of both tables; a row of the second may serve many of the first."""
    if not on:
        raise InputError(f"{table.path}: no columns are named to find its rows in {other.path} by.")
    keys = list(zip(*(map(str, table.column(column)) for column in on), strict=True))
    found: dict[tuple[str, ...], int] = {}
    for row, key in enumerate(zip(*(map(str, other.column(column)) for column in on), strict=True)):
        if key in found:
            raise InputError(f"{other.place(row)}: {_key(on, key)} occurs twice.")
        found[key] = row
    missing = next((row for row, key in enumerate(keys) if key not in found), None)
    if missing is not None:
        raise InputError(f"{table.place(missing)}: {other.path} has no row with {_key(on, keys[missing])}.")
    at = [found[key] for key in keys]
    added = {name: [values[row] for row in at] for name, values in other.columns.items() if name not in table.columns}
    return Table(table.path, {**table.columns, **added}, table.lines, table.unit)


def _key(on: Sequence[str], key: tuple[str, ...]) -> str:
    return ", ".join(f"{column} = {value}" for column, value in zip(on, key, strict=True))


def _named(table: Table, given: Mapping[str, str]) -> dict[str, str]:
    """The table's columns by our names for them."""
    unknown = sorted(given.keys() - COLUMNS.keys())
    if unknown:
        raise InputError(f"no such column of a set: {', '.join(unknown)}.", hint=f"There are: {', '.join(COLUMNS)}.")
    named = {}
    for role, names in COLUMNS.items():
        column = table.find(given[role]) if role in given else table.find(*names)
        if column is not None:
            named[role] = column
        elif role in given or role in ("src", "hyp"):
            table.column(*([given[role]] if role in given else names))  # raises
    return named


def _aspects(table: Table, named: Mapping[str, str]) -> list[str]:
    taken = set(named.values())
    found = [column for column in map(table.find, ASPECTS) if column is not None and column not in taken]
    if not found:
        table.column(*ASPECTS)  # raises
    return list(dict.fromkeys(found))


def _segments(table: Table, named: Mapping[str, str], sources: Sequence[str]) -> list[str]:
    if "segment" in named:
        return table.texts(named["segment"])
    if "system" not in named:
        return [str(row) for row in range(len(table))]
    first: dict[str, str] = {}
    return [first.setdefault(source, str(len(first))) for source in sources]


def _value(table: Table, named: Mapping[str, str], role: str, row: int) -> Any:
    return table.columns[named[role]][row] if role in named else None


def _optional(table: Table, named: Mapping[str, str], role: str, row: int) -> str | None:
    value = _value(table, named, role, row)
    return None if value is None else str(value)


def _refs(table: Table, named: Mapping[str, str], row: int) -> tuple[str, ...]:
    value = _value(table, named, "ref", row)
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _boolean(table: Table, named: Mapping[str, str], row: int) -> bool:
    value = _value(table, named, "human", row)
    if value is None:
        return False
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
    found = known.get(str(value).strip().casefold())
    if found is None:
        raise InputError(f"{table.place(row)}: {named['human']} must be true or false, not {value!r}.")
    return found


def _merged(rows: Sequence[Judged]) -> list[Judged]:
    kept: dict[tuple[str, str], Judged] = {}
    merged = []
    for row in rows:
        if kept.get((row.system, row.segment)) != row:
            merged.append(row)
            kept[row.system, row.segment] = row
    return merged
