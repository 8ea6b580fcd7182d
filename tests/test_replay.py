"""Recorded answers: replayed, recorded, continued after an interruption; and the choice of a backend."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from promptmetric.backends import BackendName, Fingerprint, open_backend
from promptmetric.backends.replay import RecordingBackend, ReplayBackend
from promptmetric.errors import BackendError, InputError
from promptmetric.questions import Completion, Message, Request

REQUESTS = [Request((Message("user", f"question {n}"),), 10) for n in range(4)]


class Echo:
    """Answers with the question, counts what it is asked, and may fail after a while."""

    def __init__(self, fails_after: int = 99) -> None:
        self.asked: list[Request] = []
        self.fails_after = fails_after
        self.closed = False

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:
        for position in reversed(range(len(requests))):
            if len(self.asked) == self.fails_after:
                raise KeyboardInterrupt
            self.asked.append(requests[position])
            prompt = requests[position].prompt
            text = prompt if isinstance(prompt, str) else prompt[-1].content
            yield position, Completion(f"answer to {text}", "stop", 3)

    def fingerprint(self) -> Fingerprint:
        return Fingerprint("echo", "1", "test")

    def close(self) -> None:
        self.closed = True


def test_recorded_answers_replay(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    backend = RecordingBackend(Echo(), path)
    answers = dict(backend.generate(REQUESTS))
    assert answers[2].text == "answer to question 2"
    replay = ReplayBackend(path)
    assert dict(replay.generate(REQUESTS)) == answers
    assert replay.fingerprint() == Fingerprint("echo", "1", "replay of test")


def test_an_interrupted_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with pytest.raises(KeyboardInterrupt):
        list(RecordingBackend(Echo(fails_after=2), path).generate(REQUESTS))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"prompt": "half a li')  # as kill -9 may leave it
    second = Echo()
    assert len(dict(RecordingBackend(second, path).generate(REQUESTS))) == 4
    assert second.asked == [REQUESTS[1], REQUESTS[0]]
    third = Echo()
    assert len(dict(RecordingBackend(third, path).generate(REQUESTS))) == 4
    assert third.asked == []
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4


def test_answers_of_another_model_are_not_reused(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    list(RecordingBackend(Echo(), path).generate(REQUESTS))
    other = Echo()
    other.fingerprint = lambda: Fingerprint("other", "1", "test")  # type: ignore[method-assign]
    list(RecordingBackend(other, path).generate(REQUESTS))
    assert len(other.asked) == 4
    assert ReplayBackend(path).fingerprint().model == "several"


def test_decoding_settings_are_part_of_the_question(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(
        json.dumps({"prompt": "q", "text": "any"})
        + "\n\n"
        + json.dumps({"prompt": "q", "text": "warm", "max_tokens": 5, "temperature": 0.3, "seed": 1})
        + "\n",
        encoding="utf-8",
    )
    replay = ReplayBackend(path)
    texts = [c.text for _, c in replay.generate([Request("q", 5, 0.3, 1), Request("q", 5), Request("q", 9)])]
    assert texts == ["warm", "any", "any"]


def test_gzipped_recordings_replay(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write('{"prompt": "q", "text": "a"}\n')
    assert [c.text for _, c in ReplayBackend(path).generate([Request("q", 5)])] == ["a"]


def test_unrecorded_questions_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"prompt": "q", "text": "a"}\n', encoding="utf-8")
    requests = [Request("q", 5), Request("x" * 100, 5), Request("y", 5)]
    with pytest.raises(BackendError, match="no recorded answer for 2 of 3 questions; the first is 'xxx"):
        list(ReplayBackend(path).generate(requests))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 2: not a recorded answer"),
        ('{"prompt": "q"}', "line 2"),
        ('{"text": "q"}', "line 2"),
        ('{"prompt": "q", "text": 3}', "line 2"),
        ('{"prompt": [{"role": "user"}], "text": "a"}', "line 2"),
    ],
)
def test_bad_recordings_name_the_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(f'{{"prompt": "q", "text": "a"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(InputError, match=message):
        ReplayBackend(path)
    with pytest.raises(InputError, match=message):
        RecordingBackend(Echo(), path)


def test_empty_and_missing_recordings(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(InputError, match="holds no recorded answers"):
        open_backend(str(empty))
    with pytest.raises(InputError, match="no such file"):
        open_backend("missing.jsonl")
    with pytest.raises(InputError, match="no such file"):
        open_backend("missing", "replay")
    with pytest.raises(InputError, match="cannot be recorded"):
        open_backend(str(empty), record="x")


@pytest.mark.parametrize("name", ["/no/where", "./nowhere", "~/nowhere-at-all", "model.gguf"])
def test_missing_model_paths_are_bad_input(name: str) -> None:
    with pytest.raises(InputError, match="no such model folder or file"):
        open_backend(name)


@pytest.mark.parametrize(("model", "backend"), [("http://localhost:1/v1", "vllm"), ("some/model", "openai")])
def test_a_server_and_an_engine_do_not_fit(model: str, backend: BackendName) -> None:
    with pytest.raises(InputError, match="do not fit"):
        open_backend(model, backend)


def test_files_that_are_no_recordings_are_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("my thesis", encoding="utf-8")
    with pytest.raises(InputError, match="not a recorded answer"):
        RecordingBackend(Echo(), precious)
    assert precious.read_text(encoding="utf-8") == "my thesis"


def test_a_record_without_final_line_feed_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"prompt": "q", "text": "a"}', encoding="utf-8")
    list(RecordingBackend(Echo(), path).generate(REQUESTS))
    assert len(path.read_text(encoding="utf-8").splitlines()) == 5


def test_a_recorder_knows_what_it_has_recorded(tmp_path: Path) -> None:
    echo = Echo()
    recorder = RecordingBackend(echo, tmp_path / "answers.jsonl")
    first = dict(recorder.generate(REQUESTS))
    assert dict(recorder.generate(REQUESTS)) == first
    assert len(echo.asked) == 4


@pytest.mark.parametrize("name", ["answers.jsonl.gz", "missing/answers.jsonl", "."])
def test_unusable_record_files_are_noticed_before_a_model_loads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("promptmetric.backends._open_local", lambda *a, **k: pytest.fail("a model was loaded"))
    with pytest.raises(InputError):
        open_backend("auto", record=tmp_path / name)


def test_a_recording_torn_inside_a_character_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    list(RecordingBackend(Echo(), path).generate(REQUESTS))
    with path.open("ab") as file:
        file.write('{"prompt": "Fähre 渡'.encode()[:-1])
    second = Echo()
    assert len(dict(RecordingBackend(second, path).generate([*REQUESTS, Request("new", 3)]))) == 5
    assert len(second.asked) == 1
    assert len(ReplayBackend(path)._answers) == 5


def test_a_recording_of_two_engines_keeps_its_model(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    lines = [{"prompt": name, "text": "a", "model": "m", "revision": "r", "engine": name} for name in "xy"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert ReplayBackend(path).fingerprint() == Fingerprint("m", "r", "replay of several")
