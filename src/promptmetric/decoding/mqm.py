"""Reads a list of errors under the headings Critical, Major and Minor, and counts it as MQM does.

Every heading in the answer must be followed by errors or by a plain word that there are none; a perfect score takes
that word under all three. The absence of a list is not the absence of errors.
"""

from __future__ import annotations

import re

from promptmetric.scale import MqmScale
from promptmetric.types import ErrorSpan, Reading

WEIGHTS = {"critical": 25.0, "major": 5.0, "minor": 1.0}
"""Freitag et al. (2021) with GEMBA-MQM's weight for critical errors (Kocmi and Federmann, 2023)."""

_NAME = r"(critical|major|minor)(?:\s+(?:errors?|issues?))?"
_HEADING = re.compile(
    rf"^\W*(?:\d{{1,2}}[.)]\W*)?{_NAME}[ \t]?(?:\(\d+\)[ \t]?)?\W{{0,9}}?(?::(.*)|\W{{0,9}})$", re.IGNORECASE
)
_INLINE_HEADING = re.compile(rf"(?<=\S)(?<!\d[.)])[ \t;,]\W{{0,9}}{_NAME}\s{{0,3}}:", re.IGNORECASE)
_NONE = re.compile(
    r"^\W*(?:0|nil|n/?a|none(?!\s+of)|nothing|no[- ](?:[\w/\-]+\s+){0,3}(?:errors?|issues?)"
    r"|there\s+(?:are|is|were)\s+no)\b.{0,80}$"
    r"|^\W*no\W*$",
    re.IGNORECASE,
)
_COUNT = re.compile(r"^\W*\d+\W*$")
_BULLET = re.compile(r"^\s*(?:[-•–]|\d{1,2}[.)])\s*")


def read_errors(text: str, scale: MqmScale) -> Reading:
    """Read the errors of a normalised answer."""
    if re.fullmatch(r"\W*no[- ]errors?(?:\s+found)?\W*", text, re.IGNORECASE):
        return Reading(0.0, "no-error", (0, len(text)))
    text = _INLINE_HEADING.sub(lambda match: "\n" + match[0][1:], text)
    found: dict[str, list[ErrorSpan]] = {}
    said_none: set[str] = set()
    severity: str | None = None  # of the open section, which "no-error" or a blank line closes
    paused: str | None = None  # after a blank line, another bullet goes on with the list
    start = 0
    position = 0
    for line in text.splitlines(keepends=True):
        heading = _HEADING.match(line.rstrip("\r\n"))
        if heading:
            severity, paused = heading[1].lower(), None
            start = position if not found else start
            found.setdefault(severity, [])
        rest = ((heading[2] or "") if heading else line).strip()
        if not heading and not severity and paused and _BULLET.match(line):
            severity = paused
        if severity and not rest and not heading and found[severity]:
            severity, paused = None, severity
        elif severity and rest and (_NONE.match(rest) or not re.search(r"\w", rest)):
            said_none.add(severity)
            severity = paused = None
        elif severity and _COUNT.match(rest):
            return Reading(None, "mqm", (start, len(text)), "a number of errors instead of the errors")
        elif severity and rest:
            found[severity].append(ErrorSpan(severity, _BULLET.sub("", rest)))
        position += len(line)
    return _count(found, said_none, (start, len(text)), scale)


def _count(found: dict[str, list[ErrorSpan]], said_none: set[str], span: tuple[int, int], scale: MqmScale) -> Reading:
    if not found:
        return Reading(None, reason="no Critical, Major or Minor heading in the answer")
    if silent := [name for name in found if not found[name] and name not in said_none]:
        return Reading(None, "mqm", span, f"nothing is said under {silent[0].title()}")
    errors = [error for name in WEIGHTS for error in found.get(name, [])]
    if not errors and found.keys() != WEIGHTS.keys():
        missing = next(name for name in WEIGHTS if name not in found)
        return Reading(None, "mqm", span, f"no errors, but nothing is said of {missing} ones")
    penalty = min(scale.cap, sum(WEIGHTS[error.severity] for error in errors[: scale.max_errors]))
    return Reading(-penalty if penalty else 0.0, "mqm", span, errors=tuple(errors))
