"""Files as tables: TSV, CSV, JSON, JSON lines and parquet, gzipped or not; what is wrong is named with its line."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptmetric.errors import InputError, MissingExtraError
from promptmetric.texts import read_lines, read_text

MISSING = frozenset({"", "none", "nan", "null", "na", "n/a"})
"""What stands for a score that was not given."""

_DELIMITERS = {".tsv": "\t", ".csv": ","}
TABLES = (".tsv", ".csv", ".json", ".jsonl", ".ndjson", ".parquet")
"""Endings of the files that `load_table` reads, before a `.gz`."""

LONGEST_CELL = (1 << 31) - 1
"""Characters. The csv module allows 131,072, which documents exceed."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    Attributes:
        path: the file.
        columns: values by the name of their column; None where a row has none.
        lines: the line or row of each row in the file, counted from 1.
        unit: what `lines` counts.
    """

    path: Path
    columns: Mapping[str, Sequence[Any]]
    lines: Sequence[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        return f"{self.path}, {self.unit} {self.lines[row]}"

    def find(self, *names: str) -> str | None:
        """The first of these columns which the table has, in any case."""
        folded: dict[str, str] = {}
        for column in self.columns:
            folded.setdefault(column.casefold(), column)
        for name in names:
            if name in self.columns:
                return name
            if name.casefold() in folded:
                return folded[name.casefold()]
        return None

    def column(self, *names: str) -> Sequence[Any]:
        """Values of the first of these columns which the table has.

        Raises:
            InputError: it has none of them.
        """
        found = self.find(*names)
        if found is None:
            raise InputError(
                f"{self.path}: there is no column {' or '.join(map(repr, names))}.",
                hint=f"It has: {', '.join(self.columns) or 'none'}.",
            )
        return self.columns[found]

    def texts(self, *names: str) -> list[str]:
        """The same as text; numbers are written out.

        Raises:
            InputError: there is no such column, or a row has no value in it.
        """
        values = self.column(*names)
        missing = next((row for row, value in enumerate(values) if value is None), None)
        if missing is not None:
            raise InputError(f"{self.place(missing)}: {self.find(*names)!r} is missing.")
        return [value if isinstance(value, str) else str(value) for value in values]

    def numbers(self, *names: str) -> list[float]:
        """The same as numbers; NaN where there is none (see `number`)."""
        values, name = self.column(*names), self.find(*names)
        return [number(value, f"{self.place(row)}, {name}") for row, value in enumerate(values)]

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each row as its place and the fields it has."""
        for row in range(len(self)):
            fields = {name: values[row] for name, values in self.columns.items() if values[row] is not None}
            yield self.place(row), fields


def load_table(path: Path, *, quoted: bool = True) -> Table:
    """Read a file by its ending.

    Args:
        path: `.tsv`, `.csv`, `.json` (a list of objects), `.jsonl` or `.parquet`; all but the last may end in `.gz`.
        quoted: whether a TSV or CSV file may wrap cells in double quotes. A TSV file in which every line is a row is
            read as it stands if some cell starts with a double quote but is not quoted as programs do it; a quoted
            cell that holds both a tab and a line feed is refused, since it is most likely several rows.

    Raises:
        InputError: the file cannot be read, or is malformed (with its line).
        MissingExtraError: parquet needs the [bench] extra.
    """
    suffix = ending(path)
    if suffix == ".parquet":
        return _load_parquet(path)
    if suffix in (".json", ".jsonl", ".ndjson"):
        return _load_json(path, lines=suffix != ".json")
    if suffix in _DELIMITERS:
        return _load_cells(path, _DELIMITERS[suffix], quoted=quoted)
    raise InputError(f"{path}: not a table.", hint=f"Tables end in {', '.join(TABLES)}, and may be gzipped.")


def column_names(path: Path) -> set[str]:
    """Names of the columns of a file, found without reading all of a TSV or CSV file's cells."""
    suffix = ending(path)
    if suffix in _DELIMITERS:
        return {cell.strip('"') for cell in (read_lines(path) or [""])[0].split(_DELIMITERS[suffix])}
    return set(load_table(path).columns)


