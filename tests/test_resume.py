"""Runs that are killed, interrupted or repeated: what was answered is not asked again, and the result is the same."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from . import servers
from .servers import Reply, Server, chat

serve = servers.serve

CONCURRENCY = 4
UNDER_WAY = 2 * CONCURRENCY
"""Questions that are handed out and whose answers are not kept yet, at most: half of them are asked already."""

KILLS = 10
SETTLED = 0.1
"""Seconds after which an answer is kept for certain: writing one takes a millisecond or two."""

PROMPT = """
id = "test:direct"
max_tokens = 20
scale = { kind = "numeric", min = 0, max = 100 }
[[messages]]
role = "user"
content = "{{ src }} => {{ hyp }}"
"""


class Run:
    """One `promptmetric score`, from its start on."""

    def __init__(self, server: Server, folder: Path, output: str, *arguments: str, cache: str = "cache") -> None:
        self._server = server
        self._first = len(server.questions())
        command = [sys.executable, "-m", "promptmetric", "score", "-m", f"{server.url}/v1", "-p", "p.toml"]
        command += ["-s", "src.txt", "-t", "hyp.txt", "--engine", f"concurrency={CONCURRENCY}", "-q"]
        command += ["--format", "jsonl", "-o", output, *arguments]
        environment = {**os.environ, "PROMPTMETRIC_CACHE": str(folder / cache)}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)

    def asked(self) -> list[str]:
        """The questions that came since the start: while the run is the last one, its own."""
        return contents(self._server.questions()[self._first :])

    def wait_until_asked(self, count: int) -> None:
        end = time.monotonic() + 60
        while len(self.asked()) < count:
            assert self.process.poll() is None, "the run ended"
            assert time.monotonic() < end, "the run did not get that far within 60 s"
            time.sleep(0.001)

    def end(self) -> int:
        """Wait for the end; the exit code."""
        self.error = self.process.communicate(timeout=60)[1]
        time.sleep(0.05)  # what a killed run sent last may still be on its way into the server
        return self.process.returncode


def contents(bodies: Sequence[Any]) -> list[str]:
    return [str(body["messages"][-1]["content"]) for body in bodies]


def answer(body: Any) -> Reply:
    """After some milliseconds, what follows from the prompt alone; one answer in 16 or so holds no score."""
    time.sleep(0.008)
    number = zlib.crc32(contents([body])[0].encode())
    return 200, chat(f"Score: {number % 101}" if number % 16 else "I cannot tell.")


@pytest.fixture
def server(serve: Callable[..., Server]) -> Iterator[Server]:
    server = serve()
    server.routes["/v1/chat/completions"] = answer
    return server


def write(folder: Path, count: int) -> list[str]:
    """Segments, of which one in five comes twice; what they ask."""
    numbers = [*range(count), *range(0, count, 5)]
    (folder / "p.toml").write_text(PROMPT, encoding="utf-8")
    (folder / "src.txt").write_text("".join(f"source {n % 7}\n" for n in numbers), encoding="utf-8")
    (folder / "hyp.txt").write_text("".join(f"hypothesis {n}\n" for n in numbers), encoding="utf-8")
    return [f"source {n % 7} => hypothesis {n}" for n in range(count)]


def test_kill_9_ten_times_at_random(server: Server, tmp_path: Path) -> None:
    questions = write(tmp_path, 550)
    undisturbed = Run(server, tmp_path, "undisturbed.jsonl", cache="another")
    assert undisturbed.end() == 0, undisturbed.error
    assert sorted(undisturbed.asked()) == sorted(questions)

    (tmp_path / "out.jsonl").write_text("of an earlier run\n", encoding="utf-8")
    chance = random.Random(4)
    asked: list[list[str]] = []
    settled: list[set[str]] = []
    for kill in range(KILLS):
        run = Run(server, tmp_path, "out.jsonl")
        answered_before = len(server.answered)
        if kill == 0:  # while it starts
            time.sleep(chance.uniform(0, 0.6))
        else:
            run.wait_until_asked(chance.randrange(90))
            time.sleep(chance.uniform(0, 0.1))
        killed = time.monotonic()
        run.process.kill()
        assert run.end() == -signal.SIGKILL
        asked.append(run.asked())
        answered = [entry for entry in server.answered[answered_before:] if entry[0].endswith("completions")]
        settled.append(set(contents([body for _, body, when in answered if when < killed - SETTLED])))
        assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == "of an earlier run\n"
    assert (tmp_path / "out.jsonl.part").exists()

    last = Run(server, tmp_path, "out.jsonl")
    assert last.end() == 0, last.error
    asked.append(last.asked())
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()
    assert not (tmp_path / "out.jsonl.part").exists()

    assert set().union(*asked) == set(questions)
    assert last.asked(), "nothing was left for the last run: the kills came too late"
    for number, mine in enumerate(asked):  # a killed run loses what was in flight, and nothing else
        later = set().union(*asked[number + 1 :])
        assert len(mine) == len(set(mine))
        assert len(later & set(mine)) <= UNDER_WAY
        assert number == KILLS or not later & settled[number]
    assert any(settled)

    again = Run(server, tmp_path, "out.jsonl")
    assert again.end() == 0, again.error
    assert again.asked() == []
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()


def test_ctrl_c_does_not_wait_for_slow_answers(server: Server, tmp_path: Path) -> None:
    questions = write(tmp_path, 60)
    stuck = threading.Event()

    def slow_from_the_30th(body: Any) -> Reply:
        if len(server.questions()) > 30:
            stuck.wait(50)
        return answer(body)

    server.routes["/v1/chat/completions"] = slow_from_the_30th
    run = Run(server, tmp_path, "out.jsonl")
    run.wait_until_asked(30 + CONCURRENCY)
    time.sleep(SETTLED)
    began = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130
    assert time.monotonic() - began < 5
    assert run.error == "Interrupted. The same command goes on with what was kept (nothing, with --no-cache).\n"
    first = run.asked()
    assert not (tmp_path / "out.jsonl").exists()
    seen = [json.loads(line) for line in (tmp_path / "out.jsonl.part").read_text(encoding="utf-8").splitlines()]
    assert len(seen) >= 30 - CONCURRENCY, "segments wait for others, though they are there"
    places = [line["segment"] for line in seen]
    assert len(set(places)) == len(places)
    assert places != sorted(places)

    stuck.set()
    server.routes["/v1/chat/completions"] = answer
    rerun = Run(server, tmp_path, "out.jsonl")
    assert rerun.end() == 0, rerun.error
    assert sorted([*first[:30], *rerun.asked()]) == sorted(questions)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["type"] for line in lines] == ["segment"] * 72 + ["system"]
    assert [line["segment"] for line in lines[:-1]] == list(range(72))
    assert {line["status"] for line in lines[:-1]} == {"ok", "imputed"}


def test_a_file_that_another_run_writes_is_refused(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    write(tmp_path, 60)
    go_on = threading.Event()

    def wait_from_the_20th(body: Any) -> Reply:
        if len(server.questions()) > 20:
            go_on.wait(50)
        return answer(body)

    server.routes["/v1/chat/completions"] = wait_from_the_20th
    first = Run(server, tmp_path, "out.jsonl", "--no-cache")
    first.wait_until_asked(20 + CONCURRENCY)
    asked = len(server.asked)
    second = Run(server, tmp_path, "out.jsonl", "--no-cache")
    assert second.end() == 2
    assert "out.jsonl: another run is writing it" in second.error
    assert len(server.asked) == asked, "it was refused too late"
    go_on.set()
    assert first.end() == 0, first.error
    assert len((tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()) == 72 + 1
    assert not (tmp_path / "out.jsonl.part").exists()


def test_without_a_cache_everything_is_asked_again(server: Server, tmp_path: Path) -> None:
    questions = write(tmp_path, 20)
    part = tmp_path / "out.jsonl.part"
    part.write_text('{"type": "segment", "file": "hyp.txt", "segment": 0, "sco', encoding="utf-8")  # no result
    results = []
    for arguments in ((), ("--no-cache",), ("--no-cache",)):
        run = Run(server, tmp_path, "out.jsonl", *arguments, cache="cache" if not arguments else "unused")
        assert run.end() == 0, run.error
        assert sorted(run.asked()) == sorted(questions)
        results.append((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
        assert not part.exists()
    assert len(set(results)) == 1
    assert len([json.loads(line) for line in results[0].splitlines()]) == 24 + 1
    assert not (tmp_path / "unused").exists()
