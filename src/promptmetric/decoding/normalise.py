"""One-to-one character replacements, so that a match in the normalised text has the same span in the original."""

from __future__ import annotations

import re
import unicodedata

_REPLACEMENTS = str.maketrans(
    {
        "−": "-",  # U+2212 minus
        "﹣": "-",
        "－": "-",
        "：": ":",
        "．": ".",
        "，": ",",
        "％": "%",
        "／": "/",
        "⭐": "★",
        "\u00a0": " ",
        "\u202f": " ",
        "“": '"',
        "”": '"',
        "„": '"',
        "«": '"',
        "»": '"',
        "‘": "'",
        "’": "'",
        # Markdown emphasis and headings stand between a marker and its value.
        "*": " ",
        "`": " ",
        "#": " ",
    }
)
_EN_DASH_AS_MINUS = re.compile(r"(?<![^\s:=(\[\"'])–(?=\d)")
_EMPHASIS = re.compile(r"(?<!\w)_+|_+(?!\w)")
_MINUS_AS_WORD = re.compile(r"\b(?:minus|negative)\s(?=\d)", re.IGNORECASE)
_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_NEXT_EXAMPLE = re.compile(
    r"\n[ \t]{0,9}(?:Source(?: Text)?\s*:|#{2,}\s*Instruction|Now it is your turn|(?:User|Human)\s*:|<\|im_start)",
    re.IGNORECASE,
)


def normalise(text: str) -> str:
    """Text of the same length with plain digits, minus signs, quotes and colons, without Markdown emphasis.

    What is not the answer is blanked out: the thoughts of a reasoning model (up to `</think>`), and whatever follows
    when a model goes on to invent the next example.
    """
    if (follow := _NEXT_EXAMPLE.search(text)) and text[: follow.start()].strip():
        text = text[: follow.start()] + " " * (len(text) - follow.start())
    text = text.translate(_REPLACEMENTS)
    if not text.isascii():
        text = "".join(
            str(unicodedata.decimal(char)) if char.isdecimal() and not char.isascii() else char for char in text
        )
        text = _EN_DASH_AS_MINUS.sub("-", text)
    if "_" in text:
        text = _EMPHASIS.sub(lambda match: " " * len(match[0]), text)
    text = _MINUS_AS_WORD.sub(lambda match: " " * (len(match[0]) - 1) + "-", text)
    if "</" in text and (thought := _THOUGHT.match(text)):
        return " " * thought.end() + text[thought.end() :]
    return text


def blank(text: str, pattern: re.Pattern[str]) -> str:
    """Replace every match by as many NUL characters, which no rule matches."""
    return pattern.sub(lambda match: "\0" * len(match[0]), text)
