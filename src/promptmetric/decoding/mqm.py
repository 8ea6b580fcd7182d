"""Reads a list of errors under the headings Critical, Major and Minor, and counts it as MQM does.

An answer without such a heading holds no score: the absence of a list is not the absence of errors.
"""

from __future__ import annotations

import re

from promptmetric.scale import MqmScale
from promptmetric.types import ErrorSpan, Reading

WEIGHTS = {"critical": 25.0, "major": 5.0, "minor": 1.0}
"""Freitag et al. (2021) with GEMBA-MQM's weight for critical errors (Kocmi and Federmann, 2023)."""

_HEADING = re.compile(r"^\W*(critical|major|minor)(?:\s+(?:errors?|issues?))?\s*(?::\s*(.*)|\W*)$", re.IGNORECASE)
_NO_ERROR = re.compile(r"^\W*(?:no[- ](?:\w+\s+)?errors?|none|n/?a|nothing|-)?\W*$", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-•–]|\d{1,2}[.)])\s*")


def read_errors(text: str, scale: MqmScale) -> Reading:
    """Read the errors of a normalised answer."""
    if re.fullmatch(r"\W*no[- ]errors?\W*", text, re.IGNORECASE):
        return Reading(0.0, "no-error", (0, len(text)))
    errors: list[ErrorSpan] = []
    severity: str | None = None
    first_heading: int | None = None
    open_section = False  # a blank line after the first error ends a section: what follows is commentary
    position = 0
    for line in text.splitlines(keepends=True):
        heading = _HEADING.match(line.rstrip("\r\n"))
        if heading:
            first_heading = position if first_heading is None else first_heading
            severity, line_rest, open_section = heading[1].lower(), heading[2] or "", True
        else:
            line_rest = line
        if not line.strip():
            open_section = open_section and not (errors and errors[-1].severity == severity)
        elif severity and open_section and not _NO_ERROR.match(line_rest):
            errors.append(ErrorSpan(severity, _BULLET.sub("", line_rest).strip()))
        position += len(line)
    if first_heading is None:
        return Reading(None, reason="no Critical, Major or Minor heading in the answer")
    counted = errors[: scale.max_errors]
    penalty = min(scale.cap, sum(WEIGHTS[error.severity] for error in counted))
    return Reading(-penalty, "mqm", (first_heading, len(text)), errors=tuple(errors))
