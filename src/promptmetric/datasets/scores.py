"""Scores of any metric for the rows of a set, from the files metrics write."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptmetric.datasets.blocks import Block, from_json, from_table
from promptmetric.datasets.evalset import EvalSet
from promptmetric.datasets.files import TABLES, Table, ending, load_table, number
from promptmetric.datasets.mtme import read_score_blocks
from promptmetric.datasets.table import COLUMNS
from promptmetric.errors import InputError
from promptmetric.texts import counted, read_lines

SEGMENT_SCORES, SYSTEM_SCORES = ".seg.score", ".sys.score"


@dataclass(frozen=True)
class MetricScores:
    """What one metric says of a set.

    Attributes:
        name: the metric; the name of its file or of its column.
        values: one a row of the set, higher is better; NaN where the file has none.
        path: the file.
        notes: what is missing, ignored or imputed.
    """

    name: str
    values: list[float]
    path: Path
    notes: tuple[str, ...] = ()


def read_scores(path: str | Path, evalset: EvalSet, whole: EvalSet | None = None) -> list[MetricScores]:
    """Read the scores that one file has for the rows of a set.

    It may be: JSON of `comet-score --to_json`; JSON, JSON lines or TSV of `promptmetric score`; a `.seg.score` file
    of mt-metrics-eval (lines `system<TAB>score`); a table with columns of systems, segments and any number of metrics;
    or plain text with a number a line in the order of the set's rows.

    Scores of a system are in the order of its rows in the set; or every system has a score for each line of the test
    set, judged or not, and rows are found by the number that is their segment's id, from 0. A file of one block that
    bears no system's name scores the whole set. What scores the rows in their order may score those of `whole`
    (which `promptmetric data export` writes) or those of `evalset`; their number tells which.

    Args:
        path: the file.
        evalset: the set.
        whole: the set with the rows that were left out of it, such as human translations; None where none were.

    Returns:
        One metric, or as many as a table has columns of numbers.

    Raises:
        InputError: counts differ (both are named), texts differ, or a score is not a number.
    """
    path, whole = Path(path), whole or evalset
    suffix = ending(path)
    if path.name.endswith((SEGMENT_SCORES, ".score")):
        return [_from_score_file(path, evalset)]
    if suffix == ".json":
        blocks = from_json(path)
        if blocks is not None:
            return [_from_files(path, blocks, evalset, whole)]
    if suffix in TABLES:
        table = load_table(path)
        if table.find("file") and table.find("segment") and table.find("status"):
            return [_from_files(path, from_table(table), evalset, whole)]
        return _from_table(table, evalset, whole)
    return [_from_lines(path, evalset, whole)]


def _name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    for known in (SEGMENT_SCORES, ".seg.scores", *TABLES, ".scores", ".score", ".txt"):
        name = name.removesuffix(known)
    return name


def _in_order(path: Path, count: int, evalset: EvalSet, whole: EvalSet) -> list[int]:
    """Where the score of each row stands in a file that has the scores of all rows in their order."""
    if count == len(whole.rows):
        kept = {(row.system, row.segment) for row in evalset.rows}
        return [at for at, row in enumerate(whole.rows) if (row.system, row.segment) in kept]
    if count == len(evalset.rows):
        return list(range(count))
    if len(whole.rows) == len(evalset.rows):
        raise InputError(
            f"{path}: {counted(count, 'score')}, but {evalset.name} has {len(whole.rows)} rows.",
            hint="`promptmetric data export` writes them. In a table, columns of systems and segments tell which is "
            "which.",
        )
    raise InputError(
        f"{path}: {counted(count, 'score')}, but {evalset.name} has {len(whole.rows)} rows, or {len(evalset.rows)} "
        "without the human translations among its systems.",
        hint="Score the rows that `promptmetric data export` writes. meta-eval leaves human translations out unless "
        "--humans is given.",
    )


def _absent(values: Sequence[float]) -> tuple[str, ...]:
    absent = sum(map(math.isnan, values))
    return (f"no score in {counted(absent, 'row')}",) if absent else ()


# Scores by system, or by file


def _from_score_file(path: Path, evalset: EvalSet) -> MetricScores:
    if path.name.endswith(SYSTEM_SCORES):
        raise InputError(
            f"{path}: scores of systems, not of segments.",
            hint=f"Give the {SEGMENT_SCORES} file.",
        )
    blocks = {system: Block(scores) for system, scores in read_score_blocks(path).items()}
    values, notes = _place(path, blocks, {system: system for system in blocks}, evalset)
    return MetricScores(_name(path), values, path, notes)


def _from_files(path: Path, blocks: Mapping[str, Block], evalset: EvalSet, whole: EvalSet) -> MetricScores:
    systems = _match(path, blocks, evalset, whole)
    statuses = sum((block.statuses for block in blocks.values()), Counter[str]())
    total = sum(len(block.scores) for block in blocks.values())
    marks = tuple(f"{count} of {total} {status}" for status, count in sorted(statuses.items()) if status != "ok")
    if systems is None:
        (block,) = blocks.values()
        at = _in_order(path, len(block.scores), evalset, whole)
        _check_texts(path, block, dict(enumerate(at)), evalset)
        return MetricScores(_name(path), [block.scores[position] for position in at], path, marks)
    values, notes = _place(path, blocks, systems, evalset)
    return MetricScores(_name(path), values, path, (*marks, *notes))


def _match(path: Path, blocks: Mapping[str, Block], evalset: EvalSet, whole: EvalSet) -> dict[str, str | None] | None:
    """The system of each file, None for files of others; None for all where one file scores the whole set."""
    left_out = set(whole.systems) - set(evalset.systems)
    matched = {key: None if key in left_out else _system_of(key, evalset) for key in blocks}
    found = [system for system in matched.values() if system is not None]
    if len(found) > len(set(found)):
        twice = sorted({system for system in found if found.count(system) > 1})
        raise InputError(f"{path}: more than one file of system {', '.join(twice)}: {', '.join(blocks)}.")
    if found:
        return matched
    if len(blocks) == 1:
        return None
    raise InputError(
        f"{path}: none of its files bears the name of a system: {_some(blocks)}.",
        hint=f"{evalset.name} has the systems {_some(evalset.systems)}.",
    )


def _system_of(key: str, evalset: EvalSet) -> str | None:
    name = Path(key.replace("\\", "/")).name
    tries = (key, name, Path(name).stem, name.partition(".")[0])
    return next((attempt for attempt in tries if attempt in evalset.systems), None)


def _place(
    path: Path, blocks: Mapping[str, Block], systems: Mapping[str, str | None], evalset: EvalSet
) -> tuple[list[float], tuple[str, ...]]:
    """Hand each row of the set its score."""
    rows_of: dict[str, list[int]] = {system: [] for system in evalset.systems}
    for row, judged in enumerate(evalset.rows):
        rows_of[judged.system].append(row)
    values = [math.nan] * len(evalset.rows)
    ignored = [key for key in blocks if systems[key] not in rows_of]
    found = {str(systems[key]): block for key, block in blocks.items() if systems[key] in rows_of}
    whole = _score_whole_test_set(
        path, {system: len(block.scores) for system, block in found.items()}, rows_of, evalset
    )
    for system, block in found.items():
        rows = rows_of[system]
        at = {row: int(evalset.rows[row].segment) if whole else position for position, row in enumerate(rows)}
        _check_texts(path, block, at, evalset)
        for row, position in at.items():
            values[row] = block.scores[position]
    if not found:
        raise InputError(
            f"{path}: {evalset.name} has none of its systems: {_some(blocks)}.",
            hint=f"{evalset.name} has {_some(evalset.systems)}.",
        )
    notes = _notes(found, ignored, evalset)
    if not any(block.statuses for block in blocks.values()):  # which count what failed themselves
        notes += _absent([value for value, row in zip(values, evalset.rows, strict=True) if row.system in found])
    return values, notes


def _score_whole_test_set(
    path: Path, counts: Mapping[str, int], rows_of: Mapping[str, Sequence[int]], evalset: EvalSet
) -> bool:
    """Whether scores by system are those of all lines of the test set, rather than of the judged ones alone.

    Raises:
        InputError: they are neither.
    """
    surplus = [system for system, count in counts.items() if count != len(rows_of[system])]
    if not surplus:
        return False
    usual = Counter(counts.values()).most_common(1)[0][0]
    lines = _lines(evalset)
    whole = usual if lines is None else lines
    # Without a segment 0, the set's ids may count from 1, and every score would go to its neighbour.
    fits = "0" in evalset.segments and all(name.isdecimal() and int(name) < whole for name in evalset.segments)
    uneven = [system for system, count in counts.items() if count != whole] if fits else list(counts)
    if not uneven:
        return True
    system = min(uneven, surplus, key=len)[0]
    judged = counted(len(rows_of[system]), "judged segment")
    known = f", of a test set of {lines}" if lines is not None and lines != len(rows_of[system]) else ""
    others = f"; the file has {usual} of most systems" if counts[system] != usual else ""
    raise InputError(
        f"{path}: {counted(counts[system], 'score')} of {system}, but {evalset.name} has {judged} of it"
        f"{known}{others}.",
        hint="Every system needs as many as it has judged segments; or all systems one for each line of the test set, "
        "where ids of segments count its lines from 0, and 0 is among them.",
    )


def _lines(evalset: EvalSet) -> int | None:
    """How many lines the test set has, where the set knows it or its segments are numbered without a gap."""
    count = len(evalset.segments)
    gapless = set(evalset.segments) == set(map(str, range(count)))
    return evalset.lines or (count if gapless else None)


def _check_texts(path: Path, block: Block, at: Mapping[int, int], evalset: EvalSet) -> None:
    """Texts a file repeats must be the set's; COMET strips the ends of lines."""
    if not block.texts:
        return
    for row, position in at.items():
        judged = evalset.rows[row]
        src, mt = block.texts[position]
        for what, theirs, ours in (("source", src, judged.src), ("hypothesis", mt, judged.hyp)):
            if theirs is not None and theirs.split() != ours.split():
                raise InputError(
                    f"{path}, score {position + 1} of {judged.system}: another {what} than in {evalset.name}: "
                    f"{theirs[:60]!r}, not {ours[:60]!r}.",
                    hint="The texts must have been scored in the order of the set's rows (`promptmetric data export`).",
                )


