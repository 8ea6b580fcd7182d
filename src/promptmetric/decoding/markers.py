"""The words that announce a score, shared by the numeric and the label rules."""

from __future__ import annotations

MARKER = r"\b(?:judge?ments?|scores?|ratings?|grades?|verdict|evaluation|answer|assessment|quality)\b"
ANNOUNCED = rf"{MARKER}[^\n.!?:=>]{{0,60}}?\s*[:=>][\s\"'(\[]*"
"""`Judgment: `, `Final score (0-100) = `, `"score": `, `<score>`."""

ENDS = r"(?=\s*(?:\Z|[\n.,;:!?)\]}\"'<(\-–—]))"
"""A value stands at the end of a phrase."""
