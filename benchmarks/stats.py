"""How fast the statistics are, each beside the plain algorithm in the same run, on WMT22 en-de (14 systems × 1315).

    python benchmarks/stats.py --data DATA_FOLDER

The plain ones do what the field's reference tool does: tie calibration lists all pairs as objects and walks through
them; a permutation test computes every tau anew, by sorting and a binary indexed tree in Python, or through scipy; the
pairs test draws. Where they would take minutes they are timed on a few draws and scaled up, which the table says.
Results are compared as well: a fast number that is not the same number is worth nothing.
"""

from __future__ import annotations

import argparse
import itertools
import math
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
from scipy.stats import kendalltau

from promptmetric import stats
from promptmetric.stats.base import Floats

T = TypeVar("T")

DRAWS = 1000
TIMED_DRAWS = 3
METRICS = (
    "sentBLEU-refA",
    "chrF-refA",
    "GEMBA-GPT4-DA-src",
    "GEMBA-GPT4-SQM-src",
    "GEMBA-GPT4-Stars-src",
    "GEMBA-Dav3-DA-src",
    "GEMBA-Turbo-DA-src",
    "MQM-Original-llama3-70b-inst-src",
    "MQM-Original-llama3-8b-inst-src",
    "MQM-Original-mixtral-8x22b-inst-src",
)
CLOSE = ("GEMBA-Dav3-DA-src", "MQM-Original-llama3-8b-inst-src")
"""Two of them that a test can neither tell apart nor take for equal, for the pairs test."""


