"""Batches: every sequence once, shared prefixes right, and never dearer than leaving the order alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from promptmetric.backends.batches import Batch, common_prefix, deal, gathered

token = st.integers(0, 2)
sequences = st.lists(st.lists(token, min_size=2, max_size=12), min_size=0, max_size=20)


@given(sequences, st.integers(1, 5), st.data())
def test_every_sequence_is_computed_once_with_a_prefix_it_has(
    items: list[list[int]], batch_size: int, data: st.DataObject
) -> None:
    own = [data.draw(st.integers(1, len(item))) for item in items]
    batches = deal(items, own, batch_size)
    assert sorted(i for batch in batches for i in batch.members) == list(range(len(items)))
    for batch in batches:
        assert 1 <= len(batch.members) <= batch_size
        first = items[batch.members[0]][: batch.shared]
        assert all(items[i][: batch.shared] == first for i in batch.members)
        assert all(batch.shared <= len(items[i]) - own[i] for i in batch.members)


def test_hypotheses_of_one_source_share_it() -> None:
    header = [9] * 30
    items = [[*header, *[source] * 200, *[7, system, 8]] for system in range(8) for source in range(3)]
    batches = deal(items, [1] * len(items), 16)
    assert sorted(batch.shared for batch in batches) == [231, 231, 231]


def test_a_source_is_shared_even_where_it_is_the_smaller_part() -> None:
    items = [[source] * 60 + [system] * 200 for source in (1, 2, 3) for system in (4, 5, 6, 7)]
    batches = deal(items, [1] * 12, 16)
    assert sorted(batch.shared for batch in batches) == [60, 60, 60]


@given(st.integers(1, 3), st.integers(2, 9), st.integers(1, 40), st.integers(1, 6))
def test_no_more_is_computed_than_prefixes_and_ends(sources: int, systems: int, length: int, batch_size: int) -> None:
    items = [[source] * 500 + [system] * length for source in range(sources) for system in range(systems)]
    batches = deal(items, [1] * len(items), max(2, batch_size), overhead=4)
    ends = sum(len(batch.members) * (500 + length - batch.shared) for batch in batches)
    assert ends <= len(items) * length
    assert min(batch.shared for batch in batches) >= 500


def test_strangers_are_sorted_by_length_and_share_their_header() -> None:
    items = [[9, 9, 9, source, *[source] * (10 * source)] for source in range(1, 9)]
    batches = deal(items, [1] * 8, 4)
    assert [batch.members for batch in batches] == [(7, 6, 5, 4), (3, 2, 1, 0)]
    assert all(batch.shared == 3 for batch in batches)


def test_the_last_of_a_large_family_shares_with_the_others() -> None:
    items = [[source] * 100 + [n] for source in (1, 2) for n in range(17)]
    batches = deal(items, [1] * 34, 16)
    assert len(batches) == 4
    assert {batch.shared for batch in batches} == {100}


@given(st.lists(token), st.lists(token))
def test_common_prefix(one: list[int], other: list[int]) -> None:
    length = common_prefix(one, other)
    assert one[:length] == other[:length]
    assert one[: length + 1] != other[: length + 1] or length == min(len(one), len(other))


@given(st.lists(st.integers(1, 6), max_size=12), st.integers(1, 10))
def test_gathered_batches_keep_their_order_and_fill_up(sizes: list[int], most: int) -> None:
    batches = [Batch(tuple(range(size)), 0) for size in sizes]
    groups = list(gathered(batches, most))
    assert [batch for group in groups for batch in group] == batches
    counts = [sum(len(batch.members) for batch in group) for group in groups]
    assert all(count <= most or len(group) == 1 for count, group in zip(counts, groups, strict=True))
    assert all(count + len(group[0].members) > most for count, group in zip(counts, groups[1:], strict=False))
