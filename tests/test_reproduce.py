"""The tables of PrExMe as printed, and the script that holds the published grid and results of our own against them."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from promptmetric.prompts import get_prompt, grid
from promptmetric.prompts.presets import models

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TOWER = "prexme:zs-cot/dire-warning/complex-labels"
"""Tower's printed prompt on en-de in table 10: Kendall 0.284, Pearson 0.374, Spearman 0.328, accuracy 0.456."""


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, and no data folder unless a test names one."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delenv("PROMPTMETRIC_DATA", raising=False)
    return importlib.import_module("reproduce")


@pytest.fixture
def run(reproduce: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The script's exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *arguments])
        try:
            code = reproduce.main()
        except SystemExit as error:
            code = error.code
        out, err = capsys.readouterr()
        return code, out, err

    return call


def write_grid(folder: Path, *rows: dict[str, Any]) -> Path:
    """A grid of few entries, in the published columns, and no baselines."""
    (folder / "prexme").mkdir()
    columns = ["dataset", "setting", "task", "model", "base_prompt", "task_description", "format", "count"]
    columns += ["kendall", "pearson", "spearman", "acc_tie_calibrated"]
    with (folder / "prexme/prexme_correlations_all.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    header = "kendall,kendall_tie_corrected,pearson,spearman,dataset,task,approach,model\n"
    (folder / "prexme/prexme_baseline_correlations.csv").write_text(header, encoding="utf-8")
    return folder


def grid_row(**changes: Any) -> dict[str, Any]:
    """Tower's entry of table 10, en-de, with more decimals than are printed."""
    parts = {"base_prompt": "Zero-Shot-Cot", "task_description": "Dire Warning", "format": "complex token labels"}
    row = {"dataset": "train", "setting": "zero_shot", "task": "en_de", "model": "Tower-13B", "count": 500, **parts}
    figures = {"kendall": 0.28361, "pearson": 0.37449, "spearman": 0.32751, "acc_tie_calibrated": 0.456}
    return row | figures | changes


def write_results(path: Path, *cells: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"suite": "small", "cells": cells}), encoding="utf-8")
    return path


def cell(**changes: Any) -> dict[str, Any]:
    figures = {"kendall": 0.28, "pearson": 0.374, "spearman": 0.3329, "accuracy-as-published": 0.46}
    measures = {name: {"value": value, "low": 0.1, "high": 0.5} for name, value in figures.items()}
    found = {"set": "eval4nlp/train/en-de", "model": "tower-13b", "prompt": TOWER, "decode": "text", "n": 500}
    return found | {"measures": measures} | changes


def compared(out: str, model: str, dataset: str = "en-de") -> list[dict[str, Any]]:
    rows = [row for row in json.loads(out)["rows"] if (row["model"], row["dataset"]) == (model, dataset)]
    return next(row["compared"] for row in rows if row["kind"] == "prompt")


def test_the_printed_tables_are_whole(reproduce: ModuleType) -> None:
    rows = reproduce.read_printed()
    # Seven models and six baselines on two pairs and five on summaries; then six models and four baselines a dataset.
    assert Counter(row.table for row in rows) == {"10": 13 + 13 + 11, "11": 3 * 10, "12": 4 * 10, "13": 4 * 10}
    assert len(rows) == len({row[:5] for row in rows}) == 147
    assert sum(row.kind == "prompt" for row in rows) == 87
    assert sum(row.star == "*" for row in rows) == 23
    names = {model.name for model in models() if model.paper_name}
    for row in rows:
        assert row.kind in ("prompt", "baseline")
        assert row.star in ("", "*")
        assert row.model in names or (row.model == "" and row.method in ("BARTScore", "XComet"))
        assert all(-1 < float(figure) < 1 for figure in row.printed.values())
        if row.kind == "prompt":
            assert get_prompt(row.method).id == row.method


@pytest.mark.parametrize(
    ("table", "dataset", "key"),
    [
        ("10", "summarization", "eval4nlp/train/summarization"),
        ("11", "zh-en", "eval4nlp/dev/zh-en"),
        ("12", "en-es", "eval4nlp/test/en-es"),
        ("13", "he-en", "wmt23/he-en"),
        ("13", "summarization", "seahorse"),
    ],
)
def test_rows_know_their_set(reproduce: ModuleType, table: str, dataset: str, key: str) -> None:
    rows = [row for row in reproduce.read_printed() if (row.table, row.dataset) == (table, dataset)]
    assert {row.key[0] for row in rows} == {key}


def test_equal_means_equal_at_the_printed_decimals(reproduce: ModuleType) -> None:
    assert reproduce.rounds_to(-0.1504, "-0.15")
    assert reproduce.rounds_to(-0.146, "-0.15")
    assert not reproduce.rounds_to(-0.146, "-0.150")
    assert not reproduce.rounds_to(0.2836, "0.283")


def test_a_run_may_be_off_by_the_tolerance(reproduce: ModuleType) -> None:
    assert reproduce.is_close(0.289, "0.284")
    assert not reproduce.is_close(0.2891, "0.284")
    assert not reproduce.is_close(float("nan"), "0.284")