def _notes(found: Collection[str], ignored: Sequence[str], evalset: EvalSet) -> tuple[str, ...]:
    missing = [system for system in evalset.systems if system not in found]
    notes = []
    if ignored:
        notes.append(f"ignored, since the set lacks them: {_some(sorted(ignored))}")
    if missing:
        notes.append(f"no scores of {_some(missing)}")
    return tuple(notes)


def _some(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# Tables and plain lines


def _from_table(table: Table, evalset: EvalSet, whole: EvalSet) -> list[MetricScores]:
    system, segment = table.find(*COLUMNS["system"]), table.find(*COLUMNS["segment"])
    metrics = _metric_columns(table, {system, segment})
    if not metrics:
        raise InputError(f"{table.path}: there is no column of numbers.", hint=f"It has: {', '.join(table.columns)}.")
    if system is None and segment is None:
        order = _in_order(table.path, len(table), evalset, whole)
        columns = {metric: table.numbers(metric) for metric in metrics}
        return [
            MetricScores(metric, values, table.path, _absent(values))
            for metric, values in ((metric, [column[row] for row in order]) for metric, column in columns.items())
        ]
    at = _row_of(table, evalset)
    keys = [(row.system, row.segment) for row in evalset.rows]
    missing = sum(key not in at for key in keys)
    if missing == len(keys):
        raise InputError(
            f"{table.path}: it has none of the systems and segments of {evalset.name}.",
            hint=f"The set's first row is {_some(keys[0])}; the table's, {_some(next(iter(at), ('none',)))}.",
        )
    theirs = {key[0] for key in at}
    notes = _notes(theirs & set(evalset.systems), sorted(theirs - set(evalset.systems)), evalset)
    partly = sum(key not in at and key[0] in theirs for key in keys)
    if partly:
        notes = (*notes, f"no scores of {counted(partly, 'row')} of other systems")
    found = []
    for metric in metrics:
        numbers = table.numbers(metric)
        values = [numbers[at[key]] if key in at else math.nan for key in keys]
        absent = _absent([numbers[at[key]] for key in keys if key in at])
        found.append(MetricScores(metric, values, table.path, (*notes, *absent)))
    return found


_NO_METRICS = {"file", "lp", "langs", "testset", "raw", "rater", "category", "severity", "status", "text", "signature"}


def _metric_columns(table: Table, keys: set[str | None]) -> list[str]:
    """Columns whose first value is a number, but those of texts, keys and flags."""
    texts = _NO_METRICS | {name.casefold() for names in COLUMNS.values() for name in names}
    return [
        name
        for name, values in table.columns.items()
        if name not in keys and name.casefold() not in texts and _is_number(values)
    ]


def _is_number(values: Sequence[Any]) -> bool:
    try:
        first = next((value for value in values if value is not None and not math.isnan(number(value, ""))), None)
    except InputError:
        return False
    return first is not None


def _row_of(table: Table, evalset: EvalSet) -> dict[tuple[str, str], int]:
    """The table's row by system and segment, of the set's language pair where the table has several."""
    systems, segments = table.texts(*COLUMNS["system"]), table.texts(*COLUMNS["segment"])
    pair = table.find("lp", "langs")
    pairs = table.columns[pair] if pair and evalset.langs else None
    at: dict[tuple[str, str], int] = {}
    for row, key in enumerate(zip(systems, segments, strict=True)):
        if pairs and pairs[row] != evalset.langs:
            continue
        if key in at:
            raise InputError(f"{table.place(row)}: system {key[0]} has segment {key[1]} twice.")
        at[key] = row
    return at


def _from_lines(path: Path, evalset: EvalSet, whole: EvalSet) -> MetricScores:
    lines = read_lines(path)
    if lines and "\t" in lines[0]:
        if "\tscore:" in lines[0]:
            raise InputError(
                f"{path}: scores rounded for reading.",
                hint="Have them written exactly: comet-score --to_json FILE, or promptmetric score --format json.",
            )
        return _from_score_file(path, evalset)
    given = [number(line, f"{path}, line {line_number}") for line_number, line in enumerate(lines, 1)]
    values = [given[at] for at in _in_order(path, len(given), evalset, whole)]
    return MetricScores(_name(path), values, path, _absent(values))
