"""Which token sequences to compute together: those that share a prefix share its work, the others their length."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences computed together.

    Attributes:
        members: their positions.
        shared: how many tokens they begin with in common, which are computed once.
    """

    members: tuple[int, ...]
    shared: int


def deal(sequences: Sequence[list[int]], own: Sequence[int], batch_size: int, overhead: int = 32) -> list[Batch]:
    """Deal sequences into batches that cost little: tokens computed, padding included, plus a price per engine call.

    Args:
        sequences: token ids.
        own: how many tokens at each one's end may not be shared, 1 at least, since an answer is read there.
        batch_size: the most sequences in a batch.
        overhead: the price of an engine call in tokens.

    Returns:
        Batches in which every sequence stands once; neighbouring ones begin alike.
    """
    if not sequences:
        return []
    order = sorted(range(len(sequences)), key=lambda i: sequences[i])
    header = min(common_prefix(sequences[order[0]], sequences[order[-1]]), *(len(sequences[i]) - own[i] for i in order))
    batches: list[Batch] = []
    loners: list[int] = []
    for batch, price in _cheapest_cuts(sequences, own, order, batch_size, header, overhead):
        alone = sum(len(sequences[i]) - header for i in batch.members) + overhead * len(batch.members) / batch_size
        if price < alone:
            batches.append(batch)
        else:
            loners += batch.members
    loners.sort(key=lambda i: len(sequences[i]), reverse=True)
    starts = range(0, len(loners), batch_size)
    return batches + [Batch(tuple(loners[start : start + batch_size]), header) for start in starts]


def _cheapest_cuts(
    sequences: Sequence[list[int]], own: Sequence[int], order: list[int], batch_size: int, header: int, overhead: int
) -> list[tuple[Batch, float]]:
    """Cut sorted sequences into runs at the least price, by dynamic programming over where the last run begins.

    What a run has in common with the one before need not be computed again. Returns runs with their prices.
    """
    adjacent = [0, *(common_prefix(sequences[one], sequences[other]) for one, other in pairwise(order))]
    best = [0.0]
    cuts = [(Batch((), 0), 0.0)]
    for end in range(1, len(order) + 1):
        shared, longest = len(sequences[order[end - 1]]), 0
        cheapest = math.inf
        for start in range(end - 1, max(-1, end - 1 - batch_size), -1):
            length = len(sequences[order[start]])
            shared, longest = min(shared, length - own[order[start]]), max(longest, length)
            known = max(header, min(shared, adjacent[start], cuts[start][0].shared))
            price = shared - known + (end - start) * (longest - shared) + 2 * overhead
            if best[start] + price < cheapest:
                cheapest, found = best[start] + price, (Batch(tuple(order[start:end]), shared), price)
            shared = min(shared, adjacent[start])
            if shared <= header:  # what comes before begins otherwise
                break
        best.append(cheapest)
        cuts.append(found)
    runs = []
    end = len(order)
    while end:
        runs.append(cuts[end])
        end -= len(cuts[end][0].members)
    return runs[::-1]


def gathered(batches: Sequence[Batch], most: int) -> Iterator[list[Batch]]:
    """Neighbouring batches in groups of at most `most` sequences; a larger batch is a group of its own."""
    group: list[Batch] = []
    count = 0
    for batch in batches:
        count += len(batch.members)
        if group and count > most:
            yield group
            group, count = [], len(batch.members)
        group.append(batch)
    if group:
        yield group


def common_prefix(one: list[int], other: list[int]) -> int:
    """Length of the common prefix."""
    for length, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return length
    return min(len(one), len(other))
