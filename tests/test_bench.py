"""Suites: what they name, that they resume, and what they write. Recorded answers stand in for a model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from promptmetric.bench import run as bench_run
from promptmetric.bench.run import run_suite
from promptmetric.bench.suite import Suite, cells_of, load_suite, shipped_suites
from promptmetric.cli import cli
from promptmetric.errors import InputError
from promptmetric.prompts import get_prompt
from promptmetric.report.bench import as_json, write_results
from promptmetric.types import Sample

PROMPTS = {
    "hundred": "Rate {{ hyp }} as a translation of {{ src }} from 0 to 100. Score:",
    "again": "How good is {{ hyp }} for {{ src }}, 0 to 100? Score:",
}


@pytest.fixture
def home(tmp_path: Path, record: Callable[..., str]) -> Path:
    """A set of 35 segments × 3 systems, two prompts, recorded answers and a suite over them."""
    rng = np.random.default_rng(0)
    rows = [
        {"system": system, "segment": str(segment), "src": f"source {segment}", "hyp": f"{system} text {segment}"}
        | {"ref": f"text {segment}", "score": int(rng.integers(0, 6))}
        for segment in range(35)
        for system in ("a", "b", "c")
    ]
    (tmp_path / "judged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    samples = [Sample(str(row["src"]), str(row["hyp"])) for row in rows]
    for name, text in PROMPTS.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f'id = "{name}"\nmax_tokens = 9\nscale = {{ kind = "numeric", min = 0, max = 100 }}\n'
            f'[[messages]]\nrole = "user"\ncontent = "{text}"\n',
            encoding="utf-8",
        )
        noise = rng.integers(-3, 4, len(rows)) if name == "hundred" else rng.integers(-40, 40, len(rows))
        values = [50 + 8 * int(row["score"]) + int(n) for row, n in zip(rows, noise, strict=True)]
        record(samples, [f"Score: {value}" for value in values], get_prompt(path))
    scores = "".join(f"{row['score']}\n" for row in rows)
    (tmp_path / "oracle.txt").write_text(scores, encoding="utf-8")
    (tmp_path / "suite.toml").write_text(
        f"""
