"""Scores of any metric, from the files that metrics, tools and promptmetric itself write."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars
import pytest

from promptmetric.datasets import EvalSet, Judged, load_set, read_scores
from promptmetric.errors import InputError
from promptmetric.report.predictions import OutputFormat, format_predictions
from promptmetric.types import Prediction, Segment, Status

# Two systems, the rows of one in another order than those of the other.
ROWS = [("A", "0", "s0", "a0"), ("B.1", "2", "s2", "b2"), ("A", "2", "s2", "a2"), ("B.1", "0", "s0", "")]
SET = EvalSet(
    "tiny",
    "translation",
    tuple(Judged(segment, system, src, hyp, {"mqm": -1.0}) for system, segment, src, hyp in ROWS),
    ("mqm",),
    "en-de",
)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def same(values: list[float], expected: list[float]) -> bool:
    return np.array_equal(values, expected, equal_nan=True)


# Plain lines


def test_plain_lines_are_rows(tmp_path: Path) -> None:
    (metric,) = read_scores(write(tmp_path / "chrF.scores", "0.1", "0.2", "None", "-3e-1"), SET)
    assert metric.name == "chrF"
    assert same(metric.values, [0.1, 0.2, math.nan, -0.3])
    assert metric.notes == ("no score in 1 row",)
    with pytest.raises(InputError, match=r"x\.txt: 3 scores, but tiny has 4 rows"):
        read_scores(write(tmp_path / "x.txt", "1", "2", "3"), SET)
    with pytest.raises(InputError, match=r"x\.txt, line 2: 'high' is not a number"):
        read_scores(write(tmp_path / "x.txt", "1", "high", "3", "4"), SET)
    with pytest.raises(InputError, match=r"rounded for reading(.|\n)*--to_json"):
        read_scores(write(tmp_path / "x.txt", "a.txt\tSegment 0\tscore: 0.1234"), SET)


# mt-metrics-eval


def test_score_files_are_in_the_order_of_each_system(tmp_path: Path) -> None:
    path = write(tmp_path / "M-refA.seg.score", "B.1\t2", "A\t1", "B.1\t4", "A\t3", "C\t9")
    (metric,) = read_scores(path, SET)
    assert metric.name == "M-refA"
    assert metric.values == [1.0, 2.0, 3.0, 4.0]
    assert metric.notes == ("ignored, since the set lacks them: C",)


def test_score_files_of_the_whole_test_set(tmp_path: Path) -> None:
    lines = [f"{system}\t{base + line}" for system, base in (("A", 10), ("B.1", 20)) for line in range(5)]
    path = write(tmp_path / "M-src.seg.score", *lines)
    (metric,) = read_scores(path, SET)
    assert metric.values == [10.0, 22.0, 12.0, 20.0]
    # Ids that may count from 1 are not taken for lines that count from 0.
    with pytest.raises(InputError, match="5 scores of A, but tiny has 1 judged segment of it"):
        read_scores(path, SET.where(lambda row: row.segment != "0"))


def score_file(path: Path, counts: dict[str, int]) -> Path:
    """So many scores of each system, each telling its line."""
    return write(path, *(f"{system}\t{line}" for system, count in counts.items() for line in range(count)))


def test_surplus_scores_are_not_taken_for_another_alignment(tmp_path: Path) -> None:
    """Two of seven lines are judged of each system, so only two or seven scores of each can be aligned."""
    path = tmp_path / "m.seg.score"
    known = replace(SET, lines=7)
    (metric,) = read_scores(score_file(path, {"A": 7, "B.1": 7}), known)
    assert metric.values == [0.0, 2.0, 2.0, 0.0]
    for counts, message in {
        (8, 8): "8 scores of A, but tiny has 2 judged segments of it, of a test set of 7",
        (7, 8): r"8 scores of B\.1, but tiny has 2 judged segments of it, of a test set of 7",
        (7, 14): r"14 scores of B\.1, but",
        (14, 14): "14 scores of A, but",
        (7, 2): r"2 scores of B\.1, but",
        (2, 3): r"3 scores of B\.1, but",
    }.items():
        file = score_file(path, dict(zip(("A", "B.1"), counts, strict=True)))
        with pytest.raises(InputError, match=rf"m\.seg\.score: {message}"):
            read_scores(file, known)
    score_file(path, {"A": 7, "B.1": 8})
    with pytest.raises(InputError, match=r"8 scores of B\.1, but tiny has 2 judged"):
        read_scores(path, SET)  # even where nobody knows how many lines there are


def test_a_set_without_gaps_is_its_whole_test_set(tmp_path: Path) -> None:
    rows = [Judged(str(at), "A", f"s{at}", "a", {"mqm": 0.0}) for at in range(3)]
    whole = EvalSet("gapless", "translation", (*rows, Judged("1", "B", "s1", "b", {"mqm": 0.0})), ("mqm",))
    (metric,) = read_scores(score_file(tmp_path / "m.seg.score", {"A": 3, "B": 3}), whole)
    assert metric.values == [0.0, 1.0, 2.0, 1.0]
    (metric,) = read_scores(score_file(tmp_path / "m.seg.score", {"A": 3, "B": 1}), whole)
    assert metric.values == [0.0, 1.0, 2.0, 0.0]
    with pytest.raises(InputError, match="4 scores of A, but gapless has 3 judged segments of it"):
        read_scores(score_file(tmp_path / "m.seg.score", {"A": 4, "B": 4}), whole)


def test_score_files_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 score of A, but tiny has 2 judged segments"):
        read_scores(write(tmp_path / "m.seg.score", "A\t1"), SET)
    with pytest.raises(InputError, match=r"tiny has none of its systems: C(.|\n)*A, B.1"):
        read_scores(write(tmp_path / "m.seg.score", "C\t1"), SET)
    with pytest.raises(InputError, match="line 1: 'A' is not a system and a score"):
        read_scores(write(tmp_path / "m.seg.score", "A"), SET)
    with pytest.raises(InputError, match="scores of systems, not of segments"):
        read_scores(write(tmp_path / "m.sys.score", "A\t1"), SET)
    (metric,) = read_scores(write(tmp_path / "m.seg.score", "A\t1", "A\t2"), SET)
    assert same(metric.values, [1.0, math.nan, 2.0, math.nan])
    assert metric.notes == ("no scores of B.1",)
    (metric,) = read_scores(write(tmp_path / "m.seg.score", "A\t1", "A\tNone", "B.1\t2", "B.1\t3"), SET)
    assert metric.notes == ("no score in 1 row",)


def test_rows_are_counted_in_the_whole_set(tmp_path: Path) -> None:
    """As exported, with the human translations that are then left out; or without them, as their number tells."""
    part = SET.where(lambda row: row.system != "B.1")
    content = {"all.txt": [{"src": src, "mt": hyp, "score": i} for i, (_, _, src, hyp) in enumerate(ROWS)]}
    for path in (
        write(tmp_path / "plain.txt", "0", "1", "2", "3"),
        write(tmp_path / "m.csv", "m", "0", "1", "2", "3"),
        comet(tmp_path, content),
    ):
        (metric,) = read_scores(path, part, SET)
        assert metric.values == [0.0, 2.0]
    (metric,) = read_scores(write(tmp_path / "plain.txt", "0", "2"), part, SET)
    assert metric.values == [0.0, 2.0]
    with pytest.raises(InputError, match=r"3 scores, but tiny has 4 rows, or 2 without the human(.|\n)*--humans"):
        read_scores(write(tmp_path / "plain.txt", "0", "1", "2"), part, SET)


# COMET


def comet(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "comet.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def item(src: str, mt: str, score: float) -> dict[str, object]:
    return {"src": src, "mt": mt, "ref": "r", "COMET": score}


def test_comet_json_by_file(tmp_path: Path) -> None:
    content = {
        "out/A.en-de.txt": [item("s0", "a0", 0.25), item("s2 ", "a2", 0.5)],
        "out/B.1.txt": [item("s2", "b2", 0.75), item("s0", "", 1)],
        "out/other.txt": [item("x", "y", 0)],
    }
    (metric,) = read_scores(comet(tmp_path, content), SET)
    assert metric.name == "comet"
    assert metric.values == [0.25, 0.75, 0.5, 1.0]
    assert metric.notes == ("ignored, since the set lacks them: out/other.txt",)


def test_comet_json_of_the_whole_set(tmp_path: Path) -> None:
    whole = {"all.txt": [{"src": src, "mt": hyp, "score": i} for i, (_, _, src, hyp) in enumerate(ROWS)]}
    (metric,) = read_scores(comet(tmp_path, whole), SET)
    assert metric.values == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(InputError, match="3 scores, but tiny has 4 rows"):
        read_scores(comet(tmp_path, {"all.txt": whole["all.txt"][:3]}), SET)
    with pytest.raises(InputError, match=r"bears the name of a system: x, y(.|\n)*A, B\.1"):
        read_scores(comet(tmp_path, {"x": whole["all.txt"], "y": whole["all.txt"]}), SET)


def test_comet_json_that_does_not_fit(tmp_path: Path) -> None:
    swapped = {"A": [item("s2", "a2", 0.5), item("s0", "a0", 0.25)]}
    with pytest.raises(InputError, match=r"score 1 of A: another source than in tiny: 's2', not 's0'"):
        read_scores(comet(tmp_path, swapped), SET)
    with pytest.raises(InputError, match="more than one file of system A"):
        read_scores(comet(tmp_path, {"A": [], "x/A.txt": []}), SET)
    with pytest.raises(InputError, match=r"A, segment 1: not one score, but none"):
        read_scores(comet(tmp_path, {"A": [{"src": "a"}]}), SET)
    with pytest.raises(InputError, match="no list of scored segments"):
        read_scores(comet(tmp_path, {"A": 1}), SET)
    numeric = {"A": [{"src": "s0", "mt": 5, "COMET": 0.5}]}
    with pytest.raises(InputError, match="A, segment 1: mt must be a text, not 5"):
        read_scores(comet(tmp_path, numeric), SET)
    path = write(tmp_path / "x.json", "{")
    with pytest.raises(InputError, match="not valid JSON"):
        read_scores(path, SET)


# promptmetric


def prediction(*scores: tuple[float, Status]) -> Prediction:
    segments = [Segment(i, score, score, status) for i, (score, status) in enumerate(scores)]
    return Prediction.from_segments(segments, "signature")


@pytest.mark.parametrize("output", ["json", "jsonl", "tsv"])
def test_own_output_by_system(tmp_path: Path, output: OutputFormat) -> None:
    predictions = {
        "out/A.txt": prediction((0.1, "ok"), (0.2, "imputed")),
        "out/B.1.txt": prediction((0.3, "ok"), (math.nan, "failed")),
    }
    path = tmp_path / f"judge.{output}"
    path.write_text(format_predictions(predictions, output), encoding="utf-8")
    (metric,) = read_scores(path, SET)
    assert metric.name == "judge"
    assert same(metric.values, [0.1, 0.3, 0.2, math.nan])
    assert metric.notes == ("1 of 4 failed", "1 of 4 imputed")


def test_a_system_that_was_left_out_is_not_taken_for_one_of_a_shorter_name(tmp_path: Path) -> None:
    rows = [Judged("0", name, "s", name, {"mqm": 0.0}, human=name == "B.1") for name in ("B", "B.1")]
    whole = EvalSet("tiny", "translation", tuple(rows), ("mqm",))
    path = tmp_path / "judge.json"
    path.write_text(format_predictions({name: prediction((0.5, "ok")) for name in ("B", "B.1")}, "json"), "utf-8")
    (metric,) = read_scores(path, whole.without_humans(), whole)
    assert (metric.values, metric.notes) == ([0.5], ("ignored, since the set lacks them: B.1",))


@pytest.mark.parametrize("output", ["json", "jsonl", "tsv"])
def test_own_output_of_the_whole_set(tmp_path: Path, output: OutputFormat) -> None:
    predictions = {"set.jsonl": prediction(*[(n / 8, "ok") for n in range(4)])}
    path = tmp_path / f"judge.{output}"
    path.write_text(format_predictions(predictions, output), encoding="utf-8")
    (metric,) = read_scores(path, SET)
    assert metric.values == [0.0, 0.125, 0.25, 0.375]
    assert metric.notes == ()
    path.write_text(format_predictions(predictions, output, only_system=True), encoding="utf-8")
    with pytest.raises(InputError):
        read_scores(path, SET)


# Tables


def test_tables_have_a_metric_a_column(tmp_path: Path) -> None:
    table = polars.DataFrame(
        {
            "lp": ["en-de", "en-de", "en-de", "zh-en", "en-de", "en-de"],
            "system": ["B.1", "A", "A", "A", "C", "B.1"],
            "seg_id": [0, 0, 2, 0, 0, 5],
            "hyp": ["1"] * 6,
            "is_human": [False] * 6,
            "narrow": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            "wide": [0.1, math.nan, 0.3, 0.4, 0.5, 0.6],
            "words": ["one"] * 6,
        },
        schema_overrides={"narrow": polars.Float32},
    )
    path = tmp_path / "m.parquet"
    table.write_parquet(path)
    narrow, wide = read_scores(path, SET)
    assert (narrow.name, wide.name) == ("narrow", "wide")
    assert same(narrow.values, [float(np.float32(0.2)), math.nan, float(np.float32(0.3)), float(np.float32(0.1))])
    assert same(wide.values, [math.nan, math.nan, 0.3, 0.1])
    ignored, partly = "ignored, since the set lacks them: C", "no scores of 1 row of other systems"
    assert narrow.notes == (ignored, partly)
    assert wide.notes == (ignored, partly, "no score in 1 row")


def test_tables_that_do_not_fit(tmp_path: Path) -> None:
    twice = write(tmp_path / "m.tsv", "system\tsegment\tm", "A\t0\t1", "A\t0\t1")
    with pytest.raises(InputError, match=r"m\.tsv, line 3: system A has segment 0 twice"):
        read_scores(twice, SET)
    other = write(tmp_path / "m.tsv", "system\tsegment\tm", "X\t7\t1")
    with pytest.raises(InputError, match=r"none of the systems and segments of tiny(.|\n)*A, 0; the table's, X, 7"):
        read_scores(other, SET)
    with pytest.raises(InputError, match="there is no column of numbers"):
        read_scores(write(tmp_path / "m.tsv", "system\tsegment\tm", "A\t0\tx"), SET)
    with pytest.raises(InputError, match=r"m\.tsv, line 3, m: 'x' is not a number"):
        read_scores(write(tmp_path / "m.tsv", "system\tsegment\tm", "A\t0\t1", "A\t2\tx"), SET)
    with pytest.raises(InputError, match=r"m\.csv: 1 score, but tiny has 4 rows"):
        read_scores(write(tmp_path / "m.csv", "m", "1"), SET)


def test_tables_without_keys_are_rows(tmp_path: Path) -> None:
    (metric,) = read_scores(write(tmp_path / "m.csv", "m", "1", "2", "3", "4"), SET)
    assert metric.values == [1.0, 2.0, 3.0, 4.0]


# The published files


@pytest.mark.data
def test_published_metrics_are_all_read(data_folder: Path) -> None:
    evalset = load_set("wmt23/en-de", data=data_folder)
    path = data_folder / "wmt/wmt23_en-de_metric_scores.parquet"
    metrics = {metric.name: metric for metric in read_scores(path, evalset)}
    assert len(metrics) == 44
    frame = polars.read_parquet(path)
    at = {(row.system, row.segment): i for i, row in enumerate(evalset.rows)}
    for system, segment, score in frame.select("system", "seg_id", "CometKiwi-XL-src").iter_rows():
        assert metrics["CometKiwi-XL-src"].values[at[system, str(segment)]] == score


@pytest.mark.data
def test_metrics_of_wmt22_fit_what_was_drawn_from_it(data_folder: Path) -> None:
    drawn = load_set("eval4nlp/train/en-de", data=data_folder)
    path = data_folder / "wmt/wmt22_en-de_metric_scores.parquet"
    metric = next(m for m in read_scores(path, drawn) if m.name == "chrF-refA")
    whole = load_set("wmt22/en-de", data=data_folder)
    theirs = next(m for m in read_scores(path, whole) if m.name == "chrF-refA")
    by_text = {(r.system, r.src, r.hyp): v for r, v in zip(whole.rows, theirs.values, strict=True)}
    same_texts = [by_text[r.system, r.src, r.hyp] for r in drawn.rows]
    agreeing = sum(a == b for a, b in zip(metric.values, same_texts, strict=True))
    assert agreeing > 0.97 * len(same_texts), "but for sources that occur twice with other references"
