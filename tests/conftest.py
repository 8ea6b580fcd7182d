"""Shared fixtures. Data and engines may be missing, unless PROMPTMETRIC_REQUIRE_ALL is set, as it is in CI."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from promptmetric.execution import AnswerCache
from promptmetric.prompts import LanguagePair, PromptSpec
from promptmetric.types import Sample, Task


def skip_or_fail(reason: str) -> None:
    if os.environ.get("PROMPTMETRIC_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


def need_vllm() -> None:
    """vLLM needs versions of its own: it has an environment of its own, in which PROMPTMETRIC_REQUIRE_VLLM is set."""
    if find_spec("vllm") is None:
        if os.environ.get("PROMPTMETRIC_REQUIRE_VLLM"):
            pytest.fail("vLLM is not installed")
        pytest.skip("vLLM is not installed here: .ci/run tries it in an environment of its own")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder with the human judgments and published grids, named by PROMPTMETRIC_DATA."""
    folder = Path(os.environ.get("PROMPTMETRIC_DATA", ""))
    if not os.environ.get("PROMPTMETRIC_DATA") or not folder.is_dir():
        skip_or_fail("PROMPTMETRIC_DATA names no folder")
    return folder


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    """The embedded model, fetched where it is not cached."""
    from promptmetric.backends import embedded
    from promptmetric.errors import PromptmetricError

    try:
        return embedded.model_folder()
    except PromptmetricError as error:
        skip_or_fail(str(error))
        raise AssertionError from error


@pytest.fixture(autouse=True)
def _own_logger_level() -> Iterator[None]:
    """A command with `-q` silences the logger for the rest of its process, which here is that of all tests."""
    yield
    logging.getLogger("promptmetric").setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _own_answers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither see answers that other tests or users got, nor leave any to them."""
    path = tmp_path_factory.mktemp("answers") / "answers.sqlite"
    monkeypatch.setattr("promptmetric.scorer.open_cache", lambda: AnswerCache(path))


PROMPT = PromptSpec.model_validate(
    {
        "id": "test:direct",
        "messages": [{"role": "user", "content": "{{ src }} => {{ hyp }}"}],
        "scale": {"kind": "numeric", "min": 0, "max": 100},
        "max_tokens": 20,
    }
)


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., str]:
    """Write recorded answers to samples, and return the file's name: the double for a model."""

    def write(
        samples: Sequence[Sample],
        answers: Sequence[str],
        prompt: PromptSpec = PROMPT,
        task: Task = "translation",
        langs: LanguagePair | None = None,
        **fields: object,
    ) -> str:
        path = tmp_path / "answers.jsonl"
        with path.open("a", encoding="utf-8") as file:
            for sample, answer in zip(samples, answers, strict=True):
                messages = prompt.render(sample, task, langs)
                turns = [{"role": turn.role, "content": turn.content} for turn in messages]
                file.write(json.dumps({"prompt": turns, "text": answer, "model": "recorded", **fields}) + "\n")
        return str(path)

    return write
