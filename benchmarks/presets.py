"""Chooses each model's prompt from the published PrExMe grid and writes `src/promptmetric/prompts/data/evidence.toml`.

    python benchmarks/presets.py --data DATA_FOLDER            prints the table and writes the file
    python benchmarks/presets.py --data DATA_FOLDER --check    exits 1 if the shipped file differs

The rule (medians first, never the maximum alone, for the best of 720 noisy cells overstates itself):

1. Data: Kendall on the zero-shot train grid (24 descriptions × 30 patterns × 3 datasets, n = 500 or 320 each). A cell
   without a correlation (constant answers) counts below every number. Parts with a known defect are left out.
2. Pattern: the (base, format) with the highest median over descriptions and datasets. A model's preference for a
   pattern is what carries over between datasets (paper, Section 5).
3. Description: within that pattern, the one with the highest median over the datasets.
4. `any`, for models nobody measured: the prompt with the highest median over models and datasets.

How the rule fares where it was not fitted is printed first: each dataset in turn is left out, the prompt is chosen on
the others, and its Kendall on the left-out one is set against that of the best single cell chosen the same way.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from promptmetric.prompts import grid
from promptmetric.prompts.presets import models

TARGET = Path(__file__).parents[1] / "src/promptmetric/prompts/data/evidence.toml"
UNDEFINED = -1.0  # rank of a cell without a correlation: below every Kendall
RULE = (
    "pattern (base and format) with the highest median Kendall over descriptions and datasets of the zero-shot train "
    "grid; within it the description with the highest median over the datasets; defective parts left out"
)


class Cell(NamedTuple):
    """One published measurement."""

    data: str
    setting: str
    dataset: str
    model: str
    base: str
    description: str
    format: str
    n: int
    kendall: float
    row: dict[str, str]

    @property
    def pattern(self) -> str:
        return f"{self.base}/{self.format}"

    @property
    def prompt(self) -> str:
        return f"{grid.PREFIX}{self.base}/{self.description}/{self.format}"


def read_cells(path: Path) -> list[Cell]:
    axes = grid.grid()
    bases = {(part.published, part.id.startswith("os")): part.id for part in axes.bases}
    descriptions = {part.published: part.id for part in axes.descriptions}
    formats = {part.published: part.id for part in axes.formats}
    with path.open(newline="", encoding="utf-8") as lines:
        return [
            Cell(
                data=row["dataset"],
                setting=row["setting"],
                dataset=row["task"],
                model=row["model"],
                base=bases[row["base_prompt"], row["setting"] == "one_shot"],
                description=descriptions[row["task_description"]],
                format=formats[row["format"]],
                n=int(row["count"]),
                kendall=float(row["kendall"]) if row["kendall"] else UNDEFINED,
                row=row,
            )
            for row in csv.DictReader(lines)
        ]


def selectable(cells: Iterable[Cell]) -> list[Cell]:
    axes = grid.grid()
    broken = {part.id for part in (*axes.bases, *axes.descriptions, *axes.formats) if part.defect}
    return [
        cell
        for cell in cells
        if cell.data == "train"
        and cell.setting == "zero_shot"
        and not broken & {cell.base, cell.description, cell.format}
    ]


def medians(cells: Iterable[Cell], key: str) -> dict[str, float]:
    groups = defaultdict(list)
    for cell in cells:
        groups[getattr(cell, key)].append(cell.kendall)
    return {name: statistics.median(values) for name, values in groups.items()}


def best(scores: dict[str, float]) -> str:
    """Highest score; ties go to the first in alphabetical order."""
    return max(sorted(scores), key=lambda name: scores[name])


def choose(cells: list[Cell]) -> tuple[str, str]:
    """Pattern and prompt by the rule."""
    pattern = best(medians(cells, "pattern"))
    prompt = best(medians([cell for cell in cells if cell.pattern == pattern], "prompt"))
    return pattern, prompt


def leave_one_out(cells: list[Cell]) -> None:
    """Print mean Kendall on the left-out dataset of the rule's choice and of the best single cell."""
    ours, theirs = [], []
    for model in sorted({cell.model for cell in cells}):
        mine = [cell for cell in cells if cell.model == model]
        for left_out in sorted({cell.dataset for cell in mine}):
            fit = [cell for cell in mine if cell.dataset != left_out]
            held = {cell.prompt: cell.kendall for cell in mine if cell.dataset == left_out}
            ours.append(held[choose(fit)[1]])
            theirs.append(held[max(fit, key=lambda cell: cell.kendall).prompt])
    print(
        f"left-out dataset, mean Kendall over {len(ours)} (model, dataset) pairs: "
        f"rule {statistics.mean(ours):.3f}, best single cell {statistics.mean(theirs):.3f}, "
        f"median prompt {statistics.median(cell.kendall for cell in cells):.3f}\n"
    )


