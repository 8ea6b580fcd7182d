"""Reads a number from a free-text answer.

Rules are tried in order and the last match of the first rule that matches decides: announced values before mere
numbers, since a number in a sentence may be anything. A value off the scale is a failure, never clipped and never a
reason to look for a friendlier number elsewhere.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from promptmetric.decoding.markers import ANNOUNCED, ENDS, MARKER
from promptmetric.decoding.normalise import blank
from promptmetric.scale import NumericScale
from promptmetric.types import Reading

_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS = dict(zip(_ONES, range(11), strict=True)) | dict(zip(_TENS, range(20, 100, 10), strict=True))
_RATING_DENOMINATORS = {5.0, 10.0, 20.0, 50.0, 100.0}

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+)(?:[eE][-+]?\d{1,3})?(?![\w]|[.,]\d)"
_SIGNED = rf"[-+]?{_DIGITS}"
_WORD = rf"\b(?:{'|'.join(_WORDS)})\b"
_VALUE = (
    rf"(?:(?<![\w.,\-/])(?P<number>{_SIGNED})"
    rf"(?:\s*(?:/|out\s+of\s+(?:a\s+possible\s+)?|\bof\b)\s*(?P<denominator>{_DIGITS})"
    rf"|\s*(?:-|–|\bto\b)\s*(?P<high>{_SIGNED})"
    rf"|\s*(?P<percent>%|percent\b))?"
    rf"|(?P<word>{_WORD})(?:\s+out\s+of\s+(?P<word_denominator>{_WORD}|{_DIGITS}))?"
    rf"|(?P<stars>★+)☆*)"
)
_VERB = (
    r"\b(?:scor(?:e|es|ed|ing)|rat(?:e|es|ed|ing)|grad(?:e|es|ed|ing)|giv(?:e|es|en|ing)|assign(?:s|ed|ing)?"
    r"|award(?:s|ed|ing)?|deserves?|receiv(?:e|es|ed|ing)|earn(?:s|ed|ing)?|judged?)\b"
)
_PRAISE = r"(?:(?:perfect|full|solid|strong|high|good|fair|weak|low)\s+)"
_COUNTED = r"\b(?:errors?|mistakes?|issues?|words?)\b"
_GOES_ON = (  # what may follow a score in a sentence; after "2 errors" it is no score
    rf"(?:{ENDS}|(?=\s+(?:stars?|points?|for|on|in|because|since|as|due|out|based|with|indicating|and)\b)"
    rf"|(?-i:(?=\s+[A-Z])))"
)
_NOUN = r"(?:(?:\w+\s+){0,2}(?:score|rating|grade|mark)\s+(?:of\s+)?)"

_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("brackets", rf"\[\[\s*{_VALUE}\s*\]\]"),
        ("announced", rf"{ANNOUNCED}{_VALUE}{_GOES_ON}"),
        ("leading", rf"\A[\s\"'(\[]*{_VALUE}(?:{ENDS}|(?=\s+(?:stars?|points?)\b)|(?-i:(?=\s+[A-Z])))"),
        (
            "phrase",
            rf"(?:{_VERB}[^.!?\n]{{0,100}}?\b(?:an?|at|as|it|be)\s+{_PRAISE}?{_NOUN}?"
            rf"|{MARKER}[^.!?\n:]{{0,60}}?\b(?:of|is|as|was|be|at)\s+(?:an?\s+|about\s+|around\s+)?{_PRAISE}?){_VALUE}"
            rf"{_GOES_ON}",
        ),
        (
            "line",
            rf"(?m)^[ \t]*(?:\w+[ \t]+){{0,2}}\w+:[ \t]*{_VALUE}{ENDS}",
        ),
        ("stars", rf"{_VALUE}(?:(?<=[★☆])|\s*-?stars?\b)"),
    )
)
_FRACTION = re.compile(_VALUE, re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?]\s+(?=\S)|\n+")
_LIST_ITEM = re.compile(r"(?m)^[ \t]*(\d{1,2})[.)](?=[ \t]+\S)")
# Numbers that describe the scale or count something.
_NO_SCORE = re.compile(
    rf"\bscale\b\s*(?:(?:ranging\s+)?(?:of|from|between|is|:)\s*)?[(\[]?{_SIGNED}\s*(?:-|–|to|and|/)\s*{_SIGNED}"
    rf"|(?<![\w.,\-]){_SIGNED}\s*(?:being|indicat\w+|mean(?:s|ing)|represent\w*|stands\s+for|is\s+assigned)\b"
    rf"|{_COUNTED}\s*[:=]\s*{_SIGNED}",
    re.IGNORECASE,
)


def read_number(text: str, scale: NumericScale) -> Reading:
    """Read a number on `scale` from a normalised answer."""
    if scale.json_field:
        return _read_json(text, scale, scale.json_field)
    text = _without_list_items(blank(text, _NO_SCORE))
    for name, pattern in _RULES:
        matches = [match for match in pattern.finditer(text) if not _echoes_range(match, scale)]
        if matches and not (name == "stars" and scale.max > 10):
            return _value_of(matches[-1], name, scale)
    return _unannounced(text, scale)


def _unannounced(text: str, scale: NumericScale) -> Reading:
    """No rule matched: a fraction of this very scale, else the one number that ends the answer."""
    values = [match for match in _FRACTION.finditer(text) if not _echoes_range(match, scale)]
    fractions = [match for match in values if _denominator(match) == scale.max]
    if fractions:
        return _value_of(fractions[-1], "fraction", scale)
    start = max((match.end() for match in _SENTENCE_END.finditer(text.rstrip())), default=0)
    last = [match for match in values if match.start() >= start and match["number"]]
    if len(last) == 1 and not text[last[0].end() :].strip(" \n\t.!\"')]"):
        return _value_of(last[0], "closing", scale)
    return Reading(None, reason="several numbers, none announced" if len(values) > 1 else "no score in the answer")


def _value_of(match: re.Match[str], rule: str, scale: NumericScale) -> Reading:
    """Evaluate a match, and check that it may stand on the scale."""
    groups = match.groupdict()
    name = next(n for n in ("number", "word", "stars") if groups[n] is not None)
    span = (match.start(name), max(match.end(group) for group in groups))
    value = _evaluate(groups, name, scale)
    if value is None:
        return Reading(None, rule, span, reason=f"{match.string[slice(*span)]!r} is on another scale")
    if not scale.contains(value):
        return Reading(None, rule, span, reason=f"{value:g} is off the scale {scale}")
    return Reading(value, rule, span)


def _evaluate(groups: dict[str, Any], name: str, scale: NumericScale) -> float | None:
    if name == "stars":
        return float(len(groups[name]))
    if name == "word":
        return _of_denominator(float(_WORDS[groups["word"].lower()]), _number(groups["word_denominator"]), scale)
    value = _to_float(groups["number"])
    if groups["percent"]:
        return _of_denominator(value, 100.0, scale)
    if groups["high"]:
        high = _to_float(groups["high"])
        return (value + high) / 2 if value < high and scale.contains(high) else math.inf
    return _of_denominator(value, _number(groups["denominator"]), scale)


def _of_denominator(value: float, denominator: float | None, scale: NumericScale) -> float | None:
    """A fraction of this scale's maximum is the value itself; of another usual maximum, rescaled where 0 is 0."""
    if denominator is None or denominator == scale.max:
        return value
    if scale.min == 0 and denominator in _RATING_DENOMINATORS and 0 <= value <= denominator:
        return value / denominator * scale.max
    return None


