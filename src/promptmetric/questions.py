"""What is asked of a model, and what it answers: text, the probabilities of labels, or that of a given text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Message:
    """One chat turn."""

    role: Literal["system", "user", "assistant"]
    content: str


Prompt = str | tuple[Message, ...]
"""Chat turns for the model's own chat template (a last turn of the assistant is one the model continues), or a finished
text that is tokenised as it stands."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model, and how to decode its answer.

    Attributes:
        prompt: what is asked.
        max_tokens: the most tokens to generate.
        temperature: 0 is greedy.
        seed: of the random draws where the temperature is above 0.
        stop: generation ends after the first of these texts, which stays in the answer.
        choices: the only answers allowed; none allows any. Engines that cannot hold a model to them refuse.
    """

    prompt: Prompt
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer.

    Attributes:
        text: what it wrote; empty where `finish` is `too_long`.
        finish: `stop` (it ended by itself or at a stop text), `length` (cut at `max_tokens`) or `too_long` (not
            asked: the prompt and `max_tokens` together exceed the model's window).
        prompt_tokens: length of the prompt.
        overflow: by how many tokens a `too_long` prompt exceeds the window.
    """

    text: str
    finish: Literal["stop", "length", "too_long"] = "stop"
    prompt_tokens: int | None = None
    overflow: int = 0


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """How likely is each of these texts to be what the model writes first after the prompt?

    Attributes:
        prompt: what is asked.
        labels: the texts, all different. Where one begins another ("1", "10"), it stands for answers that do not go
            on as the other.
    """

    prompt: Prompt
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelLogprobs:
    """Log-probabilities of labels.

    Attributes:
        logprobs: natural logarithm of each label's probability, in the order of the request; -inf where it was not
            seen. All are -inf where `overflow` is above 0.
        unread: probability that was followed so far that it belongs to some label, but not how far to know which.
        prompt_tokens: length of the prompt.
        overflow: by how many tokens the prompt exceeds the model's window; then nothing was asked.
    """

    logprobs: tuple[float, ...]
    unread: float = 0.0
    prompt_tokens: int | None = None
    overflow: int = 0


@dataclass(frozen=True, slots=True)
class LikelihoodRequest:
    """How likely is this text as the model's own answer?

    Attributes:
        prompt: what is asked.
        text: the answer whose probability is wanted.
    """

    prompt: Prompt
    text: str


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Log-probability of a text.

    Attributes:
        logprob: sum of the natural log-probabilities of its tokens.
        tokens: how many tokens it has.
        prompt_tokens: length of the prompt.
        overflow: by how many tokens prompt and text exceed the model's window; then nothing was asked.
    """

    logprob: float
    tokens: int
    prompt_tokens: int | None = None
    overflow: int = 0


Question = Request | LabelRequest | LikelihoodRequest
Answer = Completion | LabelLogprobs | Likelihood
