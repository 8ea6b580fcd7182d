"""The statistics against scipy, against brute force, and at their edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest, kendalltau, pearsonr, spearmanr

from promptmetric import stats
from promptmetric.errors import InputError
from promptmetric.stats import Statistic, bootstrap, correlation, permutation, ties
from promptmetric.stats.base import Floats, Grouping, grouped

NAN = math.nan
GROUPINGS: tuple[Grouping, ...] = ("none", "item", "system")


@st.composite
def judged(draw: st.DrawFn) -> tuple[Floats, Floats]:
    """Human and metric scores of up to 5 systems on up to 8 segments, with many ties and some gaps."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 8)))
    human = draw(arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, 2.0, 5.0, NAN])))
    metric = draw(arrays(np.float64, shape, elements=st.sampled_from([-1.0, 0.0, 0.25, 0.5, 3.0])))
    return human, metric


def scipy_mean(human: Floats, metric: Floats, grouping: Grouping, function: object, **options: object) -> float:
    """The mean over groups of what scipy says of each, undefined ones left out."""
    found = []
    for h, m in zip(grouped(human, grouping), grouped(metric, grouping), strict=True):
        known = ~np.isnan(h)
        if known.sum() > 1 and len(set(h[known])) > 1 and len(set(m[known])) > 1:
            found.append(float(function(h[known], m[known], **options).statistic))  # type: ignore[operator]
    return float(np.mean(found)) if found else NAN


@pytest.mark.parametrize("grouping", GROUPINGS)
@given(data=judged())
@settings(max_examples=60, deadline=None)
def test_correlations_equal_scipy(grouping: Grouping, data: tuple[Floats, Floats]) -> None:
    human, metric = data
    metric = np.where(np.isnan(human), NAN, metric)
    for variant in ("b", "c"):
        ours = stats.kendall(human, metric, grouping, variant=variant).value
        assert ours == pytest.approx(scipy_mean(human, metric, grouping, kendalltau, variant=variant), nan_ok=True)
    for ours, function in (
        (stats.pearson(human, metric, grouping), pearsonr),
        (stats.spearman(human, metric, grouping), spearmanr),
    ):
        assert ours.value == pytest.approx(scipy_mean(human, metric, grouping, function), nan_ok=True)
        assert math.isnan(ours.value) == (ours.reason is not None)


def test_long_groups_are_sorted_to_the_same_tau() -> None:
    rng = np.random.default_rng(0)
    h, m = rng.integers(0, 9, (2, 3, 40)).astype(np.float64)
    short = correlation.kendall_by_group(h, m)
    assert [correlation._kendall_by_sorting(*row, "b") for row in zip(h, m, strict=True)] == pytest.approx(short)


def test_undefined_is_nan_with_a_reason_and_counted() -> None:
    constant = stats.kendall([[1, 2, 3]], [[5, 5, 5]])
    assert math.isnan(constant.value)
    assert "equal" in str(constant.reason)
    human = [[1, 1, 1], [2, 2, 1]]
    by_item = stats.kendall(human, [[1, 0, 0], [2, 0, 1]], "item")
    assert (by_item.value, by_item.groups, by_item.undefined) == (1.0, 1, 2)
    alone = stats.kendall([[1, 2, 3]], [[1, 2, 3]], "item")
    assert math.isnan(alone.value)
    assert "no item" in str(alone.reason)
    assert math.isnan(stats.pairwise_difference_pearson([[1, 2]], [[1, 2]]).value)
    assert math.isnan(stats.tie_rate([[1.0]], "none").value)


def test_a_constant_is_undefined_even_if_its_mean_is_rounded() -> None:
    assert math.isnan(stats.pearson([[0.1] * 3], [[1, 2, 3]]).value)
    assert math.isnan(stats.pearson([[1, 2, 3]], [[0.1] * 3]).value)


def test_a_metric_that_lacks_judged_segments_is_an_error_unless_said() -> None:
    human, metric = [[1, 2, 3, NAN]], [[1, NAN, 3, NAN]]
    with pytest.raises(InputError, match="no score for 1 of 3 judged segments"):
        stats.kendall(human, metric)
    dropped = stats.kendall(human, metric, missing="drop")
    assert (dropped.value, dropped.n, dropped.dropped) == (1.0, 2, 1)
    with pytest.raises(InputError, match="shape"):
        stats.kendall([[1, 2]], [[1, 2, 3]])
    with pytest.raises(InputError, match="infinite"):
        stats.kendall([[1, 2]], [[1, math.inf]])