def _denominator(match: re.Match[str]) -> float | None:
    return _number(match["denominator"] or match["word_denominator"])


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    return float(_WORDS[text.lower()]) if text.lower() in _WORDS else _to_float(text)


def _to_float(text: str) -> float:
    """A comma is a thousands separator before exactly three digits (`1,000`), else a decimal comma (`0,5`)."""
    if re.fullmatch(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", text):
        return float(text.replace(",", ""))
    return float(text.replace(",", "."))


def _echoes_range(match: re.Match[str], scale: NumericScale) -> bool:
    """Whether a match merely repeats the scale's own bounds, as in "from 0 to 100"."""
    high = match.groupdict().get("high")
    return high is not None and (_to_float(match["number"]), _to_float(high)) == (scale.min, scale.max)


def _without_list_items(text: str) -> str:
    """Blank the numbers of an enumeration: two or more lines that count 1., 2., …"""
    items = [int(match[1]) for match in _LIST_ITEM.finditer(text)]
    return blank(text, _LIST_ITEM) if {1, 2} <= set(items) else text


def _read_json(text: str, scale: NumericScale, field: str) -> Reading:
    """The last JSON object in the answer that has the field."""
    decoder = json.JSONDecoder()
    for match in reversed(list(re.finditer(r"\{", text))):
        try:
            found, length = decoder.raw_decode(text[match.start() :])
        except (json.JSONDecodeError, RecursionError):
            continue
        if not isinstance(found, dict) or field not in found:
            continue
        span = (match.start(), match.start() + length)
        value = found[field]
        if isinstance(value, str) and re.fullmatch(_SIGNED, value.strip()):
            value = _to_float(value.strip())
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return Reading(None, "json", span, reason=f"field {field!r} is no number")
        if not scale.contains(value):
            return Reading(None, "json", span, reason=f"{value:g} is off the scale {scale}")
        return Reading(float(value), "json", span)
    return Reading(None, reason=f"no JSON object with a field {field!r}")
