"""Servers that speak the OpenAI protocol: vLLM, SGLang, the llama.cpp server, and hosted ones.

The road past one machine. A vLLM server tells probabilities exactly, since it takes token ids and names the ones whose
probabilities are wanted; elsewhere they are read from the most probable first tokens where that is exact, or refused.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from itertools import islice
from typing import Any, TypeVar

import httpx

from promptmetric.backends import tries
from promptmetric.backends.base import Fingerprint
from promptmetric.errors import BackendError, InputError
from promptmetric.types import (
    Completion,
    LabelLogprobs,
    LabelRequest,
    Likelihood,
    LikelihoodRequest,
    Message,
    Prompt,
    Request,
)

logger = logging.getLogger("promptmetric")

KEYS = ("PROMPTMETRIC_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the server's key; the first that is set is sent."""

PATIENCE = 600.0
"""Seconds after the first try of a question, beyond which it is not tried again."""

FIRST_PAUSE = 0.5
"""Seconds before the second try; the pause doubles with every further one."""

LONGEST_PAUSE = 30.0

MOST_IDS = 128
"""Token ids whose probabilities vLLM tells in one answer."""

TOP = 20
"""The most probable tokens that servers tell at most."""

_PASSING = {408, 409, 425, 429}
"""What a server says when the same question may be answered later, besides its own failures (5xx)."""