@given(data=judged())
@settings(max_examples=60, deadline=None)
def test_pairwise_difference_pearson_is_pearson_of_the_listed_differences(data: tuple[Floats, Floats]) -> None:
    human, metric = data
    differences = []
    for h, m in zip(human.T, metric.T, strict=True):
        for one, other in itertools.permutations(np.flatnonzero(~np.isnan(h)), 2):
            differences.append((h[one] - h[other], m[one] - m[other]))
    x, y = np.array(differences).reshape(-1, 2).T
    expected = pearsonr(x, y).statistic if len(set(x)) > 1 and len(set(y)) > 1 else NAN
    ours = stats.pairwise_difference_pearson(human, np.where(np.isnan(human), NAN, metric)).value
    assert ours == pytest.approx(expected, nan_ok=True)


def best_by_trying(human: Floats, metric: Floats, grouping: Grouping) -> tuple[float, float]:
    """Every distinct difference as ε; exact fractions are compared with a tolerance far below one pair."""
    rows, candidates = [], {0.0}
    for h, m in zip(grouped(human, grouping), grouped(metric, grouping), strict=True):
        known = np.flatnonzero(~np.isnan(h))
        if len(known) > 1:
            one, other = np.array(list(itertools.combinations(known, 2))).T
            rows.append((h[one] - h[other], m[one] - m[other]))
            candidates |= set(np.abs(m[one] - m[other]).tolist())
    best = (-1.0, 0.0)
    for epsilon in sorted(candidates):
        shares = [
            np.mean(np.where(np.abs(dm) <= epsilon, dh == 0, (np.sign(dh) == np.sign(dm)) & (dh != 0)))
            for dh, dm in rows
        ]
        accuracy = float(np.mean(shares)) if shares else NAN
        if accuracy > best[0] + 1e-12:
            best = (accuracy, epsilon)
    return best if rows else (NAN, NAN)


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("most_pairs", [ties.MOST_PAIRS, 3], ids=["at once", "in pieces"])
@given(data=judged(), noise=st.booleans())
@settings(max_examples=60, deadline=None)
def test_tie_calibration_is_exact(
    most_pairs: int, grouping: Grouping, data: tuple[Floats, Floats], noise: bool
) -> None:
    human, metric = data
    if noise:  # a metric without ties takes another way than one with few values
        metric = metric + np.random.default_rng(0).normal(size=metric.shape)
    metric = np.where(np.isnan(human), NAN, metric)
    accuracy, epsilon = best_by_trying(human, metric, grouping)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ties, "MOST_PAIRS", most_pairs)
        patch.setattr(ties, "PIECE", most_pairs)
        ours = stats.calibrated_accuracy(human, metric, grouping)
    assert ours.value == pytest.approx(accuracy, nan_ok=True)
    assert ours.epsilon == pytest.approx(epsilon, rel=0, abs=0, nan_ok=True)


def test_epsilon_can_come_from_another_set() -> None:
    human, metric = [[0, 0, 1]], [[0.1, 0.2, 0.9]]
    assert stats.pairwise_accuracy(human, metric, "none").value == pytest.approx(2 / 3)
    fixed = stats.pairwise_accuracy(human, metric, "none", epsilon=0.5)
    assert (fixed.value, fixed.epsilon) == (1.0, 0.5)


def test_a_metric_that_says_nothing_reaches_chance() -> None:
    human = [[0, 0, 0, 1]]
    constant = stats.calibrated_accuracy(human, [[7, 7, 7, 7]], "none")
    assert constant.value == stats.tie_rate(human, "none").value == stats.chance_accuracy(human, "none").value == 0.5
    assert stats.chance_accuracy([[0, 1, 2, 3]], "none").value == 0.5


def test_tie_rate_counts_pairs_within_epsilon() -> None:
    assert stats.tie_rate([[0, 0, 1, 3]], "none").value == pytest.approx(1 / 6)
    assert stats.tie_rate([[0, 0, 1, 3]], "none", epsilon=1).value == pytest.approx(3 / 6)


def test_published_accuracy_takes_the_accuracy_for_the_threshold() -> None:
    human, metric = [[0, 0, 1, 1]], [[10.0, 20.0, 50.0, 60.0]]
    fitted = stats.calibrated_accuracy(human, metric, "none")
    published = stats.accuracy_as_published(human, metric)
    assert (fitted.value, fitted.epsilon) == (1.0, 10.0)
    assert (published.value, published.epsilon) == (pytest.approx(4 / 6), 1.0)


