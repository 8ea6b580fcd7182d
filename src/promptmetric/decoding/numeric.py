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

from promptmetric.decoding.markers import ANNOUNCED, ENDS, MARKER, is_taken_back
from promptmetric.decoding.normalise import blank
from promptmetric.scale import NumericScale
from promptmetric.types import Reading

_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_UNITS = dict(zip(_ONES, range(13), strict=True)) | dict(zip(_TENS, range(20, 100, 10), strict=True)) | {"hundred": 100}
_RATING_DENOMINATORS = {5.0, 10.0, 20.0, 50.0, 100.0}

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+)(?:[eE][-+]?\d{1,3})?(?![\w]|[.,:]\d)"
_SIGNED = rf"[-+]?{_DIGITS}"
_ALONE = rf"(?<![\w.,\-/:]){_SIGNED}"
_WORD = (
    rf"\b(?:(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_ONES[1:10])}))?|(?:one[- ])?hundred"
    rf"|{'|'.join(_ONES[::-1])})\b(?!-)"
)
_OUT_OF = r"\s*\(?(?:/|\bout\s+of\b(?:\s+a\b(?:\s+possible\b)?)?|\bof\b)\s*"
_VALUE = (
    rf"(?:(?<![\w.,\-/])(?P<number>{_SIGNED})"
    rf"(?:{_OUT_OF}(?P<denominator>{_DIGITS})"
    rf"|\s*(?:-|–|\bto\b)\s*(?P<high>{_SIGNED})"
    rf"|\s*(?P<percent>%|percent\b))?"
    rf"|(?P<word>{_WORD})(?:{_OUT_OF}(?P<word_denominator>{_WORD}|{_DIGITS}))?"
    rf"|(?P<stars>★+)☆*)"
)
_GOES_ON = (  # what may follow a score in a sentence; after "2 errors" it is none
    rf"(?:{ENDS}|(?=\s+(?:stars?|points?|pts|for|on|in|because|since|as|due|out|based|with|which|indicating|and|but|would|seems|marks"
    r"|overall|to\s+(?:this|the|it))\b)"
    rf"|(?-i:(?=\s+[A-Z])))"
)
_RATE = r"\b(?:scor(?:e|es|ed|ing)|rat(?:e|es|ed|ing)|grad(?:e|es|ed|ing)|judg(?:e|es|ed|ing))\b"
_GIVE = (
    r"\b(?:giv(?:e|es|ing)|assign(?:s|ed|ing)?|award(?:s|ed|ing)?|deserves?|receiv(?:e|es|ed|ing)|earn(?:s|ed|ing)?)\b"
)
_OBJECT = r"\s+(?:(?:it|this|the)\b[^.!?\n\d]{0,80}?\s)?"
_ABOUT = r"(?:(?:about|around|approximately|roughly|~|≈)\s*)?"
_PRAISE = r"(?:(?:perfect|full|solid|strong|high|good|fair|weak|low)\s+)?"
_NOUN = r"(?:(?:\w+\s+){0,2}(?:score|rating|grade|mark)\s+(?:of\s+)?)?"
_ASPECT = (
    r"(?:overall|fluency|coherence|consistency|relevance|adequacy|accuracy|faithfulness"
    r"|(?:translation|summary)\s+quality)"
)

_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("brackets", rf"(?:\[\[|\\boxed\{{)\s*{_VALUE}\s*(?:\]\]|\}})"),
        ("announced", rf"{ANNOUNCED}{_ABOUT}{_VALUE}{_GOES_ON}"),
        ("leading", rf"\A[\s\"'(\[{{$]*{_ABOUT}{_VALUE}(?:{ENDS}|(?=\s+(?:stars?|points?)\b)|(?-i:(?=\s+[A-Z])))"),
        (
            "phrase",
            rf"(?:{_RATE}{_OBJECT}(?:(?:an?|at|as|it|be|this)\s+{_PRAISE}{_NOUN})?"
            rf"|{_GIVE}{_OBJECT}(?:an?|it|this)\s+{_PRAISE}{_NOUN}"
            rf"|{MARKER}[^.!?\n:\d]{{0,60}}?\b(?:of|is|as|was|be|at)\s+(?:an?\s+)?{_PRAISE})"
            rf"{_ABOUT}{_VALUE}{_GOES_ON}",
        ),
        ("line", rf"(?m)^[ \t]*(?:{_ASPECT}:[ \t]*{_VALUE})(?:{ENDS})"),
        ("stars", rf"{_VALUE}(?:(?<=[★☆])|\s*-?stars?\b)"),
    )
)
_FRACTION = re.compile(rf"{_ABOUT}{_VALUE}{_GOES_ON}", re.IGNORECASE)
_JUST_A_NUMBER = re.compile(
    r"(?:(?:so|thus|therefore|hence|overall|finally|total|result|i(?:'d|\s+would)?\s+say)\b[ ,:]{0,3})?"
    rf"(?:(?:it's|it\s+is|this\s+is)\s)?(?:an?\s)?[\s\0,:\"'(]*{_VALUE}[\s.!\"')]*\Z",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?]\s+(?=\S)|\n+")
