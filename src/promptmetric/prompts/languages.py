"""Language pairs and the English names of languages (from CLDR, through babel)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from promptmetric.errors import InputError


class LanguagePair(NamedTuple):
    """Source and target language codes, such as `en` and `de`, or `en` and `zh_CN`."""

    src: str
    tgt: str

    @classmethod
    def parse(cls, text: str) -> LanguagePair:
        """Read `en-de`, `en_de` or, with regions, `en-pt_BR`.

        Raises:
            InputError: it is not a pair, or a language is unknown.
        """
        if not isinstance(text, str):
            raise InputError(f"a language pair is text such as 'en-de', not {text!r}.")
        separator = "-" if "-" in text else "_"
        codes = text.split(separator)
        if len(codes) != 2 or not all(codes):
            raise InputError(
                f"{text!r} is not a language pair.",
                hint="Write source-target, such as en-de; a region or script takes an underscore: en-pt_BR.",
            )
        for code in codes:
            language_name(code)
        return cls(*(code if "_" in code else code.lower() for code in codes))

    def __str__(self) -> str:
        return f"{self.src}-{self.tgt}"


@lru_cache
def language_name(code: str) -> str:
    """English name of a language code: `de` is German, `pt_BR` Portuguese (Brazil).

    Raises:
        InputError: the code is unknown.
    """
    from babel import Locale, UnknownLocaleError

    english = Locale("en")
    language, _, rest = code.replace("-", "_").partition("_")
    name = english.languages.get(language.lower())
    if name is not None and not rest:
        return str(name)
    if name is not None:
        try:
            return str(Locale.parse(code, sep="-" if "-" in code else "_").get_display_name("en"))
        except (UnknownLocaleError, ValueError):
            territory = english.territories.get(rest.upper())
            if territory is not None:
                return f"{name} ({territory})"
    raise InputError(
        f"{code!r} is not a language code.",
        hint="Use ISO 639-1 codes such as en, de, zh, he or pt_BR (three letters only where there are no two).",
    )
