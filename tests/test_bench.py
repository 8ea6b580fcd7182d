"""Suites: what they name, that they resume, and what they write. Recorded answers stand in for a model."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from promptmetric import Scorer
from promptmetric.bench import baselines
from promptmetric.bench import run as bench_run
from promptmetric.bench.results import SuiteResult
from promptmetric.bench.run import run_suite
from promptmetric.bench.suite import Run, SetUse, Suite, cells_of, load_suite, shipped_suites
from promptmetric.cli import cli
from promptmetric.errors import InputError
from promptmetric.prompts import get_prompt, recommend
from promptmetric.report import figures
from promptmetric.report.bench import as_json, write_results
from promptmetric.types import EMBEDDED_MODEL, Sample

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
    asked.clear()
    kept = (path for path in (home / "out/scores").glob("*.json") if "statuses" in json.loads(path.read_text("utf-8")))
    cell = next(kept)
    whole = cell.read_text(encoding="utf-8")
    for torn in ("{", "{}", whole.replace('"scores": [', '"scores": [1, '), whole.replace("statuses", "stati")):
        cell.write_text(torn, encoding="utf-8")
        again = run_suite(suite(home), home / "out", draws=20, progress_bar=False)
        assert len(asked) == 1, "that cell and no other"
        assert as_json(again) == as_json(first)
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


def test_two_metrics_of_one_name_are_refused_before_anything_is_scored(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("scored")

    monkeypatch.setattr(bench_run, "_score_cell", refuse)
    use = suite(home).runs[0].sets[0]
    for name, other in (("chrf", "a baseline"), ("length", "a control")):
        file = home / f"{name}.txt"
        file.write_text((home / "oracle.txt").read_text(encoding="utf-8"), encoding="utf-8")
        clashing = suite(home, sets=(use.model_copy(update={"scores": (str(file),)}),))
        with pytest.raises(InputError, match=rf"a metric of {name}\.txt is called '{name}', and so is {other}"):
            run_suite(clashing, home / "out", progress_bar=False)


def test_what_is_named_twice_is_measured_once(home: Path) -> None:
    loaded = suite(home)
    models, sets = loaded.runs[0].models * 2, loaded.runs[0].sets * 2
    (part,) = run_suite(
        suite(home, baselines=("chrf", "chrf"), models=models, sets=sets), home / "out", draws=20, progress_bar=False
    ).sets
    assert [one.label for one in part.scored].count("chrf") == 1
    assert len(part.scored) == 2 * 2 + 2


def test_a_set_that_cannot_be_evaluated_does_not_take_the_others_along(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = bench_run.meta_evaluate

    def failing(evalset: Any, *args: Any, **options: Any) -> Any:
        if len(evalset.rows) < 105:
            raise InputError("cannot be evaluated")
        return plain(evalset, *args, **options)

    monkeypatch.setattr(bench_run, "meta_evaluate", failing)
    use = suite(home).runs[0].sets[0]
    result = run_suite(
        suite(home, sets=(use.model_copy(update={"first": 60}), use)), home / "out", draws=20, progress_bar=False
    )
    assert len(result.sets) == 1
    (failed,) = result.not_run
    assert failed.reason == "cannot be evaluated"
    assert "the evaluation on" in failed.what


def test_baselines_are_scored_anew_where_the_language_is_another(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BLEU and BERTScore depend on it."""
    asked: list[str | None] = []
    plain = bench_run.baseline_scores

    def counting(name: str, samples: Any, **options: Any) -> Any:
        asked.append(samples[0].tgt_lang)
        return plain(name, samples, **options)

    monkeypatch.setattr(bench_run, "baseline_scores", counting)
    use = suite(home).runs[0].sets[0]
    for name in (use.name, f"{use.name}:en-zh", use.name):
        changed = suite(home, models=(), sets=(use.model_copy(update={"name": name}),))
        run_suite(changed, home / "out", draws=20, progress_bar=False)
    assert asked == [None, "zh"]


