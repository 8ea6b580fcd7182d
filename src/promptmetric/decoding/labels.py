"""Reads a label (bad, neutral, good, …) from a free-text answer.

A label counts as a whole word only, not under a negation or condition ("I don't think it is good" says nothing about
the label), not inside an echo of the options, and only where it is said of the text under judgment: in running text,
"good" may describe anything. Where that leaves two labels, the answer is ambiguous.
"""

from __future__ import annotations

import re
from functools import lru_cache

from promptmetric.decoding.markers import ANNOUNCED, ENDS, is_taken_back
from promptmetric.decoding.normalise import blank
from promptmetric.scale import LabelScale
from promptmetric.types import Reading

_JUDGED = r"\b(?:translation|summary|hypothesis|text|quality|score|judge?ment|rating|verdict|it|this|that)\b"
_JUDGES = (
    r"\b(?:rat(?:e|ed|ing)|judg(?:e|ed|ing)|choos(?:e|ing)|chose|pick|select|call|deem|consider|grade|say|take|give|assign"
    r"|go\s+with)\b"
)
_IS = (
    r"(?:is|was|seems?(?:\s+to\s+be)?|can\s+be\s+(?:rated|judged|considered|called|described)|rated|judged|remains"
    r"|as|of|to\s+be|'s|:)"
)
_DEGREE = r"(?:(?:an?|overall|very|rather|simply|quite|pretty|generally|clearly|therefore|thus|truly|as|of)\s+)*"
_ANNOUNCEMENT = re.compile(ANNOUNCED, re.IGNORECASE)
_LONGEST_VERDICT = 200
_FEW_WORDS = 5


def read_label(text: str, scale: LabelScale, *, complete: bool = True) -> Reading:
    """Read a label of `scale` from a normalised answer. A cut answer is trusted only where it announces its label."""
    word, echo, anchored, leading = _patterns(tuple(scale.words))
    text = blank(text, echo)
    found = [
        (match.start("label"), name, match)
        for name, pattern in anchored
        if complete or name in ("brackets", "announced")
        for match in pattern.finditer(text)
        if not is_taken_back(text, match.start("label"))
    ]
    first = leading.match(text)
    direct = [item for item in found if item[1] in ("brackets", "announced") and not _is_about_a_part(text, item[2])]
    if first and not direct:
        return _reading(first, "leading", scale)
    if found:
        _, name, match = max(direct or found, key=lambda item: item[0])
        return _reading(match, name, scale)
    labels = [match for match in word.finditer(text) if not is_taken_back(text, match.start("label"))]
    if not labels:
        return Reading(None, reason="no label in the answer")
    start = max((match.end() for match in _ANNOUNCEMENT.finditer(text)), default=None)
    verdict = [match for match in labels if start is not None and match.start() >= start]
    if complete and _is_unanimous(verdict, scale) and len(text) - (start or 0) <= _LONGEST_VERDICT:
        return _reading(verdict[-1], "after-marker", scale)
    if complete and _is_unanimous(labels, scale) and _is_short_verdict(text, labels[-1].end()):
        return _reading(labels[-1], "short", scale)
    return Reading(None, reason="labels, but none announced")


def _is_about_a_part(text: str, match: re.Match[str]) -> bool:
    """Whether an announcement goes "Judgment: the verb is bad", which a conclusion may follow."""
    return match.re.groupindex.get("marker") is not None and bool(
        re.search(r"\sis\s+[\"'(]?\Z", text[match.end("marker") : match.start("label")])
    )


def _is_unanimous(labels: list[re.Match[str]], scale: LabelScale) -> bool:
    return len({_value(match, scale) for match in labels}) == 1


def _is_short_verdict(text: str, end: int) -> bool:
    """A handful of words that end with the label: "Definitely good.", but not "That's a good question."."""
    return len(text.split()) <= _FEW_WORDS and "?" not in text and re.match(ENDS, text[end:]) is not None


def _value(match: re.Match[str], scale: LabelScale) -> float:
    return scale.words[match["label"].lower()]


def _reading(match: re.Match[str], rule: str, scale: LabelScale) -> Reading:
    return Reading(_value(match, scale), rule, match.span("label"))


_Rules = tuple[tuple[str, re.Pattern[str]], ...]


@lru_cache(maxsize=64)
def _patterns(words: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str], _Rules, re.Pattern[str]]:
    """The bare label, the echo of options, the anchored rules, and the rule of the first word."""
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    label = rf"(?<![\w\-])(?P<label>{alternatives})(?![\w\-])"
    ends = rf"(?!\s*\?)(?:{ENDS}|(?=\s+(?:translation|summary|quality|overall|because|since|as|for|in|and|but|enough"
    ends += r"|with|although|though|rating|to\s+me)\b))"
    options = rf"[\"']?\b(?:{alternatives})\b[\"']?"
    echo = rf"{options}(?:(?:\s*[,/|]\s*(?:or\s+|and\s+)?|\s+(?:or|and)\s+){options})+"
    anchored = (
        ("brackets", rf"(?:\[\[|\\boxed\{{)\s*{label}\s*(?:\]\]|\}})"),
        ("announced", rf"{ANNOUNCED}(?:the\s+\w+\s+is\s+[\"'(]?)?{label}{ends}"),
        (
            "phrase",
            rf"{_JUDGED}(?:\s+(?:quality|itself|overall|as\s+a\s+whole))?\s*{_IS}\s+{_DEGREE}[\"'(]?{label}{ends}",
        ),
        ("choice", rf"{_JUDGES}\s+(?:[^.!?\n,;]{{0,40}}?\s)?{_DEGREE}[\"'(]?{label}{ends}"),
    )
    first = rf"[\s\"'(\[]*{label}(?!\s*\?)(?:{ENDS}|(?=\s+(?:translation|summary|quality)\b))"
    return (
        re.compile(label, re.IGNORECASE),
        re.compile(echo, re.IGNORECASE),
        tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in anchored),
        re.compile(first, re.IGNORECASE),
    )
