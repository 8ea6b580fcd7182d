"""What becomes of a sample: the segment an answer makes, the ones that need no answer, and what a user must know."""

from __future__ import annotations

import math
from collections.abc import Iterator

from promptmetric.decoding import Decode, read_answer
from promptmetric.scale import Scale
from promptmetric.types import Completion, Prediction, Sample, Segment


def settle_without_asking(index: int, sample: Sample, scale: Scale) -> Segment | None:
    """The segment of a sample that needs no model, since an empty text has nothing to be judged; else None."""
    if not sample.hyp.strip():
        worst = scale.worst
        return Segment(index, scale.normalise(worst), worst, "empty", reason="empty hypothesis", attempts=0)
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


def shortened_length(source_length: int, prompt_length: int, completion: Completion) -> int:
    """How many characters of the source to keep so that the prompt loses its overflow, with a tenth to spare."""
    characters_per_token = prompt_length / max(1, completion.prompt_tokens or 1)
    return source_length - math.ceil(1.1 * completion.overflow * characters_per_token) - 1


def notes_on(prediction: Prediction) -> Iterator[str]:
    """What a user has to be told about a prediction besides its scores."""
    total = len(prediction.segments)
    if unread := prediction.count("imputed", "failed"):
        what = f"{unread} of {total} segments ({unread / total:.1%}) hold no score"
        if prediction.count("imputed"):
            yield f"{what}: they got the mean of the others and are marked imputed"
        else:
            yield f"{what}: they are NaN and marked failed, and so is the system score"
    if cut := prediction.count("truncated"):
        yield f"{cut} of {total} sources were shortened to fit the model's window (marked truncated)"
    if empty := prediction.count("empty"):
        yield f"{empty} of {total} hypotheses are empty: they got the worst score, 0 (marked empty)"
    defined = [score for score in prediction.scores if not math.isnan(score)]
    if odd := sum(not 0 <= score <= 1 for score in defined):
        yield f"{odd} of {total} scores lie outside 0 … 1: decode='as-published' checks no range"
    if len(defined) > 1 and len(set(defined)) == 1:
        yield "all scores are equal: they tell no segment from another"