def test_the_grid_is_searched_for_the_best_prompt(run: Any, tmp_path: Path) -> None:
    weaker = grid_row(task_description="Polite", kendall=0.1)
    undefined = grid_row(task_description="Casual", kendall="", pearson="", spearman="")
    folder = write_grid(tmp_path, weaker, undefined, grid_row())
    code, out, _ = run("--table", "10", "--data", str(folder), "--format", "json")
    assert code == 0
    (line,) = compared(out, "tower-13b")
    assert (line["method"], line["n"]) == (TOWER, 500)
    assert line["marks"] == {
        "kendall": "reproduced",
        "pearson": "reproduced",
        "spearman": "reproduced",  # 0.32751 prints as 0.328
        "accuracy": "reproduced",
    }
    assert compared(out, "llama3-8b")[0]["outcome"] == "no data"
    assert any(note.startswith("1 correlations") for note in json.loads(out)["notes"])
    assert json.loads(out)["counts"][0].startswith("1 of 37 rows match on all four measures; 36 have no data: BART")


def test_another_best_prompt_is_said(run: Any, tmp_path: Path) -> None:
    better = grid_row(task_description="Polite", kendall=0.2844)
    code, out, _ = run("--table", "10", "--data", str(write_grid(tmp_path, grid_row(), better)))
    assert code == 0
    (line,) = [line for line in out.splitlines() if "prexme:zs-cot/polite/complex-labels" in line]
    assert line.endswith("reproduced; another prompt is best")  # even if all figures happen to agree
    assert "0 of 37 rows match on all four measures; 1 differ;" in out.splitlines()[-1]


def test_table_11_passes_over_one_shot_and_table_12_does_not(run: Any, tmp_path: Path) -> None:
    printed = {"kendall": 0.231, "pearson": 0.290, "spearman": 0.266, "acc_tie_calibrated": 0.425}  # table 11
    one_shot = {"setting": "one_shot", "kendall": 0.9}
    rows = [grid_row(dataset="dev", **printed), grid_row(dataset="dev", **printed | one_shot)]
    rows += [grid_row(dataset="test"), grid_row(dataset="test", **one_shot)]
    folder = write_grid(tmp_path, *rows)
    _, out, _ = run("--table", "11", "--data", str(folder), "--format", "json")
    row, beside = compared(out, "tower-13b")
    assert (row["method"], row["outcome"]) == (TOWER, "reproduced")
    assert (beside["source"], beside["method"]) == ("grid, one-shot", TOWER.replace(":zs", ":os"))
    _, out, _ = run("--table", "12", "--data", str(folder), "--format", "json")
    (row,) = compared(out, "tower-13b")
    assert row["method"] == TOWER.replace(":zs", ":os")


def test_runs_are_marked(run: Any, tmp_path: Path) -> None:
    stranger = cell(set="wmt22/en-de")
    results = write_results(tmp_path / "results.json", cell(), stranger)
    code, out, _ = run("--table", "10", "--run", str(results), "--format", "json")
    assert code == 0
    published, mine = compared(out, "tower-13b")
    assert published["outcome"] == "no data"
    assert mine["marks"] == {
        "kendall": "reproduced",  # 0.004 off
        "pearson": "reproduced",
        "spearman": "reproduced",  # 0.0049 off
        "accuracy": "reproduced",
    }
    assert compared(out, "llama3-8b")[1]["outcome"] == "not run"
    assert json.loads(out)["counts"][1] == (
        "run here: measures reproduced: 4, differing: 0; rows not run: 36; results of none of these rows: 1"
    )


def test_partial_undefined_and_shortened_runs_are_told_apart(run: Any, tmp_path: Path) -> None:
    measures = {"kendall": {"value": 0.2}, "pearson": {"value": None}, "accuracy": {"value": 0.456}, "f1": {"value": 1}}
    hub_id = "Unbabel/TowerInstruct-13B-v0.1"
    results = write_results(tmp_path / "results.json", cell(model=hub_id, n=100, decode="expected", measures=measures))
    folder = write_grid(tmp_path, grid_row())
    _, out, _ = run("--table", "10", "--data", str(folder), "--run", str(results))
    (line,) = [line for line in out.splitlines() if "run, expected" in line]
    # `accuracy` is another measure than the published one.
    assert line.endswith("differs: kendall, pearson; not run: spearman, accuracy; on 100 segments, not 500")
    assert " nan " in line
    _, out, _ = run("--table", "10", "--data", str(folder), "--run", str(results), "--format", "json")
    assert compared(out, "tower-13b")[1]["values"] == {"kendall": 0.2, "pearson": None}
    assert "NaN" not in out