def correlations(cells: list[Cell], model: str, prompt: str) -> list[dict[str, object]]:
    """What one prompt of one model reached, dataset by dataset, undefined cells left out."""
    found = []
    for cell in cells:
        if cell.model == model and cell.prompt == prompt and cell.kendall != UNDEFINED:
            task = "summarization" if cell.dataset == "summarization" else "translation"
            entry: dict[str, object] = {"data": cell.data, "task": task}
            if task == "translation":
                entry["langs"] = cell.dataset.replace("_", "-")
            entry["n"] = cell.n
            entry |= {name: round(float(cell.row[name]), 4) for name in ("kendall", "pearson", "spearman")}
            found.append(entry)
    return found


def toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def write_toml(choices: list[dict[str, object]]) -> str:
    lines = [
        "# Written by benchmarks/presets.py; do not edit.",
        f"source = {toml_value('published correlations of PrExMe (Leiter and Eger, 2024)')}",
        f"rule = {toml_value(RULE)}",
    ]
    for choice in choices:
        lines += ["", "[[choices]]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in choice.items() if key != "correlations"]
        lines.append("correlations = [")
        entries = choice["correlations"]
        assert isinstance(entries, list)  # noqa: S101
        lines += [f"  {toml_value(entry)}," for entry in entries]
        lines.append("]")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with prexme/prexme_correlations_all.csv")
    parser.add_argument("--check", action="store_true", help="compare with the shipped file instead of writing it")
    arguments = parser.parse_args()
    cells = read_cells(arguments.data / "prexme/prexme_correlations_all.csv")
    usable = selectable(cells)
    leave_one_out(usable)
    print(f"{'model':16} {'pattern':28} {'median':>7} {'grid median':>12} {'grid max':>9}  prompt")
    choices: list[dict[str, object]] = []
    for name, paper_name in [(model.name, model.paper_name) for model in models() if model.paper_name]:
        mine = [cell for cell in usable if cell.model == paper_name]
        pattern, prompt = choose(mine)
        choice: dict[str, object] = {
            "model": name,
            "pattern": pattern,
            "pattern_median": round(medians(mine, "pattern")[pattern], 4),
            "grid_median": round(statistics.median(cell.kendall for cell in mine), 4),
            "grid_max": round(max(cell.kendall for cell in mine), 4),
            "prompt": prompt,
            "correlations": correlations(cells, str(paper_name), prompt),
        }
        choices.append(choice)
    prompt_medians = medians(usable, "prompt")
    general = best(prompt_medians)
    general_pattern = next(cell.pattern for cell in usable if cell.prompt == general)
    choices.append(
        {
            "model": "any",
            "pattern": general_pattern,
            "pattern_median": round(medians(usable, "pattern")[general_pattern], 4),
            "grid_median": round(statistics.median(cell.kendall for cell in usable), 4),
            "grid_max": round(max(cell.kendall for cell in usable), 4),
            "prompt": general,
            "correlations": [],
        }
    )
    for choice in choices:
        print(
            f"{choice['model']:16} {choice['pattern']:28} {choice['pattern_median']:7.3f} "
            f"{choice['grid_median']:12.3f} {choice['grid_max']:9.3f}  {choice['prompt']}"
        )
    text = write_toml(choices)
    if arguments.check:
        same = TARGET.read_text(encoding="utf-8") == text
        print("the shipped file is up to date" if same else f"{TARGET} differs: run without --check")
        return 0 if same else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