_PLAIN_SAMPLING: dict[str, dict[str, Any]] = {
    "vllm": {"repetition_penalty": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0},
    "sglang": {"repetition_penalty": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0},
    "llamacpp": {"repeat_penalty": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
}
"""A server's or model's own sampling defaults must not colour our decoding. By what servers call themselves."""

_NAME_THE_STOP = ("vllm", "sglang")
"""Servers that say which stop text ended an answer."""

_FLOOR = -9999.0
"""vLLM's JSON has no infinity and says this."""

_CONTROL = re.compile(r"<\|[^<>|\s]{1,40}\|>|<｜[^<>｜\s]{1,40}｜>|</?s>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>")
"""Texts that tokenizers turn into control tokens. Which ones this server's does is not known."""

_TOO_LONG = re.compile(
    r"context.{0,8}(length|size|window|limit)|maximum (model|prompt|input) length|prompt is too long", re.IGNORECASE
)

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
        self._server = _Server(_address(address), _key(api_key_env), concurrency, timeout, retries)
        try:
            cards = self._model_cards(is_needed=model is None)
            self._model = _choose(model, [str(card["id"]) for card in cards], self._server.origin)
            card = next((card for card in cards if card["id"] == self._model), cards[0] if cards else {})
            owner = card.get("owned_by")
            self._kind = owner if isinstance(owner, str) and owner in _PLAIN_SAMPLING else None
            window = card.get("max_model_len")
            self._window: int | None = window if isinstance(window, int) else None
            self._labels_lock = threading.Lock()
            self.continuation = lru_cache(maxsize=4096)(self._continuation)
            self._takes_ids = self._kind == "vllm" and self._tokenizes()
            kind = f" {self._kind}{self._version()}" if self._kind else ""
        except BaseException:
            self._server.close()
            raise
        self._fingerprint = Fingerprint(self._model, "unknown", f"openai {self._server.origin}{kind}")

    def fingerprint(self) -> Fingerprint:
        """Model, server, and its kind and version where it tells. No server tells the model's revision."""
        return self._fingerprint

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:  # noqa: ARG002
        """Answer requests. `batch_size` has no effect: `concurrency` says how many are asked at once."""
        return self._each(requests, self._generate)

    def read_labels(
        self,
        requests: Sequence[LabelRequest],
        batch_size: int = 16,  # noqa: ARG002
    ) -> Iterator[tuple[int, LabelLogprobs]]:
        """Log-probabilities of labels: exact on vLLM, elsewhere from the most probable tokens or refused."""
        return self._each(requests, self._labels_by_id if self._takes_ids else self._labels_from_top)

    def score_texts(
        self,
        requests: Sequence[LikelihoodRequest],
        batch_size: int = 16,  # noqa: ARG002
    ) -> Iterator[tuple[int, Likelihood]]:
        """Log-probabilities of texts: on vLLM, and of finished texts wherever a server echoes prompts."""
        return self._each(requests, self._score_by_id if self._takes_ids else self._score_by_echo)

    def _each(self, requests: Sequence[Any], answer: Callable[[Any], _T]) -> Iterator[tuple[int, _T]]:
        """Answer questions at once. After a failure no more are asked, but those under way still count."""
        if self._kind is None and any(
            not isinstance(r.prompt, str) and r.prompt[-1].role == "assistant" for r in requests
        ):
            logger.warning("%s: this server may not go on with answers that the prompt begins", self._server.origin)
        waiting = iter(enumerate(requests))
        running: dict[Future[_T], int] = {}
        failure: BaseException | None = None
        stop = threading.Event()
        pool = ThreadPoolExecutor(
            self._concurrency, thread_name_prefix="promptmetric", initializer=setattr, initargs=(_thread, "stop", stop)
        )
        try:
            while True:
                if failure is None:  # twice as many as are asked at once, so that no thread waits for our reader
                    for position, request in islice(waiting, 2 * self._concurrency - len(running)):
                        running[pool.submit(answer, request)] = position
                if not running:
                    break
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    position = running.pop(future)
                    error = future.exception()
                    if error is None:
                        yield position, future.result()
                    else:
                        failure = failure or error
                if failure is not None:
                    stop.set()
                    running = {future: position for future, position in running.items() if not future.cancel()}
            if failure is not None:
                raise failure
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)

    # Text

    def _generate(self, request: Request) -> Completion:
        path, body = self._body(request.prompt)
        body |= _PLAIN_SAMPLING.get(self._kind or "", {})
        body |= {"max_tokens": request.max_tokens, "temperature": request.temperature}
        if request.temperature > 0:
            body["seed"] = request.seed
        if request.stop and self._kind in _NAME_THE_STOP:  # elsewhere a cut answer could not be told from a whole one
            body["stop"] = list(request.stop)
        try:
            completion = self._server.post(path, body, partial(_completion, stop=request.stop))
        except RefusedError as error:
            if not error.is_too_long:
                raise
            length, overflow = self._too_long(request, error)
            return Completion("", "too_long", length, overflow)
        asked = completion.prompt_tokens
        if asked and self._window and asked + request.max_tokens > self._window:
            # vLLM shortens the answer instead of refusing the question.
            return Completion("", "too_long", asked, asked + request.max_tokens - self._window)
        return completion

    def _body(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """Where to send a prompt, and as what."""
        if isinstance(prompt, str):
            return "completions", {"model": self._model, "prompt": _defused(prompt)}
        return "chat/completions", {"model": self._model, **_chat(prompt)}

    def _too_long(self, request: Request, error: RefusedError) -> tuple[int, int]:
        """Length of a prompt that was refused, and by how much it exceeds the window: counted, told, or guessed."""
        if self._takes_ids and self._window:
            length = len(self._encode(request.prompt))
            return length, max(1, length + request.max_tokens - self._window)
        told, window = error.lengths()
        turns = [request.prompt] if isinstance(request.prompt, str) else [turn.content for turn in request.prompt]
        characters = sum(map(len, turns))
        length = told or max(characters // 3, 1)
        window = window or self._window
        overflow = length + request.max_tokens - window if window else 0
        return length, overflow if overflow > 0 else math.ceil(length / 4)

    # Probabilities, where the server takes token ids

    def _encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self._tokenize({"prompt": _defused(prompt)})
        return self._tokenize(_chat(prompt))

    def _continuation(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that follows a prompt: as after a line feed, which no tokenizer merges with it."""
        both = self._tokenize({"prompt": f"\n{_defused(text)}", "add_special_tokens": False})
        if both[: len(self._anchor)] == self._anchor:
            return tuple(both[len(self._anchor) :])
        return tuple(self._tokenize({"prompt": _defused(text), "add_special_tokens": False}))

    def _tokenize(self, body: dict[str, Any]) -> list[int]:
        body = {"model": self._model, **body}
        return self._server.post("tokenize", body, lambda answer: [int(token) for token in answer["tokens"]], root=True)

    def _labels_by_id(self, request: LabelRequest) -> LabelLogprobs:
        prompt = self._encode(request.prompt)
        with self._labels_lock:  # all threads begin with the same labels: one asks for their tokens
            labels = [self.continuation(label) for label in request.labels]
        overflow = len(prompt) + max(map(len, labels)) - (self._window or math.inf)
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
                **_ONE_TOKEN,
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
        body = {**_ONE_TOKEN, "model": self._model, "prompt": tokens, "prompt_logprobs": 0}

        def read(answer: Any) -> list[float]:
            rows = answer["choices"][0]["prompt_logprobs"][-count:]
            return [_unfloored(row[str(token)]["logprob"]) for token, row in zip(tokens[-count:], rows, strict=True)]

        return self._server.post("completions", body, read)

    def _score_by_id(self, request: LikelihoodRequest) -> Likelihood:
        prompt, text = self._encode(request.prompt), self.continuation(request.text)
        if not prompt:
            raise BackendError(_EMPTY_PROMPT)
        overflow = len(prompt) + len(text) + 1 - (self._window or math.inf)  # the server insists on one token of answer
        if overflow > 0:
            return Likelihood(-math.inf, len(text), len(prompt), int(overflow))
        logprobs = self._prompt_logprobs([*prompt, *text], len(text)) if text else []
        return Likelihood(math.fsum(logprobs), len(text), len(prompt))

    # Probabilities elsewhere

    def _labels_from_top(self, request: LabelRequest) -> LabelLogprobs:
        path, body = self._body(request.prompt)
        is_chat = path.startswith("chat")
        body |= _ONE_TOKEN | ({"logprobs": True, "top_logprobs": TOP} if is_chat else {"logprobs": TOP})
        try:
            top, length = self._server.post(path, body, _top)
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
            raise BackendError(_EMPTY_PROMPT)
        try:
            before = self._echo(_defused(request.prompt))
            after = self._echo(_defused(request.prompt + request.text))
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
        return Likelihood(math.fsum(_unfloored(value) for value in logprobs), len(logprobs), start)

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

    def _tokenizes(self) -> bool:
        """Whether the server's tokenizer can be reached: not where only /v1 is passed on to it."""
        try:
            self._anchor = self._tokenize({"prompt": "\n", "add_special_tokens": False})
        except RefusedError:
            logger.info("%s: its /tokenize is out of reach: labels are read less exactly", self._server.origin)
            return False
        return True

    def _version(self) -> str:
        try:
            return self._server.get("version", lambda answer: f"-{answer['version']}", root=True)
        except RefusedError:
            return ""


class RefusedError(BackendError):
    """The server refuses a question for good."""

    def __init__(self, message: str, status: int, reason: str, details: dict[str, Any], hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self._reason = reason
        self._details = details

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt exceeds the model's window."""
        return _is_too_long(self._reason, self._details)

    def lengths(self) -> tuple[int | None, int | None]:
        """Length of the prompt and of the window, where the message tells them."""
        length, window = self._details.get("n_prompt_tokens"), self._details.get("n_ctx")
        if isinstance(length, int) and isinstance(window, int):
            return length, window
        window_told = re.search(r"(?:context|model|prompt) (?:length|size|window)\D{0,12}(\d+)", self._reason, re.I)
        length_told = re.search(
            r"(\d+) (?:input tokens|tokens from the input|in the (?:messages|prompt))|"
            r"(?:input \(|resulted in |contains |too long: )(\d+) tokens",
            self._reason,
            re.I,
        )
        return (
            int(length_told[1] or length_told[2]) if length_told else None,
            int(window_told[1]) if window_told else None,
        )


class _PassingError(Exception):
    """What may be over when the question is asked again. `pause` is what the server asks to wait."""

    def __init__(self, message: str, hint: str, pause: float | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.pause = pause


_thread = threading.local()
"""`stop` of the run that a thread works for: its pauses end when the run does."""


class _Server:
    """Sends JSON and gets JSON, again where that helps. Knows the key and shows it to nobody else."""

    def __init__(self, base: httpx.URL, key: str | None, concurrency: int, timeout: float, retries: int) -> None:
        self.origin = f"{base.scheme}://{base.netloc.decode()}"
        self._key = key
        self._retries = retries
        self._timeout = timeout
        self._base = str(base)
        self._root = self._base.removesuffix("/v1")
        self._lock = threading.Lock()
        self._said = -math.inf
        self._is_proven = False
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0), pool=None),
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            follow_redirects=False,
        )

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, read: Callable[[Any], _T], *, root: bool = False) -> _T:
        return self._ask("GET", path, None, read, root)

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], _T], *, root: bool = False) -> _T:
        """Send a question until it is answered or that is given up.

        Args:
            path: below `/v1`, or below the server's root.
            body: the question.
            read: makes of the answer what is wanted; its KeyError, IndexError, TypeError and ValueError mean that the
                answer is broken.
            root: take the path from the server's root.

        Raises:
            RefusedError: the server refuses the question.
            BackendError: it was asked often and long enough.
        """
        return self._ask("POST", path, body, read, root)

    def _ask(self, method: str, path: str, body: Any, read: Callable[[Any], _T], root: bool) -> _T:
        url = f"{self._root if root else self._base}/{path}"
        began = time.monotonic()
        tries_left = self._retries
        pause = FIRST_PAUSE
        while True:
            try:
                return self._once(method, url, body, read)
            except _PassingError as error:
                rest = pause * random.uniform(0.5, 1.0)  # noqa: S311 (spreads the load, keeps no secret)
                pause = min(2 * pause, LONGEST_PAUSE)
                rest = max(rest, error.pause or 0.0)
                spent = time.monotonic() - began
                if tries_left == 0 or spent + rest > PATIENCE:
                    asked = self._retries + 1 - tries_left
                    wish = f", and it asks to wait for {error.pause:.0f} s" if error.pause and tries_left else ""
                    raise BackendError(
                        f"{error} (given up after {asked} {'try' if asked == 1 else 'tries'} in {spent:.0f} s{wish}).",
                        hint=error.hint,
                    ) from error
                tries_left -= 1
                self._say(f"{error}; asking again after a pause")
                if self._rests(rest):
                    raise BackendError(f"{error} (not asked again, since the run ended).", hint=error.hint) from error

    @staticmethod
    def _rests(seconds: float) -> bool:
        """Wait. Whether the run ended meanwhile."""
        stop: threading.Event | None = getattr(_thread, "stop", None)
        if stop is not None:
            return stop.wait(seconds)
        time.sleep(seconds)
        return False

    def _say(self, message: str) -> None:
        """One line when waiting begins, and at most one a minute while it goes on."""
        with self._lock:
            now = time.monotonic()
            if now - self._said < 60:
                return
            self._said = now
        logger.warning(message)

    def _once(self, method: str, url: str, body: Any, read: Callable[[Any], _T]) -> _T:
        if self._client.is_closed:
            raise BackendError("the connection to the server was closed.")
        stop: threading.Event | None = getattr(_thread, "stop", None)
        if stop is not None and stop.is_set():
            raise BackendError("the run ended before this was asked.")
        try:
            response = self._client.request(method, url, json=body)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise self._unreached(error) from error
        if not response.is_success:
            raise self._failure(response)
        try:
            answer = read(response.json())
        except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
            what, hint = f"{self.origin}: a broken answer ({type(error).__name__})", _NOT_OURS
            raise (_PassingError(what, hint) if self._is_proven else BackendError(f"{what}.", hint=hint)) from error
        self._is_proven = True
        return answer

    def _unreached(self, error: Exception) -> Exception:
        """What to make of a connection's failure. A server that never gave a good answer is not waited for."""
        if isinstance(error, httpx.ReadTimeout):
            what = f"no answer within {self._timeout:g} s"
            hint = "Ask fewer at once (concurrency=…) or raise timeout=…."
        else:
            what, hint = self._clean(str(error)) or type(error).__name__, "Is the server running at this address?"
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) and not self._is_proven:
            return BackendError(f"{self.origin}: cannot be reached: {what}.", hint=hint)
        return _PassingError(f"{self.origin}: {what}", hint)

    def _failure(self, response: httpx.Response) -> Exception:
        status = response.status_code
        if response.is_redirect:
            target = response.next_request.url if response.next_request else None
            where = f" to {target.scheme}://{target.netloc.decode()}" if target else ""
            message = f"{self.origin}: {status}: the server sends us on{where}, which is not followed."
            return RefusedError(message, status, "", {}, "Name the final address.")
        reason, details = _reason(response)
        reason = self._clean(reason)
        message = f"{self.origin}: {status} {response.reason_phrase}".rstrip() + (f": {reason}" if reason else "")
        is_passing = status in _PASSING or status >= 500
        if is_passing and status != 501 and not _is_too_long(reason, details):
            hint = "Ask fewer at once (concurrency=…)." if status == 429 else "The server's log says more."
            return _PassingError(message, hint, _retry_after(response))
        return RefusedError(f"{message}", status, reason, details, self._hint(status))

    def _hint(self, status: int) -> str | None:
        if status in (401, 403) and self._key is None:
            return f"Set {' or '.join(KEYS)} to a key for this server."
        if status in (401, 403):
            return "The server does not take the key that the environment holds."
        if status == 404:
            return f"Look at {self._base}/models: is it an OpenAI-compatible server, and does it list this model?"
        return None

    def _clean(self, text: str) -> str:
        """The first line of a foreign text, without the key and without what a terminal would obey."""
        line = text.strip().split("\n")[0][:300]
        if self._key:
            line = line.replace(self._key, "[key]")
        return "".join(letter if letter.isprintable() else " " for letter in line).strip().rstrip(".")