@pytest.mark.parametrize("statistic", ["kendall", "pearson"])
@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("exchange", ["both", "input", "systems"])
@pytest.mark.parametrize("block", [permutation.BLOCK, 64])
def test_every_draw_of_a_permutation_test_equals_the_plain_way(
    monkeypatch: pytest.MonkeyPatch, statistic: str, grouping: Grouping, exchange: permutation.Exchange, block: int
) -> None:
    monkeypatch.setattr(permutation, "BLOCK", block)
    rng = np.random.default_rng(5)
    human = rng.integers(0, 3, (4, 6)).astype(np.float64)
    first, second = rng.integers(0, 4, (4, 6)) + human, rng.normal(size=(4, 6))
    human[1, 2] = NAN
    z, (a, b) = permutation._standardised(human, [first, second], "error")
    groups = [signs for _, signs in permutation._exchanges(z, grouping, exchange, 30, seed=3)]
    signs = np.concatenate(groups)
    plain = []
    for draw in range(31):
        stays = signs[:, draw] > 0
        stays = stays.reshape(4, 6) if grouping == "none" else (stays.T if grouping == "item" else stays)
        one, other = np.where(stays, a, b), np.where(stays, b, a)
        function = getattr(stats, statistic)
        plain.append(function(z, one, grouping).value - function(z, other, grouping).value)
        if exchange == "input":
            assert (stays == stays[0]).all()
        if exchange == "systems":
            assert (stays == stays[:, :1]).all()
    ours = stats.permutation_test(
        human,
        first,
        second,
        statistic=statistic,  # type: ignore[arg-type]
        grouping=grouping,
        exchange=exchange,
        draws=30,
        seed=3,
    )
    assert ours.delta == pytest.approx(plain[0])
    assert ours.p == (sum(delta >= plain[0] - 1e-12 for delta in plain[1:]) + 1) / 31


def test_permutation_tests_tell_a_good_metric_from_noise_and_not_noise_from_noise() -> None:
    rng = np.random.default_rng(0)
    human = rng.normal(size=(6, 40))
    good, noise, more_noise = human + rng.normal(size=(6, 40)), *rng.normal(size=(2, 6, 40))
    assert stats.permutation_test(human, good, noise).p < 0.01
    assert stats.permutation_test(human, noise, good).p > 0.99
    assert 0.02 < stats.permutation_test(human, noise, more_noise).p < 0.98
    again = [stats.permutation_test(human, noise, more_noise, seed=9) for _ in range(2)]
    assert again[0] == again[1]
    undefined = stats.permutation_test(human, good, np.ones((6, 40)))
    assert math.isnan(undefined.delta)
    assert math.isnan(undefined.p)
    with pytest.raises(InputError, match="draws"):
        stats.permutation_test(human, good, noise, draws=0)


def test_false_alarms_are_as_rare_as_promised() -> None:
    """Two equally good metrics: p below 0.1 in about a tenth of many trials (binomial limits far out)."""
    rng = np.random.default_rng(1)
    alarms = 0
    for seed in range(200):
        human = rng.normal(size=(5, 20))
        one, other = human + rng.normal(size=(2, 5, 20))
        alarms += stats.permutation_test(human, one, other, draws=99, seed=seed).p <= 0.1
    assert 5 <= alarms <= 38


def test_pairs_test_is_the_exact_sign_test() -> None:
    rng = np.random.default_rng(2)
    human = rng.integers(0, 3, (5, 12)).astype(np.float64)
    first, second = human + rng.normal(size=(5, 12)), rng.normal(size=(5, 12))
    ours = stats.pairs_test(human, first, second, (0.1, 0.2))
    right = [ties.GroupPairs(human.T, metric.T).correct(epsilon) for metric, epsilon in ((first, 0.1), (second, 0.2))]
    only_first, only_second = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    expected = binomtest(only_first, only_first + only_second, alternative="greater").pvalue
    assert ours.p == pytest.approx(expected)
    share = [stats.pairwise_accuracy(human, m, epsilon=e).value for m, e in ((first, 0.1), (second, 0.2))]
    assert ours.delta == pytest.approx(share[0] - share[1])
    flips = np.random.default_rng(0).random((4000, only_first + only_second)) < 0.5
    assert ours.p == pytest.approx((flips.sum(axis=1) >= only_first).mean(), abs=0.03)
    assert stats.pairs_test(human, first, first, (0.1, 0.1)).p == 1.0
    assert math.isnan(stats.pairs_test(human[:1], first[:1], first[:1], (0, 0)).p)