def test_several_result_files_make_several_lines(run: Any, tmp_path: Path) -> None:
    text = write_results(tmp_path / "text.json", cell())
    other = write_results(tmp_path / "published.json", cell(decode="as-published"))
    _, out, _ = run("--table", "10", "--run", str(text), str(other), "--format", "json")
    assert [line["source"] for line in compared(out, "tower-13b")] == ["grid", "run, text", "run, as-published"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("not json", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"suite": "small"}', "KeyError: 'cells'"),
        ('{"cells": [{"set": "s"}]}', "KeyError"),
        (json.dumps({"cells": [cell(measures={"kendall": {"value": "high"}})]}), "ValueError"),
        (json.dumps({"cells": [cell(measures={"kendall": 0.2})]}), "TypeError"),
    ],
)
def test_a_file_of_another_kind_is_refused(run: Any, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content, encoding="utf-8")
    code, out, err = run("--table", "10", "--run", str(path))
    assert (code, out) == (2, "")
    assert f"{path}: not a results file ({reason}" in err


def test_missing_files_are_named(run: Any, tmp_path: Path) -> None:
    code, _, err = run("--table", "10", "--run", str(tmp_path / "none.json"))
    assert code == 2
    assert "none.json: cannot be read: No such file" in err
    code, _, err = run("--table", "10", "--data", str(tmp_path))
    assert code == 2
    assert "prexme_correlations_all.csv: no such file." in err
    assert "--data names the folder" in err


def test_an_unknown_table_is_refused(run: Any) -> None:
    code, _, err = run("--table", "14")
    assert code == 2
    assert "invalid choice: '14'" in err


def test_without_data_the_count_line_says_so(run: Any) -> None:
    code, out, _ = run("--table", "13")
    assert code == 0
    assert out.splitlines()[-1] == (
        "0 of 40 rows match on all four measures; 40 have no data: name their folder with --data"
    )


def test_markdown_is_a_table(run: Any) -> None:
    _, out, _ = run("--table", "12", "--format", "markdown")
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 2 * 40  # head, rule, and a line each for paper and grid
    assert {line.count("|") for line in lines} == {12}
    assert "| en-es | nous-hermes-13b | prexme:zs/curious/complex-labels | paper | – | 0.141 | -0.01 |" in out


@pytest.mark.data
def test_the_published_grid_gives_143_of_147_rows(run: Any, data_folder: Path) -> None:
    code, out, _ = run("--table", "all", "--data", str(data_folder), "--format", "json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert Counter(row["compared"][0]["outcome"] for row in rows) == {"reproduced": 143, "no data": 4}
    assert {row["method"] for row in rows if row["compared"][0]["outcome"] == "no data"} == {"MultiPrompt"}
    beaten = {(row["table"], row["dataset"], row["model"]) for row in rows if len(row["compared"]) == 2}
    assert beaten == {
        ("11", "en-de", "llama3-8b"),
        ("11", "zh-en", "nous-hermes-13b"),
        ("11", "summarization", "llama3-70b"),
        ("11", "summarization", "tower-13b"),
    }
    # Why undefined entries change nothing, whether they are left out or count as 0.
    assert all(row["compared"][0]["values"]["kendall"] > 0 for row in rows if row["kind"] == "prompt")


@pytest.mark.data
@pytest.mark.parametrize("table", ["10", "11", "12", "13", "all"])
def test_the_last_line_counts(run: Any, data_folder: Path, table: str) -> None:
    expected = {
        "10": "33 of 37 rows match on all four measures; 4 have no data: MultiPrompt",
        "11": "30 of 30 rows match on all four measures",
        "12": "40 of 40 rows match on all four measures",
        "13": "40 of 40 rows match on all four measures",
        "all": "143 of 147 rows match on all four measures; 4 have no data: MultiPrompt",
    }
    code, out, _ = run("--table", table, "--data", str(data_folder))
    assert code == 0
    assert out.splitlines()[-1] == expected[table]


@pytest.mark.data
def test_prompts_and_figures_agree_with_the_independent_recomputation(reproduce: ModuleType, data_folder: Path) -> None:
    path = data_folder / "prexme/expected_values.json"
    expected = json.loads(path.read_text(encoding="utf-8"))["tables_10_to_13_best_prompt"]
    axes = grid.grid()
    names = {model.paper_name: model.name for model in models()}
    tables = {"train": "10", "dev": "11", "test": "12", "test2": "13"}
    oracle = {}
    for row in expected:
        base = next(
            part.id
            for part in axes.bases
            if part.published == row["base_prompt"] and part.id.startswith("os") == (row["setting"] == "one_shot")
        )
        description = next(part.id for part in axes.descriptions if part.published == row["task_description"])
        form = next(part.id for part in axes.formats if part.published == row["format"])
        figures = [row[name] for name in ("kendall", "pearson", "spearman", "acc_tie_calibrated")]
        key = (tables[row["dataset"]], row["task"].replace("_", "-"), names[row["model"]])
        oracle[key] = (f"prexme:{base}/{description}/{form}", figures)
    entries, _ = reproduce.read_grid(data_folder)
    rows = [row for row in reproduce.read_printed() if row.kind == "prompt"]
    assert len(oracle) == len(rows) == 87
    for row in rows:
        prompt, figures = oracle[row.table, row.dataset, row.model]
        chosen = reproduce.compare(row, entries, None)[0].entry
        assert row.method == chosen.method == prompt
        assert [float(figure) for figure in row.printed.values()] == figures
        assert [round(chosen.values[name], 3) for name in reproduce.MEASURES] == figures
