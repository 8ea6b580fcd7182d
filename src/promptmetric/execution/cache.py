"""Answers that were given once, kept in a sqlite file: nothing is asked twice, not even after a crash."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from promptmetric.backends.base import Fingerprint
from promptmetric.backends.embedded import cache_folder
from promptmetric.backends.records import answer_fields, question_key, read_answer
from promptmetric.errors import InputError, PromptmetricError
from promptmetric.questions import Answer, Question

logger = logging.getLogger("promptmetric")

FILE = "answers.sqlite"

SCHEMA = 1
"""Version of table, keys and values. To be raised whenever what is kept would be misread or mistaken."""

PATIENCE = 30.0
"""Seconds to wait for other processes that write."""

LOOKED_UP_AT_ONCE = 500
"""Keys in one SELECT; sqlite builds before 2020 take 999 at most."""

# Rows are kept in the order of writing and found by an index of the keys. In a table ordered by its random keys
# (WITHOUT ROWID) writing takes three times as long.
_TABLE = (
    "CREATE TABLE answers"
    " (key BLOB NOT NULL PRIMARY KEY, model TEXT NOT NULL, answer TEXT NOT NULL, written INTEGER NOT NULL)"
)
_DAMAGED = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_HINT = "PROMPTMETRIC_CACHE names another cache folder."

# ASCII alone, so that half characters (lone surrogates) survive too; infinity and NaN as Python writes them.
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class ModelAnswers:
    """The kept answers of one model: how many, the size of their texts, and when the first and last were written."""

    model: str
    answers: int
    bytes: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache holds; `bytes` is its size on disk."""

    path: Path
    bytes: int
    models: tuple[ModelAnswers, ...]


class AnswerCache:
    """The answers kept in one file, found by question and fingerprint.

    An answer counts as kept once `put_many` has returned; it then survives the end of the process, however sudden.
    Any number of processes may read and write at the same time, each with a cache of its own: a cache must not be
    carried across a fork. Threads may share one; they take turns.

    Once the file is open, trouble with it (a full disk, a lock, damage) never raises in `get_many` and `put_many`: it
    is logged once, and the answers are asked for again or not kept.

    Args:
        path: the file, made where it is missing; `answers.sqlite` in the cache folder by default.

    Raises:
        InputError: the file is damaged, or of another version.
        PromptmetricError: it cannot be opened.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_path()
        self._lock = threading.Lock()
        self._warned = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PromptmetricError(f"{self.path.parent}: cannot be made: {error.strerror}.", hint=_HINT) from error
        with _reported(self.path):
            self._connection = _connect(self.path)

    def __enter__(self) -> AnswerCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Calling it again does nothing."""
        with self._lock:
            self._connection.close()

    def get_many(self, fingerprint: Fingerprint, questions: Sequence[Question]) -> dict[int, Answer]:
        """Look answers up.

        Args:
            fingerprint: whose answers.
            questions: thousands at a time are fastest.

        Returns:
            Answers by the position of their question; questions without one are left out.
        """
        keys = list(_keys(fingerprint, questions))
        texts: dict[bytes, str] = {}
        with self._lock, self._tolerated("answers kept there may be asked for again"):
            for start in range(0, len(keys), LOOKED_UP_AT_ONCE):
                some = keys[start : start + LOOKED_UP_AT_ONCE]
                marks = ",".join("?" * len(some))
                texts.update(
                    # Nothing but question marks is put in.
                    self._connection.execute(f"SELECT key, answer FROM answers WHERE key IN ({marks})", some)  # noqa: S608
                )
        found = ((position, _read(texts[key])) for position, key in enumerate(keys) if key in texts)
        return {position: answer for position, answer in found if answer is not None}

    def put_many(self, fingerprint: Fingerprint, answered: Iterable[tuple[Question, Answer]]) -> None:
        """Keep answers, all or none of them; an earlier answer to the same question is replaced.

        Args:
            fingerprint: who answered.
            answered: questions with their answers; thousands at a time are fastest.
        """
        pairs = list(answered)
        model, now = _text(fingerprint.model), int(time.time())
        keys = _keys(fingerprint, [question for question, _ in pairs])
        rows = [(key, model, _encode(answer_fields(answer)), now) for key, (_, answer) in zip(keys, pairs, strict=True)]
        rows.sort()  # neighbours in the index are written together
        with self._lock, self._tolerated("answers that cannot be written are not kept"), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)

    def info(self) -> CacheInfo:
        """What is kept.

        Raises:
            InputError: the file is damaged.
            PromptmetricError: it cannot be read.
        """
        with self._lock, _reported(self.path):
            rows = self._connection.execute(
                "SELECT model, count(*), sum(length(answer)), min(written), max(written)"
                " FROM answers GROUP BY model ORDER BY model"
            ).fetchall()
        models = [
            ModelAnswers(model, answers, size, datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC))
            for model, answers, size, first, last in rows
        ]
        return CacheInfo(self.path, disk_size(self.path), tuple(models))

    def clear(self, model: str | None = None) -> int:
        """Delete the answers of a model, or all, and return how many there were.

        Raises:
            InputError: the file is damaged.
            PromptmetricError: it cannot be written.
        """
        where, values = ("", ()) if model is None else (" WHERE model = ?", (_text(model),))
        with self._lock, _reported(self.path):
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                deleted = self._connection.execute(f"DELETE FROM answers{where}", values).rowcount  # noqa: S608
            # The answers are gone by now. Where the file cannot shrink (in use, disk full), its room is used again.
            with contextlib.suppress(sqlite3.OperationalError):
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return deleted

    @contextlib.contextmanager
    def _tolerated(self, consequence: str) -> Iterator[None]:
        """Log trouble with the file, the first time, instead of raising."""
        try:
            yield
        except sqlite3.ProgrammingError:  # not the file's fault: the cache is closed
            raise
        except sqlite3.Error as error:
            if not self._warned:
                logger.warning("%s; %s", _trouble(self.path, error), consequence)
            self._warned = True


