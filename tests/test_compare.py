"""Comparing systems: the numbers, and what is said of them."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import permutation_test, t

from promptmetric.bench.compare import compare_systems
from promptmetric.cli import cli
from promptmetric.errors import InputError
from promptmetric.report.compare import format_comparison
from promptmetric.stats import paired
from promptmetric.stats.paired import paired_differences
from promptmetric.types import Prediction, Sample, Segment, Status


def prediction(scores: list[float], unread: tuple[int, ...] = (), status: Status = "imputed") -> Prediction:
    segments = [
        Segment(at, score, None if at in unread else score, status if at in unread else "ok")
        for at, score in enumerate(scores)
    ]
    return Prediction.from_segments(segments, "signature")


def test_the_paired_test_is_scipys() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 12)) + np.array([[0.3], [0.0]])
    _, (ours,) = paired_differences(scores, draws=5000, seed=1)
    theirs = permutation_test(
        tuple(scores[[ours.first, ours.second]]),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        n_resamples=2**12,  # all there are, so that it is exact
        vectorized=True,
    )
    assert ours.delta == pytest.approx(theirs.statistic)
    assert ours.p == pytest.approx(theirs.pvalue, abs=0.03)
    assert ours.interval.low < ours.delta < ours.interval.high
    assert (ours.wins + ours.ties + ours.losses) == 12


def test_few_segments_are_tested_exactly() -> None:
    """Every sign is tried: of 2^5 exchanges, those with every difference positive or none are as extreme."""
    scores = np.array([[0.9, 0.8, 0.7, 0.6, 0.9], [0.5, 0.6, 0.4, 0.4, 0.5]])
    _, (one,) = paired_differences(scores)
    assert one.p == 2 / 2**5
    theirs = permutation_test(
        tuple(scores), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    assert one.p == theirs.pvalue
    mixed = np.array([[0.9, 0.1, 0.7, 0.35, 0.9, 0.2, 0.8], [0.5, 0.6, 0.4, 0.4, 0.5, 0.3, 0.1]])
    _, (one,) = paired_differences(mixed)
    ours = [np.dot(signs, mixed[0] - mixed[1]) for signs in itertools.product((1, -1), repeat=7)]
    assert one.p == np.mean(np.abs(ours) >= abs(np.sum(mixed[0] - mixed[1])) - 1e-12)


def test_where_no_difference_can_be_found_none_is_called_detectable() -> None:
    systems = {"a": prediction([0.9, 0.8, 0.7, 0.6, 0.9]), "b": prediction([0.5, 0.6, 0.4, 0.4, 0.5])}
    found = compare_systems(systems)
    assert (found.exact, found.lowest) == (True, 2 / 2**5)
    text = format_comparison(found, "text")
    assert "no difference can be found with 5 segments" in text
    assert "p after the correction is 0.0625 at best" in text
    assert "exact (all 32 exchanges)" in text
    assert "would mostly be found" not in text
    assert json.loads(format_comparison(found, "json"))["differences"][0]["detectable"] is None
    rows = list(csv.DictReader(io.StringIO(format_comparison(found, "tsv")), dialect="excel-tab"))
    assert rows[0]["detectable"] == ""
    # 2 / 2^6 is below .05, but not three times that, which is what Holm asks of three pairs.
    six = {name: prediction([level / 9 + at / 99 for at in range(6)]) for name, level in (("a", 8), ("b", 4), ("c", 1))}
    assert compare_systems({"a": six["a"], "b": six["b"]}).differences[0].p == 2 / 2**6
    assert compare_systems({"a": six["a"], "b": six["b"]}).lowest < 0.05
    assert compare_systems(six).lowest == pytest.approx(6 / 2**6)
    few = format_comparison(
        compare_systems({"a": prediction([0.1] * 30), "b": prediction([0.2] * 30)}, draws=9), "text"
    )
    assert "no difference can be found with 9 draws" in few


def test_more_pairs_need_larger_differences() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(5, 40))
    _, (alone,) = paired_differences(scores[:2])
    _, many = paired_differences(scores)
    assert alone.detectable is not None
    assert many[0].detectable is not None
    # .05 over ten pairs: t(39) of .9975 and .8 is 3.826, of .975 and .8 is 2.874 (scipy.stats.t.ppf).
    assert many[0].detectable / alone.detectable == pytest.approx(3.826 / 2.874, abs=2e-3)


def test_quantiles_of_students_t_are_scipys() -> None:
    for p, freedom in itertools.product((0.8, 0.975, 0.9975), (5, 10, 40, 1000)):
        assert paired._t_quantile(p, freedom) == pytest.approx(t.ppf(p, freedom), rel=0.01)


def test_p_does_not_depend_on_the_scale() -> None:
    scores = np.random.default_rng(0).integers(0, 5, (2, 12)).astype(np.float64)
    _, (plain,) = paired_differences(scores, draws=500)
    for scale in (1e-8, 1e-200, 1e8):
        _, (scaled,) = paired_differences(scores * scale, draws=500)
        assert scaled.p == plain.p


def test_the_detectable_difference_is_found_four_times_out_of_five() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for seed in range(200):
        noise = rng.normal(size=(2, 50))
        detectable = (2.0096 + 0.8491) * np.sqrt(2 / 50)  # t(49) at .975 and .8; of two unit normals
        _, (one,) = paired_differences(noise + np.array([[detectable], [0.0]]), draws=199, seed=seed)
        found += one.p <= 0.05 and one.first == 0
    assert 0.7 < found / 200 < 0.9


def test_systems_are_ordered_clustered_and_judged() -> None:
    rng = np.random.default_rng(1)
    base = rng.random(200) / 2
    systems = {
        "worse": prediction((base - 0.2).tolist()),
        "best": prediction((base + 0.3 + rng.normal(size=200) / 50).tolist()),
        "as good": prediction((base + 0.3 + rng.normal(size=200) / 50).tolist()),
    }
    found = compare_systems(systems, draws=500)
    assert found.systems[-1].name == "worse"
    assert [one.rank for one in found.systems] == [1, 1, 2]
    text = format_comparison(found, "text")
    assert "distinguishable from noise" in text
    assert "not distinguishable; a true difference of 0." in text
    assert text.splitlines()[-1] == "Signature: signature"
    rows = list(csv.DictReader(io.StringIO(format_comparison(found, "tsv")), dialect="excel-tab"))
    assert len(rows) == 3
    assert all(float(row["difference"]) >= 0 for row in rows)
    assert json.loads(format_comparison(found, "json"))["differences"][0]["first"] == found.systems[0].name
    assert format_comparison(found, "markdown").startswith("| cluster |")


def test_segments_without_a_read_score_are_left_out_and_counted() -> None:
    a, b = [0.1, 0.9, 0.5, 0.6], [0.2, 0.1, 0.4, 0.5]
    found = compare_systems({"a": prediction(a, (1,)), "b": prediction(b)}, draws=100)
    assert (found.segments, found.left_out) == (3, 1)
    assert found.systems[0].score == pytest.approx(0.4)
    assert "Left out: 1 of 4 segments" in format_comparison(found, "text")
    failed = prediction([math.nan, *a[1:]], (0,), "failed")
    assert compare_systems({"a": failed, "b": prediction(b)}, draws=10).segments == 3
    with pytest.raises(InputError, match="two segments or more with a score for every system, and 1 of 4"):
        compare_systems({"a": prediction(a, (0, 1, 2)), "b": prediction(b)})
    with pytest.raises(InputError, match=r"only 1 segment\.\n  With one segment, nothing tells"):
        compare_systems({"a": prediction([0.1]), "b": prediction([0.2])})


def test_identical_systems_are_said_to_score_the_same() -> None:
    scores = [0.1, 0.9, 0.5]
    found = compare_systems({"a": prediction(scores), "b": prediction(scores)}, draws=100)
    (pair,) = found.differences
    assert (pair.delta, pair.p, pair.wins, pair.ties) == (0.0, 1.0, 0, 3)
    text = format_comparison(found, "text")
    assert "the same score on every segment" in text
    assert "a = b" in text


def test_one_system_and_uneven_systems_are_refused() -> None:
    with pytest.raises(InputError, match="one system alone cannot be compared"):
        compare_systems({"a": prediction([0.1, 0.2])})
    with pytest.raises(InputError, match="different numbers"):
        compare_systems({"a": prediction([0.1, 0.2]), "b": prediction([0.1])})


def test_the_command(tmp_path: Path, record: Callable[..., str]) -> None:
    prompt = tmp_path / "prompt.toml"
    prompt.write_text(
        'id = "test:direct"\nmax_tokens = 20\nscale = { kind = "numeric", min = 0, max = 100 }\n'
        '[[messages]]\nrole = "user"\ncontent = "{{ src }} => {{ hyp }}"\n',
        encoding="utf-8",
    )
    sources = [f"source {i}" for i in range(30)]
    (tmp_path / "src.txt").write_text("\n".join(sources) + "\n", encoding="utf-8")
    for name, level in (("a", 80), ("b", 40)):
        hypotheses = [f"{name} {i}" for i in range(30)]
        (tmp_path / f"{name}.txt").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
        samples = [Sample(src, hyp) for src, hyp in zip(sources, hypotheses, strict=True)]
        answers = record(samples, [f"Score: {level + i % 7}" for i in range(30)])
    common = ["-s", str(tmp_path / "src.txt"), "-m", answers, "-p", str(prompt), "-q"]
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    result = CliRunner().invoke(cli, ["compare", *common, "-t", *files, "--draws", "200"])
    assert result.exit_code == 0, result.output
    assert "0.4000" in result.stdout
    assert "30/0/0" in result.stdout
    rows = [
        {"src": src, "hyp": f"{name} {at}", "system": f"{name}.txt"} for at, src in enumerate(sources) for name in "ba"
    ]
    together = tmp_path / "rows.jsonl"
    together.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    options = ["-m", answers, "-p", str(prompt), "-q", "--draws", "200"]
    same = CliRunner().invoke(cli, ["compare", "-s", str(together), *options])
    assert same.exit_code == 0, same.output
    assert "a.txt > b.txt" in same.stdout
    assert "30/0/0" in same.stdout
    for kept, message in (
        (rows[:-1], "b.txt has 30 segments, a.txt 29"),
        ([*rows[:2], *rows[4:], rows[3], rows[2]], None),
        ([rows[2], *rows[:2], *rows[3:]], "segment 1 of b.txt and of a.txt have different sources: 'source 1'"),
        (rows[::2], "one system alone cannot be compared"),
    ):
        together.write_text("".join(f"{json.dumps(row)}\n" for row in kept), encoding="utf-8")
        other = CliRunner().invoke(cli, ["compare", "-s", str(together), *options])
        assert other.exit_code == (2 if message else 0)
        assert message is None or message in other.stderr
    piped = CliRunner().invoke(cli, ["compare", "-s", "-", *options], input="{}")
    assert piped.exit_code == 2
    assert "stdin (-) can hold the sources, not the systems too" in piped.stderr
    alone = CliRunner().invoke(cli, ["compare", *common, "-t", files[0]])
    assert alone.exit_code == 2
    assert "Name two or more" in alone.stderr
