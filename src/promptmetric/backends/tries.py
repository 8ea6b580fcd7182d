"""Labels of several tokens: which nodes of their prefix tree have to be visited to know every label's probability.

A label's probability is that of its tokens one after the other, less what goes on as a longer label: "1" is what begins
with 1 and becomes neither "10" nor "100". Every inner node costs the model one more token of input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from promptmetric.questions import LabelLogprobs

Tokens = tuple[int, ...]

MOST_VISITS = 64
"""Inner nodes visited for one prompt at most; -100 … 100 has 22 where every digit is a token."""

LEAST_SHARE = 1e-4
"""Nodes with less than this share of the labels' probability are not visited: it is reported as unread."""

_DECIMALS = 6
"""Engines agree on far fewer, and recordings of scales with hundreds of labels stay small."""


@dataclass(slots=True)
class Node:
    """A place in the tree: the label that ends here, and the tokens that go on."""

    end: int | None = None
    children: dict[int, Node] = field(default_factory=dict)


def grow(labels: Sequence[Tokens]) -> Node:
    """The tree of labels.

    Args:
        labels: each label's tokens. Of labels with the same tokens the first gets their probability, the others none,
            so that a sum over labels counts nothing twice.

    Raises:
        ValueError: a label has no tokens.
    """
    root = Node()
    for number, tokens in enumerate(labels):
        if not tokens:
            raise ValueError(f"label {number} has no tokens")
        node = root
        for token in tokens:
            node = node.children.setdefault(token, Node())
        if node.end is None:
            node.end = number
    return root


Visit = tuple[int, Tokens, Sequence[int]]
"""Which prompt, the tokens that follow it, and the token ids whose log-probabilities are wanted there."""


def read(
    roots: Sequence[Node], counts: Sequence[int], look: Callable[[list[Visit]], Sequence[Mapping[int, float]]]
) -> list[LabelLogprobs]:
    """Read the labels of several prompts together, level by level.

    Args:
        roots: each prompt's tree.
        counts: how many labels each prompt has.
        look: answers visits with the log-probabilities of the wanted tokens, in one engine call a level. The first
            call has exactly one visit a prompt, in order, with no tokens.

    Returns:
        Log-probabilities of each prompt's labels.
    """
    found = [[-math.inf] * count for count in counts]
    unread = [0.0] * len(roots)
    visited = [0] * len(roots)
    totals = [0.0] * len(roots)
    level: list[tuple[int, Tokens, Node, float]] = [(prompt, (), root, 0.0) for prompt, root in enumerate(roots)]
    while level:
        answers = look([(prompt, tokens, list(node.children)) for prompt, tokens, node, _ in level])
        following: list[tuple[int, Tokens, Node, float]] = []
        for (prompt, tokens, node, reached), logprobs in zip(level, answers, strict=True):
            branches = {token: reached + logprobs[token] for token in node.children}
            gone_on = math.fsum(math.exp(value) for value in branches.values())
            if not tokens:
                totals[prompt] = gone_on
            if node.end is not None:
                found[prompt][node.end] = _log(math.exp(reached) - gone_on)
            for token, child in node.children.items():
                if child.children:
                    following.append((prompt, (*tokens, token), child, branches[token]))
                elif child.end is not None:
                    found[prompt][child.end] = branches[token]
        level = []
        for step in sorted(following, key=lambda step: (step[0], -step[3])):
            prompt, _, _, reached = step
            probability = math.exp(reached)
            if probability >= LEAST_SHARE * totals[prompt] > 0 and visited[prompt] < MOST_VISITS:
                visited[prompt] += 1
                level.append(step)
            else:
                unread[prompt] += probability
    return [
        LabelLogprobs(tuple(round(value, _DECIMALS) for value in values), round(rest, _DECIMALS))
        for values, rest in zip(found, unread, strict=True)
    ]


def _log(probability: float) -> float:
    """Rounding may leave a probability a hair below zero."""
    return math.log(probability) if probability > 0 else -math.inf
