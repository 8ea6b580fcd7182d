"""From samples to segments over a model: one function for each way to get a score out of it.

All of them ask through `execution` and shorten the source of a prompt that exceeds the model's window.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from promptmetric.decoding import Decode
from promptmetric.decoding.expected import LabelReader
from promptmetric.decoding.fallback import RETRY_TEMPERATURES
from promptmetric.errors import InputError
from promptmetric.execution import Ask
from promptmetric.prompts import LanguagePair, PromptSpec, wrap
from promptmetric.questions import (
    Completion,
    LabelLogprobs,
    LabelRequest,
    Likelihood,
    LikelihoodRequest,
    Message,
    Prompt,
    Question,
    Request,
)
from promptmetric.scale import NumericScale
from promptmetric.segments import LITTLE_MASS, failed, from_completion, from_labels, from_likelihood, from_samples
from promptmetric.types import Sample, Segment, Task

MOST_CUTS = 4
"""How often the source of an over-long prompt is shortened before the segment is given up."""

MOST_MARKERS = 3
"""How many markers of an explanation are tried at most."""

SAMPLING_TEMPERATURE = 1.0
"""At which several answers are drawn: the model's own spread is what their mean is taken over."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Everything that makes a judgment besides the samples and who answers.

    Attributes:
        prompt: what is asked.
        task: what is judged.
        langs: the language pair, where the samples do not name theirs.
        model: whose wrapper the prompt gets.
        decode: how the score is got.
        samples: how many answers are drawn for each segment, with `decode="text"` or `"as-published"`.
        retries: whether unread answers are asked for again, sampling.
        choices: the only answers allowed, with `decode="text"`; none allows any.
    """

    prompt: PromptSpec
    task: Task
    langs: LanguagePair | None
    model: str
    decode: Decode
    samples: int = 1
    retries: bool = False
    choices: tuple[str, ...] = ()

    def segments(self, samples: Mapping[int, Sample], ask: Ask) -> Iterator[Segment]:
        """Judge samples by any integer key, which becomes the segments' index; they come as they finish."""
        if self.decode == "expected":
            return self._expected(samples, ask)
        if self.decode in ("likelihood", "likelihood-pmi"):
            return self._likelihood(samples, ask)
        if self.samples > 1:
            return self._sampled(samples, ask)
        return self._text(samples, ask)

    def render(self, sample: Sample, index: int) -> Prompt:
        """What the model is shown for a sample.

        Raises:
            PromptError: the prompt asks for something the sample lacks.
        """
        return wrap(self._turns(sample, index), self.model)

    def _turns(self, sample: Sample, index: int) -> tuple[Message, ...]:
        try:
            return self.prompt.render(sample, self.task, self.langs)
        except InputError as error:
            raise type(error)(f"sample {index}: {error.args[0]}", hint=error.hint) from error

    def _text(self, samples: Mapping[int, Sample], ask: Ask) -> Iterator[Segment]:
        pending = dict(samples)
        for attempt, temperature in enumerate((0.0, *RETRY_TEMPERATURES), 1):
            unread: dict[int, Sample] = {}
            question = partial(self._request, temperature=temperature, seed=attempt if temperature else 0)
            for index, sample, answer, shortened in _fitting(pending, question, ask, samples):
                if isinstance(answer, str):
                    yield failed(index, answer)
                    continue
                segment = self._read(index, answer, shortened, attempt)
                if segment.status == "failed" and self.retries and attempt <= len(RETRY_TEMPERATURES):
                    unread[index] = sample
                else:
                    yield segment
            if not unread:
                return
            pending = unread

    def _sampled(self, samples: Mapping[int, Sample], ask: Ask) -> Iterator[Segment]:
        """Draw n answers for each sample: key i * n + k stands for the k-th of sample i, drawn with seed k + 1."""
        draws = {index * self.samples + k: sample for index, sample in samples.items() for k in range(self.samples)}
        drawn: dict[int, list[tuple[int, Segment]]] = defaultdict(list)

        def question(sample: Sample, key: int) -> Request:
            return self._request(sample, key // self.samples, SAMPLING_TEMPERATURE, key % self.samples + 1)

        for key, _, answer, shortened in _fitting(draws, question, ask):
            index, k = divmod(key, self.samples)
            segment = failed(index, answer) if isinstance(answer, str) else self._read(index, answer, shortened, 1)
            drawn[index].append((k + 1, segment))
            if len(drawn[index]) == self.samples:
                yield from_samples(sorted(drawn.pop(index), key=lambda pair: pair[0]))

    def _request(self, sample: Sample, index: int, temperature: float, seed: int) -> Request:
        prompt = self.render(sample, index)
        return Request(prompt, self.prompt.max_tokens, temperature, seed, choices=self.choices)

    def _read(self, index: int, answer: Any, shortened: str | None, attempts: int) -> Segment:
        return from_completion(index, answer, self.prompt.scale, self.decode, shortened=shortened, attempts=attempts)

    def _expected(self, samples: Mapping[int, Sample], ask: Ask) -> Iterator[Segment]:
        """Read label probabilities: at once, or after the explanation where the prompt asks for one first."""
        scale = self.prompt.scale
        reader = LabelReader(scale)
        marker = self._marker()
        if marker is None:
            for index, _, answer, shortened in _fitting(
                samples, lambda sample, index: LabelRequest(self.render(sample, index), reader.texts), ask
            ):
                if isinstance(answer, str):
                    yield failed(index, answer)
                else:
                    yield from_labels(index, answer, scale, reader, shortened=shortened)
            return
        yield from self._explained(samples, marker, reader, ask)

    def _explained(
        self, samples: Mapping[int, Sample], marker: str, reader: LabelReader, ask: Ask
    ) -> Iterator[Segment]:
        """Have explanations written up to the marker and read labels there, or after a later marker.

        An answer may quote the marker ("in the format 'Judgment: '") before it uses it: where labels are improbable
        after one, the model goes on. The reading with the most label mass counts.
        """
        begun: dict[int, _Begun] = {}
        for index, sample, answer, shortened in _fitting(samples, partial(self._explanation, marker=marker), ask):
            if isinstance(answer, str):
                yield failed(index, answer)
            else:
                text, is_forced = answer.text, not answer.text.endswith(marker)
                text = f"{text.rstrip()}\n{marker}" if is_forced else text
                begun[index] = _Begun(self._turns(sample, index), text, shortened, is_forced)
        for attempt in range(1, MOST_MARKERS + 1):
            prompts = {index: _continued(one.turns, one.text, self.model) for index, one in begun.items()}
            going_on: dict[int, _Begun] = {}
            for index, answer in ask({index: LabelRequest(prompt, reader.texts) for index, prompt in prompts.items()}):
                segment = self._read_labels(index, answer, reader, begun[index])
                best = max(segment, begun[index].best or segment, key=_label_mass)
                if _label_mass(segment) < LITTLE_MASS and attempt < MOST_MARKERS and not begun[index].is_forced:
                    going_on[index] = replace(begun[index], best=best)
                else:
                    yield best
            begun = {}
            requests = {index: Request(prompts[index], self.prompt.max_tokens, stop=(marker,)) for index in going_on}
            for index, answer in ask(requests):
                if answer.overflow or not answer.text.endswith(marker):
                    yield going_on[index].best
                else:
                    begun[index] = replace(going_on[index], text=going_on[index].text + answer.text)
            if not begun:
                return

    def _read_labels(self, index: int, answer: Any, reader: LabelReader, begun: _Begun) -> Segment:
        if answer.overflow:
            return failed(index, "prompt and explanation exceed the model's window", begun.text)
        scale = self.prompt.scale
        return from_labels(index, answer, scale, reader, shortened=begun.shortened, text=begun.text)

    def _explanation(self, sample: Sample, index: int, marker: str) -> Request:
        return Request(self.render(sample, index), self.prompt.max_tokens, stop=(marker,))

    def _marker(self) -> str | None:
        """What the judgment is announced by; a JSON answer is read where its field's value begins."""
        scale = self.prompt.scale
        if self.prompt.marker is None and isinstance(scale, NumericScale) and scale.json_field:
            return f'"{scale.json_field}":'
        return self.prompt.marker

    def _likelihood(self, samples: Mapping[int, Sample], ask: Ask) -> Iterator[Segment]:
        found: dict[int, tuple[Any, str | None]] = {}
        hidden: dict[int, Question] = {}
        for index, sample, answer, shortened in _fitting(samples, self._text_of, ask):
            if isinstance(answer, str):
                yield failed(index, answer)
            elif self.decode == "likelihood":
                yield from_likelihood(index, answer, None, shortened=shortened)
            else:
                found[index] = (answer, shortened)
                hidden[index] = self._text_of(self._hide(sample), index, self._scored(sample))
        for index, answer in ask(hidden):
            conditional, shortened = found[index]
            yield from_likelihood(index, conditional, answer, shortened=shortened)

    def _text_of(self, sample: Sample, index: int, text: str | None = None) -> LikelihoodRequest:
        return LikelihoodRequest(
            wrap(self._turns(sample, index)[:-1], self.model), self._scored(sample) if text is None else text
        )

    def _scored(self, sample: Sample) -> str:
        """The text whose probability is the score: the hypothesis, or the source where the prompt exchanges them."""
        return (sample.src if self._exchanges else sample.hyp).strip()

    def _hide(self, sample: Sample) -> Sample:
        return replace(sample, hyp="") if self._exchanges else replace(sample, src="")

    @property
    def _exchanges(self) -> bool:
        return self.prompt.messages[-1].content == "{{ src }}"


@dataclass(frozen=True, slots=True)
class _Begun:
    """An answer up to a marker, which we wrote where the model did not; and the best reading of labels so far."""

    turns: tuple[Message, ...]
    text: str
    shortened: str | None
    is_forced: bool
    best: Any = None


def _label_mass(segment: Segment) -> float:
    return segment.distribution.mass if segment.distribution else -1.0


def _continued(turns: tuple[Message, ...], text: str, model: str) -> Prompt:
    """A prompt whose answer begins with a text."""
    if turns[-1].role == "assistant":
        turns, text = turns[:-1], turns[-1].content + text
    return wrap((*turns, Message("assistant", text)), model)


def _fitting(
    samples: Mapping[int, Sample],
    question: Callable[[Sample, int], Question],
    ask: Ask,
    originals: Mapping[int, Sample] | None = None,
) -> Iterator[tuple[int, Sample, Any, str | None]]:
    """Ask about samples, again with a shorter source where the prompt exceeds the window.

    Args:
        samples: what to ask about.
        question: makes a sample's question; the second argument is its key.
        ask: who is asked.
        originals: the samples before they were shortened in an earlier round.

    Yields:
        Key, the sample as it was asked about, the answer (or, as text, why there is none), and how it was shortened.
    """
    pending = dict(samples)
    for _ in range(MOST_CUTS + 1):
        questions = {key: question(sample, key) for key, sample in pending.items()}
        cut: dict[int, Sample] = {}
        for key, answer in ask(questions):
            sample, full = pending[key], len((originals or samples)[key].src)
            if not answer.overflow:
                kept = len(sample.src)
                shortened = f"source shortened from {full} to {kept} characters to fit the window"
                yield key, sample, answer, shortened if kept < full else None
                continue
            length = _shortened_length(questions[key], len(sample.src), answer)
            if length <= 0:
                yield key, sample, "even without its source, the prompt exceeds the model's window", None
            else:
                cut[key] = replace(sample, src=sample.src[:length])
        if not cut:
            return
        pending = cut
    for key, sample in pending.items():
        yield key, sample, "the prompt exceeds the model's window", None


def _shortened_length(question: Question, source_length: int, answer: Completion | LabelLogprobs | Likelihood) -> int:
    """How many characters of the source to keep so that the prompt loses its overflow, with a tenth to spare."""
    prompt = question.prompt
    characters = len(prompt) if isinstance(prompt, str) else sum(len(turn.content) for turn in prompt)
    characters += len(question.text) if isinstance(question, LikelihoodRequest) else 0
    tokens = (answer.prompt_tokens or 1) + getattr(answer, "tokens", 0)
    return source_length - 1 - math.ceil(1.1 * answer.overflow * characters / max(1, tokens))
