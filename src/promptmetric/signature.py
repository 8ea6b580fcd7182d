"""The line that pins a result: `prompt:…|model:…|engine:…`, in the manner of sacreBLEU (Post, 2018)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from urllib.parse import quote, unquote

from promptmetric.errors import InputError


@dataclass(frozen=True, slots=True)
class Signature:
    """What has to be equal for two scores to be comparable. Written and read back without loss."""

    prompt: str
    """The prompt's id."""
    content: str
    """Short hash of the prompt's content: a changed text or scale changes it, whatever its id."""
    task: str
    langs: str
    """The language pair the run was given, `none`, or `mixed` where samples name their own."""
    model: str
    revision: str
    engine: str
    decode: str
    fallback: str
    version: str

    def __str__(self) -> str:
        return "|".join(f"{f.name}:{_escape(getattr(self, f.name))}" for f in fields(self))

    @classmethod
    def parse(cls, line: str) -> Signature:
        """Read a signature line back.

        Raises:
            InputError: the line has no such form, or a field is missing, unknown or given twice.
        """
        found: dict[str, str] = {}
        for part in line.strip("\r\n").split("|"):
            key, colon, value = part.partition(":")
            if not colon or key in found:
                raise InputError(f"not a promptmetric signature: {part!r} is no new 'key:value'.")
            found[key] = unquote(value)
        names = {f.name for f in fields(cls)}
        if names != set(found):
            odd = ", ".join(sorted(names ^ set(found)))
            raise InputError(f"not a promptmetric signature: missing or unknown fields: {odd}.")
        return cls(**found)


def _escape(value: str) -> str:
    """Percent-encode only what would break the line: colons stay readable, since a key has none."""
    return "".join(quote(c, safe="") if c in "%|" or not c.isprintable() else c for c in value)
