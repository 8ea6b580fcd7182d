"""Servers of the tests' own, well-behaved and faulty, and how to ask them.

A test module takes the fixtures over by assignment: `serve, connect = servers.serve, servers.connect`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from promptmetric.backends.openai import OpenAIBackend, http
from promptmetric.questions import Completion, Message, Prompt, Request

Reply = tuple[int, Any] | tuple[int, Any, dict[str, str]]
"""Status, answer (bytes are sent as they are, None drops the connection) and headers."""


class Server:
    """A server on the loopback address whose answers a test chooses.

    Attributes:
        asked: path, body and headers of what came, in the order in which it came.
        answered: path, body and time (`time.monotonic`) of what was answered completely.
    """

    def __init__(self, owned_by: str, models: Sequence[str] = ("m",)) -> None:
        self.asked: list[tuple[str, Any, dict[str, str]]] = []
        self.answered: list[tuple[str, Any, float]] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        cards = [{"id": name, "owned_by": owned_by, "max_model_len": 100} for name in models]
        self.routes: dict[str, Callable[[Any], Reply]] = {
            "/v1/models": lambda body: (200, {"object": "list", "data": cards}),
            "/v1/chat/completions": lambda body: (200, chat(body["messages"][-1]["content"].upper())),
        }
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _answer(self) -> None:
                size = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(size)) if size else None
                with outer._lock:
                    outer.asked.append((self.path, body, dict(self.headers)))
                    outer._now += 1
                    outer.most_at_once = max(outer.most_at_once, outer._now)
                try:
                    route = outer.routes.get(self.path)
                    reply = route(body) if route else (404, {"detail": "Not Found"})
                finally:
                    with outer._lock:
                        outer._now -= 1
                self._send(*reply)
                outer.answered.append((self.path, body, time.monotonic()))

            do_GET = do_POST = _answer  # noqa: N815 (what http.server calls)

            def _send(self, status: int, answer: Any, headers: dict[str, str] | None = None) -> None:
                if answer is None:
                    self.close_connection = True
                    return
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {"content-length": str(len(content)), **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
                self.close_connection = len(content) < int((headers or {}).get("content-length", 0))

            def log_message(self, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:
                pass  # the client went away, as some tests want it to

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._serving = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._serving.start()

    def questions(self) -> list[Any]:
        return [body for path, body, _ in self.asked if path.endswith("completions")]

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._serving.join()


def chat(text: str, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", **fields}
    return {"choices": [choice], "usage": {"prompt_tokens": 7}}


def first_then(first: Sequence[Reply], then: Callable[[Any], Reply]) -> Callable[[Any], Reply]:
    """A route with some replies before the usual one."""
    left = list(first)
    lock = threading.Lock()

    def reply(body: Any) -> Reply:
        with lock:
            early = left.pop(0) if left else None
        return early if early is not None else then(body)

    return reply


def says(text: str) -> Callable[[Any], Reply]:
    return lambda body: (200, chat(text))


@pytest.fixture(autouse=True)
def quick_and_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.01)
    for name in http.KEYS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(owned_by: str = "someone", models: Sequence[str] = ("m",)) -> Server:
        servers.append(Server(owned_by, models))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def connect() -> Iterator[Callable[..., OpenAIBackend]]:
    backends: list[OpenAIBackend] = []

    def open_one(server: Server, **arguments: Any) -> OpenAIBackend:
        backends.append(OpenAIBackend(server.url, **arguments))
        return backends[-1]

    yield open_one
    for backend in backends:
        backend.close()


Serve = Callable[..., Server]
Connect = Callable[..., OpenAIBackend]


def turns(text: str) -> tuple[Message, ...]:
    return (Message("user", text),)


def ask(backend: OpenAIBackend, *prompts: Prompt, max_tokens: int = 5, **fields: Any) -> list[Completion]:
    answers = dict(backend.generate([Request(prompt, max_tokens, **fields) for prompt in prompts]))
    return [answers[position] for position in range(len(prompts))]