def cache_path() -> Path:
    """The file of answers in the cache folder."""
    return cache_folder() / FILE


def open_cache(path: Path | None = None) -> AnswerCache | None:
    """Open a cache for a run, which goes on without one where it is not usable: the reason is logged.

    Args:
        path: as for `AnswerCache`.
    """
    try:
        return AnswerCache(path)
    except PromptmetricError as error:
        logger.warning("no answers are kept or reused: %s", error)
        return None


def clear_cache(path: Path, model: str | None = None) -> int | None:
    """Delete the answers of a model, or all.

    Returns:
        How many; None where the file was damaged or of another version, so that it was deleted unread.

    Raises:
        InputError: the file is damaged or of another version, and a model is named.
        PromptmetricError: it cannot be written.
    """
    try:
        with AnswerCache(path) as cache:
            return cache.clear(model)
    except InputError:
        if model is not None:
            raise
    try:
        for file in _files(path):
            file.unlink(missing_ok=True)
    except OSError as error:
        raise PromptmetricError(f"{path}: cannot be deleted: {error.strerror}.") from error
    return None


def disk_size(path: Path) -> int:
    """Size in bytes of a cache's file, and of those that sqlite keeps beside it while the cache is open."""
    size = 0
    for file in _files(path):
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_size
    return size


def _files(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]


def _keys(fingerprint: Fingerprint, questions: Iterable[Question]) -> Iterator[bytes]:
    """A key for each question, as this model, revision and engine answer it.

    Half a SHA-256: among a billion answers, two share their key with a probability of 10⁻²¹.
    """
    # Engines are kept apart because their answers differ in the last digits.
    who = json.dumps([SCHEMA, fingerprint.model, fingerprint.revision, fingerprint.engine])
    start = hashlib.sha256(f"{who}\n".encode())
    for question in questions:
        digest = start.copy()
        digest.update(question_key(question).encode(errors="surrogatepass"))
        yield digest.digest()[:16]


def _read(text: str) -> Answer | None:
    """A kept answer; None where it is none, as if it were not there."""
    try:
        return read_answer(json.loads(text))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _text(name: str) -> str:
    """A name as sqlite takes it: that of a folder may hold bytes that are no characters."""
    return name.encode(errors="replace").decode()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        # With WAL, a crash of the process loses nothing; one of the machine may cost the last answers, never the file.
        connection.execute("PRAGMA synchronous=NORMAL")
        if not _is_ready(connection, path):
            _use_wal(connection)
            _create(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_ready(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file holds our table; False where it holds nothing yet.

    Raises:
        InputError: it holds something else.
    """
    # In this order: should another process make the table in between, the version tells.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == SCHEMA:
        return True
    if tables or version:
        raise InputError(
            f"{path}: is a cache of version {version}, where this promptmetric reads version {SCHEMA}.",
            hint="`promptmetric cache clear` deletes it.",
        )
    return False


def _use_wal(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work at the same time; the file remembers it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            # Unlike everything else, this does not wait for others by itself.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _create(connection: sqlite3.Connection, path: Path) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if not _is_ready(connection, path):  # another process may have been faster
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA user_version={SCHEMA}")


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Raise sqlite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        if _is_damage(error):
            raise InputError(_trouble(path, error) + ".", hint="`promptmetric cache clear` deletes it.") from error
        raise PromptmetricError(_trouble(path, error) + ".", hint=_HINT) from error


def _trouble(path: Path, error: sqlite3.Error) -> str:
    if _is_damage(error):
        return f"{path}: is no cache of answers, or damaged ({error})"
    return f"{path}: the cache of answers cannot be used ({error})"


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