@pytest.mark.parametrize("seed", range(4))
def test_pairs_test_weighs_pairs_as_the_mean_over_uneven_segments_does(seed: int) -> None:
    """Four segments with 10, 3, 1 and 1 pairs, against every one of the possible exchanges."""
    rng = np.random.default_rng(seed)
    human, first, second = rng.integers(0, 3, (3, 5, 4)).astype(np.float64)
    human[3:, 1], human[2:, 2:] = NAN, NAN
    flips = []  # what a pair adds to the difference of the two means over segments
    for h, one, other in zip(human.T, first.T, second.T, strict=True):
        pairs = list(itertools.combinations(np.flatnonzero(~np.isnan(h)), 2))
        for i, j in pairs:
            right = [np.sign(m[i] - m[j]) == np.sign(h[i] - h[j]) for m in (one, other)]
            flips.append((int(right[0]) - int(right[1])) / len(pairs) / 4)
    observed = math.fsum(flips)
    disputed = np.array([flip for flip in flips if flip])
    exchanges = np.array(list(itertools.product([1, -1], repeat=len(disputed))))
    expected = float(np.mean(exchanges @ disputed >= observed - 1e-12))
    ours = stats.pairs_test(human, first, second, (0, 0))
    assert ours.delta == pytest.approx(observed)
    assert ours.p == pytest.approx(expected, abs=0.006)  # 3.8 standard errors of 99,999 draws at p = .5
    assert ours == stats.pairs_test(human, first, second, (0, 0))


def test_pairs_test_says_whether_it_drew() -> None:
    human, good, bad = [[0, 0], [1, 1], [2, NAN]], [[0, 0], [1, 1], [2, 0]], [[2, 1], [1, 0], [0, 0]]
    assert stats.pairs_test(human, good, bad, (0, 0)).draws == 99_999
    exact = stats.pairs_test(np.array(human)[:, :1], np.array(good)[:, :1], np.array(bad)[:, :1], (0, 0))
    assert (exact.draws, exact.p) == (None, 0.125), "three pairs, all for the first"
    assert math.isnan(stats.pairs_test([], [], [], (0, 0)).p)


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("piece", [12, 3])
def test_pairs_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch, grouping: Grouping, piece: int) -> None:
    rng = np.random.default_rng(7)
    human, first, second = rng.integers(0, 4, (3, 4, 9)).astype(np.float64)
    human[0, :3] = NAN
    at_once = stats.pairs_test(human, first, second, (1, 0), grouping=grouping)
    monkeypatch.setattr(ties, "PIECE", piece)
    assert stats.pairs_test(human, first, second, (1, 0), grouping=grouping) == at_once


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e200])
def test_pearson_does_not_depend_on_the_scale(scale: float) -> None:
    rng = np.random.default_rng(0)
    human, first, second = rng.normal(size=(3, 5, 12))
    weights = bootstrap.draw_weights(12, 5)
    for grouping in GROUPINGS:
        expected = stats.pearson(human, first, grouping).value
        assert stats.pearson(human * scale, first, grouping).value == pytest.approx(expected, rel=1e-9)
        assert stats.pearson(human, first * scale, grouping).value == pytest.approx(expected, rel=1e-9)
        test = stats.permutation_test(human, first, second, statistic="pearson", grouping=grouping, draws=50)
        for h, m in ((human * scale, first), (human, first * scale)):
            scaled = stats.permutation_test(h, m, second, statistic="pearson", grouping=grouping, draws=50)
            assert (scaled.delta, scaled.p) == pytest.approx((test.delta, test.p), rel=1e-9)
    for function in (stats.pairwise_difference_pearson, stats.kendall, stats.spearman):
        assert function(human * scale, first).value == pytest.approx(function(human, first).value, rel=1e-9)
    drawn = bootstrap.resample_pearson(human * scale, first, weights)
    assert drawn == pytest.approx(bootstrap.resample_pearson(human, first, weights), rel=1e-9)


@pytest.mark.parametrize("function", [stats.kendall, stats.pearson, stats.spearman])
@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_nothing_is_undefined_with_a_reason(function: Callable[..., Statistic], shape: tuple[int, ...]) -> None:
    for grouping in GROUPINGS:
        found = function(np.zeros(shape), np.zeros(shape), grouping)
        assert math.isnan(found.value)
        assert found.reason