_NOT_OURS = "Is it an OpenAI-compatible server?"

_ONE_TOKEN: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0}

_EMPTY_PROMPT = "after an empty prompt the first token of a text has no probability."

_NO_ECHO = "Serve the model with vLLM, which does, or read text or labels."


def read_top(top: Sequence[tuple[str, float]], labels: Sequence[str]) -> LabelLogprobs:
    """Labels from the most probable first tokens of an answer, where that is exact.

    Args:
        top: texts of tokens and their log-probabilities.
        labels: the labels. One that is a token of the list has that token's probability; one that is not has -inf, and
            what it may have beyond the list is counted as unread.

    Raises:
        BackendError: much of the probability is that of a token which only begins a label.
    """
    found = dict.fromkeys(labels, 0.0)
    tokens = {token for token, _ in top}
    missing = [label for label in labels if label not in tokens]
    begun = 0.0
    begins: tuple[float, str, str] | None = None
    for token, logprob in top:
        probability = math.exp(logprob)
        longer = next((label for label in missing if label != token and label.startswith(token)), None)
        if longer is None:
            if token in found:
                found[token] += probability
        else:
            begun += probability
            # One without text is a control token for all we know, which ends the answer: no reason to refuse.
            if token and (begins is None or probability > begins[0]):
                begins = (probability, token, longer)
    total = math.fsum(found.values())
    if begins is not None and begins[0] > tries.LEAST_SHARE * (total + begun):
        raise BackendError(
            f"the label {begins[2]!r} has several tokens, of which this server tells the first alone ({begins[1]!r}).",
            hint="Take a scale whose labels are single tokens, serve the model with vLLM, which tells all, "
            "or read text instead (decode='text').",
        )
    outside = max(0.0, 1.0 - math.fsum(math.exp(logprob) for _, logprob in top))
    least = min(math.exp(logprob) for _, logprob in top)
    unread = begun + min(outside, len(missing) * least)
    return LabelLogprobs(
        tuple(math.log(found[label]) if found[label] > 0 else -math.inf for label in labels), min(1.0, unread)
    )


