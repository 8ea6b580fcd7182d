"""Prompts and continuations as token ids, the same for every engine that loads a Hugging Face tokenizer."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from promptmetric.errors import BackendError
from promptmetric.types import Prompt

logger = logging.getLogger("promptmetric")

_ANCHOR = "\n"
"""Tokenizers treat the beginning of a text in a special way; after a line feed none merges anything with it."""


class PromptTokenizer:
    """Turns prompts into token ids exactly once: the chat template brings its own special tokens, so none are added.

    Args:
        tokenizer: of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = _special_tokens(tokenizer)
        self.continuation = lru_cache(maxsize=4096)(self._continuation)
        if tokenizer.chat_template is None:
            logger.info("the model has no chat template: prompts with chat turns are sent as plain text")

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt.

        Raises:
            BackendError: the model's chat template refuses the prompt.
        """
        if isinstance(prompt, str):
            return list(self._tokenizer(self._defused(prompt))["input_ids"])
        if self._tokenizer.chat_template is None:
            text = "\n\n".join(turn.content for turn in prompt)
            return list(self._tokenizer(self._defused(text))["input_ids"])
        begun = prompt[-1].role == "assistant"
        try:
            encoded = self._tokenizer.apply_chat_template(
                [{"role": turn.role, "content": self._defused(turn.content)} for turn in prompt],
                add_generation_prompt=not begun,
                continue_final_message=begun,
                return_dict=True,
            )
        except Exception as error:  # a template may raise anything, and most raise to refuse a role
            raise BackendError(
                f"the model's chat template refuses the prompt: {error}",
                hint="Some models know no system turn: take a prompt with user turns only.",
            ) from error
        return list(encoded["input_ids"])

    def _continuation(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that follows a prompt."""
        anchor = self._plain(_ANCHOR)
        both = self._plain(_ANCHOR + self._defused(text))
        if both[: len(anchor)] == anchor:
            return tuple(both[len(anchor) :])
        return tuple(self._plain(self._defused(text)))

    def _plain(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _defused(self, text: str) -> str:
        """Break up control tokens in a text with a zero-width space: a hypothesis must not end its own turn."""
        return self._special.sub(lambda m: f"{m[0][0]}\u200b{m[0][1:]}", text) if self._special else text


def _special_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """The texts that the tokenizer turns into control tokens."""
    added = [
        str(token)
        for token in tokenizer.added_tokens_decoder.values()
        if token.special or re.fullmatch(r"<.+>|\[.+\]", str(token))
    ]
    tokens = sorted({*added, *tokenizer.all_special_tokens}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, tokens))) if tokens else None