def test_a_metric_and_its_copy_on_another_scale_are_not_told_apart() -> None:
    rng = np.random.default_rng(0)
    human, metric = rng.integers(0, 4, (6, 40)).astype(np.float64), rng.integers(0, 5, (6, 40)).astype(np.float64)
    for factor, offset in ((0.1, 0.3), (3, 7), (1e-8, 0), (1e8, 0)):
        assert stats.permutation_test(human, metric, metric * factor + offset, draws=100).p == 1.0
    # Rounding must not tie what one metric tells apart, here beside a score that is far away from all others.
    far = np.append(np.arange(5.0), 1e15)
    assert len(set(permutation._z_scores(far))) == 6


@pytest.mark.parametrize("block", [bootstrap.BLOCK, 300, 20])
def test_bootstrap_draws_equal_those_of_the_copied_segments(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(bootstrap, "BLOCK", block)
    rng = np.random.default_rng(1)
    human = rng.integers(0, 3, (4, 9)).astype(np.float64)
    metric = rng.integers(0, 4, (4, 9)) + human
    human[1, 2], human[:, 4] = NAN, NAN
    weights = bootstrap.draw_weights(9, 25, seed=1)
    kendalls = bootstrap.resample_kendall(human, metric, weights)
    pearsons = bootstrap.resample_pearson(human, metric, weights)
    accuracies = bootstrap.resample_accuracy(human, metric, weights, epsilon=1)
    for draw in range(25):
        copies = np.repeat(np.arange(9), weights[draw].astype(int))
        h, m = human[:, copies].ravel(), metric[:, copies].ravel()
        who = (10 * copies[None, :] + np.arange(4)[:, None]).ravel()[~np.isnan(h)]
        h, m = h[~np.isnan(h)], m[~np.isnan(h)]
        assert kendalls[draw] == pytest.approx(kendalltau(h, m).statistic)
        assert pearsons[draw] == pytest.approx(pearsonr(h, m).statistic)
        one, other = np.triu_indices(len(h), 1)
        different = who[one] != who[other]
        dh, dm = (h[one] - h[other])[different], (m[one] - m[other])[different]
        right = np.where(np.abs(dm) <= 1, dh == 0, (np.sign(dh) == np.sign(dm)) & (dh != 0))
        assert accuracies[draw] == pytest.approx(right.mean())


def test_bootstrap_of_system_level_statistics() -> None:
    rng = np.random.default_rng(3)
    human = rng.normal(size=(5, 30)) + np.arange(5)[:, None] / 5
    metric = human + rng.normal(size=(5, 30))
    weights = bootstrap.draw_weights(30, 10, seed=2)
    for draw in range(10):
        copies = np.repeat(np.arange(30), weights[draw].astype(int))
        h, m = human[:, copies], metric[:, copies]
        means = stats.system_scores(h), stats.system_scores(m)
        assert bootstrap.resample_system_pearson(human, metric, weights)[draw] == pytest.approx(
            stats.system_pearson(*means).value
        )
        assert bootstrap.resample_system_accuracy(human, metric, weights)[draw] == pytest.approx(
            stats.system_accuracy(*means).value
        )
        assert bootstrap.resample_spa(human, metric, weights)[draw] == pytest.approx(
            stats.soft_pairwise_accuracy(h, m, method="normal").value
        )


def test_an_interval_covers_and_is_refused_where_draws_are_undefined() -> None:
    values = np.arange(1001.0)
    found = bootstrap.interval(values)
    assert (found.low, found.high) == pytest.approx((25.0, 975.0))
    values[:100] = NAN
    assert math.isnan(bootstrap.interval(values).low)
    means = bootstrap.resample_means(np.array([1.0, NAN, 3.0]), np.array([[1.0, 5.0, 1.0], [0.0, 3.0, 0.0]]))
    assert means[0] == 2.0
    assert math.isnan(means[1])
    with pytest.raises(InputError, match="draws"):
        bootstrap.draw_weights(3, 0)


def test_soft_pairwise_accuracy() -> None:
    rng = np.random.default_rng(4)
    human = rng.normal(size=(4, 50)) + np.arange(4)[:, None] / 4
    assert stats.soft_pairwise_accuracy(human, human).value == 1.0
    metric = human + rng.normal(size=(4, 50))
    drawn = stats.soft_pairwise_accuracy(human, metric, draws=20_000, seed=1).value
    assert drawn == pytest.approx(stats.soft_pairwise_accuracy(human, metric, method="normal").value, abs=0.01)
    assert math.isnan(stats.soft_pairwise_accuracy(human[:1], metric[:1]).value)
    human[0, 3] = NAN  # a segment that one system lacks is left out for all
    whole = np.delete(human, 3, axis=1), np.delete(metric, 3, axis=1)
    assert stats.soft_pairwise_accuracy(human, metric).value == stats.soft_pairwise_accuracy(*whole).value


def test_system_level() -> None:
    human, metric = [3.0, 2.0, 2.0], [0.9, 0.5, 0.5]
    assert stats.system_accuracy(human, metric).value == 1.0
    assert stats.system_accuracy(human, [0.9, 0.5, 0.6]).value == pytest.approx(2 / 3)
    assert stats.system_accuracy(human, metric).n == 3
    assert stats.system_pearson(human, metric).value == pytest.approx(1)
    assert math.isnan(stats.system_accuracy([1.0], [1.0]).value)
    assert math.isnan(stats.system_pearson([1.0, 1.0], [1.0, 2.0]).value)
    assert stats.system_scores([[1, NAN, 3], [NAN, NAN, NAN]])[0] == 2.0


def test_systems_without_a_score_are_left_out() -> None:
    human, metric = [1.0, 2.0, NAN], [1.0, 2.0, 0.0]
    assert (stats.system_accuracy(human, metric).value, stats.system_accuracy(human, metric).n) == (1.0, 1)
    assert stats.system_pearson([*human, 3.0], [*metric, 3.0]).n == 3
    assert stats.system_accuracy(metric, human).dropped == 1
    assert math.isnan(stats.system_accuracy(human[1:], metric[1:]).value)


def test_bootstrap_draws_leave_out_systems_they_have_no_segment_of() -> None:
    rng = np.random.default_rng(2)
    human, metric = rng.normal(size=(2, 4, 6))
    human[0, 1:] = NAN  # judged on the first segment alone
    metric[0, 1:] = NAN
    weights = bootstrap.draw_weights(6, 40, seed=1)
    lacking = np.flatnonzero(weights[:, 0] == 0)
    assert len(lacking)
    for draw in range(40):
        copies = np.repeat(np.arange(6), weights[draw].astype(int))
        first = 1 if draw in lacking else 0
        means = [stats.system_scores(values[first:, copies]) for values in (human, metric)]
        accuracy = bootstrap.resample_system_accuracy(human, metric, weights)[draw]
        assert accuracy == pytest.approx(stats.system_accuracy(*means).value)
        pearson = bootstrap.resample_system_pearson(human, metric, weights)[draw]
        assert pearson == pytest.approx(stats.system_pearson(*means).value)


def test_equal_means_of_different_numbers_tie() -> None:
    scores = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.2, 0.2]]
    assert len(set(stats.system_scores(scores))) == 1
    assert len(set(stats.system_scores(np.array(scores) * 1e-200))) == 1
    assert math.isnan(stats.system_pearson(stats.system_scores(scores), [1, 2, 3]).value)


