"""The cache of answers: what is kept comes back, whatever happens to the process, the disk or the file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pty
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from promptmetric.backends.base import Fingerprint
from promptmetric.cli import cli
from promptmetric.errors import InputError, PromptmetricError
from promptmetric.execution import cache as cache_module
from promptmetric.execution.cache import SCHEMA, AnswerCache, cache_path, clear_cache, open_cache
from promptmetric.questions import (
    Answer,
    Completion,
    LabelLogprobs,
    LabelRequest,
    Likelihood,
    LikelihoodRequest,
    Message,
    Question,
    Request,
)

US = Fingerprint("hub/model", "0123abc", "engine 1.0, cpu, bfloat16")
QUESTION = LabelRequest((Message("user", "How good?"),), ("1", "2", "3"))
ANSWER = LabelLogprobs((-0.1, -2.5, -math.inf), 0.01, 12)


def numbered(start: int, stop: int) -> list[tuple[Question, Answer]]:
    return [(Request(f"question {i}", 10), Completion(f"answer {i}", "stop", i)) for i in range(start, stop)]


def questions(pairs: list[tuple[Question, Answer]]) -> list[Question]:
    return [question for question, _ in pairs]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache is by default, within a folder that does not exist yet."""
    monkeypatch.setenv("PROMPTMETRIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "answers.sqlite"


@pytest.fixture
def cache(path: Path) -> Iterator[AnswerCache]:
    with AnswerCache() as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnswerCache]:
    with AnswerCache(tmp_path_factory.mktemp("shared") / "answers.sqlite") as opened:
        yield opened


texts = st.text(max_size=40)
prompts = texts | st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant"]), texts), min_size=1, max_size=3
).map(tuple)
logprobs = st.floats(max_value=0, allow_nan=False)
lengths = st.none() | st.integers(0, 10**6)
overflows = st.integers(0, 10**6)
pairs_of_any_kind = st.one_of(
    st.tuples(
        st.builds(
            Request,
            prompts,
            st.integers(1, 500),
            st.floats(0, 2),
            st.integers(0, 2**31),
            st.lists(texts, max_size=2).map(tuple),
        ),
        st.builds(Completion, texts, st.sampled_from(["stop", "length", "too_long"]), lengths, overflows),
    ),
    st.tuples(
        st.builds(LabelRequest, prompts, st.lists(texts, min_size=1, max_size=4, unique=True).map(tuple)),
        st.builds(LabelLogprobs, st.lists(logprobs, max_size=4).map(tuple), st.floats(0, 1), lengths, overflows),
    ),
    st.tuples(
        st.builds(LikelihoodRequest, prompts, texts),
        st.builds(Likelihood, logprobs, st.integers(0, 500), lengths, overflows),
    ),
)


@given(pair=pairs_of_any_kind)
def test_every_answer_comes_back_as_it_was(shared: AnswerCache, pair: tuple[Question, Answer]) -> None:
    shared.put_many(US, [pair])
    assert shared.get_many(US, [pair[0]]) == {0: pair[1]}


def test_half_characters_survive(cache: AnswerCache) -> None:
    """A broken answer of a server may hold a lone surrogate, which is no valid UTF-8."""
    pair = (Request("what \udc80?", 10), Completion("that \ud800!"))
    cache.put_many(replace(US, model="/models/\udcff"), [pair])
    assert cache.get_many(replace(US, model="/models/\udcff"), [pair[0]]) == {0: pair[1]}


def test_only_what_is_kept_is_found_at_its_position(cache: AnswerCache) -> None:
    pairs = numbered(0, 3000)  # several statements
    cache.put_many(US, pairs[::2])
    found = cache.get_many(US, [*questions(pairs), pairs[0][0]])
    assert found == {**{i: pairs[i][1] for i in range(0, 3000, 2)}, 3000: pairs[0][1]}
    assert cache.get_many(US, []) == {}
    cache.put_many(US, [])


def test_the_last_answer_stays(cache: AnswerCache) -> None:
    cache.put_many(US, [(QUESTION, ANSWER)])
    cache.put_many(US, [(QUESTION, replace(ANSWER, unread=0.5))])
    assert cache.get_many(US, [QUESTION]) == {0: replace(ANSWER, unread=0.5)}
    assert cache.info().models[0].answers == 1