def _completion(answer: Any, stop: Sequence[str]) -> Completion:
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
    return Completion(text, "length" if reason == "length" else "stop", _prompt_tokens(answer))


def _prompt_tokens(answer: Any) -> int | None:
    count = (answer.get("usage") or {}).get("prompt_tokens")
    return count if isinstance(count, int) else None


def _by_token_id(answer: Any) -> dict[int, float]:
    top = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    return {int(token.removeprefix("token_id:")): _unfloored(value) for token, value in top.items()}


def _top(answer: Any) -> tuple[list[tuple[str, float]], int | None]:
    """Texts and log-probabilities of the most probable first tokens, in both shapes in which servers tell them."""
    told = answer["choices"][0].get("logprobs") or {}
    if told.get("content"):
        pairs = [(entry["token"], entry["logprob"]) for entry in told["content"][0]["top_logprobs"]]
    elif told.get("top_logprobs"):
        pairs = list(told["top_logprobs"][0].items())
    else:
        pairs = []
    return [(str(token), _unfloored(value)) for token, value in pairs], _prompt_tokens(answer)


def _unfloored(logprob: float) -> float:
    return -math.inf if logprob <= _FLOOR else float(logprob)


def _chat(turns: tuple[Message, ...]) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [{"role": turn.role, "content": _defused(turn.content)} for turn in turns]}
    if turns[-1].role == "assistant":
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def _defused(text: str) -> str:
    """Break up control tokens in a text with a zero-width space: a hypothesis must not end its own turn."""
    return _CONTROL.sub(lambda m: f"{m[0][0]}\u200b{m[0][1:]}", text)


