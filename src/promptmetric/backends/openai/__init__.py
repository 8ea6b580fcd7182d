"""Servers that speak the OpenAI protocol: vLLM, SGLang, the llama.cpp server, and hosted ones.

The road past one machine. A vLLM server tells probabilities exactly, since it takes token ids and names the ones whose
probabilities are wanted; elsewhere they are read from the most probable first tokens where that is exact, or refused.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from promptmetric.backends.base import Fingerprint
from promptmetric.backends.openai.http import JsonServer, RefusedError, read_key, server_address
from promptmetric.backends.openai.protocol import (
    ONE_TOKEN,
    defused,
    prompt_fields,
    read_completion,
    read_top_list,
    unfloored,
)
from promptmetric.backends.openai.threads import at_once
from promptmetric.backends.openai.tokenids import TokenIds
from promptmetric.backends.openai.toplists import read_top
from promptmetric.errors import BackendError, InputError
from promptmetric.questions import (
    Completion,
    LabelLogprobs,
    LabelRequest,
    Likelihood,
    LikelihoodRequest,
    Prompt,
    Request,
)

logger = logging.getLogger("promptmetric")

TOP = 20
"""The most probable tokens that servers tell at most."""

_PLAIN_SAMPLING: dict[str, dict[str, Any]] = {
    "vllm": {"repetition_penalty": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0},
    "sglang": {"repetition_penalty": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0},
    "llamacpp": {"repeat_penalty": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
}
"""A server's or model's own sampling defaults must not colour our decoding. By what servers call themselves."""

_NAME_THE_STOP = ("vllm", "sglang")
"""Servers that say which stop text ended an answer."""

_CONSTRAIN: dict[str, Callable[[Sequence[str]], dict[str, Any]]] = {
    "vllm": lambda choices: {"structured_outputs": {"choice": list(choices)}},
    "sglang": lambda choices: {"regex": f"({'|'.join(map(_escaped, choices))})"},
}
"""How servers are told the only answers allowed, by what they call themselves."""

_NO_ECHO = "Serve the model with vLLM, which does, or read text or labels."

_T = TypeVar("_T")


class OpenAIBackend:
    """A model on a server.

    Args:
        url: address, such as `http://localhost:8000/v1` (`/v1` may be left out). A name after `#` is the model's:
            `http://localhost:8000/v1#name`.
        model: the model's name there; may be left out where the server has one only.
        concurrency: how many questions to ask at once.
        timeout: seconds to wait for an answer before the question is asked again.
        retries: how often to ask again at most, after busy or broken answers and lost connections.
        api_key_env: the environment variable that holds the key; by default those of `KEYS`. It goes to this server
            only: redirects are not followed.

    Raises:
        InputError: the address or the name is not usable.
        BackendError: the server does not answer, or refuses.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        concurrency: int = 32,
        timeout: float = 300.0,
        retries: int = 6,
        api_key_env: str | None = None,
    ) -> None:
        if concurrency < 1 or timeout <= 0 or retries < 0:
            raise InputError("concurrency must be at least 1, timeout above 0 and retries at least 0.")
        address, _, named = url.partition("#")
        model = model or named or None
        self._concurrency = concurrency
        self._server = JsonServer(server_address(address), read_key(api_key_env), concurrency, timeout, retries)
        try:
            cards = self._model_cards(is_needed=model is None)
            self._model = _choose(model, [str(card["id"]) for card in cards], self._server.address)
            card = next((card for card in cards if card["id"] == self._model), cards[0] if cards else {})
            owner = card.get("owned_by")
            self._kind = owner if isinstance(owner, str) and owner in _PLAIN_SAMPLING else None
            window = card.get("max_model_len")
            self._window: int | None = window if isinstance(window, int) else None
            self._ids = self._token_ids() if self._kind == "vllm" else None
            kind = f" {self._kind}{self._version()}" if self._kind else ""
        except BaseException:
            self._server.close()
            raise
        self._fingerprint = Fingerprint(self._model, "unknown", f"openai {self._server.address}{kind}")

    def fingerprint(self) -> Fingerprint:
        """Model, server, and its kind and version where it tells. No server tells the model's revision."""
        return self._fingerprint

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:  # noqa: ARG002
        """Answer requests. `batch_size` has no effect: `concurrency` says how many are asked at once."""
        if self._kind not in _CONSTRAIN and any(request.choices for request in requests):
            raise BackendError(
                f"{self._server.origin}: not known to hold a model to a list of answers, as vLLM and SGLang are.",
                hint="Take decode='expected', which needs no structure, or serve the model with vLLM.",
            )
        return self._each(requests, self._generate)

    def read_labels(
        self,
        requests: Sequence[LabelRequest],
        batch_size: int = 16,  # noqa: ARG002
    ) -> Iterator[tuple[int, LabelLogprobs]]:
        """Log-probabilities of labels: exact on vLLM, elsewhere from the most probable tokens or refused."""
        return self._each(requests, self._ids.labels if self._ids else self._labels_from_top)

    def score_texts(
        self,
        requests: Sequence[LikelihoodRequest],
        batch_size: int = 16,  # noqa: ARG002
    ) -> Iterator[tuple[int, Likelihood]]:
        """Log-probabilities of texts: on vLLM, and of finished texts wherever a server echoes prompts."""
        return self._each(requests, self._ids.likelihood if self._ids else self._score_by_echo)

    def _each(self, requests: Sequence[Any], answer: Callable[[Any], _T]) -> Iterator[tuple[int, _T]]:
        if self._kind is None and any(
            not isinstance(r.prompt, str) and r.prompt[-1].role == "assistant" for r in requests
        ):
            logger.warning("%s: this server may not go on with answers that the prompt begins", self._server.origin)
        return at_once(answer, requests, self._concurrency)

    # Text

    def _generate(self, request: Request) -> Completion:
        path, body = self._body(request.prompt)
        body |= _PLAIN_SAMPLING.get(self._kind or "", {})
        body |= {"max_tokens": request.max_tokens, "temperature": request.temperature}
        if request.temperature > 0:
            body["seed"] = request.seed
        if request.stop and self._kind in _NAME_THE_STOP:  # elsewhere a cut answer could not be told from a whole one
            body["stop"] = list(request.stop)
        if request.choices and self._kind:
            body |= _CONSTRAIN[self._kind](request.choices)
        try:
            completion = self._server.post(path, body, partial(read_completion, stop=request.stop))
        except RefusedError as error:
            if not error.is_too_long:
                raise
            length, overflow = self._too_long(request, error)
            return Completion("", "too_long", length, overflow)
        asked = completion.prompt_tokens
        if asked and self._window and asked + request.max_tokens > self._window:
            # vLLM shortens the answer instead of refusing the question.
            return Completion("", "too_long", asked, asked + request.max_tokens - self._window)
        if request.choices and not any(choice.startswith(completion.text) for choice in request.choices):
            raise BackendError(
                f"{self._server.origin}: says {completion.text[:40]!r} where only {request.choices[0]!r} and the like "
                "are allowed: this version does not know the field that says so.",
                hint="Take a newer one, or decode='expected', which needs no structure.",
            )
        return completion

    def _body(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """Where to send a prompt, and as what."""
        path = "completions" if isinstance(prompt, str) else "chat/completions"
        return path, {"model": self._model, **prompt_fields(prompt)}

    def _too_long(self, request: Request, error: RefusedError) -> tuple[int, int]:
        """Length of a prompt that was refused, and by how much it exceeds the window: counted, told, or guessed."""
        if self._ids and self._window:
            length = len(self._ids.encode(request.prompt))
            return length, max(1, length + request.max_tokens - self._window)
        told, window = error.lengths()
        turns = [request.prompt] if isinstance(request.prompt, str) else [turn.content for turn in request.prompt]
        characters = sum(map(len, turns))
        length = told or max(characters // 3, 1)
        window = window or self._window
        overflow = length + request.max_tokens - window if window else 0
        return length, overflow if overflow > 0 else math.ceil(length / 4)

    # Probabilities elsewhere

    def _labels_from_top(self, request: LabelRequest) -> LabelLogprobs:
        path, body = self._body(request.prompt)
        is_chat = path.startswith("chat")
        body |= ONE_TOKEN | ({"logprobs": True, "top_logprobs": TOP} if is_chat else {"logprobs": TOP})
        try:
            top, length = self._server.post(path, body, read_top_list)
        except RefusedError as error:
            if not error.is_too_long:
                raise
            length, overflow = self._too_long(Request(request.prompt, 1), error)
            return LabelLogprobs((-math.inf,) * len(request.labels), 0.0, length, overflow)
        if not top:
            raise BackendError(
                f"{self._server.origin}: the server tells no probabilities of tokens.",
                hint="Read text instead (decode='text'), or serve the model with vLLM.",
            )
        return dataclasses.replace(read_top(top, request.labels), prompt_tokens=length)

    def _score_by_echo(self, request: LikelihoodRequest) -> Likelihood:
        if not isinstance(request.prompt, str):
            raise BackendError(
                f"{self._server.origin}: does not tell how likely a given text is as the answer in a chat.",
                hint="Serve the model with vLLM, or name a prompt that is finished text.",
            )
        if not request.prompt:
            raise BackendError("after an empty prompt the first token of a text has no probability.")
        try:
            before = self._echo(defused(request.prompt))
            after = self._echo(defused(request.prompt + request.text))
        except RefusedError as error:
            if not error.is_too_long:
                raise
            length, overflow = self._too_long(Request(request.prompt + request.text, 1), error)
            return Likelihood(-math.inf, 0, length, overflow)
        start = len(before)
        if [token for token, _ in after[:start]] != [token for token, _ in before]:
            raise BackendError(
                f"{self._server.origin}: the end of the prompt and the beginning of the text make one token, so that "
                "the text has no probability of its own.",
                hint="End the prompt with a line feed, or serve the model with vLLM.",
            )
        logprobs = [logprob for _, logprob in after[start:]]
        return Likelihood(math.fsum(unfloored(value) for value in logprobs), len(logprobs), start)

    def _echo(self, text: str) -> list[tuple[str, float]]:
        """The tokens of a text with their log-probabilities (of the first it is not known)."""
        body = {"model": self._model, "prompt": text, "max_tokens": 0, "temperature": 0.0, "echo": True, "logprobs": 0}

        def read(answer: Any) -> list[tuple[str, float]] | None:
            choice = answer["choices"][0]
            told = choice.get("logprobs") or {}
            if choice["text"] != text or not told.get("tokens"):
                return None
            pairs = zip(told["tokens"], told["token_logprobs"], strict=True)
            return [(token, math.nan if value is None else float(value)) for token, value in pairs]

        try:
            tokens = self._server.post("completions", body, read)
        except RefusedError as error:
            if error.is_too_long or error.status in (401, 403):
                raise
            raise BackendError(f"{error.args[0]} (asked for the probabilities of a text)", hint=_NO_ECHO) from error
        if tokens is None:
            raise BackendError(f"{self._server.origin}: does not tell the probabilities of given texts.", hint=_NO_ECHO)
        return tokens

    # What the server says about itself

    def _model_cards(self, *, is_needed: bool) -> list[dict[str, Any]]:
        def read(answer: Any) -> list[dict[str, Any]]:
            return [card for card in answer["data"] if isinstance(card["id"], str)]

        try:
            return self._server.get("models", read)
        except RefusedError as error:
            if is_needed or error.status in (401, 403):
                raise
            return []

    def _token_ids(self) -> TokenIds | None:
        """The reader of exact probabilities: not where only /v1 is passed on to the server."""
        try:
            return TokenIds(self._server, self._model, self._window)
        except RefusedError:
            logger.info("%s: its /tokenize is out of reach: labels are read less exactly", self._server.origin)
            return None

    def _version(self) -> str:
        try:
            return self._server.get("version", lambda answer: f"-{answer['version']}", root=True)
        except RefusedError:
            return ""


def _choose(model: str | None, listed: list[str], address: str) -> str:
    if model is not None:
        return model
    if len(listed) == 1:
        return listed[0]
    names = ", ".join(listed[:20]) + (", …" if len(listed) > 20 else "")
    raise InputError(
        f"{address}: it has {len(listed)} models: {names or 'none'}.", hint=f"Name one of them: {address}#NAME."
    )


def _escaped(text: str) -> str:
    """A text as a regular expression, in what all dialects share."""
    return re.sub(r"([][.^$*+?{}()|\\])", r"\\\1", text)