def test_parts_of_one_set_are_told_apart(home: Path) -> None:
    use = suite(home).runs[0].sets[0]
    cuts = (use.model_copy(update={"first": 60}), use.model_copy(update={"segments": 10, "seed": 3}), use)
    result = run_suite(suite(home, models=(), sets=cuts), home / "out", draws=20, progress_bar=False)
    report = write_results(result, home / "out").read_text(encoding="utf-8")
    titles = [line for line in report.splitlines() if line.startswith("## ")]
    assert len(set(titles)) == 3
    assert "(first 60 rows)" in titles[0]
    assert "(10 segments drawn with seed 3)" in titles[1]
    assert len(list((home / "out/figures").iterdir())) == 3
    cells = as_json(result)["cells"]
    assert len({(one["section"], one["metric"]) for one in cells}) == len(cells)
    assert [next(one["cut"] for one in cells if one["section"] == at) for at in (1, 2, 3)] == [
        {"first": 60, "segments": None, "seed": 0},
        {"first": None, "segments": 10, "seed": 3},
        None,
    ]


def test_the_report_says_on_how_many_judgments_a_metric_rests(home: Path) -> None:
    lines = (home / "oracle.txt").read_text(encoding="utf-8").splitlines()
    (home / "oracle.txt").write_text("\n".join(["None", *lines[1:]]) + "\n", encoding="utf-8")
    result = run_suite(suite(home, models=()), home / "out", draws=20, progress_bar=False)
    report = write_results(result, home / "out").read_text(encoding="utf-8")
    assert "- oracle: rests on 104 of 105 judgments" in report
    cells = {one["metric"]: one for one in as_json(result)["cells"]}
    assert (cells["oracle"]["n"], cells["chrf"]["n"], cells["oracle"]["judgments"]) == (104, 105, 105)


def test_score_files_may_score_the_human_translations_too(home: Path) -> None:
    rows = [json.loads(line) for line in (home / "judged.jsonl").read_text(encoding="utf-8").splitlines()]
    text = "".join(json.dumps({**row, "is_human": row["system"] == "b"}) + "\n" for row in rows)
    (home / "judged.jsonl").write_text(text, encoding="utf-8")
    result = run_suite(suite(home, models=()), home / "out", draws=20, progress_bar=False)
    oracle = next(one for one in result.sets[0].found.metrics if one.name == "oracle")
    assert result.sets[0].found.systems == 2
    assert oracle.measures["kendall"].statistic.value == 1.0


def test_what_the_report_needs_is_asked_for_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = CliRunner().invoke(cli, ["bench", str(home / "suite.toml"), "-o", str(home / "out"), "-q"])
    assert result.exit_code == 1
    assert "matplotlib is not installed" in result.stderr
    assert not (home / "out").exists()


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


def test_cells_take_the_prompt_and_the_decoding_that_suit_a_model() -> None:
    def cells(**lists: Any) -> list[tuple[str, str]]:
        run = Run(sets=(SetUse(name="x"),), models=("smollm2-135m", "tower-13b"), **lists)
        return [(cell.prompt, cell.decode) for cell in cells_of(run, run.sets[0], "translation", "en-de")]

    tower = recommend("tower-13b").prompt
    assert cells() == [("likelihood-translation", "likelihood"), (tower, "text")]
    graded = [("demo-translation", decode) for decode in ("text", "expected")]
    assert cells(decodes=("text", "expected")) == [*graded, (tower, "text"), (tower, "expected")]
    assert (
        cells(prompts=("default", "demo-*"), except_prompts=("likelihood-*", "prexme:*"))
        == [("demo-translation", "text")] * 2
    )
    behind_a_server = Run(sets=(SetUse(name="x"),), models=("http://localhost:8000/v1",))
    asked = cells_of(behind_a_server, behind_a_server.sets[0], "translation", "en-de", lambda _: "smollm2-135m")
    assert [(cell.prompt, cell.decode) for cell in asked] == [("demo-translation", "text")]
    both = cells(prompts=("prexme:zs/neutral/0..1*",), decodes=("text", "as-published"))[:4]
    assert [decode for _, decode in both] == ["text", "as-published"] * 2, "a prompt's decodings stand together"


