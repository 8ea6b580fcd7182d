"""What is asked again, what is given up, and where the key goes: against faulty servers."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import Any

import pytest

from promptmetric import Sample, Scorer, Signature
from promptmetric.backends.openai import OpenAIBackend, http
from promptmetric.errors import BackendError, InputError

from . import servers
from .conftest import PROMPT
from .servers import Connect, Reply, Serve, ask, chat, first_then, says, turns

serve, connect, quick_and_without_keys = servers.serve, servers.connect, servers.quick_and_without_keys

SECRET = "sk-test-0123456789abcdef"


# Faults


@pytest.mark.parametrize(
    "fault",
    [
        (429, {"error": {"message": "slow down"}}, {"retry-after": "0"}),
        (429, {"error": {"message": "slow down"}}, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        (500, b"<html>oops</html>"),
        (503, b"loading"),
        (408, {}),
        (200, b'{"choices": [{"mess'),
        (200, b'{"choices": []}'),
        (200, {"choices": [{"message": {"content": "half"}, "finish_reason": "abort"}]}),
        (200, b'{"choices"', {"content-length": "500"}),
        (200, None),
    ],
    ids=str,
)
def test_passing_faults_pass(serve: Serve, connect: Connect, fault: Reply, caplog: pytest.LogCaptureFixture) -> None:
    server = serve()
    server.routes["/v1/chat/completions"] = first_then([fault] * 3, says("fine"))
    answers = ask(connect(server), *(turns(f"q{i}") for i in range(5)))
    assert [answer.text for answer in answers] == ["fine"] * 5
    assert len(server.questions()) == 5 + 3
    assert caplog.text.count("asking again") == 1


def test_retry_after_is_obeyed(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.routes["/v1/chat/completions"] = first_then([(429, {}, {"retry-after": "0.3"})], says("fine"))
    began = time.monotonic()
    ask(connect(server), turns("q"))
    assert time.monotonic() - began >= 0.3


def test_a_wait_beyond_all_patience_is_not_begun(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.routes["/v1/chat/completions"] = lambda body: (429, {}, {"retry-after": "3600"})
    with pytest.raises(BackendError, match=r"429 .*given up after 1 try in 0 s, and it asks to wait for 3600 s"):
        ask(connect(server), turns("q"))


def test_faults_that_last_end_in_an_error(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.routes["/v1/chat/completions"] = lambda body: (500, {"error": {"message": "out of \x1bmemory\nTraceback"}})
    with pytest.raises(BackendError) as caught:
        ask(connect(server, retries=2), turns("q"))
    message = f"{server.url}: 500 Internal Server Error: out of  memory (given up after 3 tries in 0 s)."
    assert str(caught.value) == f"{message}\n  The server's log says more."
    assert len(server.questions()) == 3


def test_total_time_is_limited(serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PATIENCE", 0.2)
    server = serve()
    server.routes["/v1/chat/completions"] = lambda body: (503, {})
    with pytest.raises(BackendError, match="503 Service Unavailable \\(given up"):
        ask(connect(server, retries=10**6), turns("q"))
    assert len(server.questions()) < 20


def test_slow_answers_are_asked_for_again(serve: Serve, connect: Connect) -> None:
    server = serve()
    release = threading.Event()

    def hang(body: Any) -> Reply:
        release.wait(5)
        return (200, chat("late"))

    left = [hang]
    server.routes["/v1/chat/completions"] = lambda body: (left.pop() if left else says("fine"))(body)
    assert ask(connect(server, timeout=0.2), turns("q"))[0].text == "fine"
    server.routes["/v1/chat/completions"] = hang
    with pytest.raises(BackendError, match=r"no answer within 0\.2 s \(given up after 2 tries"):
        ask(connect(server, timeout=0.2, retries=1), turns("q"))
    release.set()


@pytest.mark.parametrize(("status", "hint"), [(401, "PROMPTMETRIC_API_KEY"), (403, "PROMPTMETRIC_API_KEY")])
def test_refused_keys_are_not_tried_again(serve: Serve, connect: Connect, status: int, hint: str) -> None:
    server = serve()
    server.routes["/v1/chat/completions"] = lambda body: (status, {"error": {"message": "who are you?"}})
    with pytest.raises(BackendError, match=f"{status} .*who are you") as caught:
        ask(connect(server), turns("q"))
    assert hint in str(caught.value)
    assert len(server.questions()) == 1


def test_unknown_models_are_not_tried_again(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.routes["/v1/chat/completions"] = lambda body: (404, {"error": {"message": f"no model {body['model']}"}})
    with pytest.raises(BackendError, match="404 Not Found: no model other") as caught:
        ask(connect(server, model="other"), turns("q"))
    assert f"{server.url}/v1/models" in str(caught.value)
    assert len(server.questions()) == 1


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(BackendError, match=f"http://127.0.0.1:{port}: cannot be reached") as caught:
        OpenAIBackend(f"http://127.0.0.1:{port}", model="m")
    assert "Is the server running" in str(caught.value)
    assert time.monotonic() - began < 5


def test_something_else_there(serve: Serve) -> None:
    server = serve()
    server.routes["/v1/models"] = lambda body: (200, b"<html>a web page</html>")
    with pytest.raises(BackendError, match="a broken answer") as caught:
        OpenAIBackend(server.url, model="m")
    assert "OpenAI-compatible" in str(caught.value)


# Addresses and keys


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_addresses(serve: Serve, connect: Connect, ending: str) -> None:
    server = serve()
    server.url += ending
    assert ask(connect(server), turns("q"))[0].text == "Q"


def test_addresses_with_a_version_of_their_own_are_left_alone() -> None:
    assert str(http.server_address("https://host/v1beta/openai/")) == "https://host/v1beta/openai"
    assert str(http.server_address("https://host:9/api")) == "https://host:9/api/v1"


def test_servers_below_one_host_are_told_apart(serve: Serve) -> None:
    server = serve()
    for name in ("a", "b"):
        server.routes[f"/{name}/v1/models"] = server.routes["/v1/models"]
        server.routes[f"/{name}/v1/chat/completions"] = says("Score: 90" if name == "a" else "Score: 10")
    scores = []
    for name in ("a", "b", "a"):
        with Scorer(f"{server.url}/{name}/v1", prompt=PROMPT) as scorer:
            prediction = scorer.predict([Sample("s", "h")], progress_bar=False)
        scores += prediction.scores
        assert Signature.parse(prediction.signature).engine == f"openai {server.url}/{name}/v1"
    assert scores == [0.9, 0.1, 0.9]
    assert len(server.questions()) == 2


def test_the_models_of_a_server_below_a_host_are_named_with_its_path(serve: Serve) -> None:
    server = serve(models=["one", "two"])
    server.routes["/a/v1/models"] = server.routes["/v1/models"]
    with pytest.raises(InputError, match=f"Name one of them: {server.url}/a/v1#NAME"):
        OpenAIBackend(f"{server.url}/a")


@pytest.mark.parametrize(
    "url", [f"http://user:{SECRET}@localhost", f"http://localhost/v1?key={SECRET}", f"http://localhost?key={SECRET}#m"]
)
def test_addresses_hold_no_secrets(url: str) -> None:
    with pytest.raises(InputError) as caught:
        OpenAIBackend(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", "localhost:8000"])
def test_unusable_addresses(url: str) -> None:
    with pytest.raises(InputError):
        OpenAIBackend(url)


def test_keys_come_from_the_environment_and_stay_secret(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", "the other")
    monkeypatch.setenv("PROMPTMETRIC_API_KEY", f" {SECRET}\n")
    server = serve()
    server.routes["/v1/chat/completions"] = first_then(
        [(500, {"error": f"bad {SECRET}"})], lambda body: (401, {"error": {"message": f"Incorrect key {SECRET}"}})
    )
    backend = connect(server)
    with pytest.raises(BackendError) as caught:
        ask(backend, turns("q"))
    assert "Incorrect key [key]" in str(caught.value)
    assert "does not take the key" in str(caught.value)
    assert {headers["Authorization"] for _, _, headers in server.asked} == {f"Bearer {SECRET}"}
    for shown in (caplog.text, str(caught.value), repr(caught.value), repr(backend), repr(backend.fingerprint())):
        assert SECRET not in shown


def test_which_key(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    assert http.read_key(None) is None
    monkeypatch.setenv("OPENAI_API_KEY", "second")
    assert http.read_key(None) == "second"
    monkeypatch.setenv("PROMPTMETRIC_API_KEY", "first")
    assert http.read_key(None) == "first"
    monkeypatch.setenv("MINE", "third")
    assert http.read_key("MINE") == "third"
    with pytest.raises(InputError, match="OTHER is not set"):
        http.read_key("OTHER")
    monkeypatch.setenv("MINE", f"{SECRET}\x07ä")
    with pytest.raises(InputError, match="MINE holds no usable key") as caught:
        http.read_key("MINE")
    assert SECRET not in str(caught.value)


def test_redirects_are_not_followed(serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTMETRIC_API_KEY", SECRET)
    server, other = serve(), serve()
    server.routes["/v1/chat/completions"] = lambda body: (307, {}, {"location": f"{other.url}/x?token=abc"})
    with pytest.raises(BackendError, match=f"307: the server sends us on to {other.url}, which is not followed"):
        ask(connect(server), turns("q"))
    assert other.asked == []
