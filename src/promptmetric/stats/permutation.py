"""Is one metric better than another, or is it chance? Permutation tests (Deutsch, Dror and Roth, 2021).

Each draw exchanges scores of the two metrics at random and computes both correlations anew. What is exchanged tells
to what the answer generalises: single scores (`both`: other segments and other systems), whole segments (`input`) or
whole systems (`systems`).

With σ = +1 where a score stays and −1 where it is exchanged, concordant minus discordant pairs of either metric are
c ± lσ + σ'Qσ with the same c, l and Q for every draw, and so are the untied pairs. So a thousand draws are one matrix
product, instead of a thousand times all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from promptmetric.errors import InputError
from promptmetric.stats.base import Floats, Grouping, Missing, align, grouped, to_unit
from promptmetric.stats.correlation import constant_rows

Exchange = Literal["both", "input", "systems"]
Singles = NDArray[np.float32]
Signs = NDArray[np.int8]

ROUNDING = 1e-12
"""Permuted differences that miss the observed one by less count as equal to it."""

DECIMALS = 12
"""Of z-scores. Two metrics that differ in scale alone tie exactly, but for the rounding of their means."""

BLOCK = 1 << 22
"""Numbers of a table of signs or of a product held at once."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A difference between two metrics and its p-value.

    Attributes:
        delta: the first metric's correlation minus the second's; NaN where one is undefined.
        p: how likely so large a difference is by chance: one-sided, for "the first is better"; NaN with `delta`.
        draws: permutations that were tried; None for an exact test.
    """

    delta: float
    p: float
    draws: int | None


def permutation_test(
    human: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    *,
    statistic: Literal["kendall", "pearson"] = "kendall",
    grouping: Grouping = "item",
    exchange: Exchange = "both",
    draws: int = 1000,
    seed: int = 0,
    missing: Missing = "error",
) -> Comparison:
    """Test whether the first metric correlates better with the humans than the second.

    Both metrics are standardised first, so that their scores can be exchanged.

    Args:
        human: systems × segments; NaN where nobody judged.
        first: a metric's scores of the same shape.
        second: another metric's.
        statistic: Kendall's tau-b or Pearson's correlation.
        grouping: as for the correlation itself.
        exchange: what is exchanged at random: single scores, segments, or systems.
        draws: permutations; p is (extreme ones + 1) / (draws + 1), so never 0.
        seed: of the permutations.
        missing: what a judged segment without a score of one of the metrics is.

    Raises:
        InputError: see `align`; or fewer than one draw.
    """
    return permutation_tests(
        human,
        [first, second],
        [(0, 1)],
        statistic=statistic,
        grouping=grouping,
        exchange=exchange,
        draws=draws,
        seed=seed,
        missing=missing,
    )[0]


def permutation_tests(
    human: ArrayLike,
    metrics: Sequence[ArrayLike],
    pairs: Sequence[tuple[int, int]],
    *,
    statistic: Literal["kendall", "pearson"] = "kendall",
    grouping: Grouping = "item",
    exchange: Exchange = "both",
    draws: int = 1000,
    seed: int = 0,
    missing: Missing = "error",
) -> list[Comparison]:
    """The same for several pairs of metrics, under the same permutations. Arguments as for `permutation_test`."""
    if draws < 1:
        raise InputError(f"draws must be a whole number from 1, not {draws}.")
    h, scores = _standardised(human, metrics, missing)
    forms = _kendall_draws if statistic == "kendall" else _pearson_draws
    sums = np.zeros((len(pairs), 2, draws + 1))
    defined = np.zeros_like(sums)
    for rows, signs in _exchanges(h, grouping, exchange, draws, seed):
        for at, (first, second) in enumerate(pairs):
            values = forms(rows(h), rows(scores[first]), rows(scores[second]), signs)
            known = ~np.isnan(values)
            sums[at] += np.where(known, values, 0).sum(axis=1)
            defined[at] += known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / defined  # pairs × metric × draws, the first draw being the observed one
    return [_conclude(means[at, 0] - means[at, 1]) for at in range(len(pairs))]


def _conclude(deltas: Floats) -> Comparison:
    observed, permuted = float(deltas[0]), deltas[1:]
    if math.isnan(observed):
        return Comparison(math.nan, math.nan, len(permuted))
    extreme = int(np.count_nonzero(permuted >= observed - ROUNDING))
    return Comparison(observed, (extreme + 1) / (len(permuted) + 1), len(permuted))


def _standardised(human: ArrayLike, metrics: Sequence[ArrayLike], missing: Missing) -> tuple[Floats, list[Floats]]:
    """Human scores and z-scores of the metrics, NaN in the same places in all of them."""
    aligned = [align(human, metric, missing)[:2] for metric in metrics]
    gaps = np.logical_or.reduce([np.isnan(h) for h, _ in aligned])
    scores = []
    for _, m in aligned:
        scores.append(_z_scores(np.where(gaps, math.nan, m)))
    return np.where(gaps, math.nan, aligned[0][0]), scores


def _z_scores(values: Floats) -> Floats:
    """Rounded, so that the ties between two metrics show; but not where that would tie scores of one metric."""
    if constant_rows(values.reshape(1, -1))[0]:
        return np.asarray(values * 0)
    scaled = to_unit(values)
    z = (scaled - np.nanmean(scaled)) / np.nanstd(scaled)
    rounded = np.round(z, DECIMALS)
    different = [len(np.unique(one[~np.isnan(one)])) for one in (values, rounded)]
    return np.asarray(rounded if different[0] == different[1] else z)


class _Rows:
    """Picks some groups of a matrix of systems × segments."""

    def __init__(self, grouping: Grouping, chosen: slice) -> None:
        self._grouping = grouping
        self._chosen = chosen

    def __call__(self, values: Floats) -> Floats:
        return grouped(values, self._grouping)[self._chosen]


def _exchanges(
    h: Floats, grouping: Grouping, exchange: Exchange, draws: int, seed: int
) -> Iterator[tuple[_Rows, Singles]]:
    """Some groups, and for them ±1 as groups × (1 + draws) × members; in the first draw everything stays."""
    rng = np.random.default_rng(seed)
    systems, segments = h.shape
    groups, members = grouped(h, grouping).shape
    shared = {"input": (draws, 1, segments), "systems": (draws, systems, 1)}
    fixed = _coins(rng, shared[exchange]) if exchange in shared else None
    step = max(1, BLOCK // ((draws + 1) * members))
    for start in range(0, groups, step):
        chosen = slice(start, min(start + step, groups))
        count = chosen.stop - chosen.start
        signs = np.ones((count, draws + 1, members), dtype=np.float32)
        if fixed is None:
            signs[:, 1:] = _coins(rng, (count, draws, members))
        else:
            whole = np.broadcast_to(fixed, (draws, systems, segments))
            if grouping == "none":
                signs[0, 1:] = whole.reshape(draws, -1)
            elif grouping == "item":
                signs[:, 1:] = whole[:, :, chosen].transpose(2, 0, 1)
            else:
                signs[:, 1:] = whole[:, chosen].transpose(1, 0, 2)
        yield _Rows(grouping, chosen), signs


def _coins(rng: np.random.Generator, shape: tuple[int, ...]) -> Singles:
    size = math.prod(shape)
    bits = np.unpackbits(np.frombuffer(rng.bytes((size + 7) // 8), dtype=np.uint8), count=size)
    return (bits.astype(np.float32) * 2 - 1).reshape(shape)


def _kendall_draws(h: Floats, first: Floats, second: Floats, signs: Singles) -> Floats:
    """Tau-b of both metrics in every draw: metric × groups × draws."""
    groups, members = h.shape
    order = _Form(signs)  # concordant minus discordant pairs, each counted twice
    untied = _Form(signs)  # pairs that the metric does not tie
    untied_h = np.zeros(groups)
    step = max(1, BLOCK // (groups * members))
    for start in range(0, members, step):
        block = slice(start, min(start + step, members))
        humans = _signs_between(h, h, block)
        untied_h += _over_pairs(np.abs(humans), block).sum(axis=1)
        tables = [
            _signs_between(one, other, block)
            for one, other in ((first, first), (first, second), (second, first), (second, second))
        ]
        order.add([humans * table for table in tables], block)
        untied.add([np.abs(table) for table in tables], block)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(order.values() / np.sqrt(untied_h[:, None] * untied.values()))


def _signs_between(one: Floats, other: Floats, block: slice) -> Signs:
    """Sign of each difference between a block of one metric's scores and another's from there on.

    0 where one is missing, and for a member with itself. What is left of the block is in earlier blocks' tables, with
    the two metrics exchanged.
    """
    rows, columns = one[:, block, None], other[:, None, block.start :]
    signs: Signs = (rows > columns).view(np.int8) - (rows < columns).view(np.int8)
    itself = np.arange(block.stop - block.start)
    signs[:, itself, itself] = 0
    return signs


def _over_pairs(table: Signs, block: slice) -> Floats:
    """Sums of each row over the pairs with all members: those behind the block stand for two."""
    width = block.stop - block.start
    whole = table.sum(axis=2, dtype=np.int64)
    return np.asarray(whole + table[:, :, width:].sum(axis=2, dtype=np.int64), dtype=np.float64)


class _Form:
    """A sum over pairs of members, of tables chosen by who is exchanged: c ± lσ + σ'Qσ, built block by block."""

    def __init__(self, signs: Singles) -> None:
        groups, draws, _ = signs.shape
        self._signs = signs
        self._even = np.zeros((groups, draws))
        self._odd = np.zeros((groups, draws))

    def add(self, tables: list[Signs], block: slice) -> None:
        """Add the pairs of a block with all behind its start: none is exchanged, the second is, the first is, both are.

        Q is symmetric, so that half of it will do; and where no scores tie, all of its numbers may be 0.
        """
        stay, second, first, both = tables
        width = block.stop - block.start
        rows, columns = self._signs[:, :, block], self._signs[:, :, block.start :]
        level = _over_pairs(stay + second + first + both, block).sum(axis=1) / 4
        slope = (stay + second - first - both).sum(axis=2, dtype=np.float32) / 2
        behind = (stay - second + first - both)[:, :, width:].sum(axis=1, dtype=np.float32) / 2
        curve = (stay - second - first + both).astype(np.float32) / 4
        curve[:, :, width:] *= 2
        curved = curve.any(axis=(0, 1))
        turned = np.matmul(columns[:, :, curved], curve[:, :, curved].transpose(0, 2, 1))  # exact: multiples of 1/4
        self._even += level[:, None] + np.einsum("gdm,gdm->gd", turned, rows, dtype=np.float64)
        self._odd += np.matmul(rows, slope[:, :, None])[:, :, 0]
        self._odd += np.matmul(columns[:, :, width:], behind[:, :, None])[:, :, 0]

    def values(self) -> Floats:
        """Metric × groups × draws: for the second metric, every sign is the other one."""
        return np.stack([self._even + self._odd, self._even - self._odd])


