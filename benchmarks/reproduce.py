"""PrExMe's tables 10 to 13 as printed, beside the published grid of correlations, and beside what was run here.

    python benchmarks/reproduce.py --table 10 --data DATA_FOLDER
    python benchmarks/reproduce.py --table all --data DATA_FOLDER --run results.json --format markdown

Each row of a table stands on several lines, told apart by their source:

paper           as printed (`prexme_tables.tsv`)
grid            recomputed: the model's prompt with the highest Kendall on that dataset, or the baseline's entry
grid, one-shot  where a one-shot prompt has a higher Kendall than the best one that the table considers
run             what `promptmetric bench` measured here for the printed prompt, one line a result file and decoding

Every measure is marked: reproduced, differs, not run, or no data (the grid has no such entry).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from presets import UNDEFINED, read_cells

from promptmetric.errors import InputError
from promptmetric.prompts.grid import PREFIX
from promptmetric.prompts.presets import find_model, models
from promptmetric.report.tables import markdown_table
from promptmetric.report.tables import table as text_table

PRINTED = Path(__file__).parent / "prexme_tables.tsv"
MEASURES = ("kendall", "pearson", "spearman", "accuracy")
RUN_NAMES = {name: name for name in MEASURES[:3]} | {"accuracy-as-published": "accuracy"}
COLUMNS = ("dataset", "model", "prompt", "source", "n", "Kendall", "Pearson", "Spearman", "accuracy", "star", "outcome")
TOLERANCE = 0.005
TABLES = {
    "10": ("Eval4NLP train", "train", "eval4nlp/train"),
    "11": ("Eval4NLP dev", "dev", "eval4nlp/dev"),
    "12": ("Eval4NLP test", "test", "eval4nlp/test"),
    "13": ("WMT23 and Seahorse", "test2", "wmt23"),
}
"""Title, the dataset's name in the grid, and in results of `promptmetric bench`."""
ZERO_SHOT_ONLY = ("11",)
"""Tables that pass over the one-shot prompts in the grid."""
NOTES = (
    "Accuracy is the published one and not tie-calibrated: the code took the accuracy itself for the tie threshold and "
    "drew a tenth of the pairs without a seed; for baselines it applied the threshold to the human scores, so theirs "
    "cannot be compared with the prompts'.",
    "The best of many prompts, chosen on the very data it is reported on, overstates what to expect. Stars are as "
    "printed: the scores needed to test them are not published.",
    "grid: reproduced means equal after rounding to the printed decimals.",
)
RUN_NOTE = f"run: reproduced means within ±{TOLERANCE} of print, as greedy decoding on other hardware is not bit-equal."
UNDEFINED_NOTE = (
    "{} correlations of the whole grid are undefined (all answers alike). The published code counts them as 0 where it "
    "compares prompts; here they are left out. No row changes by it: every prompt chosen has a Kendall above 0."
)


class Row(NamedTuple):
    """A row as printed."""

    table: str
    dataset: str
    kind: str
    model: str
    method: str
    star: str
    printed: dict[str, str]

    @property
    def key(self) -> tuple[str, str, str]:
        """Set, model and prompt, as in results of `promptmetric bench`."""
        is_seahorse = (self.table, self.dataset) == ("13", "summarization")
        return "seahorse" if is_seahorse else f"{TABLES[self.table][2]}/{self.dataset}", self.model, self.method


class Entry(NamedTuple):
    """Something measured: published in the grid, or run here. A measure that was not taken is missing."""

    source: str
    data: str
    model: str
    method: str
    n: int | None
    values: dict[str, float]


class Line(NamedTuple):
    """An entry held against the printed row: a mark a measure, and what they come to."""

    entry: Entry
    marks: dict[str, str]
    outcome: str


def read_printed() -> list[Row]:
    """The tables as printed."""
    with PRINTED.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader((line for line in lines if not line.startswith("#")), delimiter="\t"))
    return [Row(**{k: row[k] for k in Row._fields[:-1]}, printed={k: row[k] for k in MEASURES}) for row in rows]


