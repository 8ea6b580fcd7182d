"""The ways to get a score out of a model, on a scripted one: labels, explanations, samples, likelihood."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from promptmetric import PromptSpec, Sample, Scorer
from promptmetric.backends.base import AlikeForAllKinds, Fingerprint
from promptmetric.backends.replay import ReplayBackend
from promptmetric.errors import InputError
from promptmetric.execution import AnswerCache
from promptmetric.questions import (
    Answer,
    Completion,
    LabelLogprobs,
    LabelRequest,
    Likelihood,
    LikelihoodRequest,
    Question,
    Request,
)
from promptmetric.scorer import STREAMED_AT_ONCE
from promptmetric.types import Task

from .conftest import PROMPT

LABELLED = PromptSpec.model_validate(
    {
        "id": "test:labels",
        "messages": [{"role": "user", "content": "{{ src }} => {{ hyp }}"}],
        "scale": {"kind": "labels", "labels": {"bad": 1, "neutral": 3, "good": 5}},
    }
)
EXPLAINED = LABELLED.model_copy(update={"id": "test:explained", "marker": "Judgment:"})


class Scripted(AlikeForAllKinds):
    """Answers questions of every kind by a function, and remembers them in the order in which they came."""

    def __init__(self, respond: Callable[[Any], Answer], name: str = "scripted") -> None:
        self.respond = respond
        self.asked: list[Question] = []
        self.name = name

    def _answer(self, questions: Sequence[Question], batch_size: int) -> Iterator[tuple[int, Any]]:
        self.asked += questions
        for position in reversed(range(len(questions))):
            yield position, self.respond(questions[position])

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.name, "1", "test")

    def close(self) -> None:
        pass


def text_of(question: Question) -> str:
    return question.prompt if isinstance(question.prompt, str) else question.prompt[-1].content


def labels(question: LabelRequest, **probabilities: float) -> LabelLogprobs:
    return LabelLogprobs(
        tuple(math.log(probabilities[label]) if label in probabilities else -math.inf for label in question.labels)
    )


def scorer(respond: Callable[[Any], Answer], prompt: PromptSpec = LABELLED, **options: Any) -> Scorer:
    return Scorer("scripted", backend=Scripted(respond), prompt=prompt, **options)


def test_an_expected_score_needs_no_text() -> None:
    model = scorer(lambda question: labels(question, good=0.6, bad=0.2), decode="expected")
    (segment,) = model.predict([Sample("s", "h")]).segments
    assert (segment.raw, segment.score) == (pytest.approx(4), pytest.approx(0.75))
    assert (segment.status, segment.text, segment.rule) == ("ok", None, "expected")
    assert segment.distribution is not None
    assert segment.distribution.mass == pytest.approx(0.8)
    assert segment.distribution.mode == "good"
    assert "decode:expected" in model.predict([Sample("s", "h")]).signature


def test_little_label_mass_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    scorer(lambda question: labels(question, good=0.002), decode="expected").predict([Sample("s", "h")])
    assert "labels hold only 0.002 of the probability" in caplog.text


def test_a_model_that_knows_no_label_fails_the_segment() -> None:
    (segment,) = scorer(labels, decode="expected", fallback="nan").predict([Sample("s", "h")]).segments
    assert (segment.status, segment.reason) == ("failed", "the model gives no label any probability")


def test_explanations_are_written_up_to_the_marker_and_labels_read_after_it() -> None:
    def respond(question: Question) -> Answer:
        if isinstance(question, Request):
            assert question.stop == ("Judgment:",)
            cut = "one" in text_of(question)
            return Completion("It is fine. Judgment:") if not cut else Completion("It goes on and on", "length")
        assert isinstance(question, LabelRequest)
        assert question.prompt[-1].role == "assistant"  # type: ignore[union-attr]
        assert text_of(question).endswith("Judgment:")
        return labels(question, good=0.5)

    model = scorer(respond, EXPLAINED, decode="expected")
    one, two = model.predict([Sample("s", "one"), Sample("s", "two")]).segments
    assert one.text == "It goes on and on\nJudgment:"
    assert two.text == "It is fine. Judgment:"
    assert (one.score, two.score) == (1, 1)


def test_a_marker_that_is_only_quoted_is_passed_over() -> None:
    def respond(question: Question) -> Answer:
        text = text_of(question)
        if isinstance(question, Request):
            return Completion(" It is fine. Judgment:" if "format" in text else "I shall keep to the format 'Judgment:")
        assert isinstance(question, LabelRequest)
        return labels(question, good=0.9) if "fine" in text else labels(question, bad=0.01)

    segment = scorer(respond, EXPLAINED, decode="expected").predict([Sample("s", "h")]).segments[0]
    assert (segment.score, segment.text) == (1, "I shall keep to the format 'Judgment: It is fine. Judgment:")


def test_the_surest_reading_counts_where_no_marker_is_followed_by_a_label() -> None:
    def respond(question: Question) -> Answer:
        if isinstance(question, Request):
            return Completion("x Judgment:")
        assert isinstance(question, LabelRequest)
        return labels(question, good=0.2 if text_of(question).count("x") == 2 else 0.1)

    backend = Scripted(respond)
    model = Scorer("x", backend=backend, prompt=EXPLAINED, decode="expected")
    segment = model.predict([Sample("s", "h")]).segments[0]
    assert segment.distribution is not None
    assert segment.distribution.mass == pytest.approx(0.2)
    assert len(backend.asked) == 6


def test_a_json_answer_is_read_where_its_value_begins() -> None:
    prompt = PROMPT.model_copy(update={"scale": PROMPT.scale.model_copy(update={"json_field": "score"})})

    def respond(question: Question) -> Answer:
        if isinstance(question, Request):
            return Completion('{"score":')
        assert isinstance(question, LabelRequest)
        return labels(question, **{"80": 0.5, " 90": 0.5})

    assert scorer(respond, prompt, decode="expected").predict([Sample("s", "h")]).scores == [pytest.approx(0.85)]


@pytest.mark.parametrize("wrapped", [False, True])
def test_wrapped_prompts_go_on_with_the_explanation(wrapped: bool) -> None:
    def respond(question: Question) -> Answer:
        if isinstance(question, Request):
            return Completion("Fine. Judgment:")
        assert isinstance(question, LabelRequest)
        assert isinstance(question.prompt, str) == wrapped
        assert text_of(question).endswith("Fine. Judgment:")
        return labels(question, good=1)

    backend = Scripted(respond, "Platypus2-70B-Instruct" if wrapped else "other")
    model = Scorer("x", backend=backend, prompt=EXPLAINED, decode="expected")
    assert model.predict([Sample("s", "h")]).scores == [1]


def test_the_mean_of_samples_is_the_score_and_seeds_are_kept() -> None:
    def respond(question: Request) -> Answer:
        assert question.temperature == 1
        return Completion({1: "Score: 40", 2: "hm", 3: "Score: 60"}[question.seed])

    segment = scorer(respond, PROMPT, samples=3).predict([Sample("s", "h")]).segments[0]
    assert (segment.score, segment.raw, segment.status, segment.attempts) == (0.5, 50, "ok", 3)
    assert [(one.seed, one.raw, one.text) for one in segment.samples] == [
        (1, 40, "Score: 40"),
        (2, None, "hm"),
        (3, 60, "Score: 60"),
    ]
    assert segment.reason == "1 of 3 answers hold no score"


def test_samples_that_all_fail_fail_the_segment() -> None:
    segment = (
        scorer(lambda q: Completion("hm"), PROMPT, samples=2, fallback="nan").predict([Sample("s", "h")]).segments[0]
    )
    assert (segment.status, len(segment.samples)) == ("failed", 2)


def test_likelihood_is_per_token_and_its_difference_hides_the_source() -> None:
    def respond(question: LikelihoodRequest) -> Answer:
        assert question.text == "hyp"
        return Likelihood(-4.0 if "src" in text_of(question) else -10.0, 2)

    plain = scorer(respond, "likelihood-translation", decode="likelihood")  # type: ignore[arg-type]
    segment = plain.predict([Sample("src", " hyp ")]).segments[0]
    assert (segment.raw, segment.score) == (-2, pytest.approx(math.exp(-2)))
    less = scorer(respond, "likelihood-translation", decode="likelihood-pmi")  # type: ignore[arg-type]
    segment = less.predict([Sample("src", "hyp")]).segments[0]
    assert (segment.raw, segment.rule) == (3, "likelihood-pmi")
    assert segment.score == pytest.approx(1 / (1 + math.exp(-3)))


def test_a_prompt_may_exchange_source_and_hypothesis() -> None:
    def respond(question: LikelihoodRequest) -> Answer:
        assert question.text == "src"
        return Likelihood(-1.0 if "hyp" in text_of(question) else -2.0, 1)

    prompt: Any = "likelihood-source-translation"
    assert scorer(respond, prompt).predict([Sample("src", "hyp")]).segments[0].raw == -1
    assert scorer(respond, prompt, decode="likelihood-pmi").predict([Sample("src", "hyp")]).segments[0].raw == 1


@pytest.mark.parametrize("task", ["translation", "summarization"])
def test_likelihood_brings_its_own_prompt(task: Task) -> None:
    model = Scorer("x", backend=Scripted(lambda q: Likelihood(-1.0, 1)), decode="likelihood", task=task)
    assert model.prompt.id.startswith("likelihood-")
    assert model.predict([Sample("s", "h")]).scores == [pytest.approx(math.exp(-1))]
    empty = model.predict([Sample("s", " ")]).segments[0]
    assert (empty.status, empty.score, empty.raw) == ("empty", 0, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": LABELLED, "decode": "likelihood"}, "asks for a judgment"),
        ({"prompt": "likelihood-summary", "task": "summarization", "decode": "text"}, "asks for no judgment"),
        ({"prompt": "mqm", "decode": "expected"}, "no labels to read"),
        ({"prompt": LABELLED, "decode": "expected", "samples": 3}, "draws no answers"),
        ({"prompt": LABELLED, "samples": 0}, "samples must be"),
        ({"prompt": LABELLED, "decode": "mode"}, "is not known"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_model_loads(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Scorer("some/model", **options)


def test_over_long_likelihoods_and_labels_are_asked_again_with_a_shorter_source() -> None:
    def respond(question: Any) -> Answer:
        length = len(text_of(question))
        if length > 300:
            blank = LabelLogprobs((), 0, length, length - 300)
            return blank if isinstance(question, LabelRequest) else Likelihood(0, 3, length, length - 300)
        return labels(question, good=1) if isinstance(question, LabelRequest) else Likelihood(-3.0, 3)

    for prompt, decode in ((LABELLED, "expected"), ("likelihood-translation", "likelihood")):
        segment = scorer(respond, prompt, decode=decode).predict([Sample("s" * 1000, "h")]).segments[0]  # type: ignore[arg-type]
        assert segment.status == "truncated"
        assert segment.reason is not None
        assert "shortened from 1000" in segment.reason


def test_questions_that_begin_alike_are_asked_together() -> None:
    backend = Scripted(lambda question: Completion("Score: 5"))
    samples = [Sample(source, hyp) for hyp in "xyz" for source in ("b", "a", "c")]
    Scorer("x", backend=backend, prompt=PROMPT).predict([*samples, *samples])
    assert [text_of(question)[0] for question in backend.asked] == list("aaabbbccc")


def test_a_stream_takes_in_no_more_than_it_needs() -> None:
    taken = itertools.count()
    endless = (Sample(f"s{n}", f"h{next(taken)}") for n in itertools.count())
    stream = scorer(lambda question: Completion("Score: 5"), PROMPT, cache=False).stream(endless)
    segments = list(itertools.islice(stream, STREAMED_AT_ONCE + 1))
    assert next(taken) == 2 * STREAMED_AT_ONCE
    assert sorted(segment.index for segment in segments[:-1]) == list(range(STREAMED_AT_ONCE))
    assert segments[-1].index >= STREAMED_AT_ONCE


def test_answers_are_kept_and_not_asked_for_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("promptmetric.scorer.open_cache", lambda: AnswerCache(tmp_path / "answers.sqlite"))
    samples = [Sample("s", hyp) for hyp in "abc"]
    counts = []
    for cache, decode, name in (
        (True, "text", "m"),
        (True, "text", "m"),
        (True, "as-published", "m"),  # reads the same answers in its own way
        (True, "expected", "m"),
        (True, "expected", "m"),
        (False, "text", "m"),
        (True, "text", "other"),
    ):

        def respond(question: Any) -> Answer:
            return Completion("good") if isinstance(question, Request) else labels(question, good=1)

        backend = Scripted(respond, name)
        with Scorer("x", backend=backend, prompt=LABELLED, decode=decode, cache=cache) as model:
            assert model.predict(samples).scores == [1, 1, 1]
        counts.append(len(backend.asked))
    assert counts == [3, 0, 0, 3, 0, 3, 3]


def test_a_prompt_that_was_too_long_for_one_window_is_asked_again_of_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("promptmetric.scorer.open_cache", lambda: AnswerCache(tmp_path / "answers.sqlite"))
    for window, status in ((100, "truncated"), (10_000, "ok")):

        def respond(question: Any, window: int = window) -> Answer:
            length = len(text_of(question))
            over = length - window
            return Completion("", "too_long", length, over) if over > 0 else Completion("Score: 5")

        with scorer(respond, PROMPT) as model:
            assert model.predict([Sample("s" * 500, "h")]).segments[0].status == status


def test_open_recordings_are_not_mixed_up(tmp_path: Any) -> None:
    scores = []
    for answer in ("90", "10"):
        path = tmp_path / f"{answer}.jsonl"
        path.write_text(json.dumps({"prompt": [{"role": "user", "content": "s => h"}], "text": answer}) + "\n")
        with Scorer("x", backend=ReplayBackend(path), prompt=PROMPT) as model:
            scores += model.predict([Sample("s", "h")]).scores
    assert scores == [0.9, 0.1]


def test_what_was_answered_before_a_crash_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "promptmetric")
    monkeypatch.setattr("promptmetric.scorer.open_cache", lambda: AnswerCache(tmp_path / "answers.sqlite"))
    answered = itertools.count(1)

    def respond(question: Request) -> Answer:
        if next(answered) == 4:
            raise KeyboardInterrupt
        return Completion("Score: 5")

    samples = [Sample("s", str(n)) for n in range(6)]
    with pytest.raises(KeyboardInterrupt), scorer(respond, PROMPT) as model:
        model.predict(samples)
    backend = Scripted(lambda question: Completion("Score: 5"))
    with Scorer("x", backend=backend, prompt=PROMPT) as model:
        assert len(model.predict(samples).scores) == 6
    assert len(backend.asked) == 3
    assert caplog.text.count("had been answered before") == 1
    assert "3 of 6 questions had been answered before (cache)" in caplog.text
