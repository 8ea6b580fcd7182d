"""What every engine offers. A backend knows requests and completions; prompts and scores are not its business."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from promptmetric.questions import (
    Answer,
    Completion,
    LabelLogprobs,
    LabelRequest,
    Likelihood,
    LikelihoodRequest,
    Question,
    Request,
)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What answers depend on beside the request: goes into the signature.

    Attributes:
        model: hub id or name.
        revision: commit of the hub, or a hash of the files.
        engine: engine, versions, device and precision.
    """

    model: str
    revision: str
    engine: str


class Backend(Protocol):
    """An engine with a model loaded."""

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:
        """Answer every request, in whatever order is fastest.

        Args:
            requests: what to ask.
            batch_size: how many to answer at once, at most.

        Yields:
            The request's position and its completion, as soon as it is there.

        Raises:
            BackendError: the engine failed.
        """
        ...

    def read_labels(
        self, requests: Sequence[LabelRequest], batch_size: int = 16
    ) -> Iterator[tuple[int, LabelLogprobs]]:
        """The probabilities of labels at the place where the answer begins. As `generate` otherwise.

        Raises:
            BackendError: the engine failed, or cannot read these labels exactly (with the reason).
        """
        ...

    def score_texts(
        self, requests: Sequence[LikelihoodRequest], batch_size: int = 16
    ) -> Iterator[tuple[int, Likelihood]]:
        """The probability of texts as the model's answers. As `generate` otherwise.

        Raises:
            BackendError: the engine failed, or does not tell probabilities of given texts.
        """
        ...

    def fingerprint(self) -> Fingerprint:
        """What the answers depend on."""
        ...

    def close(self) -> None:
        """Free the engine's memory. Calling it again does nothing."""
        ...


class AlikeForAllKinds(ABC):
    """Base of backends that treat questions of every kind in the same way: they look them up or pass them on."""

    @abstractmethod
    def _answer(self, questions: Sequence[Question], batch_size: int) -> Iterator[tuple[int, Any]]:
        """Answer questions, all of one kind."""

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:
        """Answer every request."""
        return self._answer(requests, batch_size)

    def read_labels(
        self, requests: Sequence[LabelRequest], batch_size: int = 16
    ) -> Iterator[tuple[int, LabelLogprobs]]:
        """The probabilities of labels at the place where the answer begins."""
        return self._answer(requests, batch_size)

    def score_texts(
        self, requests: Sequence[LikelihoodRequest], batch_size: int = 16
    ) -> Iterator[tuple[int, Likelihood]]:
        """The probability of texts as the model's answers."""
        return self._answer(requests, batch_size)


def answer(backend: Backend, questions: Sequence[Question], batch_size: int = 16) -> Iterator[tuple[int, Answer]]:
    """Ask a backend questions of one kind, by the method for that kind."""
    if not questions:
        return
    method = {Request: "generate", LabelRequest: "read_labels", LikelihoodRequest: "score_texts"}[type(questions[0])]
    yield from getattr(backend, method)(questions, batch_size)


def described(arguments: Mapping[str, Any], harmless: Collection[str] = ()) -> str:
    """An engine's arguments for its fingerprint, each after a space, without those that change no answer."""
    parts = []
    for name, value in sorted(arguments.items()):
        if name not in harmless:
            plain = isinstance(value, str | int | float | bool)
            parts.append(f" {name}={value if plain else hashlib.sha256(str(value).encode()).hexdigest()[:8]}")
    return "".join(parts)
