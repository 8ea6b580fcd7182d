"""Labels of several tokens: every label's probability against enumeration, and what is not visited."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptmetric.backends.tries import LEAST_SHARE, Visit, grow, read

TOKENS = range(4)


class Model:
    """A language model over four tokens and an end, whose every distribution is drawn at random."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.levels: list[int] = []

    def next(self, path: tuple[int, ...]) -> dict[int, float]:
        draw = random.Random(f"{self.seed} {path}")
        weights = [draw.random() ** 3 for _ in range(5)]
        return {token: math.log(weights[token] / sum(weights)) for token in TOKENS}

    def probability(self, path: tuple[int, ...]) -> float:
        return math.exp(sum(self.next(path[:i])[path[i]] for i in range(len(path))))

    def look(self, visits: list[Visit]) -> list[dict[int, float]]:
        self.levels.append(len(visits))
        return [{token: self.next(path)[token] for token in wanted} for _, path, wanted in visits]


paths_of_tokens = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3).map(tuple)
labels = st.lists(paths_of_tokens, min_size=1, max_size=12, unique=True)


@given(labels, st.integers(0, 99))
def test_probabilities_are_those_of_enumeration(paths: list[tuple[int, ...]], seed: int) -> None:
    model = Model(seed)
    (answer,) = read([grow(paths)], [len(paths)], model.look)
    for path, logprob in zip(paths, answer.logprobs, strict=True):
        longer = {other[: len(path) + 1] for other in paths if len(other) > len(path) and other[: len(path)] == path}
        wanted = model.probability(path) - sum(model.probability(other) for other in longer)
        assert math.exp(logprob) == pytest.approx(max(wanted, 0), abs=answer.unread + 2e-6)
    everything = sum(map(math.exp, answer.logprobs)) + answer.unread
    assert everything <= 1 + 1e-4
    assert answer.unread <= LEAST_SHARE * len(paths) + 1e-6


@given(st.lists(labels, min_size=1, max_size=4), st.integers(0, 99))
def test_prompts_are_read_together_as_alone(trees: list[list[tuple[int, ...]]], seed: int) -> None:
    model = Model(seed)
    together = read([grow(paths) for paths in trees], [len(paths) for paths in trees], model.look)
    assert model.levels[0] == len(trees)
    assert len(model.levels) <= 3
    assert together == [read([grow(paths)], [len(paths)], model.look)[0] for paths in trees]


def test_a_label_that_begins_another_excludes_it() -> None:
    model = Model(1)
    (answer,) = read([grow([(0,), (0, 1)])], [2], model.look)
    short, long = map(math.exp, answer.logprobs)
    assert short + long == pytest.approx(model.probability((0,)), abs=2e-6)
    assert long == pytest.approx(model.probability((0, 1)), abs=2e-6)


def test_improbable_branches_are_unread_not_guessed() -> None:
    def look(visits: list[Visit]) -> list[dict[int, float]]:
        assert visits[0][1] == ()  # the second level is not worth a visit
        return [{0: math.log(0.9), 1: math.log(1e-6)}]

    (answer,) = read([grow([(0,), (1, 0), (1, 1)])], [3], look)
    assert answer.logprobs[1:] == (-math.inf, -math.inf)
    assert answer.unread == pytest.approx(1e-6, abs=1e-7)


def test_labels_with_the_same_tokens_count_once() -> None:
    (answer,) = read([grow([(2,), (2,)])], [2], Model(3).look)
    assert answer.logprobs[1] == -math.inf


def test_a_label_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="label 1 has no tokens"):
        grow([(1,), ()])


def test_visits_are_bounded() -> None:
    paths = list(itertools.product(range(80), range(2)))
    model = Model(0)
    model.next = lambda path: dict.fromkeys(range(80), math.log(1 / 81))  # type: ignore[method-assign]
    (answer,) = read([grow(paths)], [len(paths)], model.look)
    assert model.levels == [1, 64]
    assert answer.unread == pytest.approx(16 / 81, abs=1e-6)
