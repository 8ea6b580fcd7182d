"""Prompts and continuations as token ids, the same for every engine that loads a Hugging Face tokenizer."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from promptmetric.backends.batches import common_prefix
from promptmetric.backends.tries import Node, grow
from promptmetric.errors import BackendError
from promptmetric.questions import Message, Prompt

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
        self.tree = lru_cache(maxsize=64)(self._tree)
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
            return list(self._tokenizer(self._defused(_as_text(prompt)))["input_ids"])
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

    def encode_answered(self, prompt: Prompt, text: str) -> tuple[list[int], int]:
        """Token ids of a prompt with its answer, and where the answer begins.

        Raises:
            BackendError: as `encode`; or nothing precedes the answer.
        """
        if self._tokenizer.chat_template is None and not isinstance(prompt, str):
            prompt = _as_text(prompt)
        return with_answer(prompt, text, self.encode, self.continuation)

    def _continuation(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that follows a prompt."""
        anchor = self._plain(_ANCHOR)
        both = self._plain(_ANCHOR + self._defused(text))
        tokens = both[len(anchor) :] if both[: len(anchor)] == anchor else self._plain(self._defused(text))
        if self._tokenizer.unk_token_id is not None and self._tokenizer.unk_token_id in tokens:
            raise BackendError(f"the model's tokenizer cannot spell {text!r}.")
        return tuple(tokens)

    def _tree(self, labels: tuple[str, ...]) -> tuple[Node, int]:
        """The tree of labels by their tokens, and how many tokens the longest has."""
        tokens = [self.continuation(label) for label in labels]
        return grow(tokens), max(map(len, tokens))

    def _plain(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _defused(self, text: str) -> str:
        """Break up control tokens in a text with a zero-width space: a hypothesis must not end its own turn."""
        return self._special.sub(lambda m: f"{m[0][0]}\u200b{m[0][1:]}", text) if self._special else text


def with_answer(
    prompt: Prompt, text: str, encode: Callable[[Prompt], list[int]], continuation: Callable[[str], Sequence[int]]
) -> tuple[list[int], int]:
    """Token ids of a prompt with its answer, and where the answer begins: after what both ways of writing share.

    Chat turns are encoded as a begun answer, since templates differ in what stands before it.

    Args:
        prompt: what is asked.
        text: the answer.
        encode: token ids of a prompt.
        continuation: token ids of a text that follows a finished text.

    Raises:
        BackendError: nothing precedes the answer.
    """
    asked = encode(prompt)
    if isinstance(prompt, str):
        tokens = [*asked, *continuation(text)]
    else:
        before, begun = (prompt[:-1], prompt[-1].content) if prompt[-1].role == "assistant" else (prompt, "")
        tokens = encode((*before, Message("assistant", begun + text)))
    start = common_prefix(asked, tokens)
    if start == 0:
        raise BackendError("a text's first token has no probability without a prompt before it.")
    return tokens, start


def _as_text(turns: tuple[Message, ...]) -> str:
    """Turns for a model without a chat template: a blank line between them and before the answer.

    A turn that ends in white space ("Score: ") asks for its answer on the spot.
    """
    begun = turns[-1].role == "assistant"
    parts = [turn.content if turn.content[-1:].isspace() else f"{turn.content}\n\n" for turn in turns]
    return "".join(parts[:-1]) + (turns[-1].content if begun else parts[-1])


def _special_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """The texts that the tokenizer turns into control tokens."""
    added = [
        str(token)
        for token in tokenizer.added_tokens_decoder.values()
        if token.special or re.fullmatch(r"<.+>|\[.+\]", str(token))
    ]
    tokens = sorted({*added, *tokenizer.all_special_tokens}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, tokens))) if tokens else None