name = "tiny"
about = "A test."
[[runs]]
title = "all"
models = ["{tmp_path}/answers.jsonl"]
prompts = ["{tmp_path}/hundred.toml", "{tmp_path}/again.toml"]
decodes = ["text", "as-published"]
baselines = ["chrf"]
[[runs.sets]]
name = "{tmp_path}/judged.jsonl"
scores = ["{tmp_path}/oracle.txt"]
""",
        encoding="utf-8",
    )
    return tmp_path


def suite(home: Path, **changes: Any) -> Suite:
    loaded = load_suite(str(home / "suite.toml"))
    run = loaded.runs[0].model_copy(update=changes)
    return loaded.model_copy(update={"runs": (run,)})


def test_a_suite_runs_and_reports(home: Path) -> None:
    result = run_suite(suite(home), home / "out", draws=100, progress_bar=False)
    assert not result.not_run
    (part,) = result.sets
    names = [one.name for one in part.found.metrics if not one.is_control]
    assert names[0] == "oracle"
    assert len(names) == 2 * 2 + 2
    report = write_results(result, home / "out").read_text(encoding="utf-8")
    assert "Best by kendall-item is `oracle`" in report
    assert "it is beaten" in report
    (figure,) = (home / "out/figures").iterdir()
    assert figure.read_bytes().startswith(b"\x89PNG")
    cells = json.loads((home / "out/results.json").read_text(encoding="utf-8"))["cells"]
    hundred = next(cell for cell in cells if cell["prompt"] and "hundred" in cell["prompt"])
    assert hundred["n"] == 105
    assert hundred["statuses"] == {"ok": 105}
    assert hundred["measures"]["kendall"]["value"] > 0.5
    assert hundred["measures"]["accuracy-as-published"]["value"] is not None


def test_nothing_is_scored_twice_unless_something_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = bench_run.Scorer.predict

    def counting(self: Any, *args: Any, **options: Any) -> Any:
        asked.append(self.prompt.id)
        return plain(self, *args, **options)

    monkeypatch.setattr(bench_run.Scorer, "predict", counting)
    first = run_suite(suite(home), home / "out", draws=20, progress_bar=False)
    assert sorted(asked) == ["again", "again", "hundred", "hundred"]
    second = run_suite(suite(home), home / "out", draws=20, progress_bar=False)
    assert len(asked) == 4
    assert as_json(second) == as_json(first)
    kept = sorted((home / "out/scores").glob("*.json"))
    kept[0].write_text("{", encoding="utf-8")  # torn by a crash
    run_suite(suite(home), home / "out", draws=20, progress_bar=False)
    assert len(asked) <= 5
    asked.clear()
    os.utime(home / "answers.jsonl", ns=(1, 1))  # another recording of the same name
    run_suite(suite(home), home / "out", draws=20, progress_bar=False)
    assert len(asked) == 4


def test_what_cannot_be_run_is_named_and_the_rest_goes_on(home: Path) -> None:
    loaded = suite(home)
    run = loaded.runs[0]
    missing = run.sets[0].model_copy(update={"name": "no/such-set"})
    more = run.model_copy(
        update={"sets": (missing, *run.sets), "models": ("/no/such/model", *run.models), "baselines": ("bertscore",)}
    )
    result = run_suite(
        loaded.model_copy(update={"runs": (more,)}), home / "out", offline=True, draws=20, progress_bar=False
    )
    assert len(result.sets) == 1
    assert "bertscore" in " ".join(one.what for one in result.not_run)
    reasons = " ".join(one.what for one in result.not_run)
    assert "no/such-set" in reasons
    assert "/no/such/model" in reasons
    report = write_results(result, home / "out").read_text(encoding="utf-8")
    assert "## Not run" in report
    nothing = run.model_copy(update={"sets": (missing,)})
    with pytest.raises(InputError, match="nothing of the suite tiny could be run"):
        run_suite(loaded.model_copy(update={"runs": (nothing,)}), home / "out")


def test_a_set_is_cut_to_its_first_rows_or_to_drawn_segments(home: Path) -> None:
    loaded = suite(home, baselines=())
    use = loaded.runs[0].sets[0]
    for update, rows, segments in (({"first": 50}, 50, 17), ({"segments": 10, "seed": 3}, 30, 10)):
        cut = suite(home, baselines=(), sets=(use.model_copy(update=update),))
        (part,) = run_suite(cut, home / "out", draws=20, progress_bar=False).sets
        assert (len(part.evalset.rows), part.found.segments) == (rows, segments)
        assert part.whole == (35, 105)
        oracle = next(one for one in part.found.metrics if one.name == "oracle")
        assert oracle.measures["kendall"].statistic.value == 1.0  # read for the whole set, then cut alike


def test_shipped_suites_load_and_their_prompts_exist() -> None:
    assert shipped_suites() == ("eval4nlp", "quick", "summeval", "summeval-aspects", "wmt23")
    for name in shipped_suites():
        for run in load_suite(name).runs:
            for use in run.sets:
                task = "summarization" if "summ" in use.name else "translation"
                langs = None if task == "summarization" else use.name.rsplit("/", 1)[-1]
                assert list(cells_of(run, use, task, langs))  # type: ignore[arg-type]


def test_the_grid_of_phase_1_has_720_prompts() -> None:
    run = load_suite("eval4nlp").runs[0]
    cells = list(cells_of(run, run.sets[0], "translation", "en-de"))
    assert len(cells) == 720 * 7 * 2
    assert len({cell.prompt for cell in cells}) == 720


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name =", "not valid TOML"),
        ('name = "x"\nabout = "y"\n[[runs]]\nsets = [{ nam = "z" }]', r"runs\.0\.sets\.0\.(name|nam)"),
        ('name = "x"\nabout = "y"\n[[runs]]\nsets = [{ name = "z", first = 0 }]', "greater than 0"),
        ('name = "x"\nabout = "y"\n[[runs]]\nsets = []\nbaselines = ["blue"]', "bleu"),
    ],
)
def test_a_broken_suite_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_suite(str(path))


def test_the_command(home: Path) -> None:
    suite_file = str(home / "suite.toml")
    plan = CliRunner().invoke(cli, ["bench", suite_file, "--plan"])
    assert plan.exit_code == 0, plan.output
    assert len(plan.stdout.splitlines()) == 4
    result = CliRunner().invoke(cli, ["bench", suite_file, "-o", str(home / "out"), "--draws", "20", "-q"])
    assert result.exit_code == 0, result.output
    assert Path(result.stdout.strip()).read_text(encoding="utf-8").startswith("# Benchmark `tiny`")
    unknown = CliRunner().invoke(cli, ["bench", "quik"])
    assert unknown.exit_code == 2
    assert "quick" in unknown.stderr


def test_ctrl_c_keeps_what_is_done(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bench_run._score_cell
    done = []

    def interrupted(*args: Any, **options: Any) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return plain(*args, **options)

    monkeypatch.setattr(bench_run, "_score_cell", interrupted)
    result = CliRunner().invoke(cli, ["bench", str(home / "suite.toml"), "-o", str(home / "out"), "-q"])
    assert result.exit_code == 130
    assert "the same command goes on" in result.stderr
    assert len(list((home / "out/scores").glob("*.json"))) == 2


@pytest.mark.data
@pytest.mark.engine
def test_the_embedded_model_on_real_judgments(data_folder: Path, embedded_folder: Path, tmp_path: Path) -> None:
    """The quick suite on one segment of WMT23, with a real engine, from end to end."""
    quick = load_suite("quick")
    small = quick.runs[0].sets[0].model_copy(update={"segments": 1, "seed": 4})
    one = quick.runs[0].model_copy(update={"sets": (small,)})
    result = run_suite(
        quick.model_copy(update={"runs": (one,)}), tmp_path, data=data_folder, draws=20, progress_bar=False
    )
    (part,) = result.sets
    assert sum(part.scored[0].statuses.values()) == 12
    assert "wmt23/en-de" in write_results(result, tmp_path).read_text(encoding="utf-8")
