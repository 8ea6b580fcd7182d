"""Which token sequences to compute together: those that share a prefix share its work, the others their length."""

from __future__ import annotations

from collections.abc import Sequence
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
    for family in _families(sequences, order, header):
        together = _split(sequences, own, family, batch_size, header)
        price = sum(_price(sequences, batch, header) + 2 * overhead for batch in together)
        alone = sum(len(sequences[i]) - header for i in family) + overhead * len(family) / batch_size
        if price < alone:
            batches += together
        else:
            loners += family
    loners.sort(key=lambda i: len(sequences[i]), reverse=True)
    for start in range(0, len(loners), batch_size):
        batches.append(Batch(tuple(loners[start : start + batch_size]), header))
    return batches


def _families(sequences: Sequence[list[int]], order: list[int], header: int) -> list[list[int]]:
    """Runs of sorted sequences of which each shares more than half of itself, the header aside, with the one before."""
    families = [[order[0]]]
    for before, after in pairwise(order):
        shorter = min(len(sequences[before]), len(sequences[after])) - header
        if common_prefix(sequences[before], sequences[after]) - header > shorter / 2:
            families[-1].append(after)
        else:
            families.append([after])
    return families


def _split(
    sequences: Sequence[list[int]], own: Sequence[int], family: list[int], batch_size: int, header: int
) -> list[Batch]:
    """A family in equal batches, which keep the order of sorting."""
    count = -(-len(family) // batch_size)
    batches = []
    for number in range(count):
        members = family[len(family) * number // count : len(family) * (number + 1) // count]
        shared = min(
            common_prefix(sequences[members[0]], sequences[members[-1]]), *(len(sequences[i]) - own[i] for i in members)
        )
        batches.append(Batch(tuple(members), max(shared, header)))
    return batches


def _price(sequences: Sequence[list[int]], batch: Batch, header: int) -> int:
    longest = max(len(sequences[i]) for i in batch.members)
    return batch.shared - header + len(batch.members) * (longest - batch.shared)


def common_prefix(one: list[int], other: list[int]) -> int:
    """Length of the common prefix."""
    for length, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return length
    return min(len(one), len(other))
