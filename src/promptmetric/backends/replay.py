"""Recorded answers as a backend, and the recorder that writes them: one JSON object a line.

    {"prompt": "…" or [{"role": "user", "content": "…"}], "text": "the answer", …}

A line with `max_tokens`, `temperature` and `seed` answers requests decoded that way; one without the three answers
every request with that prompt. `model`, `revision` and `engine` say whose answer it is. Lines with `labels` and
`logprobs`, or with `continuation` and `logprob`, answer questions for probabilities.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from promptmetric.backends.base import AlikeForAllKinds, Backend, Fingerprint, answer
from promptmetric.backends.records import answer_fields, question_fields, read_answer, read_prompt, read_question
from promptmetric.errors import BackendError, InputError
from promptmetric.questions import Answer, Prompt, Question, Request

_DECODING = ("max_tokens", "temperature", "seed")

Answers = dict[Question | Prompt, Answer]
"""By question, or by prompt alone where a recording does not say how it was decoded."""


class ReplayBackend(AlikeForAllKinds):
    """Answers from a file of recorded answers; refuses what was not recorded."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._answers: Answers = {}
        self._whose: set[Fingerprint] = set()
        for fields in read_records(self._path):
            self._answers[_key(fields)] = read_answer(fields)
            self._whose.add(_fingerprint(fields))
        if not self._answers:
            raise InputError(f"{path}: holds no recorded answers.")

    def _answer(self, questions: Sequence[Question], batch_size: int) -> Iterator[tuple[int, Any]]:  # noqa: ARG002
        for position, question in enumerate(questions):
            known = find_answer(self._answers, question)
            if known is None:
                missing = sum(find_answer(self._answers, other) is None for other in questions)
                raise BackendError(
                    f"{self._path}: no recorded answer for {missing} of {len(questions)} questions; "
                    f"the first is {_shorten(question)!r}.",
                    hint="Replay with the prompt, task, languages, decoding and samples that were recorded.",
                )
            yield position, known

    def fingerprint(self) -> Fingerprint:
        """The recorded model's, marked as replayed."""
        model, revision, engine = (
            names.pop() if len(names := {getattr(whose, field) for whose in self._whose}) == 1 else "several"
            for field in ("model", "revision", "engine")
        )
        return Fingerprint(model, revision, f"replay of {engine}")

    def close(self) -> None:
        """Forget the answers."""
        self._answers.clear()


class RecordingBackend(AlikeForAllKinds):
    """Passes questions to another backend and appends each answer to a file the moment it comes.

    Answers of the same model that the file holds already are not asked again, so an interrupted run continues.
    """

    def __init__(self, inner: Backend, path: str | Path) -> None:
        self._inner = inner
        self._path = Path(path)
        mine = inner.fingerprint()
        self._answers: Answers = {}
        if self._path.exists():
            for fields in read_records(self._path, skip_torn_end=True):
                if _fingerprint(fields) == mine:
                    self._answers[_key(fields)] = read_answer(fields)

    def _answer(self, questions: Sequence[Question], batch_size: int) -> Iterator[tuple[int, Any]]:
        unknown = []
        for position, question in enumerate(questions):
            known = find_answer(self._answers, question)
            if known is None:
                unknown.append(position)
            else:
                yield position, known
        whose = asdict(self._inner.fingerprint())
        with _open_to_append(self._path) as file:
            for number, new in answer(self._inner, [questions[i] for i in unknown], batch_size):
                question = questions[unknown[number]]
                record = question_fields(question) | answer_fields(new) | whose
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                file.flush()
                self._answers[question] = new
                yield unknown[number], new

    def fingerprint(self) -> Fingerprint:
        """The inner backend's."""
        return self._inner.fingerprint()

    def close(self) -> None:
        """Close the inner backend."""
        self._inner.close()


def find_answer(answers: Answers, question: Question) -> Answer | None:
    """The answer recorded for exactly this question, else one recorded for its prompt without decoding settings."""
    known = answers.get(question)
    if known is None and isinstance(question, Request):
        return answers.get(question.prompt)
    return known


def read_records(path: Path, *, skip_torn_end: bool = False) -> Iterator[dict[str, Any]]:
    """Read a file of recorded answers line by line.

    Raises:
        InputError: the file cannot be read, or a line is no recorded answer (with its number).
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    fields = json.loads(line)
                    read_answer(fields)
                    hash(_key(fields))
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    # A crash can only tear the last line, and only one of ours: anything else is not our file.
                    ours = b'{"prompt"'
                    is_torn = not line.endswith(b"\n") and (ours.startswith(line) or line.startswith(ours))
                    if skip_torn_end and is_torn:
                        continue
                    raise InputError(
                        f"{path}, line {number}: not a recorded answer ({error!r}).",
                        hint='Each line needs "prompt" and "text".',
                    ) from error
                yield fields
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}.") from error


def _open_to_append(path: Path) -> TextIO:
    """Open for appending on a fresh line; half a record, as a crash may leave it, is dropped."""
    try:
        content = path.read_bytes() if path.exists() else b""
        end = content.rfind(b"\n") + 1
        if end < len(content):
            with path.open("r+b") as file:
                if _is_json(content[end:]):
                    file.seek(0, 2)
                    file.write(b"\n")
                else:
                    file.truncate(end)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error}.") from error


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _key(fields: dict[str, Any]) -> Question | Prompt:
    if "text" in fields and not all(name in fields for name in _DECODING):
        return read_prompt(fields["prompt"])
    return read_question(fields)


def _fingerprint(fields: dict[str, Any]) -> Fingerprint:
    return Fingerprint(*(str(fields.get(name, "unknown")) for name in ("model", "revision", "engine")))


def _shorten(request: Question) -> str:
    text = request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content
    return text if len(text) <= 80 else f"{text[:77]}…"
