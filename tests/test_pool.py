"""Several engine processes: answers merged, shares dealt, deaths survived, errors carried over, nobody left behind."""

from __future__ import annotations

import functools
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from promptmetric.backends.base import AlikeForAllKinds, Backend, Fingerprint, answer
from promptmetric.backends.pool import FULL_PIECE, PIECES_PER_WORKER, PoolBackend, _cut
from promptmetric.backends.replay import RecordingBackend, ReplayBackend
from promptmetric.errors import BackendError, InputError, MissingExtraError, ModelUnavailableError
from promptmetric.questions import (
    Completion,
    LabelLogprobs,
    LabelRequest,
    Likelihood,
    LikelihoodRequest,
    Message,
    Question,
    Request,
)

LONG = 60.0
"""Seconds of sleep that a test would notice."""


class Obedient(AlikeForAllKinds):
    """Answers with the prompt, or does what the prompt says; writes down who and where it is and what it was asked."""

    def __init__(self, number: int, folder: Path) -> None:
        self.notes = folder / f"worker-{number}"
        self.marks = folder
        self.note(pid=os.getpid(), device=os.environ["CUDA_VISIBLE_DEVICES"])

    def note(self, **fields: object) -> None:
        with self.notes.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")

    def _answer(self, questions: Sequence[Question], batch_size: int) -> Iterator[tuple[int, Any]]:
        self.note(asked=[str(question.prompt) for question in questions], batch_size=batch_size)
        for position in reversed(range(len(questions))):
            question = questions[position]
            self.obey(str(question.prompt))
            if isinstance(question, Request):
                yield position, Completion(f"{question.prompt}!", "stop", 3)
            elif isinstance(question, LabelRequest):
                yield position, LabelLogprobs((-0.5, float("-inf")), 0.1, 3)
            else:
                yield position, Likelihood(-len(question.text), 2, 3)

    def obey(self, prompt: str) -> None:
        word = prompt.split()[-1]
        if word == "die" or (word == "die-once" and self.is_first()):
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "fail":
            raise ValueError("an index is off\nfor a long reason")
        elif word == "refuse":
            raise BackendError("that cannot be read.", hint="Ask otherwise.")
        elif word == "warn":
            logging.getLogger("promptmetric").warning("memory is short")
        elif word == "sleep":
            time.sleep(LONG)
        elif word == "fork":
            child = os.fork()
            if child == 0:
                time.sleep(LONG)
                os._exit(0)
            self.note(child=child)

    def is_first(self) -> bool:
        """Whether nobody obeyed such a prompt before."""
        try:
            (self.marks / "died").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def fingerprint(self) -> Fingerprint:
        return Fingerprint("obedient", "1", "test")

    def close(self) -> None:
        self.note(closed=True)


class Different(Obedient):
    """Says it is another model in each process."""

    def fingerprint(self) -> Fingerprint:
        return Fingerprint("obedient", "1", f"test {self.notes.name}")


def open_replay(number: int, path: Path) -> Backend:
    return ReplayBackend(path)


def open_unless(number: int, folder: Path, dead: Sequence[int]) -> Backend:
    if number in dead:
        os._exit(7)
    return Obedient(number, folder)


def open_failing(number: int, kind: str) -> Backend:
    raise {
        "extra": MissingExtraError("the engine", "vllm"),
        "model": ModelUnavailableError("no such model.", hint="Fetch it."),
        "input": InputError("these do not fit."),
    }[kind]


def requests(*prompts: str) -> list[Request]:
    return [Request(prompt, 5) for prompt in prompts]


def notes(folder: Path, field: str) -> list[Any]:
    """What the workers wrote down under this name, worker by worker."""
    lines = [json.loads(line) for path in sorted(folder.glob("worker-*")) for line in path.read_text().splitlines()]
    return [line[field] for line in lines if field in line]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolBackend]:
    """Two workers that obey their prompts; they write into tmp_path."""
    backend = PoolBackend(functools.partial(Obedient, folder=tmp_path), 2)
    yield backend
    backend.close()
    assert not any(map(is_running, notes(tmp_path, "pid")))


KINDS: dict[str, list[Question]] = {
    "text": [Request((Message("system", "Grade."), Message("user", f"text {n}")), 5, 0.5, n, (".",)) for n in range(9)],
    "labels": [LabelRequest(f"text {n}", ("good", "bad")) for n in range(9)],
    "likelihood": [LikelihoodRequest(f"text {n // 3}", "x" * n) for n in range(9)],
}


def test_answers_of_every_kind_are_those_of_one_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    path = tmp_path / "answers.jsonl"
    recorder = RecordingBackend(Obedient(0, tmp_path), path)
    recorded = {kind: dict(answer(recorder, questions)) for kind, questions in KINDS.items()}
    pool = PoolBackend(functools.partial(open_replay, path=path), 2)
    assert pool.fingerprint() == ReplayBackend(path).fingerprint()
    for kind, questions in KINDS.items():
        answers = list(answer(pool, questions, 4))
        assert dict(answers) == recorded[kind]
        assert len(answers) == len(questions)
    assert list(pool.generate([])) == []
    pool.close()
    pool.close()
    with pytest.raises(BackendError, match="closed"):
        list(pool.generate(requests("more")))