def timed(function: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def read(data: Path) -> tuple[Floats, dict[str, Floats]]:
    outputs = pl.read_parquet(data / "wmt/wmt22_outputs.parquet").filter(pl.col("lp") == "en-de")
    scores = pl.read_parquet(data / "wmt/wmt22_en-de_metric_scores.parquet")
    joined = outputs.join(scores, on=["system", "seg_id"]).sort("system", "seg_id")
    shape = joined["system"].n_unique(), joined["seg_id"].n_unique()
    return joined["mqm"].to_numpy().reshape(shape), {
        name: joined[name].cast(pl.Float64).to_numpy().reshape(shape) for name in METRICS
    }


class Counts:
    """How many pairs are of each kind; what an accuracy is computed from."""

    def __init__(self, alike: int = 0, opposed: int = 0, only_human: int = 0, only_metric: int = 0, both: int = 0):
        self.alike, self.opposed, self.both = alike, opposed, both
        self.only_human, self.only_metric = only_human, only_metric
        self.pairs = alike + opposed + only_human + only_metric + both

    def add(self, other: Counts, times: int) -> None:
        self.alike += times * other.alike
        self.opposed += times * other.opposed
        self.only_human += times * other.only_human
        self.only_metric += times * other.only_metric
        self.both += times * other.both
        self.pairs += times * other.pairs

    def accuracy(self) -> float:
        return (self.alike + self.both) / self.pairs


class Pair:
    """A pair of hypotheses of one item: its kind as it is, and its kind if the metric is made to tie."""

    def __init__(self, item: int, h1: float, h2: float, m1: float, m2: float) -> None:
        self.item = item
        self.distance = abs(m1 - m2)
        if h1 == h2:
            self.kind = Counts(both=1) if m1 == m2 else Counts(only_human=1)
        elif m1 == m2:
            self.kind = Counts(only_metric=1)
        else:
            self.kind = Counts(alike=1) if (h1 > h2) == (m1 > m2) else Counts(opposed=1)
        self.as_tie = Counts(both=1) if h1 == h2 else Counts(only_metric=1)


def plain_calibration(human: Floats, metric: Floats) -> tuple[float, float]:
    """All pairs as objects, sorted by distance; one by one they become ties, and their item's accuracy is updated."""
    pairs = [
        Pair(item, h[one], h[other], m[one], m[other])
        for item, (h, m) in enumerate(zip(human.T, metric.T, strict=True))
        for one in range(len(h))
        for other in range(one + 1, len(h))
    ]
    items = [Counts() for _ in range(human.shape[1])]
    for pair in pairs:
        items[pair.item].add(pair.kind, 1)
    total = math.fsum(item.accuracy() for item in items)
    best, epsilon = total, 0.0
    pairs.sort(key=lambda pair: pair.distance)
    for at, pair in enumerate(pairs):
        item = items[pair.item]
        total -= item.accuracy()
        item.add(pair.kind, -1)
        item.add(pair.as_tie, 1)
        total += item.accuracy()
        last_of_its_distance = at + 1 == len(pairs) or pairs[at + 1].distance > pair.distance
        if last_of_its_distance and total > best + 1e-9:
            best, epsilon = total, pair.distance
    return best / len(items), epsilon


def plain_tau(h: list[float], m: list[float]) -> float:
    """Tau-b by sorting and a binary indexed tree."""
    ranks = {value: rank for rank, value in enumerate(sorted(set(h)), 1)}
    order = sorted(range(len(h)), key=lambda i: m[i])
    tree = [0] * (len(ranks) + 1)
    difference = tied_h = tied_m = done = start = 0
    while start < len(order):
        end = start
        while end < len(order) and m[order[end]] == m[order[start]]:
            end += 1
        tied_m += (end - start) * (end - start - 1) // 2
        group = [ranks[h[i]] for i in order[start:end]]
        for rank in group:
            below, at = 0, rank - 1
            while at:
                below += tree[at]
                at &= at - 1
            up_to, at = 0, rank
            while at:
                up_to += tree[at]
                at &= at - 1
            difference += below - (done - up_to)
        for rank in group:
            while rank < len(tree):
                tree[rank] += 1
                rank += rank & -rank
        done += end - start
        start = end
    for value in ranks:
        n = h.count(value)
        tied_h += n * (n - 1) // 2
    pairs = math.comb(len(h), 2)
    untied = (pairs - tied_h) * (pairs - tied_m)
    return difference / math.sqrt(untied) if untied else math.nan


def plain_permutations(
    human: Floats, first: Floats, second: Floats, draws: int, tau: Callable[[list[float], list[float]], float]
) -> list[float]:
    """Delta of item-grouped tau as it is, then after single scores have been exchanged at random."""
    one, other = ((metric - metric.mean()) / metric.std() for metric in (first, second))
    rng = np.random.default_rng(0)
    deltas = []
    for draw in range(draws + 1):
        stays = rng.random(human.shape) < 0.5 if draw else np.ones(human.shape, dtype=bool)
        means = []
        for metric in (np.where(stays, one, other), np.where(stays, other, one)):
            values = [tau(h, m) for h, m in zip(human.T.tolist(), metric.T.tolist(), strict=True)]
            means.append(float(np.nanmean(values)))
        deltas.append(means[0] - means[1])
    return deltas


def scipy_tau(h: list[float], m: list[float]) -> float:
    return math.nan if len(set(h)) < 2 or len(set(m)) < 2 else float(kendalltau(h, m).statistic)


def plain_verdicts(human: Floats, metric: Floats, epsilon: float) -> Floats:
    """1 for every pair of an item that the metric judges as the humans do, else 0."""
    right = []
    for h, m in zip(human.T.tolist(), metric.T.tolist(), strict=True):
        for i, j in itertools.combinations(range(len(h)), 2):
            metric_says = 0 if abs(m[i] - m[j]) <= epsilon else 1 if m[i] > m[j] else -1
            humans_say = (h[i] > h[j]) - (h[i] < h[j])
            right.append(float(metric_says == humans_say))
    return np.array(right)


def plain_pairs_test(
    human: Floats, first: Floats, second: Floats, epsilons: tuple[float, float], draws: int
) -> tuple[float, float]:
    """Exchange both metrics' verdicts on each pair at random; share of draws with at least the observed delta."""
    rng = np.random.default_rng(0)
    one, other = plain_verdicts(human, first, epsilons[0]), plain_verdicts(human, second, epsilons[1])
    observed = one.mean() - other.mean()
    extreme = 0
    for _ in range(draws):
        stays = rng.random(one.shape) < 0.5
        delta = np.where(stays, one, other).mean() - np.where(stays, other, one).mean()
        extreme += delta >= observed - 1e-12
    return observed, extreme / draws


def line(what: str, plain: float, fast: float, same: str) -> None:
    print(f"{what:48} {plain:10.3f} {fast:9.4f} {plain / fast:9.0f}x  {same}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with wmt/")
    parser.add_argument("--skip-scipy", action="store_true", help="leave out the slowest of the plain ways")
    arguments = parser.parse_args()
    human, metrics = read(arguments.data)
    print(f"{'':48} {'plain s':>10} {'ours s':>9} {'ratio':>10}  result")

    slow = [timed(partial(plain_calibration, human, m)) for m in metrics.values()]
    stats.calibrated_accuracy(human, metrics["chrF-refA"])  # imports
    fast = [timed(partial(stats.calibrated_accuracy, human, m)) for m in metrics.values()]
    worst = max(abs(s[0][0] - f[0].value) for s, f in zip(slow, fast, strict=True))
    equal = sum(s[0][1] == f[0].epsilon for s, f in zip(slow, fast, strict=True))
    line(
        "tie calibration by item, mean of 10 metrics",
        float(np.mean([seconds for _, seconds in slow])),
        float(np.mean([seconds for _, seconds in fast])),
        f"largest difference {worst:.0e}, {equal} of 10 ε equal",
    )

    pairs = [(0, 1), *((i, j) for i, j in itertools.combinations(range(10), 2) if (i, j) != (0, 1))]
    scores = list(metrics.values())
    ours, seconds = timed(lambda: stats.permutation_tests(human, scores, pairs, draws=DRAWS))
    for name, tau in (("tree in Python", plain_tau), ("scipy", scipy_tau)):
        if name == "scipy" and arguments.skip_scipy:
            continue
        deltas, taken = timed(partial(plain_permutations, human, scores[0], scores[1], TIMED_DRAWS, tau))
        line(
            f"permute-both tau, 45 pairs × {DRAWS} ({name})",
            taken / len(deltas) * DRAWS * len(pairs),
            seconds,
            f"delta differs by {abs(deltas[0] - ours[0].delta):.0e}; plain scaled from 1 pair × {len(deltas)}",
        )

    first, second = (METRICS.index(name) for name in CLOSE)
    both = scores[first], scores[second]
    epsilons = slow[first][0][1], slow[second][0][1]
    exact, seconds = timed(lambda: stats.pairs_test(human, *both, epsilons))
    (delta, p), taken = timed(lambda: plain_pairs_test(human, *both, epsilons, DRAWS))
    same = f"p {exact.p:.4f} exact, {p:.4f} drawn; delta differs by {abs(delta - exact.delta):.0e}"
    line("pairs test, 1 pair", taken, seconds, same)

    print("\nAll 169.5 million pairs of 18,410 hypotheses (no grouping); the plain way would list them all:")
    for name in ("GEMBA-GPT4-DA-src", "chrF-refA"):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found, seconds = timed(partial(stats.calibrated_accuracy, human, metrics[name], "none"))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        values = len(np.unique(metrics[name]))
        print(
            f"  {name:20} {values:6} values {seconds:8.3f} s, peak memory +{grown:.0f} MB, "
            f"accuracy {found.value:.4f} at ε = {found.epsilon:g}"
        )


if __name__ == "__main__":
    main()
