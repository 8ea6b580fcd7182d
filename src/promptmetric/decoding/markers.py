"""What announces a score, what may follow one, and what takes it back: shared by the numeric and the label rules."""

from __future__ import annotations

import re

MARKER = r"\b(?:judge?ments?|scores?|ratings?|grades?|verdict|evaluation|answer|assessment|quality)\b"
ANNOUNCED = rf"(?P<marker>(?:\b(?:final|overall|total)\s+)?{MARKER}[^\n.!?:=>]{{0,60}}?)\s*[:=>][\s\0\"'(\[{{$<]*"
"""`Judgment: `, `Final score (0-100) = `, `"score": `, `<score>`."""

ENDS = r"(?=\s*(?:\Z|[\n.,;!)\]}\"'<>($\-–—]|:(?!\d)))"
"""A value stands at the end of a phrase."""

_CLAUSE = re.compile(
    r"[.!?;:][\"')]*(?=\s|\Z)|\n|,\s+(?=(?:I|the|this|it)\b)"
    r"|\band\s+(?=(?:is|was|gets?|deserves?|receives?|the|I|therefore)\b)|^\W*(?:no|yes),"
    r"|(?<!anything )\b(?:but|however|yet|although|though|because|so|therefore|hence|thus)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?][\"')]*(?=\s|\Z)|\n")
_NEGATION = re.compile(
    r"n't\b|\b(?:not|no|never|neither|nor|nobody|none|nothing|hardly|barely|cannot|without|anything|lacks?|lacking"
    r"|fail(?:s|ed|ing)?|(?:less|more|lower|higher|rather|other|far|better|worse)\s+(?:than|from))\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:if(?!\s+I\s+(?:had|were|have)\b)|unless|were\s+(?:it|this|the)|to\s+(?:reach|get|achieve|earn))\b",
    re.IGNORECASE,
)


def is_taken_back(text: str, position: int, *, at_commas: bool = False) -> bool:
    """Whether what stands at a position is negated in its clause, or its sentence only supposes it.

    "I don't think it is good" says nothing about good; "if it were fluent, it would get a 90" is no 90.

    Args:
        text: the answer.
        position: where the value begins.
        at_commas: whether a comma ends the reach of a negation ("it is not fluent, I give it a 40").
    """
    before = text[max(0, position - 300) : position]
    clause = _after_last(_CLAUSE, before)
    if at_commas:
        clause = clause.rsplit(",", 1)[-1]
    return bool(_NEGATION.search(clause) or _CONDITION.search(_after_last(_SENTENCE, before)))


def _after_last(pattern: re.Pattern[str], text: str) -> str:
    end = max((match.end() for match in pattern.finditer(text)), default=0)
    return text[end:]