@pytest.mark.parametrize("field", ["model", "revision", "engine"])
def test_models_revisions_and_engines_are_kept_apart(cache: AnswerCache, field: str) -> None:
    cache.put_many(US, [(QUESTION, ANSWER)])
    assert cache.get_many(replace(US, **{field: "other"}), [QUESTION]) == {}


def test_another_decoding_is_another_question(cache: AnswerCache) -> None:
    request = Request("p", 10)
    cache.put_many(US, [(request, Completion("a"))])
    others = [
        replace(request, max_tokens=11),
        replace(request, temperature=0.5),
        replace(request, seed=1),
        replace(request, stop=("\n",)),
        replace(request, prompt=(Message("user", "p"),)),
        LabelRequest("p", ("10",)),
        LabelRequest("p", ("1", "0")),
        LikelihoodRequest("p", "10"),
    ]
    assert cache.get_many(US, others) == {}
    cache.put_many(US, [(other, Completion("b")) for other in others])
    assert cache.info().models[0].answers == len(others) + 1


def test_another_version_of_the_cache_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = cache_module._keys(US, [QUESTION])
    monkeypatch.setattr(cache_module, "SCHEMA", SCHEMA + 1)
    (after,) = cache_module._keys(US, [QUESTION])
    assert before != after
    assert len(before) == 16


def test_an_unreadable_answer_is_asked_again_and_replaced(cache: AnswerCache, path: Path) -> None:
    cache.put_many(US, [(QUESTION, ANSWER)])
    for broken in ("{}", "[1]", '{"logprobs":', '{"text": 1}', '{"logprobs": ["x"]}'):
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE answers SET answer = ?", (broken,))
        assert cache.get_many(US, [QUESTION]) == {}
    cache.put_many(US, [(QUESTION, ANSWER)])
    assert cache.get_many(US, [QUESTION]) == {0: ANSWER}


def test_threads_may_share_a_cache(cache: AnswerCache) -> None:
    threads = [
        threading.Thread(target=cache.put_many, args=(US, numbered(100 * i, 100 * i + 100)), name=str(i))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache.get_many(US, questions(numbered(0, 400)))) == 400


def test_a_closed_cache_says_so(path: Path) -> None:
    with AnswerCache(path) as cache:
        pass
    cache.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        cache.put_many(US, [(QUESTION, ANSWER)])
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        cache.get_many(US, [QUESTION])


# Processes: each writes chunks of ten numbered answers and, after each, says how far it is.

WRITER = """
import sys
from pathlib import Path
from tests.test_cache import AnswerCache, US, numbered
path, start, stop = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
sys.stdin.readline()
with AnswerCache(path) as cache:
    for i in range(start, stop, 10):
        cache.put_many(US, numbered(i, i + 10))
        print(i + 10, flush=True)
"""


def start_writer(path: Path, start: int, stop: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(start), str(stop)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )


def test_a_killed_writer_loses_nothing_it_had_written(path: Path) -> None:
    draw = random.Random(4)
    reached = 0
    for _ in range(3):
        with start_writer(path, reached, 10**7) as writer:
            assert writer.stdin
            assert writer.stdout
            writer.stdin.write("go\n")
            writer.stdin.flush()
            for _ in range(draw.randint(1, 40)):
                reached = int(writer.stdout.readline())
            time.sleep(draw.random() / 50)
            writer.send_signal(signal.SIGKILL)
            reached = int((writer.stdout.read().splitlines() or [reached])[-1])
        with AnswerCache(path) as cache:
            pairs = numbered(0, reached)
            assert cache.get_many(US, questions(pairs)) == dict(enumerate(answer for _, answer in pairs))
            assert cache.info().models[0].answers in (reached, reached + 10)  # killed before it could say so
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_writers_may_begin_and_write_at_the_same_time(path: Path) -> None:
    ranges = [(0, 600), (300, 900)]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(start_writer(path, *limits)) for limits in ranges]
        for writer in writers:
            assert writer.stdin
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            writer.communicate(timeout=60)
        assert [writer.returncode for writer in writers] == [0, 0]
    with AnswerCache(path) as cache:
        pairs = numbered(0, 900)
        assert cache.get_many(US, questions(pairs)) == dict(enumerate(answer for _, answer in pairs))


# Trouble with the file: before a run it is reported, during a run it is logged once and the run goes on.