def _pearson_draws(h: Floats, first: Floats, second: Floats, signs: Singles) -> Floats:
    """Pearson's correlation of both metrics in every draw: metric × groups × draws."""
    flat_humans = constant_rows(h)[:, None]
    h = to_unit(h, axis=1)
    known = ~np.isnan(h)
    n = known.sum(axis=1, keepdims=True)
    safe = np.maximum(n, 1)
    humans = np.where(known, h - np.where(known, h, 0).sum(axis=1, keepdims=True) / safe, 0)
    middle = np.where(known, (first + second) / 2, 0)
    apart = np.where(known, (first - second) / 2, 0)  # a draw's scores are middle ± σ apart
    parts = np.stack([apart, humans * apart, 2 * middle * apart], axis=2)
    total, product, square = np.moveaxis(np.matmul(signs, parts), 2, 0)
    means = middle.sum(axis=1, keepdims=True)
    covariances = (humans * middle).sum(axis=1, keepdims=True)
    squares = (middle**2 + apart**2).sum(axis=1, keepdims=True)
    human_spread = (humans**2).sum(axis=1, keepdims=True)
    values = []
    for side in (1, -1):
        spread = squares + side * square - (means + side * total) ** 2 / safe
        with np.errstate(invalid="ignore", divide="ignore"):
            r = (covariances + side * product) / np.sqrt(human_spread * spread)
        flat = (spread <= ROUNDING * squares) | flat_humans
        values.append(np.where(flat, math.nan, r))
    return np.stack(values)
