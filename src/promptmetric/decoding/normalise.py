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
_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)


def normalise(text: str) -> str:
    """Text of the same length with plain digits, minus signs, quotes and colons, without Markdown emphasis.

    The thoughts of a reasoning model (up to `</think>`) are blanked out: what it says there is not its answer.
    """
    text = text.translate(_REPLACEMENTS)
    if not text.isascii():
        text = "".join(
            str(unicodedata.decimal(char)) if char.isdecimal() and not char.isascii() else char for char in text
        )
        text = _EN_DASH_AS_MINUS.sub("-", text)
    thought = _THOUGHT.match(text)
    return " " * thought.end() + text[thought.end() :] if thought else text


def blank(text: str, pattern: re.Pattern[str]) -> str:
    """Replace every match by as many NUL characters, which no rule matches."""
    return pattern.sub(lambda match: "\0" * len(match[0]), text)