def test_the_grid_of_phase_1_has_720_prompts() -> None:
    run = load_suite("eval4nlp").runs[0]
    cells = list(cells_of(run, run.sets[0], "translation", "en-de"))
    assert len(cells) == 720 * 7 * 2
    assert len({cell.prompt for cell in cells}) == 720


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name =", "not valid TOML"),
        ('name = "x"\n[[runs]]\nsets = [{ nam = "z" }]', "run 1, set 1: there is no key 'nam'; there is: name"),
        ('name = "x"\n[[runs]]\nsets = [{ name = "z", first = 0 }]', "run 1, set 1: 'first' must be greater than 0"),
        ('name = "x"\n[[runs]]\nsets = [{ name = "z", first = "a" }]', "'first' must be a whole number"),
        ('name = "x"\n[[runs]]\nsets = []', "run 1: 'sets' must not be empty"),
        ('name = "x"\n[[runs]]\nsets = ["z"]', r'run 1: \'sets, entry 1\' must be a table, such as \{ name = "…" \}'),
        ('name = "x"\n[[runs]]\nsets = "z"', r"run 1: 'sets' must be a list, such as \["),
        ('name = "x"\nruns = []', "'runs' must not be empty"),
        ('[[runs]]\nsets = [{ name = "z" }]', "toml: 'name' is missing"),
        ('name = "x"\n[[runs]]\nsets = [{ name = "z" }]\nmodels = [1]', "run 1: 'models, entry 1' must be a text"),
        (
            'name = "x"\n[[runs]]\nsets = [{ name = "z" }]\nbaselines = ["blue"]',
            "run 1: 'baselines, entry 1' is 'blue', which must be one of 'bleu', 'chrf'",
        ),
    ],
)
def test_a_broken_suite_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_suite(str(path))


def test_a_run_that_measures_nothing_is_refused(home: Path) -> None:
    use = suite(home).runs[0].sets[0].model_copy(update={"scores": ()})
    nothing = suite(home, models=(), baselines=(), sets=(use,))
    with pytest.raises(InputError, match="tiny, run 1: there is nothing to measure"):
        run_suite(nothing, home / "out")
    assert bench_run.planned_cells(nothing, ["auto"])[0][0][0].model == EMBEDDED_MODEL, "a model may be named with -m"


def test_a_plan_says_once_what_is_left_out(home: Path) -> None:
    text = (home / "suite.toml").read_text(encoding="utf-8").replace(f"{home}/judged.jsonl", "no/such-set")
    (home / "wrong.toml").write_text(text, encoding="utf-8")
    plan = CliRunner().invoke(cli, ["bench", str(home / "wrong.toml"), "--plan"])
    assert plan.exit_code == 2
    assert plan.output.count("no set and no file is named") == 1
    run = CliRunner().invoke(cli, ["bench", str(home / "wrong.toml"), "-o", str(home / "out")])
    assert run.exit_code == 2
    assert run.output.count("no set and no file is named") == 1


