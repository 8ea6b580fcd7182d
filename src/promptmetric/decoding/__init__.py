"""What an answer means: text to a value on the prompt's scale, with the rule that found it or the reason it did not."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from promptmetric.decoding.as_published import read_as_published
from promptmetric.decoding.labels import read_label
from promptmetric.decoding.mqm import read_errors
from promptmetric.decoding.normalise import normalise
from promptmetric.decoding.numeric import read_json, read_number
from promptmetric.scale import LabelScale, LikelihoodScale, MqmScale, Scale
from promptmetric.types import Reading

Decode = Literal["text", "as-published", "expected", "likelihood", "likelihood-pmi"]
"""How a score is got from a model.

- `text`: our parser reads the answer.
- `as-published`: the extraction of the PrExMe paper reads it.
- `expected`: the mean of the scale's labels, weighted by how probable each is as the beginning of the answer.
- `likelihood`: the mean log-probability of the hypothesis' tokens.
- `likelihood-pmi`: the same, less what it is where the source is hidden.
"""

__all__ = ["Decode", "read_answer"]


@lru_cache(maxsize=4096)  # models say the same few things again and again
def read_answer(text: str, scale: Scale, decode: Decode = "text", *, complete: bool = True) -> Reading:
    """Read a model's answer.

    Args:
        text: the answer.
        scale: what the prompt asked for.
        decode: `text` for our parser, `as-published` for the extraction of the PrExMe paper.
        complete: False where generation stopped at its token limit. Then a value at the very end is not trusted
            (of "85" only the "8" may be there), nor is a list of errors.
    """
    if decode == "as-published":
        return read_as_published(text, scale)
    if isinstance(scale, LabelScale):
        reading = read_label(normalise(text), scale, complete=complete)
    elif isinstance(scale, LikelihoodScale):
        return Reading(None, reason="the prompt asks for no judgment")
    elif isinstance(scale, MqmScale):
        reading = read_errors(normalise(text), scale)
    elif scale.json_field:
        reading = read_json(text, scale, scale.json_field)
    else:
        reading = read_number(normalise(text), scale)
    if complete:
        return reading
    if reading.value is None:
        return Reading(None, reading.rule, reading.span, f"{reading.reason}; the answer was cut at its token limit")
    if isinstance(scale, MqmScale) or (reading.span and not text[reading.span[1] :].strip(" \t\r\n.,/")):
        return Reading(None, reading.rule, reading.span, "the answer was cut at its token limit inside the score")
    return reading
