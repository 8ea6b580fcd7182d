"""`Scorer` from outside, on recorded answers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from promptmetric import Prediction, PromptSpec, Sample, Scorer, Signature
from promptmetric.backends import Fingerprint
from promptmetric.errors import BackendError, InputError, UnreadAnswerError
from promptmetric.prompts.spec import Turn
from promptmetric.questions import Completion, Message, Request

from .conftest import PROMPT

SAMPLES = [Sample("s1", "h1"), Sample("s2", "h2"), Sample("s3", "h3")]
Record = Callable[..., str]


class Scripted:
    """A backend that answers by a function of the prompt, and remembers the requests."""

    def __init__(self, answer: Callable[[Request, str], Completion]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.closed = 0
        self.name = "scripted"

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:
        for position in reversed(range(len(requests))):
            request = requests[position]
            self.requests.append(request)
            text = request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content
            yield position, self.answer(request, text)

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.name, "1", "test")

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Request, str], Completion]], Scripted]:
    def install(answer: Callable[[Request, str], Completion]) -> Scripted:
        backend = Scripted(answer)
        monkeypatch.setattr("promptmetric.scorer.open_backend", lambda *a, **k: backend)
        return backend

    return install


def test_comets_call_works_unchanged(record: Record) -> None:
    model = Scorer(record(SAMPLES, ["Score: 90", "Score: 10", "Score: 50"]), prompt=PROMPT)
    data = [{"src": "s1", "mt": "h1"}, {"src": "s2", "mt": "h2"}, {"src": "s3", "mt": "h3", "ref": "r"}]
    model_output = model.predict(data, batch_size=8, gpus=1)
    assert isinstance(model_output, Prediction)
    assert model_output.scores == [0.9, 0.1, 0.5]
    assert model_output.system_score == 0.5
    assert model_output[0] == model_output["scores"]
    assert model_output[1] == model_output["system_score"]
    again = model.predict(
        samples=data, batch_size=8, gpus=0, progress_bar=False, accelerator="cpu", num_workers=2, length_batching=True
    )
    assert again.scores == model_output.scores


def test_segments_say_how_they_came_about(record: Record) -> None:
    prediction = Scorer(record(SAMPLES, ["Score: 90", "Score: 10", "x"]), prompt=PROMPT).predict(SAMPLES)
    first, _, third = prediction.segments
    assert (first.index, first.score, first.raw, first.status, first.text, first.rule) == (
        0,
        0.9,
        90,
        "ok",
        "Score: 90",
        "announced",
    )
    assert (third.score, third.raw, third.status, third.reason) == (0.5, None, "imputed", "no score in the answer")
    assert prediction.failed_share == pytest.approx(1 / 3)


def test_imputation_is_reported(record: Record, caplog: pytest.LogCaptureFixture) -> None:
    Scorer(record(SAMPLES, ["90", "x", "x"]), prompt=PROMPT).predict(SAMPLES)
    assert "no score for 2 of 3 segments (66.7%; no score in the answer × 2): the mean" in caplog.text


def test_fallback_nan(record: Record, caplog: pytest.LogCaptureFixture) -> None:
    prediction = Scorer(record(SAMPLES, ["90", "x", "10"]), prompt=PROMPT, fallback="nan").predict(SAMPLES)
    assert math.isnan(prediction.scores[1])
    assert math.isnan(prediction.system_score)
    assert prediction.segments[1].status == "failed"
    assert "NaN stands there" in caplog.text


def test_fallback_error(record: Record) -> None:
    with pytest.raises(UnreadAnswerError, match="1 of 3"):
        Scorer(record(SAMPLES, ["90", "x", "10"]), prompt=PROMPT, fallback="error").predict(SAMPLES)


def test_fallback_retry_asks_again_warmer_and_stops(script: Any) -> None:
    def answer(request: Request, text: str) -> Completion:
        readable = "h1" in text or ("h2" in text and request.temperature > 0.5)
        return Completion("Score: 70" if readable else "hm")

    backend = script(answer)
    prediction = Scorer("x", prompt=PROMPT, fallback="retry").predict(SAMPLES)
    assert [segment.status for segment in prediction.segments] == ["ok", "ok", "failed"]
    assert [segment.attempts for segment in prediction.segments] == [1, 3, 4]
    assert [request.temperature for request in backend.requests] == [0, 0, 0, 0.3, 0.3, 0.6, 0.6, 0.9]


def test_empty_texts_are_not_asked_about(record: Record, caplog: pytest.LogCaptureFixture) -> None:
    samples = [Sample("s1", "h1"), Sample("s2", " "), Sample("", "h3"), Sample("", "")]
    prediction = Scorer(record(SAMPLES[:1], ["80"]), prompt=PROMPT).predict(samples)
    assert [segment.status for segment in prediction.segments] == ["ok", "empty", "imputed", "empty"]
    assert prediction.scores == [0.8, 0, 0.8, 0]
    assert [segment.text for segment in prediction.segments[1:]] == [None, None, None]
    assert [segment.reason for segment in prediction.segments[1:]] == [
        "empty hypothesis",
        "empty source",
        "empty hypothesis",
    ]
    assert "empty hypothesis: 2 of 4 segments" in caplog.text


def test_identical_questions_are_asked_once(script: Any) -> None:
    backend = script(lambda request, text: Completion("Score: 70"))
    prediction = Scorer("x", prompt=PROMPT).predict([SAMPLES[0], SAMPLES[1], SAMPLES[0], SAMPLES[0]])
    assert len(backend.requests) == 2
    assert prediction.scores == [0.7] * 4


def test_over_long_sources_are_shortened_and_marked(script: Any, caplog: pytest.LogCaptureFixture) -> None:
    window = 100

    def answer(request: Request, text: str) -> Completion:
        tokens = len(text)  # a token a character
        if tokens > window:
            return Completion("", "too_long", tokens, tokens - window)
        return Completion("Score: 40")

    script(answer)
    samples = [Sample("a" * 1000, "h"), Sample("short", "h"), Sample("b", "h" * 200), Sample("c" * 300, "h" * 99)]
    prediction = Scorer("x", prompt=PROMPT).predict(samples)
    assert [segment.status for segment in prediction.segments] == ["truncated", "ok", "imputed", "imputed"]
    assert "source shortened from 1000 to" in (prediction.segments[0].reason or "")
    assert "even without its source" in (prediction.segments[2].reason or "")
    assert prediction.scores[:2] == [0.4, 0.4]
    assert "shortened to fit the model's window: 1 of 4 sources" in caplog.text


def test_an_over_long_prompt_is_given_up_in_the_end(script: Any) -> None:
    script(lambda request, text: Completion("", "too_long", 1000, 1))
    prediction = Scorer("x", prompt=PROMPT, fallback="nan").predict([Sample("a" * 1000, "h")])
    assert prediction.segments[0].status == "failed"
    assert "exceeds the model's window" in (prediction.segments[0].reason or "")


def test_a_cut_answer_is_not_read_at_its_end(script: Any) -> None:
    script(lambda request, text: Completion("Score: 8", "length"))
    segment = Scorer("x", prompt=PROMPT, fallback="nan").predict(SAMPLES[:1]).segments[0]
    assert (segment.status, segment.text) == ("failed", "Score: 8")


def test_as_published_takes_the_last_number(record: Record) -> None:
    model = record(SAMPLES[:1], ["Score: 60, two of 50"])
    assert Scorer(model, prompt=PROMPT).predict(SAMPLES[:1]).segments[0].raw == 60
    assert Scorer(model, prompt=PROMPT, decode="as-published").predict(SAMPLES[:1]).segments[0].raw == 50


def test_stream_yields_everything_once(script: Any) -> None:
    script(lambda request, text: Completion("x" if "h2" in text else "Score: 70"))
    segments = list(Scorer("x", prompt=PROMPT).stream([*SAMPLES, Sample("s", "")]))
    assert sorted(segment.index for segment in segments) == [0, 1, 2, 3]
    assert {segment.index: segment.status for segment in segments} == {0: "ok", 1: "failed", 2: "ok", 3: "empty"}


def test_signature_pins_the_run(record: Record) -> None:
    model = record(SAMPLES, ["1", "2", "3"], revision="r1", engine="vllm-1")
    signature = Signature.parse(Scorer(model, prompt=PROMPT, langs="en-de").predict(SAMPLES).signature)
    assert signature.prompt == "test:direct"
    assert signature.content == PROMPT.content_hash
    assert (signature.model, signature.revision, signature.engine) == ("recorded", "r1", "replay of vllm-1")
    assert (signature.langs, signature.decode, signature.fallback) == ("en-de", "text", "mean")
    french, german = (Sample("a", "b", src_lang="en", tgt_lang=code) for code in ("fr", "de"))
    scorer = Scorer(model, prompt=PROMPT)
    assert [scorer.signature(samples).langs for samples in ([], [french], [french, german])] == [
        "none",
        "en-fr",
        "mixed",
    ]
    summaries = Scorer(model, prompt="prexme:zs/neutral/0..5", task="summarization", langs="en-de")
    assert summaries.signature([french]).langs == "none"
    told = PROMPT.model_copy(update={"messages": (Turn(role="user", content="{{ tgt_lang }}: {{ src }} {{ hyp }}"),)})
    assert Scorer(model, prompt=told, task="summarization").signature([french]).langs == "en-fr"


def test_wrapped_models_get_finished_text(script: Any) -> None:
    backend = script(lambda request, text: Completion("1"))
    backend.name = "NousResearch/Nous-Hermes-13b"
    Scorer(backend.name, prompt=PROMPT).predict(SAMPLES[:1])
    assert backend.requests[0].prompt == "### Instruction:\n\ns1 => h1\n### Response:\n"
    backend = script(lambda request, text: Completion("1"))
    Scorer("tower-13b", prompt=PROMPT).predict(SAMPLES[:1])
    assert backend.requests[0].prompt == (Message("user", "s1 => h1"),)


def test_best_measured_prompt_is_the_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "promptmetric"):
        scorer = Scorer("platypus2-70b", langs="en-de")
    assert scorer.model == "TheBloke/Platypus2-70B-Instruct-GPTQ"
    assert scorer.prompt.id.startswith("prexme:zs/")
    assert [record.levelname for record in caplog.records] == ["INFO"]
    caplog.clear()
    assert Scorer("some/model", langs="en-de").prompt.id == "prexme:zs/question/simple-labels"
    assert "nothing was measured for some/model" in caplog.text


def test_broken_prompts_warn(caplog: pytest.LogCaptureFixture) -> None:
    Scorer("x", prompt="prexme:zs/emphasis/0..100")
    assert "known defect" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"task": "poetry"},
        {"backend": "abacus"},
        {"decode": "guess"},
        {"fallback": "perfect"},
        {"langs": "english"},
        {"prompt": "nope"},
        {"prompt": "demo-summary"},
    ],
)
def test_bad_arguments_fail_at_once(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Scorer("x", **({"prompt": PROMPT} | arguments))


def test_systems_are_named(record: Record) -> None:
    with pytest.raises(InputError, match="by the system's name"):
        Scorer(record(SAMPLES, ["1", "2", "3"]), prompt=PROMPT).predict_systems([SAMPLES])  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [[{"src": "a"}], ["text"], {"src": "a", "mt": "b"}, "text", [None]])
def test_bad_samples_fail_before_a_model_loads(samples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("promptmetric.scorer.open_backend", refuse)
    with pytest.raises(InputError):
        Scorer("x", prompt=PROMPT).predict(samples)
    with pytest.raises(InputError):
        Scorer("x", prompt=PROMPT).predict([SAMPLES[0]], batch_size=0)
    with pytest.raises(InputError, match="the sample has none"):
        Scorer("x", prompt="prexme:os/neutral/0..100").predict([SAMPLES[0]])


def test_no_samples_no_scores(script: Any) -> None:
    script(lambda request, text: Completion("1"))
    prediction = Scorer("x", prompt=PROMPT).predict([])
    assert prediction.scores == []
    assert math.isnan(prediction.system_score)


def test_closing_frees_the_model_and_predicting_loads_it_again(script: Any) -> None:
    backend = script(lambda request, text: Completion("1"))
    with Scorer("x", prompt=PROMPT) as scorer:
        scorer.predict(SAMPLES)
        scorer.predict(SAMPLES, gpus=0)
        assert backend.closed == 1  # the device changed
    assert backend.closed == 2
    assert scorer.predict(SAMPLES).scores == [0.01] * 3


def test_mqm_errors_reach_the_segment(record: Record) -> None:
    spec = PromptSpec.model_validate(
        {"id": "m", "messages": [{"role": "user", "content": "{{ src }}{{ hyp }}"}], "scale": {"kind": "mqm"}}
    )
    model = record(SAMPLES[:1], ["Critical:\nno-error\nMajor:\nwrong word\nMinor:\nno-error"], spec)
    segment = Scorer(model, prompt=spec).predict(SAMPLES[:1]).segments[0]
    assert (segment.score, segment.raw) == (0.8, -5)
    assert segment.errors[0].severity == "major"


def test_missing_answers_are_an_error_not_a_score(record: Record, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="no recorded answer"):
        Scorer(record(SAMPLES[:1], ["1"]), prompt=PROMPT).predict(SAMPLES)


def test_retried_cut_sources_stay_marked(script: Any) -> None:
    def answer(request: Request, text: str) -> Completion:
        if len(text) > 100:
            return Completion("", "too_long", len(text), len(text) - 100)
        return Completion("Score: 40" if request.temperature else "hm")

    script(answer)
    segment = Scorer("x", prompt=PROMPT, fallback="retry").predict([Sample("a" * 500, "h")]).segments[0]
    assert (segment.status, segment.attempts) == ("truncated", 2)
    assert "source shortened" in (segment.reason or "")


def test_stream_stops_at_a_failure_when_asked(script: Any) -> None:
    script(lambda request, text: Completion("hm"))
    with pytest.raises(UnreadAnswerError):
        list(Scorer("x", prompt=PROMPT, fallback="error").stream(SAMPLES))


def test_as_published_scores_off_the_scale_are_marked(record: Record, caplog: pytest.LogCaptureFixture) -> None:
    model = record(SAMPLES[:2], ["85, because in 2019", "50"])
    prediction = Scorer(model, prompt=PROMPT, decode="as-published").predict(SAMPLES[:2])
    assert prediction.scores == [20.19, 0.5]
    assert "off the scale" in (prediction.segments[0].reason or "")
    assert "outside 0 … 1: 1 of 2 scores" in caplog.text


def test_constant_scores_are_pointed_out(record: Record, caplog: pytest.LogCaptureFixture) -> None:
    Scorer(record(SAMPLES, ["50", "50", "50"]), prompt=PROMPT).predict(SAMPLES)
    assert "all scores are equal" in caplog.text


@pytest.mark.parametrize("name", ["falback", "gpus", "lang"])
def test_misspelt_arguments_are_caught(name: str) -> None:
    with pytest.raises(InputError, match=name):
        Scorer("x", prompt=PROMPT, **{name: "x"})


def test_recordings_take_no_engine_arguments(record: Record) -> None:
    with pytest.raises(InputError, match="take no engine arguments: dtype"):
        Scorer(record(SAMPLES, ["1", "2", "3"]), prompt=PROMPT, dtype="x").predict(SAMPLES)


def test_a_recording_gets_the_prompt_of_its_model(record: Record) -> None:
    from promptmetric.prompts import LanguagePair, get_prompt

    spec = get_prompt("demo-translation")
    model = record(
        SAMPLES, ["Score: 1", "Score: 2", "Score: 3"], spec, langs=LanguagePair("en", "de"), model="smollm2-135m"
    )
    scorer = Scorer(model, langs="en-de", decode="text")
    assert scorer.prompt.id == "demo-translation"
    assert scorer.predict(SAMPLES).scores == [0.01, 0.02, 0.03]


@pytest.mark.parametrize(
    ("arguments", "prompt", "decode", "is_measured"),
    [
        ({"langs": "en-de"}, "likelihood-translation", "likelihood", True),
        ({"langs": "en-ja"}, "likelihood-translation", "likelihood", False),
        ({"task": "summarization"}, "likelihood-summary", "likelihood", True),
        ({"langs": "en-de", "decode": "likelihood-pmi"}, "likelihood-translation", "likelihood-pmi", False),
        ({"decode": "expected"}, "demo-translation", "expected", False),
        ({"samples": 3}, "demo-translation", "text", False),
    ],
)
def test_the_embedded_model_has_a_prompt_for_every_way_of_decoding(
    arguments: dict[str, Any], prompt: str, decode: str, is_measured: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scorer = Scorer("auto", **arguments)
    assert (scorer.prompt.id, scorer.decode) == (prompt, decode)
    assert (f"prompt {prompt}" in caplog.text) != is_measured, "what was not measured is said aloud"


def test_unnamed_languages_are_pointed_out(record: Record, caplog: pytest.LogCaptureFixture) -> None:
    from promptmetric.prompts import get_prompt

    spec = get_prompt("prexme:zs/neutral/0..100")
    Scorer(record(SAMPLES[:1], ["5"], spec), prompt=spec).predict(SAMPLES[:1])
    assert "no language pair is given for 1 segments" in caplog.text


@pytest.mark.parametrize("arguments", [{"batch_size": "8"}, {"batch_size": 0}, {"gpus": -1}])
def test_bad_numbers_are_bad_input(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="whole number"):
        Scorer("x", prompt=PROMPT).predict(SAMPLES, **arguments)