def read_grid(folder: Path) -> tuple[list[Entry], int]:
    """Every published entry, prompts first, then baselines; and how many were undefined and are left out.

    Raises:
        InputError: a file is missing.
    """
    paths = [folder / f"prexme/prexme_{name}.csv" for name in ("correlations_all", "baseline_correlations")]
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path}: no such file.", hint="--data names the folder that holds prexme/.")
    cells = read_cells(paths[0])
    entries = [published(c.row, c.data, c.prompt, c.n, "acc_tie_calibrated") for c in cells if c.kendall != UNDEFINED]
    undefined = len(cells) - len(entries)
    with paths[1].open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    entries += [published(row, row["dataset"], row["approach"], None, "kendall_tie_corrected") for row in rows]
    return entries, undefined


def published(row: dict[str, str], data: str, method: str, n: int | None, accuracy: str) -> Entry:
    values = {name: float(row[accuracy if name == "accuracy" else name]) for name in MEASURES}
    ours = next((model.name for model in models() if model.paper_name == row["model"]), row["model"])
    return Entry("grid", f"{data}/{row['task'].replace('_', '-')}", ours, method, n, values)


def read_runs(path: Path) -> list[Entry]:
    """The cells of a results file of `promptmetric bench`.

    Raises:
        InputError: the file cannot be read or does not have the shape of such results.
    """
    try:
        return [run(cell) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: not a results file ({reason}).", hint="`promptmetric bench` writes them.") from error


def run(cell: dict[str, Any]) -> Entry:
    taken = {RUN_NAMES[name]: found["value"] for name, found in cell["measures"].items() if name in RUN_NAMES}
    values = {name: math.nan if value is None else float(value) for name, value in taken.items()}
    model = find_model(cell["model"])
    name = model.name if model else cell["model"]
    return Entry(f"run, {cell['decode']}", cell["set"], name, cell["prompt"], int(cell["n"]), values)


def compare(row: Row, grid: Sequence[Entry], runs: Sequence[Entry] | None) -> list[Line]:
    """The printed row against the grid, in which the choice is made as the paper made it, and against the runs."""
    data = f"{TABLES[row.table][1]}/{row.dataset}"
    mine = [e for e in grid if e.data == data and e.model == row.model]
    if row.kind == "prompt":
        mine = [e for e in mine if e.method.startswith(PREFIX)]
    else:
        mine = [e for e in mine if e.method == row.method]
    one_shot = best(e for e in mine if is_one_shot(e))
    nothing = Entry("grid", data, row.model, row.method, None, {})
    chosen = best(e for e in mine if not is_one_shot(e) or row.table not in ZERO_SHOT_ONLY) or nothing
    remark = "" if chosen.method == row.method else "; another prompt is best"
    lines = [judge(row, chosen, rounds_to, "no data", remark)]
    if one_shot and chosen.values and one_shot.values["kendall"] > chosen.values["kendall"]:
        lines.append(Line(one_shot._replace(source="grid, one-shot"), {}, "higher Kendall than the row"))
    if runs is None:
        return lines
    for entry in [e for e in runs if (e.data, e.model, e.method) == row.key] or [nothing._replace(source="run")]:
        is_other = entry.n and chosen.n and entry.n != chosen.n
        remark = f"; on {entry.n} segments, not {chosen.n}" if is_other else ""
        lines.append(judge(row, entry, is_close, "not run", remark))
    return lines


def best(entries: Iterable[Entry]) -> Entry | None:
    return max(entries, key=lambda entry: entry.values["kendall"], default=None)


def is_one_shot(entry: Entry) -> bool:
    return entry.method.startswith(f"{PREFIX}os")


def rounds_to(value: float, printed: str) -> bool:
    return round(value, len(printed.partition(".")[2])) == float(printed)


def is_close(value: float, printed: str) -> bool:
    return abs(value - float(printed)) <= TOLERANCE + 1e-9  # a difference of exactly the tolerance is within it


def judge(row: Row, entry: Entry, same: Callable[[float, str], bool], missing: str, remark: str) -> Line:
    marks = dict.fromkeys(MEASURES, missing)
    for name, value in entry.values.items():
        marks[name] = "reproduced" if same(value, row.printed[name]) else "differs"
    groups = {mark: ", ".join(name for name in MEASURES if marks[name] == mark) for mark in marks.values()}
    outcome = "; ".join(f"{mark}: {names}" for mark, names in groups.items()) if len(groups) > 1 else marks["kendall"]
    return Line(entry, marks, outcome + remark)


def counts(compared: Sequence[tuple[Row, list[Line]]], runs: Sequence[Entry] | None, has_grid: bool) -> list[str]:
    """The closing lines."""
    outcomes = [lines[0].outcome for _, lines in compared]
    matching, missing = outcomes.count("reproduced"), outcomes.count("no data")
    parts = [f"{matching} of {len(compared)} rows match on all four measures"]
    if matching + missing < len(compared):
        parts.append(f"{len(compared) - matching - missing} differ")
    if missing:
        rows = [row for row, lines in compared if lines[0].outcome == "no data"]
        names = sorted({row.method if row.kind == "baseline" else row.model for row in rows})
        parts.append(f"{missing} have no data: {', '.join(names) if has_grid else 'name their folder with --data'}")
    closing = ["; ".join(parts)]
    if runs is not None:
        taken = [line for _, lines in compared for line in lines if line.entry.source.startswith("run,")]
        marks = [mark for line in taken for mark in line.marks.values()]
        keys = {row.key for row, _ in compared}
        others = sum((entry.data, entry.model, entry.method) not in keys for entry in runs)
        empty = sum(lines[-1].entry.source == "run" for _, lines in compared)
        closing.append(
            f"run here: measures reproduced: {marks.count('reproduced')}, differing: {marks.count('differs')}; "
            f"rows not run: {empty}; results of none of these rows: {others}"
        )
    return closing


def cells_of(row: Row, lines: Sequence[Line]) -> list[list[str]]:
    """A printed row and what it is compared with, for the eye."""
    paper = [row.dataset, row.model or "–", row.method, "paper", "–", *row.printed.values(), row.star, ""]
    cells = [paper]
    for entry, _, outcome in lines:
        figures = [f"{entry.values[name]:.3f}" if name in entry.values else "–" for name in MEASURES]
        cells.append([*paper[:2], entry.method, entry.source, str(entry.n or "–"), *figures, "", outcome])
    return cells


def json_line(line: Line) -> dict[str, Any]:
    values = {name: None if math.isnan(value) else value for name, value in line.entry.values.items()}
    return {**line.entry._asdict(), "values": values, "marks": line.marks, "outcome": line.outcome}


def report(wanted: Sequence[str], data: Path | None, run_files: Sequence[Path], form: str) -> str:
    grid, undefined = read_grid(data) if data else ([], 0)
    runs = [entry for path in run_files for entry in read_runs(path)] if run_files else None
    compared = [(row, compare(row, grid, runs)) for row in read_printed() if row.table in wanted]
    notes = [*NOTES]
    if runs is not None:
        notes.append(RUN_NOTE)
    if undefined:
        notes.append(UNDEFINED_NOTE.format(undefined))
    closing = counts(compared, runs, bool(grid))
    if form == "json":
        rows = [{**row._asdict(), "compared": [json_line(line) for line in lines]} for row, lines in compared]
        return json.dumps({"rows": rows, "notes": notes, "counts": closing}, ensure_ascii=False, indent=1)
    heading, draw, bullet = ("## ", markdown_table, "- ") if form == "markdown" else ("", text_table, "  ")
    parts = []
    for number in wanted:
        cells = [cell for row, lines in compared if row.table == number for cell in cells_of(row, lines)]
        parts.append(f"{heading}Table {number}: {TABLES[number][0]}\n\n{draw(COLUMNS, cells)}")
    parts.append("\n".join(bullet + note for note in notes))
    return "\n\n".join([*parts, "\n".join(closing)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=[*TABLES, "all"], required=True)
    folder = os.environ.get("PROMPTMETRIC_DATA")
    help_data = "folder with prexme/, the published correlations  [default: $PROMPTMETRIC_DATA]"
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None, help=help_data)
    parser.add_argument("--run", type=Path, nargs="+", default=[], help="results of `promptmetric bench`")
    parser.add_argument("--format", choices=["text", "markdown", "json"], default="text")
    arguments = parser.parse_args()
    wanted = list(TABLES) if arguments.table == "all" else [arguments.table]
    try:
        print(report(wanted, arguments.data, arguments.run, arguments.format))
    except InputError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