_LIST_ITEM = re.compile(r"(?m)^[ \t]*(\d{1,2})[.)](?=[ \t]+\S)")
_SUMMARY_MARK = re.compile(r"final|overall|total", re.IGNORECASE)
_OTHER_SCORE = re.compile(
    r"\b(?:max(?:imum)?|min(?:imum)?|highest|lowest|possible|confidence|perfect\s+(?:translation|summary|text))\b",
    re.IGNORECASE,
)
# Numbers that describe the scale, list the options, count something, or lead to the result of a sum.
_NO_SCORE = re.compile(
    rf"\bscale\b\s*(?:(?:ranging\s+)?(?:of|from|between|is|:)\s*)?[(\[]?{_SIGNED}\s*(?:-|–|to|and|/)\s*{_SIGNED}"
    rf"|(?=[-+.\d]){_ALONE}(?:"
    r"\s*(?:being|indicat\w+|mean(?:s|ing)|represent\w*|stands\s+for|is\s+assigned)\b"
    rf"|\s*\([^)\n]{{1,30}}\)\s*(?:to|-|–)\s*{_SIGNED}\s*\([^)\n]{{1,30}}\)"
    rf"|(?:\s*,\s*{_SIGNED}){{0,9}}\s*,?\s*\bor\s+{_SIGNED}"
    rf"|(?:\s*[-+*/×]\s*{_DIGITS}){{1,9}}\s*=(?=\s*[-+]?\d))"
    rf"|\b(?:errors?|mistakes?|issues?|words?)\b\s*[:=]\s*{_SIGNED}",
    re.IGNORECASE,
)


def read_number(text: str, scale: NumericScale) -> Reading:
    """Read a number on `scale` from a normalised answer."""
    text = _without_list_items(blank(text, _NO_SCORE))
    if scale.min < 0:  # "Score: - 50"; on other scales the dash is a bullet
        text = re.sub(r"(?<=[:=>])([ \t]*)-([ \t]+)(?=\d)", r"\1\2-", text)
    for name, pattern in _RULES:
        matches = [match for match in pattern.finditer(text) if _is_meant(match, name, scale)]
        if name == "announced" and any(_SUMMARY_MARK.search(match["marker"]) for match in matches):
            matches = [match for match in matches if _SUMMARY_MARK.search(match["marker"])]
        elif name == "announced":
            matches = [match for match in matches if not _is_of_an_aspect(match)] or matches
        if matches:
            return _value_of(matches[-1], name, scale)
    return _unannounced(text, scale)


def _unannounced(text: str, scale: NumericScale) -> Reading:
    """No rule matched: a fraction of this very scale, else a last sentence that is just a number."""
    values = [match for match in _FRACTION.finditer(text) if _is_meant(match, "fraction", scale)]
    fractions = [match for match in values if _denominator(match) == scale.max]
    if fractions:
        return _value_of(fractions[-1], "fraction", scale)
    start = max((match.end() for match in _SENTENCE_END.finditer(text.rstrip())), default=0)
    closing = _JUST_A_NUMBER.match(text, start)
    if closing and not _echoes_range(closing, scale):
        return _value_of(closing, "closing", scale)
    return Reading(None, reason="numbers, but none announced" if re.search(r"\d", text) else "no score in the answer")


def _is_meant(match: re.Match[str], rule: str, scale: NumericScale) -> bool:
    """Whether the value is said of this text: not the scale's bounds, not negated, supposed, or somebody else's."""
    if _echoes_range(match, scale):
        return False
    if rule in ("brackets", "leading"):
        return True
    text, start = match.string, match.start(_kind(match))
    return not is_taken_back(text, start, at_commas=True) and not _OTHER_SCORE.search(_same_clause(text, start))