def other_version(path: Path, version: int) -> None:
    path.parent.mkdir(exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE answers (key BLOB, something TEXT)")
        connection.execute(f"PRAGMA user_version={version}")


@pytest.mark.parametrize("version", [0, SCHEMA + 1])
def test_another_version_is_named_and_can_be_cleared(path: Path, version: int) -> None:
    other_version(path, version)
    with pytest.raises(InputError, match=rf"answers.sqlite: is a cache of version {version}.*\n.*cache clear"):
        AnswerCache(path)
    assert clear_cache(path) is None
    with AnswerCache(path) as cache:
        assert cache.info().models == ()


@pytest.mark.parametrize("content", [b"not a database", b"x" * 5000, b"SQLite format 3\0" + b"y" * 5000])
def test_a_damaged_file_is_named_and_can_be_cleared(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"answers.sqlite: is no cache of answers, or damaged.*\n.*cache clear"):
        AnswerCache(path)
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).write_bytes(b"rest")
    assert clear_cache(path) is None
    assert list(path.parent.iterdir()) == []


def test_damage_found_during_a_run_is_logged_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pairs = numbered(0, 2000)
    with AnswerCache(path) as cache:
        cache.put_many(US, pairs)
    with path.open("r+b") as file:  # the first page, which is read when a file is opened, stays
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))
    with AnswerCache(path) as cache:
        assert cache.get_many(US, questions(pairs)) == {}
        cache.put_many(US, pairs)
        with pytest.raises(InputError, match="damaged"):
            cache.info()
    assert [record.getMessage().split(": ")[0] for record in caplog.records] == [str(path)]
    assert clear_cache(path) is None
    assert not path.exists()


def test_a_run_goes_on_without_an_unusable_cache(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database")
    assert open_cache() is None
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    assert "cache clear" in record.getMessage()
    path.unlink()
    opened = open_cache(path)
    assert opened is not None
    opened.close()


def test_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PROMPTMETRIC_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(PromptmetricError, match=r"cannot be made(.|\n)*PROMPTMETRIC_CACHE"):
        AnswerCache()
    assert open_cache() is None
    assert "cannot be made" in caplog.text


def test_a_folder_where_nothing_can_be_written(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o555)
    if os.access(path.parent, os.W_OK):
        pytest.skip("permissions do not bind this user")
    with pytest.raises(PromptmetricError, match=r"cannot be used(.|\n)*PROMPTMETRIC_CACHE"):
        AnswerCache(path)


@pytest.mark.parametrize("obstacle", ["query_only = 1", "max_page_count = 1"])
def test_a_disk_that_cannot_be_written_is_logged_once(
    cache: AnswerCache, obstacle: str, caplog: pytest.LogCaptureFixture
) -> None:
    """sqlite's own settings stand in for a read-only and for a full disk: they fail with the same errors."""
    cache.put_many(US, [(QUESTION, ANSWER)])
    cache._connection.execute(f"PRAGMA {obstacle}")
    for _ in range(2):
        cache.put_many(US, numbered(0, 1000))
        assert cache.get_many(US, [QUESTION, *questions(numbered(0, 1000))]) == {0: ANSWER}
    (record,) = caplog.records
    assert "are not kept" in record.getMessage()
    cache._connection.execute("PRAGMA query_only = 0")
    cache._connection.execute("PRAGMA max_page_count = 100000")
    cache.put_many(US, numbered(0, 1000))
    assert len(cache.get_many(US, questions(numbered(0, 1000)))) == 1000


def test_a_writer_that_never_ends_is_not_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache_module, "PATIENCE", 0.05)
    with AnswerCache(path) as cache, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        cache.put_many(US, [(QUESTION, ANSWER)])
        other.execute("BEGIN IMMEDIATE")
        cache.put_many(US, numbered(0, 10))
        assert cache.get_many(US, [QUESTION]) == {0: ANSWER}
        with pytest.raises(PromptmetricError, match="locked") as caught:
            clear_cache(path)
        assert not isinstance(caught.value, InputError)
        other.execute("COMMIT")
        cache.put_many(US, numbered(0, 10))
        assert len(cache.get_many(US, questions(numbered(0, 10)))) == 10
    assert caplog.text.count("locked") == 1


# Looking at it and clearing it.


