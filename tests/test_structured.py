"""Structured answers: which labels are allowed, who can be held to them, and who refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from promptmetric import PromptSpec, Sample, Scorer, Signature
from promptmetric.backends.records import question_fields, question_key, read_question
from promptmetric.cli import cli
from promptmetric.decoding import read_answer
from promptmetric.errors import BackendError, InputError
from promptmetric.questions import Completion, Request

from . import servers
from .conftest import PROMPT
from .servers import Connect, Serve, ask, chat, says, turns
from .test_judging import EXPLAINED, LABELLED, Scripted

serve, connect, quick_and_without_keys = servers.serve, servers.connect, servers.quick_and_without_keys

LABELS = ("bad", "neutral", "good")


def asked(prompt: Any, **options: Any) -> tuple[list[Request], str]:
    """The questions of a scorer about one sample, and its signature."""
    backend = Scripted(lambda question: Completion(question.choices[0] if question.choices else "1"))
    prediction = Scorer("x", backend=backend, prompt=prompt, **options).predict([Sample("s", "h")])
    return [question for question in backend.asked if isinstance(question, Request)], prediction.signature


@pytest.mark.parametrize(
    ("scale", "first", "last", "count"),
    [
        (LABELLED.scale, "bad", "good", 3),
        ({"kind": "numeric", "min": 0, "max": 100}, "0", "100", 101),
        ({"kind": "numeric", "min": -100, "max": 100}, "-100", "100", 201),
        ({"kind": "numeric", "min": 1, "max": 5, "step": 1}, "1", "5", 5),
        ({"kind": "numeric", "min": 0, "max": 1}, "0.0", "1.0", 11),
    ],
)
def test_the_scales_labels_are_the_answers_allowed(scale: Any, first: str, last: str, count: int) -> None:
    spec = PromptSpec.model_validate({**PROMPT.model_dump(), "scale": scale})
    ((question,), signature) = asked(spec, structured=True)
    assert (question.choices[0], question.choices[-1], len(question.choices)) == (first, last, count)
    assert Signature.parse(signature).decode == "text structured"
    values = [read_answer(choice, spec.scale).value for choice in question.choices]
    assert values[0] == spec.scale.bounds[0]
    assert values[-1] == spec.scale.bounds[1]
    assert None not in values
    assert len(set(values)) == count


def test_structure_is_off_unless_asked_for() -> None:
    ((question,), signature) = asked(LABELLED)
    assert question.choices == ()
    assert Signature.parse(signature).decode == "text"


def test_samples_and_retries_are_structured_too() -> None:
    questions, signature = asked(LABELLED, structured=True, samples=2)
    assert [(question.choices, question.temperature) for question in questions] == [(LABELS, 1.0)] * 2
    assert Signature.parse(signature).decode == "text structured x 2"
    backend = Scripted(lambda question: Completion(""))
    Scorer("x", backend=backend, prompt=LABELLED, structured=True, fallback="retry", cache=False).predict(
        [Sample("s", "h")]
    )
    assert len(backend.asked) > 1
    assert all(isinstance(question, Request) and question.choices == LABELS for question in backend.asked)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": EXPLAINED}, "asks for an explanation first"),
        ({"prompt": "mqm"}, "asks for no plain label"),
        ({"prompt": PROMPT.model_copy(update={"scale": PROMPT.scale.model_copy(update={"json_field": "score"})})},
         'asks for no plain label .*JSON field "score"'),
        ({"prompt": LABELLED, "decode": "expected"}, "decoding 'expected' does not read"),
        ({"prompt": LABELLED, "decode": "as-published"}, "decoding 'as-published' does not read"),
        ({"decode": "likelihood"}, "decoding 'likelihood' does not read"),
    ],
)  # fmt: skip
def test_what_cannot_be_structured_is_refused_before_a_model_loads(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Scorer("some/model", structured=True, **options)


def test_the_command_line_has_it(tmp_path: Path) -> None:
    (tmp_path / "src.txt").write_text("s\n", encoding="utf-8")
    arguments = ["score", "-s", str(tmp_path / "src.txt"), "-t", str(tmp_path / "src2.txt"), "-m", "some/model"]
    (tmp_path / "src2.txt").write_text("h\n", encoding="utf-8")
    result = CliRunner().invoke(cli, [*arguments, "-p", "mqm", "--structured"])
    assert result.exit_code == 2
    assert "asks for no plain label" in result.stderr


def test_records_and_cache_tell_structured_questions_from_others() -> None:
    free = Request("q", 5)
    held = Request("q", 5, choices=LABELS)
    assert "choices" not in question_fields(free)
    assert question_fields(held)["choices"] == list(LABELS)
    assert question_key(free) != question_key(held)
    assert [read_question(question_fields(question)) for question in (free, held)] == [free, held]


def test_a_cached_free_answer_is_no_structured_one() -> None:
    backend = Scripted(lambda question: Completion("good"))
    for structured in (False, True, True):
        with Scorer("x", backend=backend, prompt=LABELLED, structured=structured) as scorer:
            scorer.predict([Sample("s", "h")])
    assert [question.choices for question in backend.asked if isinstance(question, Request)] == [(), LABELS]


def test_what_servers_are_sent(serve: Serve, connect: Connect) -> None:
    vllm, sglang = serve("vllm"), serve("sglang")
    for server in (vllm, sglang):
        server.routes["/v1/chat/completions"] = says("0.5")
        answers = ask(connect(server), turns("q"), turns("r"), choices=("-1", "0.5", "a|b"))
        assert [answer.text for answer in answers] == ["0.5", "0.5"]
    assert vllm.questions()[0]["structured_outputs"] == {"choice": ["-1", "0.5", "a|b"]}
    assert "regex" not in vllm.questions()[0]
    pattern = sglang.questions()[0]["regex"]
    assert pattern == r"(-1|0\.5|a\|b)"
    assert [bool(re.fullmatch(pattern, text)) for text in ("-1", "0.5", "a|b", "0x5", "a")] == [True] * 3 + [False] * 2
    ask(connect(vllm), turns("free"))
    assert "structured_outputs" not in vllm.questions()[-1]


def test_a_server_that_overlooks_the_field_is_found_out(serve: Serve, connect: Connect) -> None:
    server = serve("vllm")
    server.routes["/v1/chat/completions"] = says("I would say it is good.")
    with pytest.raises(BackendError, match=r"says 'I would say it is good\.' where only 'bad'"):
        ask(connect(server), turns("q"), choices=LABELS)
    server.routes["/v1/chat/completions"] = lambda body: (200, chat("neut", finish_reason="length"))
    assert ask(connect(server), turns("q"), choices=LABELS)[0].finish == "length"  # cut, not overlooked


@pytest.mark.parametrize("kind", ["llamacpp", "someone"])
def test_other_servers_refuse_before_they_are_asked(serve: Serve, connect: Connect, kind: str) -> None:
    server = serve(kind)
    with pytest.raises(BackendError, match="not known to hold") as caught:
        ask(connect(server), turns("q"), choices=LABELS)
    assert "decode='expected'" in str(caught.value)
    assert server.questions() == []


def test_transformers_refuses() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from promptmetric.backends.transformers import TransformersBackend

    backend = TransformersBackend.__new__(TransformersBackend)
    backend._model = object()
    with pytest.raises(BackendError, match="transformers engine cannot") as caught:
        list(backend.generate([Request("q", 5), Request("r", 5, choices=LABELS)]))
    assert "decode='expected'" in str(caught.value)
