"""The statistics on WMT22 and WMT23 against those of the field's reference tool, all metrics and all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from promptmetric import stats
from promptmetric.errors import InputError
from promptmetric.stats.base import Floats

pytestmark = pytest.mark.data

SETS = ("wmt22/en-de", "wmt23/en-de", "wmt23/he-en")


def load(data: Path, name: str, excluded: list[str]) -> tuple[Floats, dict[str, Floats]]:
    testset, langs = name.split("/")
    outputs = pl.read_parquet(data / f"wmt/{testset}_outputs.parquet").filter(
        (pl.col("lp") == langs) & ~pl.col("system").is_in(excluded)
    )
    scores = pl.read_parquet(data / f"wmt/{testset}_{langs}_metric_scores.parquet")
    joined = outputs.join(scores, on=["system", "seg_id"], how="left").sort("system", "seg_id")
    shape = joined["system"].n_unique(), joined["seg_id"].n_unique()
    names = [column for column in scores.columns if column not in ("system", "seg_id")]
    columns = {column: joined[column].cast(pl.Float64).to_numpy().reshape(shape) for column in names}
    return joined["mqm"].to_numpy().reshape(shape), columns


def ours(human: Floats, metric: Floats) -> dict[str, float]:
    means = stats.system_scores(human), stats.system_scores(metric)
    found = {
        "kendall_b_none": stats.kendall(human, metric),
        "kendall_b_item": stats.kendall(human, metric, "item"),
        "kendall_b_sys": stats.kendall(human, metric, "system"),
        "kendall_c_item": stats.kendall(human, metric, "item", variant="c"),
        "pearson_none": stats.pearson(human, metric),
        "pearson_item": stats.pearson(human, metric, "item"),
        "pearson_sys": stats.pearson(human, metric, "system"),
        "pdp": stats.pairwise_difference_pearson(human, metric),
        "spearman_none": stats.spearman(human, metric),
        "spearman_item": stats.spearman(human, metric, "item"),
        "acc_eq_item": stats.calibrated_accuracy(human, metric),
        "acc23_eps0_item": stats.pairwise_accuracy(human, metric),
        "spa_seed4_k1000": stats.soft_pairwise_accuracy(human, metric),
        "sys_pearson": stats.system_pearson(*means),
        "sys_acc": stats.system_accuracy(*means),
    }
    return {name: one.value for name, one in found.items()} | {"sys_n_pairs": found["sys_acc"].n}


@pytest.mark.parametrize("name", SETS)
def test_every_statistic_of_every_metric(data_folder: Path, name: str) -> None:
    golden: dict[str, Any] = json.loads((data_folder / "wmt/golden_stats.json").read_text())[name]
    human, metrics = load(data_folder, name, golden["excluded_systems"])
    assert human.shape == (golden["n_systems"], golden["n_items"])
    assert set(golden["metrics"]) <= set(metrics)
    for metric, expected in golden["metrics"].items():
        found = ours(human, metrics[metric])
        assert found.keys() | {"acc_eq_item_eps"} == expected.keys()
        for statistic, value in found.items():
            assert value == pytest.approx(expected[statistic], rel=0, abs=1e-9), (metric, statistic)


@pytest.mark.parametrize("name", SETS)
def test_epsilon_is_the_smallest_of_the_best(data_folder: Path, name: str) -> None:
    """The reference tool adds rounded fractions up, and so may miss the first of several equally good thresholds."""
    golden: dict[str, Any] = json.loads((data_folder / "wmt/golden_stats.json").read_text())[name]
    human, metrics = load(data_folder, name, golden["excluded_systems"])
    differing = 0
    for metric, expected in golden["metrics"].items():
        fitted = stats.calibrated_accuracy(human, metrics[metric])
        theirs = stats.pairwise_accuracy(human, metrics[metric], epsilon=expected["acc_eq_item_eps"])
        assert theirs.value == pytest.approx(fitted.value, rel=0, abs=1e-12)
        assert fitted.epsilon is not None
        assert fitted.epsilon <= expected["acc_eq_item_eps"]
        differing += fitted.epsilon != expected["acc_eq_item_eps"]
    assert differing == {"wmt22/en-de": 0, "wmt23/en-de": 3, "wmt23/he-en": 6}[name]


def test_a_metric_without_scores_for_a_system_is_refused(data_folder: Path) -> None:
    """The reference tool gives such a metric a Kendall of 0 without a word."""
    human, metrics = load(data_folder, "wmt22/en-de", [])
    name = "REMEDY-9b-refA"
    lacking = int(np.isnan(metrics[name]).sum())
    assert lacking > 0
    with pytest.raises(InputError, match=f"no score for {lacking} of 18410 judged segments"):
        stats.kendall(human, metrics[name])
    assert stats.kendall(human, metrics[name], missing="drop").dropped == lacking