def _address(url: str) -> httpx.URL:
    """The address below which a server's paths lie. It must hold no secret: addresses are shown and recorded."""
    if "@" in url or "?" in url:
        raise InputError(
            "the server's address holds a user, a password or a query.",
            hint=f"Name the plain address, and put the key in {KEYS[0]}.",
        )
    try:
        parsed = httpx.URL(url.strip().rstrip("/"))
    except httpx.InvalidURL as error:
        raise InputError(f"{url}: no usable address: {error}.") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InputError(f"{url}: no address of a server.", hint="Such as http://localhost:8000/v1.")
    has_version = re.search(r"/v\d\w*(/|$)", parsed.path)
    return parsed if has_version else parsed.copy_with(path=f"{parsed.path.rstrip('/')}/v1")


def _key(name: str | None) -> str | None:
    """The key that the environment holds."""
    names = KEYS if name is None else (name,)
    for candidate in names:
        key = os.environ.get(candidate, "").strip()
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise InputError(f"{candidate} holds no usable key: it has spaces or letters that no key has.")
        if key:
            return key
    if name is not None:
        raise InputError(f"{name} is not set.")
    return None


def _choose(model: str | None, listed: list[str], origin: str) -> str:
    if model is not None:
        return model
    if len(listed) == 1:
        return listed[0]
    names = ", ".join(listed[:20]) + (", …" if len(listed) > 20 else "")
    raise InputError(
        f"{origin}: it has {len(listed)} models: {names or 'none'}.", hint=f"Name one of them: {origin}/v1#NAME."
    )


def _reason(response: httpx.Response) -> tuple[str, dict[str, Any]]:
    """What the server says about its refusal, and the fields it says it in."""
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        text = response.text.strip()
        return ("" if text.startswith("<") else text), {}
    details = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(details, dict):
        return str(details), {}
    return str(details.get("message") or details.get("detail") or ""), details


def _is_too_long(reason: str, details: dict[str, Any]) -> bool:
    said = f"{details.get('code')} {details.get('type')} {reason}"
    return _TOO_LONG.search(said.replace("_", " ")) is not None


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds the server asks to wait, told as such or as a date."""
    told = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", told):
        return float(told)
    try:
        return max(0.0, (parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
