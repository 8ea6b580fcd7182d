"""What programs write of the scores of segments: COMET's JSON, and promptmetric's own JSON, JSON lines and TSV."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from promptmetric.datasets.files import Table, number
from promptmetric.errors import InputError
from promptmetric.texts import read_text


@dataclass
class Block:
    """The scores of one system or file, in order. `texts` has src and mt where the file repeats them."""

    scores: list[float] = field(default_factory=list)
    texts: list[tuple[str | None, str | None]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)


def from_json(path: Path) -> dict[str, Block] | None:
    """The blocks of COMET's JSON or ours, by the file that was scored; None for a list, which is a table.

    Raises:
        InputError: the file is malformed.
    """
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}.") from error
    if not isinstance(content, dict):
        return None
    return _own_json(path, content) if "systems" in content else _comet(path, content)


def _comet(path: Path, content: Mapping[str, Any]) -> dict[str, Block]:
    blocks = {}
    for key, items in content.items():
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise InputError(f"{path}: {key!r} is no list of scored segments.", hint="COMET writes it with --to_json.")
        block = blocks[key] = Block()
        for position, item in enumerate(items, 1):
            place = f"{path}, {key}, segment {position}"
            block.scores.append(number(item[_score_key(item, place)], place))
            block.texts.append((_text(item, "src", place), _text(item, "mt" if "mt" in item else "hyp", place)))
    if not blocks:
        raise InputError(f"{path}: there are no scores in it.")
    return blocks


def _text(item: Mapping[str, Any], key: str, place: str) -> str | None:
    text = item.get(key)
    if text is not None and not isinstance(text, str):
        raise InputError(f"{place}: {key} must be a text, not {text!r:.60}.")
    return text


def _score_key(item: Mapping[str, Any], place: str) -> str:
    if "COMET" in item:
        return "COMET"
    numbers = [key for key, value in item.items() if isinstance(value, int | float)]
    if len(numbers) != 1:
        raise InputError(f"{place}: not one score, but {', '.join(numbers) or 'none'} among: {', '.join(item)}.")
    return numbers[0]


def _own_json(path: Path, content: Mapping[str, Any]) -> dict[str, Block]:
    blocks = {}
    try:
        for system in content["systems"]:
            block = blocks[system["file"]] = Block()
            for segment in system["segments"]:
                place = f"{path}, {system['file']}, segment {segment['segment']}"
                block.scores.append(number(segment["score"], place))
                block.statuses[segment["status"]] += 1
    except (KeyError, TypeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else f"it is malformed: {error}"
        raise InputError(
            f"{path}: {what}.",
            hint="Write it with `promptmetric score --format json`, without --only-system.",
        ) from error
    return blocks


def from_table(table: Table) -> dict[str, Block]:
    """JSON lines and TSV: a row a segment, then one of the system."""
    blocks: dict[str, Block] = {}
    scores, segments = table.numbers("score"), table.columns["segment"]
    kinds = table.columns.get("type", [None] * len(table))
    for row, file in enumerate(table.texts("file")):
        block = blocks.setdefault(file, Block())
        if kinds[row] == "system" or segments[row] == "system":
            continue
        if str(segments[row]) != str(len(block.scores)):
            raise InputError(f"{table.place(row)}: segment {segments[row]} of {file} where {len(block.scores)} is due.")
        block.scores.append(scores[row])
        block.statuses[str(table.column("status")[row])] += 1
    return blocks
