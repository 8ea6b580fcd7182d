"""Exact probabilities from vLLM's server, which takes prompts as token ids and names the ids whose odds are wanted."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from promptmetric.backends import tries
from promptmetric.backends.openai.http import JsonServer
from promptmetric.backends.openai.protocol import ONE_TOKEN, defused, prompt_fields, unfloored
from promptmetric.backends.tokens import with_answer
from promptmetric.questions import LabelLogprobs, LabelRequest, Likelihood, LikelihoodRequest, Prompt

MOST_IDS = 128
"""Token ids whose probabilities vLLM tells in one answer."""


class TokenIds:
    """Reads probabilities by token ids.

    Args:
        server: where to ask.
        model: its name there.
        window: the most tokens that fit.

    Raises:
        RefusedError: the server's tokenizer is out of reach.
    """

    def __init__(self, server: JsonServer, model: str, window: int | None) -> None:
        self._server = server
        self._model = model
        self._window = window or math.inf
        self._anchor = self._tokenize({"prompt": "\n", "add_special_tokens": False})
        self._labels_lock = threading.Lock()
        self.continuation = lru_cache(maxsize=4096)(self._continuation)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt."""
        return self._tokenize(prompt_fields(prompt))

    def _continuation(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that follows a prompt: as after a line feed, which no tokenizer merges with it."""
        both = self._tokenize({"prompt": f"\n{defused(text)}", "add_special_tokens": False})
        if both[: len(self._anchor)] == self._anchor:
            return tuple(both[len(self._anchor) :])
        return tuple(self._tokenize({"prompt": defused(text), "add_special_tokens": False}))

    def _tokenize(self, body: dict[str, Any]) -> list[int]:
        body = {"model": self._model, **body}
        return self._server.post("tokenize", body, lambda answer: [int(token) for token in answer["tokens"]], root=True)

    def labels(self, request: LabelRequest) -> LabelLogprobs:
        """Log-probabilities of labels, those of several tokens included."""
        prompt = self.encode(request.prompt)
        with self._labels_lock:  # all threads begin with the same labels: one asks for their tokens
            labels = [self.continuation(label) for label in request.labels]
        overflow = len(prompt) + max(map(len, labels)) - self._window
        if overflow > 0:
            return LabelLogprobs((-math.inf,) * len(labels), 0.0, len(prompt), int(overflow))

        def look(visits: list[tries.Visit]) -> list[dict[int, float]]:
            return [self._next_logprobs([*prompt, *path], wanted) for _, path, wanted in visits]

        (read,) = tries.read([tries.grow(labels)], [len(labels)], look)
        return dataclasses.replace(read, prompt_tokens=len(prompt))

    def _next_logprobs(self, prompt: list[int], wanted: Sequence[int]) -> dict[int, float]:
        """Log-probabilities of tokens after a prompt."""
        found: dict[int, float] = {}
        for first in range(0, len(wanted), MOST_IDS):
            body = {
                **ONE_TOKEN,
                "model": self._model,
                "prompt": prompt,
                "logprobs": 1,
                "logprob_token_ids": list(wanted[first : first + MOST_IDS]),
                "return_tokens_as_token_ids": True,
            }
            found |= self._server.post("completions", body, _by_token_id)
        if set(wanted) <= found.keys():
            return {token: found[token] for token in wanted}
        # Older versions ignore `logprob_token_ids`, but tell the probability of any token within a prompt.
        return {token: self._prompt_logprobs([*prompt, token], 1)[0] for token in wanted}

    def _prompt_logprobs(self, tokens: list[int], count: int) -> list[float]:
        """Log-probabilities of the last tokens of a prompt."""
        body = {**ONE_TOKEN, "model": self._model, "prompt": tokens, "prompt_logprobs": 0}

        def read(answer: Any) -> list[float]:
            rows = answer["choices"][0]["prompt_logprobs"][-count:]
            return [unfloored(row[str(token)]["logprob"]) for token, row in zip(tokens[-count:], rows, strict=True)]

        return self._server.post("completions", body, read)

    def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """Log-probability of a text."""
        tokens, start = with_answer(request.prompt, request.text, self.encode, self.continuation)
        count = len(tokens) - start
        overflow = len(tokens) + 1 - self._window  # the server insists on one token of answer
        if overflow > 0:
            return Likelihood(-math.inf, count, start, int(overflow))
        logprobs = self._prompt_logprobs(tokens, count) if count else []
        return Likelihood(math.fsum(logprobs), count, start)


def _by_token_id(answer: Any) -> dict[int, float]:
    top = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    return {int(token.removeprefix("token_id:")): unfloored(value) for token, value in top.items()}