def test_info_counts_by_model(cache: AnswerCache, path: Path) -> None:
    before = int(time.time())
    cache.put_many(US, numbered(0, 20))
    cache.put_many(replace(US, engine="another"), numbered(0, 10))
    cache.put_many(replace(US, model="a/model"), [(Request("q", 1), Completion(""))])
    found = cache.info()
    assert [(kept.model, kept.answers) for kept in found.models] == [("a/model", 1), ("hub/model", 30)]
    # The very text: {"text":"","finish":"stop","prompt_tokens":null,"overflow":0}
    assert found.models[0].bytes == 61
    assert before <= found.models[1].first.timestamp() <= found.models[1].last.timestamp() <= time.time()
    assert found.path == path == cache_path()
    assert found.bytes >= path.stat().st_size > 0


def test_clear_shrinks_the_file(path: Path) -> None:
    with AnswerCache(path) as cache:
        cache.put_many(US, numbered(0, 5000))
        cache.put_many(replace(US, model="a/model"), numbered(0, 3))
        full = cache.info().bytes
        assert cache.clear("hub/mod") == 0
        assert cache.clear("hub/model") == 5000
        assert cache.info().bytes < full / 10
        assert [(kept.model, kept.answers) for kept in cache.info().models] == [("a/model", 3)]
        assert cache.clear() == 3
        assert cache.clear() == 0


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["cache", *arguments])


@pytest.fixture
def filled(path: Path) -> Path:
    with AnswerCache(path) as cache:
        cache.put_many(US, numbered(0, 20))
        cache.put_many(replace(US, model="a/model"), numbered(0, 3))
    return path


def test_info_command(filled: Path) -> None:
    lines = run("info").stdout.splitlines()
    assert lines[0].split() == ["model", "answers", "size", "first", "last"]
    assert [line.split()[:2] for line in lines[1:3]] == [["a/model", "3"], ["hub/model", "20"]]
    assert lines[-1].startswith(f"{filled}: 23 answers, ")
    found = json.loads(run("info", "--format", "json").stdout)
    assert found["path"] == str(filled)
    assert found["bytes"] >= filled.stat().st_size
    assert [(kept["model"], kept["answers"]) for kept in found["models"]] == [("a/model", 3), ("hub/model", 20)]
    assert set(found["models"][0]) == {"model", "answers", "bytes", "first", "last"}


def test_commands_where_there_is_no_cache_make_none(path: Path) -> None:
    assert run("info").stdout == f"{path}: no answers, 0.0 kB\n"
    assert json.loads(run("info", "--format", "json").stdout) == {"path": str(path), "bytes": 0, "models": []}
    assert run("clear", "--yes").stdout == f"{path}: there is nothing to delete.\n"
    assert not path.parent.exists()


def test_clear_command(filled: Path) -> None:
    unknown = run("clear", "-y", "--model", "nobody")
    assert unknown.exit_code == 2
    assert "holds no answers of nobody" in unknown.stderr
    assert run("clear", "-y", "--model", "hub/model").stdout == f"{filled}: 20 answers deleted.\n"
    assert run("clear", "--yes").stdout == f"{filled}: 3 answers deleted.\n"
    assert "no answers" in run("info").stdout


def test_clear_command_does_not_delete_unasked(filled: Path) -> None:
    refused = run("clear")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert "23 answers" in run("info").stdout


@pytest.mark.parametrize(("reply", "exit_code", "left"), [("n\n", 1, "23 answers"), ("y\n", 0, "no answers")])
def test_clear_command_asks_on_a_terminal(filled: Path, reply: str, exit_code: int, left: str) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, reply.encode())
        asked = subprocess.run(
            [sys.executable, "-m", "promptmetric", "cache", "clear"], stdin=theirs, capture_output=True, text=True
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert asked.returncode == exit_code
    assert "delete all answers? [y/N]" in asked.stderr
    assert left in run("info").stdout


def test_commands_on_a_damaged_cache(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database")
    told = run("info")
    assert told.exit_code == 2
    assert f"{path}: is no cache of answers, or damaged" in told.stderr
    assert "promptmetric cache clear" in told.stderr
    assert run("clear", "-y", "--model", "hub/model").exit_code == 2
    assert run("clear", "-y").stdout == f"{path}: deleted unread.\n"
    assert not path.exists()