def test_source_groups_stay_together(pool: PoolBackend, tmp_path: Path) -> None:
    questions = requests(*(f"Grade this.\n{source}{'.' * 20}{n}" for source in "abcdefg" for n in range(3)))
    answers = list(pool.generate(questions, batch_size=3))
    assert dict(answers) == {n: Completion(f"{q.prompt}!", "stop", 3) for n, q in enumerate(questions)}
    assert len(answers) == 21
    shares = notes(tmp_path, "asked")
    assert sorted(map(len, shares)) in ([9, 12], [6, 15])
    sources = [{prompt.split("\n")[1][0] for prompt in share} for share in shares]
    assert not sources[0] & sources[1]
    assert notes(tmp_path, "batch_size") == [3, 3]


@pytest.mark.parametrize("seed", range(20))
def test_every_question_is_in_one_piece(seed: int) -> None:
    draw = random.Random(seed)
    workers = draw.randint(1, 5)
    group_sizes = draw.choices(range(1, 40), k=draw.choice([1, 2, 9, 200]))
    questions = requests(*(f"{group:03}" * 9 + str(n) for group, size in enumerate(group_sizes) for n in range(size)))
    pieces = [list(piece.questions.items()) for piece in _cut(questions, workers)]
    assert [pair for piece in pieces for pair in piece] == list(enumerate(questions))
    even = min(FULL_PIECE, len(questions) / workers)
    assert all(len(piece) >= even / 2 - 1 for piece in pieces[:-1])
    assert max(map(len, pieces)) <= 1.5 * max(even, len(questions) / workers / PIECES_PER_WORKER) + 3


def test_pieces_are_cut_between_sources() -> None:
    questions = requests(*(f"Grade.\n{source:04}\n{n:02}" for source in range(200) for n in range(15)))
    pieces = [list(piece.questions) for piece in _cut(questions, 2)]
    assert len(pieces) == 8
    assert all(piece[0] % 15 == 0 for piece in pieces)
    assert all(abs(len(piece) - 375) <= 2 * 15 for piece in pieces[:-1])


