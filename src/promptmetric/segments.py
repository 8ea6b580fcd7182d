"""What becomes of a sample: the segment an answer makes, the ones that need no answer, and what a user must know."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from promptmetric.decoding import Decode, read_answer
from promptmetric.decoding.expected import LabelReader
from promptmetric.decoding.likelihood import normalise, per_token
from promptmetric.questions import Completion, LabelLogprobs, Likelihood
from promptmetric.scale import Scale
from promptmetric.texts import counted
from promptmetric.types import Prediction, Sample, SampledAnswer, Segment, mean

MOST_REASONS = 3
"""Reasons for missing scores that are told apart."""

LITTLE_MASS = 0.5
"""Where the labels hold less of the probability than this, the model would rather have written something else."""


def settle_without_asking(index: int, sample: Sample, scale: Scale) -> Segment | None:
    """The segment of a sample that needs no model, since an empty text has nothing to be judged; else None."""
    if not sample.hyp.strip():
        worst = scale.worst
        raw = worst if math.isfinite(worst) else None
        return Segment(index, scale.normalise(worst), raw, "empty", reason="empty hypothesis", attempts=0)
    if not sample.src.strip():
        return failed(index, "empty source", attempts=0)
    return None


def failed(index: int, reason: str, text: str | None = None, attempts: int = 1) -> Segment:
    """A segment without a score."""
    return Segment(index, math.nan, None, "failed", text, reason=reason, attempts=attempts)


def from_completion(
    index: int, completion: Completion, scale: Scale, decode: Decode, *, shortened: str | None, attempts: int
) -> Segment:
    """The segment an answer makes. `shortened` says how the source was cut to fit, where it was."""
    reading = read_answer(completion.text, scale, decode, complete=completion.finish != "length")
    value, reason = reading.value, reading.reason
    if value is not None and not scale.contains(value):
        reason = f"{value:g} is off the scale {scale}; kept, as published"
    reason = "; ".join(part for part in (shortened, reason) if part) or None
    if value is None:
        return failed(index, reason or "no score", completion.text, attempts)
    return Segment(
        index=index,
        score=scale.normalise(value),
        raw=value,
        status="truncated" if shortened else "ok",
        text=completion.text,
        rule=reading.rule,
        reason=reason,
        errors=reading.errors,
        attempts=attempts,
    )


def from_labels(
    index: int,
    answer: LabelLogprobs,
    scale: Scale,
    reader: LabelReader,
    *,
    shortened: str | None,
    text: str | None = None,
) -> Segment:
    """The segment that label probabilities make; `text` is the explanation that was written before them."""
    belief = reader.distribution(answer)
    if isinstance(belief, str):
        return failed(index, belief, text)
    value = reader.expectation(belief)
    return Segment(
        index=index,
        score=scale.normalise(value),
        raw=value,
        status="truncated" if shortened else "ok",
        text=text,
        rule="expected",
        reason=shortened,
        distribution=belief,
    )


def from_likelihood(
    index: int, answer: Likelihood, unconditional: Likelihood | None, *, shortened: str | None
) -> Segment:
    """The segment that a text's probability makes, less the unconditional one where it is given."""
    if answer.tokens == 0 or not math.isfinite(answer.logprob):
        return failed(index, "the text has no probability under this model")
    value = per_token(answer, unconditional)
    return Segment(
        index=index,
        score=normalise(value, is_difference=unconditional is not None),
        raw=value,
        status="truncated" if shortened else "ok",
        rule="likelihood" if unconditional is None else "likelihood-pmi",
        reason=shortened,
    )


def from_samples(answers: Sequence[tuple[int, Segment]]) -> Segment:
    """The mean of several answers to one question, each with the seed it was drawn with.

    The mean, since median and majority vote were measured to be worse everywhere. Answers without a score are left out.
    """
    first = answers[0][1]
    read = [segment for _, segment in answers if segment.raw is not None]
    drawn = tuple(SampledAnswer(seed, segment.text or "", segment.raw) for seed, segment in answers)
    if not read:
        return replace(first, text=None, attempts=len(answers), samples=drawn)
    unread = len(answers) - len(read)
    notes = [read[0].reason if read[0].status == "truncated" else None]
    notes.append(f"{unread} of {len(answers)} answers hold no score" if unread else None)
    return replace(
        read[0],
        score=mean([segment.score for segment in read]),
        raw=mean([segment.raw for segment in read if segment.raw is not None]),
        text=None,
        rule="mean",
        errors=(),
        reason="; ".join(note for note in notes if note) or None,
        attempts=len(answers),
        samples=drawn,
    )


def notes_on(prediction: Prediction) -> Iterator[str]:
    """What a user has to be told about a prediction besides its scores."""
    total = len(prediction.segments)
    if unread := prediction.count("imputed", "failed"):
        what = f"no score for {unread} of {counted(total, 'segment')} ({unread / total:.1%}; {_why(prediction)})"
        if prediction.count("imputed"):
            yield f"{what}: the mean of the others stands there, marked imputed"
        else:
            yield f"{what}: NaN stands there, marked failed, and so the system score is NaN"
    if cut := prediction.count("truncated"):
        yield f"shortened to fit the model's window: {cut} of {counted(total, 'source')} (marked truncated)"
    if empty := prediction.count("empty"):
        yield f"empty hypothesis: {empty} of {counted(total, 'segment')}, with the worst score, 0 (marked empty)"
    masses = sorted(segment.distribution.mass for segment in prediction.segments if segment.distribution)
    if masses and (half := masses[len(masses) // 2]) < LITTLE_MASS:
        yield (
            f"the scale's labels hold only {half:.2g} of the probability (median): the model would rather begin its "
            "answer with something else, so expectations tell little; compare the scores by text"
        )
    defined = [score for score in prediction.scores if not math.isnan(score)]
    if odd := sum(not 0 <= score <= 1 for score in defined):
        yield f"outside 0 … 1: {odd} of {counted(total, 'score')}; the published extraction checks no range"
    if len(defined) > 1 and len(set(defined)) == 1:
        yield "all scores are equal: they tell no segment from another"


def _why(prediction: Prediction) -> str:
    """The commonest reasons why segments hold no score, with how often each."""
    lost = [segment for segment in prediction.segments if segment.status in ("imputed", "failed")]
    reasons = Counter(segment.reason or "no reason" for segment in lost)
    shown = [f"{reason} × {count}" for reason, count in reasons.most_common(MOST_REASONS)]
    return "; ".join([*shown, "…"] if len(reasons) > MOST_REASONS else shown)
