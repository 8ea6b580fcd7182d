"""The OpenAI protocol's JSON: how prompts are put into questions, and what is got out of answers.

Readers of answers raise KeyError, IndexError, TypeError or ValueError where an answer is broken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from promptmetric.questions import Completion, Prompt

ONE_TOKEN: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0}
"""For questions whose answer itself is not wanted."""

_FLOOR = -9999.0
"""vLLM's JSON has no infinity and says this."""

_CONTROL = re.compile(r"<\|[^<>|\s]{1,40}\|>|<｜[^<>｜\s]{1,40}｜>|</?s>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>")
"""Texts that tokenizers turn into control tokens. Which ones this server's does is not known."""


def prompt_fields(prompt: Prompt) -> dict[str, Any]:
    """A prompt as fields of a question: chat turns, or a finished text."""
    if isinstance(prompt, str):
        return {"prompt": defused(prompt)}
    fields: dict[str, Any] = {"messages": [{"role": turn.role, "content": defused(turn.content)} for turn in prompt]}
    if prompt[-1].role == "assistant":
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    return fields


def defused(text: str) -> str:
    """Break up control tokens in a text with a zero-width space: a hypothesis must not end its own turn."""
    return _CONTROL.sub(lambda m: f"{m[0][0]}\u200b{m[0][1:]}", text)


def read_completion(answer: Any, stop: Sequence[str]) -> Completion:
    """An answer's text up to the first stop text, which servers leave out."""
    choice = answer["choices"][0]
    reason = choice.get("finish_reason")
    if reason in ("abort", "error"):
        raise ValueError(reason)
    text = (choice["message"]["content"] if "message" in choice else choice["text"]) or ""
    told = choice.get("stop_reason") or choice.get("matched_stop")
    if told in stop:
        text += told
    ends = [text.index(end) + len(end) for end in stop if end in text]
    if ends:
        text, reason = text[: min(ends)], "stop"
    return Completion(text, "length" if reason == "length" else "stop", prompt_tokens(answer))


def prompt_tokens(answer: Any) -> int | None:
    """The prompt's length, where the server tells it."""
    count = (answer.get("usage") or {}).get("prompt_tokens")
    return count if isinstance(count, int) else None


def read_top_list(answer: Any) -> tuple[list[tuple[str, float]], int | None]:
    """Texts and log-probabilities of the most probable first tokens, in both shapes in which servers tell them."""
    told = answer["choices"][0].get("logprobs") or {}
    if told.get("content"):
        pairs = [(entry["token"], entry["logprob"]) for entry in told["content"][0]["top_logprobs"]]
    elif told.get("top_logprobs"):
        pairs = list(told["top_logprobs"][0].items())
    else:
        pairs = []
    return [(str(token), unfloored(value)) for token, value in pairs], prompt_tokens(answer)


def unfloored(logprob: float) -> float:
    """A log-probability as it was before it became JSON."""
    return -math.inf if logprob <= _FLOOR else float(logprob)