def test_holm() -> None:
    assert stats.holm([0.01, 0.04, 0.03, NAN]) == pytest.approx([0.03, 0.06, 0.06, NAN], nan_ok=True)
    assert stats.holm([0.6, 0.7]).tolist() == [1.0, 1.0]


def test_clusters_of_both_kinds() -> None:
    # a beats c, b beats nobody, c nobody; d is undefined
    p = np.array([[NAN, 0.2, 0.01, NAN], [1, NAN, 0.06, NAN], [1, 1, NAN, NAN], [NAN] * 4])
    assert stats.beaten_by(p) == [0, 0, 1, 0]
    assert stats.greedy_ranks([0.5, 0.4, 0.3, NAN], p) == [1, 1, 2, 3]
    assert stats.greedy_ranks([NAN, NAN], np.full((2, 2), NAN)) == [1, 1]
    on_the_line = np.array([[NAN, 0.05], [1, NAN]])
    assert (stats.greedy_ranks([0.5, 0.4], on_the_line), stats.beaten_by(on_the_line)) == ([1, 1], [0, 0])


def test_human_ceiling() -> None:
    ratings = np.array([[[1.0, 2, 3, 4]], [[1, 2, 3, 4]], [[4, 3, 2, 1]]])
    ceiling = stats.human_ceiling(ratings, stats.kendall)
    # raters 1 and 2 see a constant rest (2.5), which is undefined; rater 3 is opposed to both
    assert (ceiling.value, ceiling.groups, ceiling.undefined) == (-1.0, 1, 2)
    with pytest.raises(InputError, match="one rater"):
        stats.human_ceiling(ratings[:1], stats.kendall)
