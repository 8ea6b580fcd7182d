"""Meta-evaluation from end to end: sets and scores in, tables out."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import kendalltau

from promptmetric.bench import metaeval
from promptmetric.bench.controls import CONTROLS, control_scores
from promptmetric.bench.measures import MEASURES, usual_measures
from promptmetric.bench.metaeval import affordable, meta_evaluate
from promptmetric.bench.results import MetaEvaluation
from promptmetric.cli import cli
from promptmetric.datasets import EvalSet, Judged, MetricScores
from promptmetric.errors import InputError
from promptmetric.execution import progress
from promptmetric.report.metaeval import format_meta_evaluation


def judged_set(systems: int = 4, segments: int = 40, seed: int = 0) -> EvalSet:
    """Made-up judgments from −5 to 0 of hypotheses of random length."""
    rng = np.random.default_rng(seed)
    rows = [
        Judged(
            segment=str(segment),
            system=f"system-{system}",
            src="the river rose " * rng.integers(1, 5),
            hyp=str(rng.choice(["river ", "the hill ", "wort "])) * rng.integers(1, 9),
            scores={"mqm": float(-rng.integers(0, 6)), "fluency": float(rng.integers(1, 6))},
        )
        for segment in range(segments)
        for system in range(systems)
    ]
    return EvalSet("made-up", "translation", tuple(rows), ("mqm", "fluency"), langs="en-de")


def metric(name: str, values: list[float], *notes: str) -> MetricScores:
    return MetricScores(name, values, Path(f"{name}.txt"), notes)


def human_plus_noise(evalset: EvalSet, noise: float, seed: int = 1) -> list[float]:
    rng = np.random.default_rng(seed)
    return [row.scores["mqm"] + noise * rng.normal() for row in evalset.rows]


@pytest.fixture(scope="module")
def found() -> MetaEvaluation:
    evalset = judged_set()
    return meta_evaluate(
        evalset,
        [metric("good", human_plus_noise(evalset, 1)), metric("constant", [1.0] * len(evalset.rows), "an old one")],
        draws=200,
    )


def test_good_metrics_are_told_from_controls_and_constants_are_undefined(found: MetaEvaluation) -> None:
    names = [one.name for one in found.metrics]
    assert names[0] == "good"
    assert names[-1] == "constant"
    assert set(names) == {"good", "constant", *CONTROLS}
    by_name = {one.name: one for one in found.metrics}
    assert (by_name["good"].rank, by_name["good"].beaten_by) == (1, 0)
    assert by_name["random"].beaten_by >= 1  # type: ignore[operator]
    constant = by_name["constant"].measures["kendall-item"]
    assert math.isnan(constant.statistic.value)
    assert constant.statistic.reason
    assert constant.interval is None
    assert by_name["constant"].tie_rate.value == 1.0
    assert found.tested == "kendall-item"
    assert found.chance["accuracy-item"] >= found.human_ties["item"].value


def test_numbers_are_those_of_scipy(found: MetaEvaluation) -> None:
    evalset = judged_set()
    scores = human_plus_noise(evalset, 1)
    human = [row.scores["mqm"] for row in evalset.rows]
    good = found.metrics[0].measures["kendall"]
    assert good.statistic.value == pytest.approx(kendalltau(human, scores).statistic)
    assert good.interval is not None
    assert good.interval.low < good.statistic.value < good.interval.high


def test_differences_have_paired_intervals(found: MetaEvaluation) -> None:
    best = next(one for one in found.differences if (one.better, one.worse) == ("good", "random"))
    assert best.interval is not None
    assert 0 < best.interval.low < best.delta < best.interval.high
    values = {one.name: one.measures["kendall-item"].statistic.value for one in found.metrics}
    assert best.delta == pytest.approx(values["good"] - values["random"])
    undefined = next(one for one in found.differences if "constant" in (one.better, one.worse))
    assert undefined.interval is None
    assert math.isnan(undefined.p)


def test_aspect_measures_and_test_can_be_chosen() -> None:
    evalset = judged_set()
    chosen = meta_evaluate(
        evalset,
        [metric("good", human_plus_noise(evalset, 1))],
        aspect="fluency",
        measures=["pearson"],
        tested="accuracy-item",
        correction="holm",
        draws=50,
    )
    assert chosen.measures == ("accuracy-item", "pearson")
    assert "pairs test" in chosen.test
    assert all(one.adjusted >= one.p for one in chosen.differences)
    for wrong in ({"aspect": "style"}, {"measures": ["kendal"]}, {"tested": "spa"}):
        with pytest.raises(InputError, match=r"style|kendal|spa"):
            meta_evaluate(evalset, [], **wrong)  # type: ignore[arg-type]


def test_holms_correction_pays_for_the_direction_that_the_data_chose() -> None:
    evalset = judged_set()
    found = meta_evaluate(evalset, [metric("good", human_plus_noise(evalset, 1))], measures=["kendall"], draws=50)
    tests = [one.p for one in found.differences]
    assert len(tests) == 10
    lowest = min(found.differences, key=lambda one: one.p)
    assert lowest.adjusted == pytest.approx(min(1, 10 * 2 * lowest.p))


def test_every_measure_is_computed_on_a_set_that_allows_it() -> None:
    evalset = judged_set(systems=3, segments=12)
    everything = meta_evaluate(
        evalset, [metric("good", human_plus_noise(evalset, 1))], measures=list(MEASURES), draws=50
    )
    good = everything.metrics[0]
    assert set(good.measures) == set(MEASURES)
    assert not any(math.isnan(one.statistic.value) for one in good.measures.values())
    for one in good.measures.values():
        if one.interval is not None:
            assert one.interval.low <= one.interval.high


def test_a_set_of_one_system_is_compared_over_all_segments() -> None:
    evalset = judged_set(systems=1)
    alone = meta_evaluate(evalset, [metric("good", human_plus_noise(evalset, 1))], draws=50)
    assert alone.tested == "kendall"
    assert not {"spa", "kendall-item", "kendall-system"} & set(alone.measures)
    assert set(usual_measures(evalset.human())) >= {"kendall", "accuracy", "accuracy-as-published"}


def test_what_a_metric_lacks_is_an_error_or_left_out() -> None:
    evalset = judged_set()
    values = human_plus_noise(evalset, 1)
    values[5] = math.nan
    with pytest.raises(InputError, match=r"good\.txt: good has no score for 1 of 160 judged.*system-1"):
        meta_evaluate(evalset, [metric("good", values)])
    dropped = meta_evaluate(evalset, [metric("good", values)], missing="drop", measures=["kendall"], draws=50)
    assert dropped.metrics[0].measures["kendall"].statistic.n == 159
    with pytest.raises(InputError, match="already is a metric 'length'"):
        meta_evaluate(evalset, [metric("length", human_plus_noise(evalset, 1))])


def test_only_the_best_of_a_large_grid_are_tested() -> None:
    evalset = judged_set()
    metrics = [metric(f"noise-{noise}", human_plus_noise(evalset, noise)) for noise in (1, 2, 4, 8)]
    result = meta_evaluate(evalset, metrics, most_tested=2, measures=["kendall"], draws=50)
    tested = {one.name for one in result.metrics if one.rank is not None}
    assert tested == {"noise-1", "noise-2", *CONTROLS}
    untested = next(one for one in result.metrics if one.name == "noise-8")
    assert untested.measures["kendall"].interval is None
    assert not math.isnan(untested.measures["kendall"].statistic.value)


def test_slow_tests_are_only_made_of_as_many_metrics_as_minutes_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    evalset = judged_set()
    human = evalset.human()
    assert affordable(human, "pearson") > 10**6
    assert affordable(human, "kendall") < affordable(human, "kendall-item")
    # 160 hypotheses: 7 metrics, 4 of them controls, are 21 tests of 160² pairs.
    monkeypatch.setattr(metaeval, "COMPARISONS", 21 * 160**2)
    assert affordable(human, "kendall") == 3
    metrics = [metric(f"noise-{noise}", human_plus_noise(evalset, noise)) for noise in (1, 2, 4, 8)]
    options = {"measures": ["kendall"], "tested": "kendall", "draws": 20}
    result = meta_evaluate(evalset, metrics, **options)  # type: ignore[arg-type]
    assert {one.name for one in result.metrics if one.rank is None} == {"noise-8"}
    assert "Only the best 3 of 4 metrics are tested" in format_meta_evaluation(result, "text")
    lifted = meta_evaluate(evalset, metrics, most_tested=4, **options)  # type: ignore[arg-type]
    assert all(one.rank is not None for one in lifted.metrics)
    assert "Only the best" not in format_meta_evaluation(lifted, "text")


def test_a_misspelt_metric_is_told_near_names(files: dict[str, str], tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("BLEU-refA,COMET-22-refA\n" + "1,2\n" * 140, encoding="utf-8")
    for name, near in (("blue", "BLEU-refA"), ("comet", "COMET-22-refA")):
        result = CliRunner().invoke(cli, ["meta-eval", str(table), "-d", files["judged.tsv"], "--metric", name])
        assert result.exit_code == 2
        assert f"There is: {near}." in result.stderr


def test_a_note_on_many_metrics_names_some() -> None:
    evalset = judged_set(systems=1)
    metrics = [metric(f"m{at}", human_plus_noise(evalset, 1, at), "an old one") for at in range(8)]
    text = format_meta_evaluation(meta_evaluate(evalset, metrics, measures=["pearson"], draws=20), "text")
    assert "8 metrics, such as " in text
    assert "made-up, mqm: 40 judgments, 1 system, 40 segments" in text
    assert "By chance: every correlation is 0." in text


def test_measures_and_tests_are_counted_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    evalset = judged_set()
    meta_evaluate(evalset, [metric("good", human_plus_noise(evalset, 1))], measures=["kendall"], draws=20)
    lines = capsys.readouterr().err.splitlines()
    assert any(
        "of 10 measures computed" in line for line in lines
    )  # of 5 metrics: kendall, and kendall-item to test by
    assert any("of 10 pairs of metrics tested" in line for line in lines)


def test_controls_know_nothing_but_texts() -> None:
    rows = [
        Judged("0", "a", "the old mill", "the old mill", {"mqm": 0.0}),
        Judged("0", "b", "the old mill", "die alte Mühle", {"mqm": 0.0}),
        Judged("0", "c", "the old mill", "", {"mqm": 0.0}),
    ]
    scores = control_scores(EvalSet("tiny", "translation", tuple(rows), ("mqm",)))
    assert scores["length"] == [-12.0, -14.0, -0.0]
    assert scores["copy-of-source"] == [1.0, 0.0, 0.0]
    assert scores["length-ratio"] == [1.0, 12 / 14, 12.0]
    bare = [Judged("0", "a", "", "text", {"mqm": 0.0}), Judged("0", "b", "", "more", {"mqm": 1.0})]
    assert set(control_scores(EvalSet("bare", "summarization", tuple(bare), ("mqm",)))) == {"length", "random"}


def test_formats_hold_the_same_numbers(found: MetaEvaluation) -> None:
    whole = json.loads(format_meta_evaluation(found, "json"))
    value = whole["metrics"][0]["measures"]["kendall-item"]["value"]
    rows = list(csv.DictReader(io.StringIO(format_meta_evaluation(found, "tsv")), dialect="excel-tab"))
    same = next(row for row in rows if row["metric"] == "good" and row["measure"] == "kendall-item")
    assert float(same["value"]) == value
    for output in ("text", "markdown", "latex"):
        text = format_meta_evaluation(found, output)  # type: ignore[arg-type]
        assert f"{value:.3f} [" in text
        assert "(random)" in text
    text = format_meta_evaluation(found, "text")
    assert "constant: kendall-item is undefined" in text
    assert "constant: an old one." in text
    assert whole["metrics"][-1]["measures"]["kendall-item"]["value"] is None
    assert "nan" not in format_meta_evaluation(found, "json").lower().replace("constant", "")


def test_the_foot_says_what_was_done_and_spares_names() -> None:
    evalset = judged_set(segments=35)
    values = human_plus_noise(evalset, 1)
    values[5] = math.nan
    ragged = [metric("a..b", values, "a note with its stop."), metric("whole", human_plus_noise(evalset, 2))]
    found = meta_evaluate(evalset, ragged, missing="drop", tested="accuracy-item", draws=20)
    text = format_meta_evaluation(found, "text")
    assert "a..b: a note with its stop.\n" in text
    assert "a..b: rests on 139 of 140 judgments" in text
    assert "whole: rests" not in text
    assert "pairs test (99999 draws where segments differ" in text
    assert "Read the other way round, a control has the negated correlation" in text
    even = meta_evaluate(evalset, [ragged[1]], tested="accuracy-item", draws=20)
    assert "pairs test (exact; takes" in format_meta_evaluation(even, "text")
    usual = meta_evaluate(evalset, [ragged[1]], measures=["kendall"], draws=20)
    assert "permutation of single scores (permute-both, 20 draws), one-sided p < 0.05." in format_meta_evaluation(
        usual, "text"
    )
    assert next(one for one in found.metrics if one.name == "a..b").measures["kendall"].statistic.dropped == 1


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A set as TSV and two metrics as plain lines."""
    evalset = judged_set(segments=35)
    with (tmp_path / "judged.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, dialect="excel-tab")
        writer.writerow(["system", "segment", "src", "hyp", "mqm"])
        writer.writerows([row.system, row.segment, row.src, row.hyp, row.scores["mqm"]] for row in evalset.rows)
    for name, noise in (("good", 1), ("poor", 20)):
        lines = "".join(f"{value}\n" for value in human_plus_noise(evalset, noise))
        (tmp_path / f"{name}.txt").write_text(lines, encoding="utf-8")
    return {name: str(tmp_path / name) for name in ("judged.tsv", "good.txt", "poor.txt", "out.md")}


def test_the_command(files: dict[str, str]) -> None:
    arguments = ["meta-eval", files["good.txt"], files["poor.txt"], "-d", files["judged.tsv"], "--draws", "100"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].endswith("140 judgments, 4 systems, 35 segments")
    ranks = {line.split()[1]: line.split()[0] for line in lines if "[" in line and line.split()[0].strip("*").isdigit()}
    assert ranks["good"] == "1*"
    assert ranks["poor"] != "1*"
    written = CliRunner().invoke(cli, [*arguments, "--format", "markdown", "-o", files["out.md"], "-q"])
    assert written.stdout == ""
    assert "| 1\\* | good |" in Path(files["out.md"]).read_text(encoding="utf-8")
    only = CliRunner().invoke(cli, [*arguments, "--metric", "poor", "--measure", "pearson", "--format", "tsv"])
    assert "good" not in only.stdout


def test_what_data_export_writes_can_be_scored(tmp_path: Path) -> None:
    """A number for each exported line, human translations included, which meta-eval leaves out by default."""
    rng = np.random.default_rng(0)
    judged = tmp_path / "judged.tsv"
    lines = ["system\tsegment\tsrc\thyp\tmqm\tis_human"]
    for segment, system in itertools.product(range(35), ("a", "ref", "b")):
        lines.append(f"{system}\t{segment}\ts\t{'x' * rng.integers(1, 9)}\t{rng.integers(-9, 0)}\t{system == 'ref'}")
    judged.write_text("\n".join(lines) + "\n", encoding="utf-8")
    exported = CliRunner().invoke(cli, ["data", "export", str(judged)])
    oracle = tmp_path / "oracle.txt"
    rows = map(json.loads, exported.stdout.splitlines())
    oracle.write_text("".join(f"{row['scores']['mqm']}\n" for row in rows), encoding="utf-8")
    arguments = ["meta-eval", str(oracle), "-d", str(judged), "--draws", "20", "--format", "json"]
    for extra, systems in ([], 2), (["--humans"], 3):
        result = CliRunner().invoke(cli, [*arguments, *extra])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert (found["systems"], found["metrics"][0]["name"]) == (systems, "oracle")
        assert found["metrics"][0]["measures"]["kendall"]["value"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--metric", "goood"], "There is: good"),
        (["--metric", "GOO"], "There is: good"),
        (["--by", "spa"], "cannot be tested"),
        (["--measure", "tau"], "no measure 'tau'"),
        (["--aspect", "fluency"], "no aspect 'fluency'"),
        (["-o", "good.txt"], "also an input"),
    ],
)
def test_bad_arguments_exit_with_2(files: dict[str, str], extra: list[str], message: str) -> None:
    extra = [files.get(word, word) for word in extra]
    result = CliRunner().invoke(cli, ["meta-eval", files["good.txt"], "-d", files["judged.tsv"], *extra])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.data
def test_length_alone_correlates_on_long_segments(data_folder: Path) -> None:
    """WMT23 en-de has paragraphs: over all hypotheses, the shorter ones have fewer errors; for one segment, no more."""
    from promptmetric.datasets import load_set

    evalset = load_set("wmt23/en-de", data=data_folder).without_humans()
    result = meta_evaluate(evalset, [], measures=["kendall"], draws=20)
    length = next(one for one in result.metrics if one.name == "length")
    assert length.measures["kendall"].statistic.value > 0.35
    assert length.measures["kendall-item"].statistic.value < 0
