"""Files in, samples out: plain text with a segment a line, or JSON lines; gzipped or not; `-` is stdin."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from promptmetric.errors import InputError
from promptmetric.texts import decode_text, read_lines, split_lines
from promptmetric.types import Sample

STDIN = "-"
_JSONL = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")


def read_samples(source: str, hypotheses: Sequence[str], limit: int | None = None) -> dict[str, list[Sample]]:
    """Read and align source and hypothesis files.

    Args:
        source: a text file with a source a line, or a JSON lines file with `src` (and what else a sample has).
        hypotheses: one file a system: a hypothesis a line, or JSON lines with `hyp` or `mt`. None are needed where
            the source file holds the hypotheses as well.
        limit: keep only the first so many segments of each system.

    Returns:
        Samples by the name of their hypothesis file; or by system, where the source file holds the hypotheses of
        several and each row names its `system`.

    Raises:
        InputError: a file cannot be read, is empty or malformed (with its line), or line counts differ.
    """
    names = [source, *hypotheses]
    if names.count(STDIN) > 1:
        raise InputError("stdin (-) can be read only once.")
    twice = {name for name in hypotheses if hypotheses.count(name) > 1}
    if twice:
        raise InputError(f"{', '.join(sorted(twice))}: given twice.")
    rows = _read_rows(source, "src")
    if not hypotheses and not any({"hyp", "mt"} & fields.keys() for _, fields in rows):
        raise InputError(f"{_label(source)} holds no hypotheses.", hint="Name their file with -t.")
    if not hypotheses:
        return {name: _samples(theirs[:limit], source) for name, theirs in _by_system(rows, source).items()}
    systems = {}
    for name in hypotheses:
        theirs = _read_rows(name, "hyp")
        if len(theirs) != len(rows):
            raise InputError(
                f"{_label(source)} has {len(rows)} segments, but {_label(name)} has {len(theirs)}.",
                hint="Line n of both must belong together; texts with line breaks inside need JSON lines (.jsonl).",
            )
        merged = [_merge(mine, other, source, name) for mine, other in zip(rows, theirs, strict=True)]
        systems[name] = _samples(merged[:limit], name)
    return systems


_Row = tuple[int, dict[str, Any]]
"""A line number and the fields of a sample."""


def _by_system(rows: Sequence[_Row], source: str) -> dict[str, list[_Row]]:
    """Rows by their system; all under the file's name where some row does not name its system, or all name one."""
    systems: dict[str, list[_Row]] = {}
    for row in rows:
        systems.setdefault(str(row[1].get("system")), []).append(row)
    named = all(fields.get("system") is not None for _, fields in rows)
    return systems if named and len(systems) > 1 else {source: list(rows)}


def _samples(rows: Sequence[_Row], name: str) -> list[Sample]:
    return [Sample.from_dict(fields, f"{_label(name)}, line {number}") for number, fields in rows]


def _merge(mine: _Row, theirs: _Row, source: str, name: str) -> _Row:
    """A row of the source file with its row of a hypothesis file."""
    (my_line, my_fields), (line, fields) = mine, theirs
    where = f"{_label(source)}, line {my_line}"
    if "src" not in my_fields:
        raise InputError(f"{where}: 'src' is missing.")
    if fields.get("src", my_fields["src"]) != my_fields["src"]:
        raise InputError(f"{where} and {_label(name)}, line {line}: the sources differ.")
    return line, {**{key: value for key, value in my_fields.items() if key not in ("hyp", "mt")}, **fields}


def _read_rows(name: str, key: str) -> list[_Row]:
    """A row a segment; a line of plain text has the one field `key`."""
    lines = _read_lines(name)
    if not lines:
        raise InputError(f"{_label(name)} is empty.")
    if name.endswith(_JSONL) or (name == STDIN and _is_json_object(lines[0])):
        rows = [
            (number, _json_object(line, f"{_label(name)}, line {number}"))
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
        if not rows:
            raise InputError(f"{_label(name)} is empty.")
        return rows
    return [(number, {key: line}) for number, line in enumerate(lines, 1)]


def _read_lines(name: str) -> list[str]:
    if name == STDIN:
        return split_lines(decode_text(_read_stdin(), _label(name)))
    return read_lines(Path(name))


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise InputError("stdin is closed.")
    return sys.stdin.buffer.read()


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not valid JSON: {error.msg} (column {error.colno}).") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{where}: not a JSON object.", hint='Write {"src": "…", "hyp": "…"} on each line.')
    return found


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _label(name: str) -> str:
    return "stdin" if name == STDIN else name