def ending(path: Path) -> str:
    """The ending of a file's name in lower case, without `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def number(value: Any, place: str) -> float:
    """A score, widened exactly where it is narrower than a Python float; NaN for none.

    Raises:
        InputError: it is no finite number.
    """
    if value is None or (isinstance(value, str) and value.strip().casefold() in MISSING):
        return math.nan
    found: float | None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    # Python reads "1_0" as 10 and True as 1; neither is a score.
    if found is None or isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise InputError(f"{place}: {value!r} is not a number.")
    if math.isinf(found):
        raise InputError(f"{place}: {value!r} is not finite.")
    return found


def _load_cells(path: Path, delimiter: str, *, quoted: bool) -> Table:
    text = read_text(path)
    if quoted and delimiter == "\t" and '"' in text:
        quoted = _is_quoted(path, text)
    lines, rows = _quoted_rows(path, text, delimiter) if quoted else _plain_rows(text, delimiter)
    if not rows:
        raise InputError(f"{path} is empty.")
    header = rows.pop(0)
    lines.pop(0)
    if len(set(header)) < len(header):
        raise InputError(f"{path}: a column name occurs twice in: {', '.join(header)}.")
    for cells, line in zip(rows, lines, strict=True):
        if len(cells) != len(header):
            raise InputError(
                f"{path}, line {line}: {len(cells)} cells, but the header has {len(header)} "
                f"({', '.join(header[:10])}{', …' if len(header) > 10 else ''})."
            )
    columns = zip(*rows, strict=True) if rows else ((),) * len(header)
    return Table(path, dict(zip(header, columns, strict=True)), lines)


def _is_quoted(path: Path, text: str) -> bool:
    """Whether a TSV file's cells are quoted; asked only of files in which every line is a row.

    Quoted as a program writes it, a cell that starts with a double quote also ends in one, and those inside are
    doubled. Where some cell is not, the quotes are part of the texts, as in many published files.
    """
    lines, rows = _plain_rows(text, "\t")
    if any(len(cells) != len(rows[0]) for cells in rows):
        return True  # only quoting could explain it
    starting = [(line, cell) for line, cells in zip(lines, rows, strict=True) for cell in cells if cell[:1] == '"']
    bare = next((line for line, cell in starting if not _is_quoted_cell(cell)), None)
    doubled = next((line for line, cell in starting if _is_quoted_cell(cell) and '""' in cell[1:-1]), None)
    if bare is not None and doubled is not None:
        raise InputError(
            f"{path}: line {doubled} has a quoted cell with doubled quotes, but in line {bare} a cell starts with a "
            "double quote and is not quoted.",
            hint=_QUOTING,
        )
    return bare is None


_QUOTING = 'Quote it ("a ""word"" of it"), or write the rows as JSON lines (.jsonl).'


def _is_quoted_cell(cell: str) -> bool:
    return len(cell) > 1 and cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")


def _plain_rows(text: str, delimiter: str) -> tuple[list[int], list[list[str]]]:
    """Every line that is not empty as cells, with its number."""
    found = [(line, content.removesuffix("\r")) for line, content in enumerate(text.split("\n"), 1)]
    return [line for line, content in found if content], [content.split(delimiter) for _, content in found if content]


def _quoted_rows(path: Path, text: str, delimiter: str) -> tuple[list[int], list[list[str]]]:
    """The same where cells may be quoted, and so hold line feeds. A row's number is that of its last line."""
    lines: list[int] = []
    rows: list[list[str]] = []
    reader = csv.reader(_keep_ends(text), delimiter=delimiter, strict=True)
    usual = csv.field_size_limit(LONGEST_CELL)  # of all readers there are, so it is put back
    try:
        for cells in reader:
            if cells:
                rows.append(cells)
                lines.append(reader.line_num)
            if delimiter == "\t" and any("\t" in cell and "\n" in cell for cell in cells):
                start = (lines[-2] if len(lines) > 1 else 0) + 1
                raise InputError(
                    f"{path}, line {start}: a cell starts with a double quote that is closed only in line "
                    f"{reader.line_num}, with tabs and line feeds between: that would make one text of several rows.",
                    hint=_QUOTING,
                )
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: {error}.", hint='A double quote inside a quoted cell is written "".'
        ) from error
    finally:
        csv.field_size_limit(usual)
    return lines, rows


def _keep_ends(text: str) -> Iterator[str]:
    """Lines with their line feeds, which the csv module needs for line breaks inside cells."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


def _load_json(path: Path, *, lines: bool) -> Table:
    numbers: list[int] = []
    rows: list[Any] = []
    try:
        if lines:
            for line, content in enumerate(read_lines(path), 1):
                if content.strip():
                    numbers.append(line)
                    rows.append(json.loads(content))
        else:
            found = json.loads(read_text(path))
            rows = found if isinstance(found, list) else []
            numbers = list(range(1, len(rows) + 1))
    except json.JSONDecodeError as error:
        line_number = numbers[-1] if numbers else error.lineno
        raise InputError(f"{path}, line {line_number}: not valid JSON: {error.msg} (column {error.colno}).") from error
    except (ValueError, RecursionError) as error:
        place = f"{path}, line {numbers[-1]}" if numbers else str(path)
        raise InputError(f"{place}: not valid JSON: {error}.") from error
    unit = "line" if lines else "item"
    if not rows:
        raise InputError(f"{path}: there are no objects in it.", hint="It should be a list of JSON objects.")
    for line, row in zip(numbers, rows, strict=True):
        if not isinstance(row, dict):
            raise InputError(f"{path}, {unit} {line}: not a JSON object.")
    names = dict.fromkeys(name for row in rows for name in row)
    return Table(path, {name: [row.get(name) for row in rows] for name in names}, numbers, unit)


def _load_parquet(path: Path) -> Table:
    try:
        import polars
    except ImportError as error:
        raise MissingExtraError("polars, which reads parquet files,", "bench") from error
    try:
        frame = polars.read_parquet(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except (OSError, polars.exceptions.PolarsError) as error:
        raise InputError(f"{path}: not a parquet file: {error}.") from error
    return Table(path, frame.to_dict(as_series=False), range(1, frame.height + 1), "row")
