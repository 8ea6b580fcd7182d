"""What to do with segments whose answer held no score. Whatever is done is marked on the segment."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from promptmetric.errors import UnreadAnswerError
from promptmetric.texts import counted
from promptmetric.types import Segment, mean

Fallback = Literal["mean", "nan", "error", "retry"]
"""`mean`: the mean of the scores read in the same run (PrExMe's rule), marked `imputed`. `nan`: NaN, marked
`failed`. `error`: raise. `retry`: ask again, sampling, then as `nan`."""

RETRY_TEMPERATURES = (0.3, 0.6, 0.9)


def apply_fallback(segments: list[Segment], fallback: Fallback) -> list[Segment]:
    """Fill in failed segments according to the policy.

    Raises:
        UnreadAnswerError: with `error`, naming the first failed segment.
    """
    failed = [segment for segment in segments if segment.status == "failed"]
    if failed and fallback == "error":
        first = failed[0]
        raise UnreadAnswerError(
            f"no score for {len(failed)} of {counted(len(segments), 'segment')}; "
            f"the first is segment {first.index}: {first.reason}. The answer was: {first.text!r}",
            hint="The fallback 'mean' imputes and marks them, 'nan' leaves them undefined.",
        )
    read = [segment for segment in segments if segment.status in ("ok", "truncated")]
    if fallback != "mean" or not failed or not read:
        return segments
    score = mean([segment.score for segment in read])
    return [
        replace(segment, score=score, status="imputed") if segment.status == "failed" else segment
        for segment in segments
    ]
