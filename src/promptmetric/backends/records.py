"""Questions and answers as plain JSON values: what recordings, caches and worker processes exchange."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from promptmetric.questions import (
    Answer,
    Completion,
    LabelLogprobs,
    LabelRequest,
    Likelihood,
    LikelihoodRequest,
    Message,
    Question,
    Request,
)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def question_fields(question: Question) -> dict[str, Any]:
    """A question as JSON values. Fields at their defaults are left out where older recordings did not know them."""
    prompt = question.prompt
    fields: dict[str, Any] = {
        "prompt": prompt
        if isinstance(prompt, str)
        else [{"role": turn.role, "content": turn.content} for turn in prompt]
    }
    if isinstance(question, Request):
        fields |= {"max_tokens": question.max_tokens, "temperature": question.temperature, "seed": question.seed}
        if question.stop:
            fields["stop"] = list(question.stop)
        if question.choices:
            fields["choices"] = list(question.choices)
    elif isinstance(question, LabelRequest):
        fields["labels"] = list(question.labels)
    else:
        fields["continuation"] = question.text
    return fields


def question_key(question: Question) -> str:
    """The same text for the same question, in every process and version of Python."""
    return _encode(question_fields(question))


def read_question(fields: Mapping[str, Any]) -> Question:
    """The question of a record.

    Raises:
        KeyError, TypeError, ValueError: the fields are not a question's.
    """
    prompt = read_prompt(fields["prompt"])
    if "labels" in fields:
        return LabelRequest(prompt, tuple(map(_text, fields["labels"])))
    if "continuation" in fields:
        return LikelihoodRequest(prompt, _text(fields["continuation"]))
    return Request(
        prompt,
        int(fields["max_tokens"]),
        float(fields["temperature"]),
        int(fields["seed"]),
        tuple(map(_text, fields.get("stop", ()))),
        tuple(map(_text, fields.get("choices", ()))),
    )


def read_prompt(value: Any) -> str | tuple[Message, ...]:
    """Chat turns or a finished text."""
    if isinstance(value, str):
        return value
    return tuple(Message(turn["role"], _text(turn["content"])) for turn in value)


def answer_fields(answer: Answer) -> dict[str, Any]:
    """An answer as JSON values, which know no infinity: a label that was not seen is null."""
    fields: dict[str, Any] = {name: getattr(answer, name) for name in answer.__slots__}
    if isinstance(answer, LabelLogprobs):
        fields["logprobs"] = [None if value == -math.inf else value for value in answer.logprobs]
    return fields


def read_answer(fields: Mapping[str, Any]) -> Answer:
    """The answer of a record.

    Raises:
        KeyError, TypeError, ValueError: the fields are not an answer's.
    """
    tokens, overflow = fields.get("prompt_tokens"), fields.get("overflow", 0)
    if "logprobs" in fields:
        logprobs = tuple(-math.inf if value is None else float(value) for value in fields["logprobs"])
        return LabelLogprobs(logprobs, float(fields.get("unread", 0)), tokens, overflow)
    if "logprob" in fields:
        return Likelihood(float(fields["logprob"]), int(fields["tokens"]), tokens, overflow)
    return Completion(_text(fields["text"]), fields.get("finish", "stop"), tokens, overflow)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