def test_quick_without_its_data_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTMETRIC_CACHE", str(tmp_path))
    monkeypatch.delenv("PROMPTMETRIC_DATA", raising=False)
    result = CliRunner().invoke(cli, ["bench", "quick", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "promptmetric data add wmt23/en-de ~/.mt-metrics-eval" in result.stderr
    assert "promptmetric data add summeval FOLDER" in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_prompt_of_a_recording_is_that_of_its_model(home: Path, record: Callable[..., str]) -> None:
    chosen = recommend("tower-13b").prompt
    assert chosen != recommend("answers.jsonl").prompt
    (home / "answers.jsonl").unlink()
    answers = record([Sample("a", "b")], ["1"], model="Unbabel/TowerInstruct-13B-v0.1")
    cells, _ = bench_run.planned_cells(suite(home, prompts=("default",), decodes=("text",)), [answers])
    assert [cell.prompt for cell, _ in cells] == [chosen]
    assert Scorer(answers).prompt.id == chosen


def test_the_signature_names_the_pair_of_the_set(home: Path, record: Callable[..., str]) -> None:
    loaded = suite(home)
    use = loaded.runs[0].sets[0]
    paired = use.model_copy(update={"name": f"{use.name}:en-de"})
    (part,) = run_suite(suite(home, sets=(paired,)), home / "out", draws=20, progress_bar=False).sets
    assert "|langs:en-de|" in next(one.signature for one in part.scored if one.cell)


def test_baselines_are_scored_anew_with_another_library(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = bench_run.baseline_scores

    def counting(name: str, *args: Any, **options: Any) -> Any:
        asked.append(name)
        return plain(name, *args, **options)

    monkeypatch.setattr(bench_run, "baseline_scores", counting)
    for number in ("1", "1", "2"):
        monkeypatch.setattr(baselines, "version", lambda _, number=number: number)
        run_suite(suite(home, models=()), home / "out", draws=20, progress_bar=False)
    assert asked == ["chrf", "chrf"]


def test_figures_keep_names_apart_and_say_what_is_undefined(home: Path) -> None:
    scores = "".join("1\n" for _ in range(105))
    (home / "constant.txt").write_text(scores, encoding="utf-8")
    use = suite(home).runs[0].sets[0]
    use = use.model_copy(update={"scores": (*use.scores, str(home / "constant.txt"))})
    (part,) = run_suite(suite(home, sets=(use,)), home / "out", draws=20, progress_bar=False).sets
    tested = [one for one in part.found.metrics if one.rank is not None]
    names = [figures._name(one) for one in tested]
    assert len(set(names)) == len(names)
    assert all(len(name) <= figures.LONGEST_NAME for name in names)
    assert any("…" in name for name in names), "paths make long names here"
    drawn = figures.save_figure(part.found, "title " * 40, home / "figure.png")
    assert set(drawn) == {one.name for one in tested if not math.isnan(figures._value(one, part.found))}
    assert "constant" not in drawn
    assert "Undefined, so not drawn: constant" in figures._below(part.found, ["constant"])
    report = write_results(SuiteResult(suite(home), (part,), ()), home / "out").read_text(encoding="utf-8")
    assert (
        f"![kendall-item of {len(drawn)} of {len(part.found.metrics)} metrics and controls with its interval" in report
    )


def test_the_command(home: Path) -> None:
    suite_file = str(home / "suite.toml")
    plan = CliRunner().invoke(cli, ["bench", suite_file, "--plan"])
    assert plan.exit_code == 0, plan.output
    assert [line.split("\t")[1] for line in plan.stdout.splitlines()] == ["hypotheses", *["105"] * 4]
    result = CliRunner().invoke(cli, ["bench", suite_file, "-o", str(home / "out"), "--draws", "20", "-q"])
    assert result.exit_code == 0, result.output
    assert Path(result.stdout.strip()).read_text(encoding="utf-8").startswith("# Benchmark `tiny`")
    taken = CliRunner().invoke(cli, ["bench", suite_file, "-o", str(home / "oracle.txt"), "-q"])
    assert taken.exit_code == 2
    assert "oracle.txt: no folder can be written there" in taken.stderr
    (home / "latin.toml").write_bytes(b'name = "\xff"')
    latin = CliRunner().invoke(cli, ["bench", str(home / "latin.toml")])
    assert latin.exit_code == 2
    assert "latin.toml, line 1: not UTF-8" in latin.stderr
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
