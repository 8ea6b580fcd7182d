"""Pairwise accuracy with ties (Deutsch, Foster and Freitag, 2023), and the threshold below which a metric ties.

A pair of hypotheses is judged correctly where metric and humans order it alike or both call it a tie. A metric with
continuous scores never ties, so differences up to ε are taken as ties, with the ε that makes the accuracy highest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from promptmetric.stats.base import (
    Floats,
    Grouping,
    Missing,
    Statistic,
    align,
    grouped,
    mean_over_groups,
    without_gaps,
)

NO_PAIRS = "no two judged segments to compare"

MOST_PAIRS = 1 << 24
"""Pairs that are compared all at once; more than that are counted in pieces."""

PIECE = 1 << 21
"""Pairs of such a piece."""

BINS = 1 << 14


def pairwise_accuracy(
    human: ArrayLike,
    metric: ArrayLike,
    grouping: Grouping = "item",
    *,
    epsilon: float = 0.0,
    missing: Missing = "error",
) -> Statistic:
    """Share of the pairs that metric and humans order alike, ties included, for a given ε.

    Args:
        human: systems × segments; NaN where nobody judged.
        metric: the same shape.
        grouping: which values are compared with each other.
        epsilon: metric differences up to this one are ties; such as found on another set.
        missing: what a judged segment without a metric score is.

    Raises:
        InputError: see `align`.
    """
    h, m, dropped = align(human, metric, missing)
    values = accuracy_by_group(grouped(h, grouping), grouped(m, grouping), epsilon)
    n = int(np.count_nonzero(~np.isnan(h)))
    return mean_over_groups(values, n, grouping, NO_PAIRS, dropped=dropped, epsilon=epsilon)


def calibrated_accuracy(
    human: ArrayLike, metric: ArrayLike, grouping: Grouping = "item", *, missing: Missing = "error"
) -> Statistic:
    """Pairwise accuracy at the best ε, which is reported: the smallest of those with the highest accuracy.

    The search is exact: 0 and every distinct difference of the metric are tried, and correct pairs are counted in
    integers. The ε is fitted to the very judgments it is measured on, so that a metric that says nothing reaches
    the humans' tie rate: compare with `chance_accuracy`, or fix ε from another set with `pairwise_accuracy`.
    Arguments as there.
    """
    h, m, dropped = align(human, metric, missing)
    gh, gm = grouped(h, grouping), grouped(m, grouping)
    if _is_small(gh):
        pairs = GroupPairs(gh, gm)
        epsilon = pairs.best_epsilon()
        values = pairs.accuracy(epsilon)
    else:
        epsilon = best_epsilon(gh, gm)
        values = accuracy_by_group(gh, gm, epsilon)
    n = int(np.count_nonzero(~np.isnan(h)))
    return mean_over_groups(values, n, grouping, NO_PAIRS, dropped=dropped, epsilon=epsilon)


def accuracy_as_published(human: ArrayLike, metric: ArrayLike, *, missing: Missing = "error") -> Statistic:
    """The "tie-calibrated accuracy" that PrExMe's tables print, ungrouped: for comparison with them alone.

    The published code takes the best accuracy it found for the ε it was found at. So ε lies between 0 and 1 on
    whatever scale the metric has, and neither labels nor scores up to 100 are calibrated at all, while scores up to
    1 are merged into ties. It estimates that number on a random tenth of the pairs, without a seed; here all count.
    """
    fitted = calibrated_accuracy(human, metric, "none", missing=missing)
    return pairwise_accuracy(human, metric, "none", epsilon=fitted.value, missing=missing)


def chance_accuracy(human: ArrayLike, grouping: Grouping = "item") -> Statistic:
    """What a calibrated metric reaches that knows nothing: all ties, or a coin for each pair, whichever is better."""
    tied = tie_rate(human, grouping)
    return Statistic(max(tied.value, (1 - tied.value) / 2), tied.n, tied.groups, tied.undefined, tied.reason)


def tie_rate(scores: ArrayLike, grouping: Grouping = "item", *, epsilon: float = 0.0) -> Statistic:
    """Share of the pairs within a group whose scores differ by no more than ε."""
    values = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    groups = grouped(values, grouping)
    rates = np.array([_tie_rate(row[~np.isnan(row)], epsilon) for row in groups])
    n = int(np.count_nonzero(~np.isnan(values)))
    return mean_over_groups(rates, n, grouping, NO_PAIRS, epsilon=epsilon)


def _tie_rate(values: Floats, epsilon: float) -> float:
    if len(values) < 2:
        return math.nan
    if epsilon == 0:
        counts = np.unique(values, return_counts=True)[1]
        tied = int((counts * (counts - 1) // 2).sum())
    else:
        tied = sum(int(np.count_nonzero(pairs.distance <= epsilon)) for pairs in _pairs(values, values))
    return tied / math.comb(len(values), 2)


_Row = tuple[Floats, Floats]
"""Human and metric scores of one group."""


def _by_metric(h: Floats, m: Floats) -> _Row:
    """Ordered by the metric's scores, so that distances are looked up in order."""
    order = np.argsort(m)
    return h[order], m[order]


