"""The extraction of the PrExMe paper, for reproducing its numbers: no range check, last match, substrings count.

"Score: 80/100" reads 100, "not bad" reads bad, and "in 2019" reads 2019. Use it to reproduce, not to measure.
"""

from __future__ import annotations

import re

from promptmetric.errors import InputError
from promptmetric.scale import LabelScale, NumericScale, Scale
from promptmetric.types import Reading

_NUMBER = re.compile(r"[-+]?(?:\d*\.*\d+)")


def read_as_published(text: str, scale: Scale) -> Reading:
    """Read an answer as PrExMe's `filter_score` does; labels are lower-cased and matched anywhere.

    Raises:
        InputError: the scale is of a kind the paper does not have.
    """
    if isinstance(scale, LabelScale):
        return _last_label(text, scale)
    if isinstance(scale, NumericScale) and not scale.json_field:
        return _last_number(text)
    raise InputError("decode='as-published' reads numbers and labels only.", hint="Use decode='text'.")


def _last_number(text: str) -> Reading:
    matches = list(_NUMBER.finditer(text))
    if not matches:
        return Reading(None, reason="no number in the answer")
    try:
        return Reading(float(matches[-1][0]), "as-published", matches[-1].span())
    except ValueError:  # such as "...5"
        return Reading(None, "as-published", matches[-1].span(), reason=f"{matches[-1][0]!r} is no number")


def _last_label(text: str, scale: LabelScale) -> Reading:
    values = {label.lower(): value for label, value in scale.labels.items()}
    matches = list(re.finditer("|".join(map(re.escape, values)), text, re.IGNORECASE))
    if not matches:
        return Reading(None, reason="no label in the answer")
    return Reading(values[matches[-1][0].lower()], "as-published", matches[-1].span())