def _is_of_an_aspect(match: re.Match[str]) -> bool:
    """Whether the announcement is one of several sub-scores, such as "Fluency score: 90"."""
    return re.search(rf"{_ASPECT}\s*\Z", match.string[: match.start()], re.IGNORECASE) is not None


def _same_clause(text: str, position: int) -> str:
    return re.split(r"[.!?;,\n]", text[max(0, position - 100) : position])[-1]


def _kind(match: re.Match[str]) -> str:
    return next(name for name in ("number", "word", "stars") if match[name] is not None)


def _value_of(match: re.Match[str], rule: str, scale: NumericScale) -> Reading:
    """Evaluate a match, and check that it may stand on the scale."""
    groups = {name: value for name, value in match.groupdict().items() if name != "marker"}
    kind = _kind(match)
    span = (match.start(kind), max(match.end(group) for group in groups))
    rest = match.string[span[1] :]
    if match.string[: span[0]].endswith("<") and not rest.lstrip().startswith(">"):
        return Reading(None, rule, span, "a bound, not a score")
    is_stars = kind == "stars" or re.match(r"\s*-?stars?\b", rest, re.IGNORECASE)
    value = None if is_stars and scale.max > 10 else _evaluate(groups, kind, scale)
    shown = match.string[slice(*span)]
    if value is None:
        return Reading(None, rule, span, f"{shown!r} is on another scale")
    if not scale.contains(value):
        return Reading(None, rule, span, f"{shown!r} is off the scale {scale}")
    return Reading(value, rule, span)


def _evaluate(groups: dict[str, Any], kind: str, scale: NumericScale) -> float | None:
    if kind == "stars":
        return float(len(groups["stars"]))
    if kind == "word":
        return _of_denominator(float(_number(groups["word"]) or 0), _number(groups["word_denominator"]), scale)
    value = _to_float(groups["number"])
    if groups["percent"]:
        return _of_denominator(value, 100.0, scale) if scale.min >= 0 else None
    if groups["high"]:
        high = _to_float(groups["high"])
        return (value + high) / 2 if value < high and scale.contains(high) and scale.contains(value) else math.inf
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
    words = re.split(r"[- ]", text.lower())
    if words[-1] not in _UNITS:
        return _to_float(text)
    return 100.0 if words[-1] == "hundred" else float(sum(_UNITS[word] for word in words))


def _to_float(text: str) -> float:
    """A comma is a thousands separator before exactly three digits (`1,000`), else a decimal comma (`0,5`)."""
    if re.fullmatch(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", text):
        return float(text.replace(",", ""))
    return float(text.replace(",", "."))


def _echoes_range(match: re.Match[str], scale: NumericScale) -> bool:
    """Whether a match merely repeats the scale's own bounds, as in "from 0 to 100"."""
    high = match["high"]
    return high is not None and (_to_float(match["number"]), _to_float(high)) == (scale.min, scale.max)


def _without_list_items(text: str) -> str:
    """Blank the numbers of an enumeration: two or more lines that count 1., 2., …"""
    items = [int(match[1]) for match in _LIST_ITEM.finditer(text)]
    return blank(text, _LIST_ITEM) if {1, 2} <= set(items) else text


def read_json(text: str, scale: NumericScale, field: str) -> Reading:
    """Read a number from a field of the last JSON object in an answer (as written: normalising may break JSON)."""
    found = [(start, end, value) for start, end, value in _json_objects(text) if field in value]
    if not found:
        return Reading(None, reason=f"no JSON object with a field {field!r}")
    start, end, fields = found[-1]
    value = fields[field]
    if isinstance(value, str) and re.fullmatch(_SIGNED, value.strip()):
        value = _to_float(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return Reading(None, "json", (start, end), f"field {field!r} is no number")
    if not scale.contains(value):
        return Reading(None, "json", (start, end), f"{value:g} is off the scale {scale}")
    return Reading(float(value), "json", (start, end))


def _json_objects(text: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Outermost JSON objects with their spans."""
    decoder = json.JSONDecoder()
    objects = []
    start = text.find("{")
    while start >= 0:
        end = start + 1
        try:
            value, end = decoder.raw_decode(text, start)
            objects.append((start, end, value))
        except (ValueError, RecursionError):
            pass
        start = text.find("{", end)
    return objects
