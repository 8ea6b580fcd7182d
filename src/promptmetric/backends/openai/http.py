"""JSON over HTTP: asks again what may be answered later, says why where it is given up, and keeps the key to itself."""

from __future__ import annotations

import logging
import math
import os
import random
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx

from promptmetric.backends.openai.threads import rest_of_run, run_is_over
from promptmetric.errors import BackendError, InputError

logger = logging.getLogger("promptmetric")

KEYS = ("PROMPTMETRIC_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the server's key; the first that is set is sent."""

PATIENCE = 600.0
"""Seconds after the first try of a question, beyond which it is not tried again."""

FIRST_PAUSE = 0.5
"""Seconds before the second try; the pause doubles with every further one."""

LONGEST_PAUSE = 30.0

_PASSING = {408, 409, 425, 429}
"""What a server says when the same question may be answered later, besides its own failures (5xx)."""

_TOO_LONG = re.compile(
    r"context.{0,8}(length|size|window|limit)|maximum (model|prompt|input) length|prompt is too long", re.IGNORECASE
)

_NOT_OURS = "Is it an OpenAI-compatible server?"

_T = TypeVar("_T")


class JsonServer:
    """Sends JSON and gets JSON, again where that helps. Knows the key and shows it to nobody else.

    Args:
        base: what `server_address` makes of the user's address.
        key: what `read_key` finds.
        connections: how many to hold at once, at most.
        timeout: seconds to wait for an answer.
        retries: how often to ask again at most.

    Attributes:
        origin: scheme, host and port, by which messages name the server.
        address: all of `base`: one host may have several servers behind it, each below a path of its own.
    """

    def __init__(self, base: httpx.URL, key: str | None, connections: int, timeout: float, retries: int) -> None:
        self.origin = f"{base.scheme}://{base.netloc.decode()}"
        self._key = key
        self._retries = retries
        self._timeout = timeout
        self.address = str(base)
        self._root = self.address.removesuffix("/v1")
        self._lock = threading.Lock()
        self._said = -math.inf
        self._is_proven = False
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0), pool=None),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close the connections. Calling it again does nothing."""
        self._client.close()

    def get(self, path: str, read: Callable[[Any], _T], *, root: bool = False) -> _T:
        """Fetch something; arguments and errors are those of `post`."""
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
        url = f"{self._root if root else self.address}/{path}"
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
                if not run_is_over():
                    self._say(f"{error}; asking again after a pause")
                if rest_of_run(rest):
                    raise BackendError(f"{error} (not asked again, since the run ended).", hint=error.hint) from error

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
        if run_is_over():
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
            return f"Look at {self.address}/models: is it an OpenAI-compatible server, and does it list this model?"
        return None

    def _clean(self, text: str) -> str:
        """The first line of a foreign text, without the key and without what a terminal would obey."""
        line = text.strip().split("\n")[0][:300]
        if self._key:
            line = line.replace(self._key, "[key]")
        return "".join(letter if letter.isprintable() else " " for letter in line).strip().rstrip(".")


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


def server_address(url: str) -> httpx.URL:
    """The address below which a server's paths lie; `/v1` where the user left it out.

    Raises:
        InputError: it is no address, or holds a secret (addresses are shown and recorded).
    """
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


def read_key(name: str | None) -> str | None:
    """The key that the environment holds, in this variable or, without a name, in one of `KEYS`.

    Raises:
        InputError: the named variable is not set, or a key cannot be one.
    """
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
