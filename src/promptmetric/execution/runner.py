"""Runs questions on a backend: identical ones once, those that begin alike together, known ones not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from promptmetric.backends.base import Backend, answer
from promptmetric.execution.cache import AnswerCache
from promptmetric.questions import Answer, Question
from promptmetric.texts import counted

logger = logging.getLogger("promptmetric")

Ask = Callable[[Mapping[int, Question]], Iterator[tuple[int, Any]]]
"""Takes questions of one kind by any integer key; yields each key with its answer, in the order in which they come."""


def asker(backend: Backend, batch_size: int, cache: AnswerCache | None = None) -> Ask:
    """Bind `ask` to a backend and a cache.

    Args:
        backend: who answers.
        batch_size: how many questions a backend takes at once, at most.
        cache: answers given before, which are not asked for again; new ones are kept there one by one.
    """
    return partial(ask, backend, batch_size=batch_size, cache=cache)


def ask(
    backend: Backend, questions: Mapping[int, Question], batch_size: int = 16, cache: AnswerCache | None = None
) -> Iterator[tuple[int, Answer]]:
    """Answer questions of one kind; the arguments are those of `asker`.

    Yields:
        Each key with its answer, in the order in which the backend answers.
    """
    askers: dict[Question, list[int]] = {}
    for key, question in questions.items():
        askers.setdefault(question, []).append(key)
    distinct = sorted(askers, key=_text)
    fingerprint = backend.fingerprint()
    known = cache.get_many(fingerprint, distinct) if cache else {}
    if known:
        logger.info("%d of %s had been answered before (cache)", len(known), counted(len(distinct), "question"))
    for position, given in known.items():
        for key in askers[distinct[position]]:
            yield key, given
    unknown = [question for position, question in enumerate(distinct) if position not in known]
    for position, given in answer(backend, unknown, batch_size):
        if cache and not given.overflow:  # the window is the engine's setting, not the model's
            cache.put_many(fingerprint, [(unknown[position], given)])
        for key in askers[unknown[position]]:
            yield key, given


def _text(question: Question) -> str:
    """What a prompt begins with comes first: hypotheses of one source, and formats of one segment, stay together."""
    prompt = question.prompt
    if isinstance(prompt, str):
        return prompt
    return prompt[0].content if len(prompt) == 1 else "\0".join([turn.content for turn in prompt])
