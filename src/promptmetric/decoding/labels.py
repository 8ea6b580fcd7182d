"""Reads a label (bad, neutral, good, …) from a free-text answer.

A label counts as a whole word only, not under a negation ("not bad" says nothing about the label), and not inside an
echo of the options. Where several different labels remain and none is announced, the answer is ambiguous.
"""

from __future__ import annotations

import re
from functools import lru_cache

from promptmetric.decoding.markers import ANNOUNCED, ENDS
from promptmetric.decoding.normalise import blank
from promptmetric.scale import LabelScale
from promptmetric.types import Reading

_NEGATED = re.compile(
    r"(?:\b(?:not|no|never|neither|nor|hardly|cannot|without|(?:far|rather|other)\s+(?:from|than))|n't)\s+"
    r"(?:[\w\-]+\s+){0,2}[\"'(]*\Z",
    re.IGNORECASE,
)
_CONCLUDES = r"\b(?:is|as|be|was|rate[sd]?|judged?|choose|chose|call(?:ed)?|deem(?:ed)?|consider(?:ed)?|would\s+say)\b"
_ANNOUNCEMENT = re.compile(ANNOUNCED, re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?][\"')]*\s+(?=\S)|\n+")


def read_label(text: str, scale: LabelScale) -> Reading:
    """Read a label of `scale` from a normalised answer."""
    word, echo, rules = _patterns(tuple(scale.words))
    text = blank(text, echo)
    for name, pattern in rules:
        matches = [match for match in pattern.finditer(text) if not _is_negated(text, match)]
        if matches:
            return _found(matches[-1], name, scale)
    labels = [match for match in word.finditer(text) if not _is_negated(text, match)]
    if not labels:
        return Reading(None, reason="no label in the answer")
    announcement = max((match.end() for match in _ANNOUNCEMENT.finditer(text)), default=None)
    last_sentence = max((match.end() for match in _SENTENCE_END.finditer(text.rstrip())), default=0)
    for name, start in (("after-marker", announcement), ("unanimous", 0), ("closing", last_sentence)):
        if start is None:
            continue
        candidates = [match for match in labels if match.start() >= start]
        if len({scale.words[match["label"].lower()] for match in candidates}) == 1:
            return _found(candidates[-1], name, scale)
    return Reading(None, reason="several labels, none announced")


def _found(match: re.Match[str], rule: str, scale: LabelScale) -> Reading:
    return Reading(scale.words[match["label"].lower()], rule, match.span("label"))


def _is_negated(text: str, match: re.Match[str]) -> bool:
    start = match.start("label")
    return _NEGATED.search(text[max(0, start - 40) : start]) is not None


@lru_cache(maxsize=64)
def _patterns(
    words: tuple[str, ...],
) -> tuple[re.Pattern[str], re.Pattern[str], tuple[tuple[str, re.Pattern[str]], ...]]:
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    label = rf"(?<![\w\-])(?P<label>{alternatives})(?![\w\-])"
    options = rf"[\"']?\b(?:{alternatives})\b[\"']?"
    echo = rf"{options}(?:(?:\s*[,/|]\s*(?:or\s+|and\s+)?|\s+(?:or|and)\s+){options})+"
    rules = (
        ("brackets", rf"\[\[\s*{label}\s*\]\]"),
        ("announced", rf"{ANNOUNCED}(?:the\s+\w+\s+is\s+[\"'(]?)?{label}"),
        ("leading", rf"\A[\s\"'(\[]*{label}(?:{ENDS}|(?=\s+(?:translation|summary|quality)\b))"),
        ("quoted", rf"{_CONCLUDES}[^.!?\n]{{0,60}}?[\"'(]{label}[\"')]"),
        ("phrase", rf"{_CONCLUDES}\s+(?:an?\s+|overall\s+|very\s+|rather\s+|simply\s+)*{label}{ENDS}"),
    )
    compiled = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in rules)
    return re.compile(label, re.IGNORECASE), re.compile(echo, re.IGNORECASE), compiled