class _Pairs(NamedTuple):
    """Some pairs of a group: how far the metric's scores are apart, and what the humans say.

    `agreement` is the product of both signs: 1 alike, −1 opposed, 0 where one side ties; `human_tie` tells which.
    """

    distance: Floats
    agreement: NDArray[np.int8]
    human_tie: NDArray[np.bool_]

    def correct(self, epsilon: float) -> NDArray[np.bool_]:
        """Which of them the metric judges correctly."""
        return np.asarray(np.where(self.distance <= epsilon, self.human_tie, self.agreement == 1))


def _pairs(h: Floats, m: Floats) -> Iterator[_Pairs]:
    """Every pair of one group once, in pieces of bounded size."""
    n = len(h)
    step = max(1, PIECE // n)
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        later = np.arange(start + 1, n)
        upper = later[None, :] > rows[:, None]
        yield _compare((h[later][None, :] - h[rows][:, None])[upper], (m[later][None, :] - m[rows][:, None])[upper])


def _compare(dh: Floats, dm: Floats) -> _Pairs:
    agreement = (np.sign(dh) * np.sign(dm)).astype(np.int8)
    return _Pairs(np.abs(dm), agreement, dh == 0)


class GroupPairs:
    """All pairs of many small groups at once, as groups × pairs.

    Args:
        h: human scores, groups × members; NaN where one is missing.
        m: metric scores, NaN in the same places.
    """

    def __init__(self, h: Floats, m: Floats) -> None:
        groups, size = h.shape
        humans, metric = np.ascontiguousarray(h.T), np.ascontiguousarray(m.T)
        shape = (math.comb(size, 2), groups)
        self.distance = np.empty(shape)
        self.human_tie, self.alike = np.empty(shape, dtype=np.bool_), np.empty(shape, dtype=np.bool_)
        start = 0
        for first in range(size - 1):  # a member with all later ones
            rows = slice(start, start + size - 1 - first)
            start = rows.stop
            one, later = humans[first], humans[first + 1 :]
            np.equal(one, later, out=self.human_tie[rows])
            difference = np.subtract(metric[first], metric[first + 1 :], out=self.distance[rows])
            above, below = one > later, one < later
            np.logical_or(above & (difference > 0), below & (difference < 0), out=self.alike[rows])
        np.abs(self.distance, out=self.distance)
        members = np.count_nonzero(~np.isnan(h), axis=1)
        self.known = members * (members - 1) // 2

    def correct(self, epsilon: float) -> NDArray[np.bool_]:
        """Which pairs the metric judges correctly, as pairs × groups. Missing ones it does not."""
        near = self.distance <= epsilon
        return np.asarray((near & self.human_tie) | (~near & self.alike))

    def accuracy(self, epsilon: float) -> Floats:
        """Share of each group's pairs that are judged correctly; NaN for a group without pairs."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.count_nonzero(self.correct(epsilon), axis=0) / self.known)

    def best_epsilon(self) -> float:
        """See the function of that name."""
        if not self.known.any():
            return math.nan
        won = self.human_tie & (self.distance > 0)  # becomes correct when ε reaches its distance
        lost = self.alike  # stops being correct there
        sizes = np.unique(self.known[self.known > 0])
        if len(sizes) == 1:
            return _first_peak_of_units(self.distance[won], self.distance[lost])
        weights = np.zeros(len(self.known))
        weights[self.known > 0] = _weights(self.known[self.known > 0].tolist())
        group = np.broadcast_to(np.arange(len(self.known)), self.distance.shape)
        gain = np.concatenate([weights[group[won]], -weights[group[lost]]])
        return _first_peak(np.concatenate([self.distance[won], self.distance[lost]]), gain)


def verdicts_by_group(
    h: Floats, first: Floats, second: Floats, epsilons: tuple[float, float]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of each row of groups × members that only the first metric judges correctly, only the second, and all.

    Held at once are no more than `PIECE` pairs, whatever the groups.
    """
    members = np.count_nonzero(~np.isnan(h), axis=1)
    size = math.comb(h.shape[1], 2)
    if size > PIECE:
        rows = []
        for group in zip(h, first, second, strict=True):
            gold, one_metric, other_metric = (row[~np.isnan(row)] for row in group)
            rows.append(_verdicts_of_long(gold, one_metric, other_metric, epsilons))
        only_first, only_second = np.array(rows, dtype=np.intp).T
    else:
        step = PIECE // max(size, 1)
        chunks = []
        for start in range(0, len(h), step):
            part = slice(start, start + step)
            one, other = (
                GroupPairs(h[part], metric[part]).correct(epsilon)
                for metric, epsilon in zip((first, second), epsilons, strict=True)
            )
            chunks.append((np.count_nonzero(one & ~other, axis=0), np.count_nonzero(other & ~one, axis=0)))
        only_first, only_second = (np.concatenate(counts) for counts in zip(*chunks, strict=True))
    return only_first, only_second, members * (members - 1) // 2


def _verdicts_of_long(h: Floats, first: Floats, second: Floats, epsilons: tuple[float, float]) -> tuple[int, int]:
    only_first = only_second = 0
    for both in zip(_pairs(h, first), _pairs(h, second), strict=True):
        one, other = (pairs.correct(epsilon) for pairs, epsilon in zip(both, epsilons, strict=True))
        only_first += int(np.count_nonzero(one & ~other))
        only_second += int(np.count_nonzero(other & ~one))
    return only_first, only_second


def _is_small(h: Floats) -> bool:
    return len(h) * math.comb(h.shape[1], 2) <= MOST_PAIRS


def accuracy_by_group(h: Floats, m: Floats, epsilon: float) -> Floats:
    """Accuracy of each row of groups × members; NaN where it has no two judged values."""
    if _is_small(h):
        return GroupPairs(h, m).accuracy(epsilon)
    return np.array([_accuracy_of_long(*without_gaps(*row), epsilon) for row in zip(h, m, strict=True)])


def _accuracy_of_long(h: Floats, m: Floats, epsilon: float) -> float:
    if len(h) < 2:
        return math.nan
    table = _Contingency.of(h, m)
    if table is not None:
        return table.accuracy(epsilon)
    correct = 0
    for pairs in _pairs(h, m):
        correct += int(np.count_nonzero(pairs.correct(epsilon)))
    return correct / math.comb(len(h), 2)


def best_epsilon(h: Floats, m: Floats) -> float:
    """The smallest ε with the highest mean accuracy over the rows of groups × members; NaN where there are no pairs."""
    if _is_small(h):
        return GroupPairs(h, m).best_epsilon()
    rows = [_by_metric(*without_gaps(*row)) for row in zip(h, m, strict=True)]
    rows = [row for row in rows if len(row[0]) > 1]
    if not rows:
        return math.nan
    weights = _weights([math.comb(len(row[0]), 2) for row in rows])
    tables = [_Contingency.of(*row) for row in rows]
    known = [table for table in tables if table is not None]
    if len(known) == len(rows):
        flips = [table.flips() for table in known]
        distance = np.concatenate([flip[0] for flip in flips])
        gain = np.concatenate([flip[1] * weight for flip, weight in zip(flips, weights, strict=True)])
        return _first_peak(distance, gain)
    return _best_in_pieces(rows, weights)


def _weights(pairs: list[int]) -> Floats:
    """Weight of one pair of each group in the mean over groups; whole numbers where they fit a float exactly."""
    common = math.lcm(*set(pairs))
    if common * len(pairs) < 1 << 53:
        return np.array([common // count for count in pairs], dtype=np.float64)
    return 1 / np.array(pairs, dtype=np.float64)


def _first_peak_of_units(won: Floats, lost: Floats) -> float:
    """Smallest ε at which (won up to ε) − (lost up to ε) is highest. The peak can only lie where something is won."""
    won, lost = np.sort(won), np.sort(lost)
    if not len(won):
        return 0.0
    last = np.flatnonzero(np.append(won[1:] != won[:-1], True))
    total = (last + 1) - np.searchsorted(lost, won[last], side="right")
    peak = int(np.argmax(total))
    return float(won[last[peak]]) if total[peak] > 0 else 0.0


def _first_peak(distance: Floats, gain: Floats) -> float:
    """Smallest ε at which the gains up to ε are highest; 0 where no ε gains anything."""
    if not len(distance):
        return 0.0
    order = np.argsort(distance, kind="stable")
    ordered, total = distance[order], np.cumsum(gain[order])
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    peak = int(np.argmax(total[last]))
    return float(ordered[last[peak]]) if total[last[peak]] > 0 else 0.0


class _Contingency(NamedTuple):
    """How often a long group has each pair of (metric value, human value): all its pairs without listing them."""

    values: Floats
    counts: Floats

    @classmethod
    def of(cls, h: Floats, m: Floats) -> _Contingency | None:
        """The table, or None where the metric has so many values that the pairs themselves are no more."""
        values, row = np.unique(m, return_inverse=True)
        classes, column = np.unique(h, return_inverse=True)
        cells = max(len(values), len(classes)) * len(values)
        if cells > MOST_PAIRS or len(values) ** 2 > len(h) ** 2 // 8:
            return None
        counts = np.zeros((len(values), len(classes)))
        np.add.at(counts, (row, column), 1)
        return cls(values, counts)

    def _pairs_of_values(self) -> tuple[Floats, Floats, Floats]:
        """For every pair of metric values: their distance, and how many pairs agree and tie for the humans."""
        lower, higher = np.triu_indices(len(self.values), 1)
        above = np.zeros_like(self.counts)  # of a higher class
        above[:, :-1] = np.cumsum(self.counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
        agree = (self.counts @ above.T)[lower, higher]
        ties = (self.counts @ self.counts.T)[lower, higher]
        return self.values[higher] - self.values[lower], agree, ties

    def flips(self) -> tuple[Floats, Floats]:
        """Distances of the metric's values, and how many correct pairs are gained when ε reaches them."""
        distance, agree, ties = self._pairs_of_values()
        return distance, ties - agree

    def accuracy(self, epsilon: float) -> float:
        distance, agree, ties = self._pairs_of_values()
        correct = float(np.where(distance <= epsilon, ties, agree).sum())
        correct += float((self.counts * (self.counts - 1) / 2).sum())  # tied for both
        n = int(self.counts.sum())
        return correct / math.comb(n, 2)


def _best_in_pieces(rows: list[_Row], weights: Floats) -> float:
    """The best ε of groups with too many pairs to hold: bins of distances first, then the bins the peak can lie in.

    A bin is passed over when even its gains without its losses would not reach the highest total at a bin's end.
    So the result is exact, whatever the bins; these come from a sample of the pairs, to hold about as many each.
    """
    edges = _typical_distances(rows)
    won, lost = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
    for distance, gain in _flips(rows, weights):
        at = np.searchsorted(edges, distance)
        won += np.bincount(at, np.maximum(gain, 0), len(won))
        lost += np.bincount(at, np.minimum(gain, 0), len(won))
    ends = np.cumsum(won + lost)
    starts = np.append(0.0, ends[:-1])
    hopeful = (won > 0) & (starts + won >= max(float(ends.max()), 0.0))
    pieces = []
    for distance, gain in _flips(rows, weights):
        kept = hopeful[np.searchsorted(edges, distance)]
        different, place = np.unique(distance[kept], return_inverse=True)
        pieces.append((different, np.bincount(place, gain[kept], len(different))))
    distance, place = np.unique(np.concatenate([piece[0] for piece in pieces]), return_inverse=True)
    gain = np.asarray(
        np.bincount(place, np.concatenate([piece[1] for piece in pieces]), len(distance)), dtype=np.float64
    )
    if not len(distance):
        return 0.0
    at = np.searchsorted(edges, distance)
    first = np.flatnonzero(np.append(True, at[1:] != at[:-1]))  # of each bin
    before = np.append(0.0, np.cumsum(gain))[first]
    sizes = np.diff(np.append(first, len(at)))
    total = np.cumsum(gain) + np.repeat(starts[at[first]] - before, sizes)
    peak = int(np.argmax(total))
    return float(distance[peak]) if total[peak] > 0 else 0.0


def _typical_distances(rows: list[_Row]) -> Floats:
    """Distances that cut the pairs into bins of about equal size. They decide how long the search takes, no more."""
    rng = np.random.default_rng(0)
    sample = []
    for _, m in rows:
        one, other = rng.integers(len(m), size=(2, 64 * BINS // len(rows) + 1))
        sample.append(np.abs(m[one] - m[other]))
    return np.unique(np.quantile(np.concatenate(sample), np.linspace(0, 1, BINS)))


def _flips(rows: list[_Row], weights: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Distances at which a pair changes between correct and not when ε reaches them, with the gain."""
    for (h, m), weight in zip(rows, weights, strict=True):
        for pairs in _pairs(h, m):
            gain = weight * (pairs.human_tie.astype(np.float64) - (pairs.agreement == 1))
            kept = (gain != 0) & (pairs.distance > 0)
            yield pairs.distance[kept], gain[kept]