def test_a_free_worker_takes_the_next_piece(pool: PoolBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promptmetric.backends.pool.FULL_PIECE", 1)
    answers = pool.generate(requests("sleep", *"abcdefg"))  # pieces of one question
    assert {next(answers)[0] for _ in range(7)} == set(range(1, 8))
    wait_until(lambda: len(notes(tmp_path, "asked")) == 8)
    start = time.monotonic()
    answers.close()  # type: ignore[attr-defined]
    assert time.monotonic() - start < LONG / 4
    assert not any(map(is_running, notes(tmp_path, "pid")))
    assert notes(tmp_path, "closed") == [True, True]
    assert dict(pool.generate(requests("again")))[0].text == "again!"  # by new workers
    assert len(notes(tmp_path, "pid")) == 4


def test_a_killed_worker_is_reported_and_its_share_goes_to_the_others(
    pool: PoolBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = ["die-once", *map(str, range(9)), "warn", "x warn"]
    answers = list(pool.generate(requests(*prompts)))
    assert sorted(position for position, _ in answers) == list(range(12))
    assert all(completion.text == f"{prompts[position]}!" for position, completion in answers)
    (death,) = [record.getMessage() for record in caplog.records if "died" in record.getMessage()]
    assert "(GPU " in death
    assert "died with exit code -9 (SIGKILL); unanswered: 1, workers left: 1" in death
    assert [record.getMessage() for record in caplog.records].count("memory is short") == 1
    assert sum("die-once" in share for share in notes(tmp_path, "asked")) == 2
    assert list(pool.generate(requests("on"))) == [(0, Completion("on!", "stop", 3))]  # with the one that is left


def test_what_an_engine_started_dies_with_its_worker(pool: PoolBackend, tmp_path: Path) -> None:
    list(pool.generate(requests("fork", "die-once", "fork", "fork")))
    children = notes(tmp_path, "child")
    pool.close()
    assert len(children) == 3
    wait_until(lambda: not any(map(is_running, children)))


@pytest.mark.parametrize(
    ("word", "how"), [("die", r"-9 \(SIGKILL\)"), ("fail", r"1: ValueError: an index is off")], ids=["killed", "raised"]
)
def test_questions_that_kill_two_workers_are_an_error(
    pool: PoolBackend, caplog: pytest.LogCaptureFixture, word: str, how: str
) -> None:
    with pytest.raises(
        BackendError, match=rf"same questions \(1\): worker . \(GPU .\) died with exit code {how}; worker .* {how}"
    ):
        list(pool.generate(requests(word, "a", "b", "c")))
    assert sum("died" in record.getMessage() for record in caplog.records) == 2


def test_no_worker_left(tmp_path: Path) -> None:
    pool = PoolBackend(functools.partial(Obedient, folder=tmp_path), 2)
    answers = pool.generate(requests("die", "die"))
    with pytest.raises(BackendError, match=r"no worker is left: worker .*; worker .* \(SIGKILL\)\."):
        list(answers)
    pool.close()


def test_workers_that_die_while_opening(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pool = PoolBackend(functools.partial(open_unless, folder=tmp_path, dead=[0]), 2)
    assert "worker 0 (GPU 0) died with exit code 7" in caplog.text
    assert len(list(pool.generate(requests("a", "b")))) == 2
    pool.close()
    with pytest.raises(BackendError, match=r"no worker is left: worker .* exit code 7; worker") as caught:
        PoolBackend(functools.partial(open_unless, folder=tmp_path, dead=[0, 1]), 2)
    assert "__main__" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("kind", "error"), [("extra", MissingExtraError), ("model", ModelUnavailableError), ("input", InputError)]
)
def test_errors_while_opening_are_those_of_the_worker(kind: str, error: type[Exception]) -> None:
    with pytest.raises(error) as expected:
        open_failing(0, kind)
    with pytest.raises(error) as caught:
        PoolBackend(functools.partial(open_failing, kind=kind), 1)
    assert type(caught.value) is error
    assert str(caught.value) == str(expected.value)


def test_errors_while_answering_are_those_of_the_worker(pool: PoolBackend, tmp_path: Path) -> None:
    with pytest.raises(BackendError) as caught:
        list(pool.generate(requests("refuse", "sleep")))
    assert type(caught.value) is BackendError
    assert caught.value.args == ("that cannot be read.",)
    assert caught.value.hint == "Ask otherwise."
    assert not any(map(is_running, notes(tmp_path, "pid")))


def test_workers_must_be_alike(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"worker 0 .*test worker-0.*; worker 1 .*test worker-1"):
        PoolBackend(functools.partial(Different, folder=tmp_path), 2)
    assert not any(map(is_running, notes(tmp_path, "pid")))


def test_a_worker_that_cannot_be_sent_is_an_error_at_once() -> None:
    with pytest.raises(Exception, match=r"[Pp]ickle"):
        PoolBackend(lambda number: ReplayBackend("none"), 1)


def test_only_one_at_a_time(pool: PoolBackend) -> None:
    answers = pool.generate(requests("a", "b"))
    first = next(answers)
    with pytest.raises(BackendError, match="already"):
        next(pool.generate(requests("c")))
    assert len({first, *answers}) == 2


@pytest.mark.parametrize(
    ("visible", "devices", "dealt"),
    [(None, None, ["0", "1"]), ("2, 3,5", None, ["2", "3"]), ("0,1", ["GPU-a", "GPU-b"], ["GPU-a", "GPU-b"])],
    ids=["unset", "listed", "named"],
)
def test_devices_are_dealt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, devices: list[str] | None, dealt: list[str]
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    PoolBackend(functools.partial(Obedient, folder=tmp_path), 2, devices=devices).close()
    assert notes(tmp_path, "device") == dealt
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible


@pytest.mark.parametrize(("visible", "usable"), [("3", "1.*: 3"), ("", "0.*: none"), ("1,-1,2", "1.*: 1")])
def test_fewer_devices_than_workers(monkeypatch: pytest.MonkeyPatch, visible: str, usable: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(InputError, match=f"2 GPUs were asked for, but only {usable}\\.") as caught:
        PoolBackend(ReplayBackend, 2)  # type: ignore[arg-type]
    assert "--gpus" in str(caught.value.hint)


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Tests may have been started in the background, where shells have processes ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_the_workers(pool: PoolBackend, tmp_path: Path) -> None:
    answers = pool.generate(requests("a", "sleep"))
    assert next(answers)[0] == 0
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        next(answers)
    interrupt.join()
    assert not any(map(is_running, notes(tmp_path, "pid")))


SCRIPT = """
import functools, sys, time
from pathlib import Path
from promptmetric.backends.pool import PoolBackend
from tests.test_pool import Obedient, requests
pool = PoolBackend(functools.partial(Obedient, folder=Path(sys.argv[1])), 2)
answers = pool.generate(requests("a", "sleep"))
print(next(answers), flush=True)
{then}
"""


@pytest.mark.parametrize(
    ("then", "ends_with"),
    [("time.sleep(60)", -signal.SIGKILL), ("raise SystemExit(4)", 4)],
    ids=["killed", "not-closed"],
)
def test_workers_end_with_their_parent(tmp_path: Path, then: str, ends_with: int) -> None:
    command = [sys.executable, "-c", SCRIPT.format(then=then), str(tmp_path)]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith("(0, ")
        if ends_with == -signal.SIGKILL:
            parent.kill()
        assert parent.wait(30) == ends_with
        assert parent.stderr is not None
        assert parent.stderr.read() == ""
    pids = notes(tmp_path, "pid")
    assert len(pids) == 2
    wait_until(lambda: not any(map(is_running, pids)))
    assert notes(tmp_path, "closed") == [True, True]
