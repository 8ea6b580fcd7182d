"""Texts as files hold them (UTF-8, gzipped or not; lines end in line feeds alone), and things counted in words."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from promptmetric.errors import InputError


def read_text(path: Path) -> str:
    """A UTF-8 file, gzipped or not.

    Raises:
        InputError: it cannot be read or decoded.
    """
    try:
        content = path.read_bytes()
        if path.name.endswith(".gz"):
            content = gzip.decompress(content)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: is a folder, not a file.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}.") from error
    return decode_text(content, str(path))


def decode_text(content: bytes, name: str) -> str:
    """UTF-8 as text.

    Raises:
        InputError: it is not, with the line of `name`.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name}, line {line}: not UTF-8 ({error.reason}).", hint="Convert it: iconv -f latin1 -t utf-8 FILE."
        ) from error


def read_lines(path: Path) -> list[str]:
    """Lines of a file (see `split_lines`).

    Raises:
        InputError: it cannot be read or decoded.
    """
    return split_lines(read_text(path))


def split_lines(text: str) -> list[str]:
    """Lines as separated by line feeds alone: a segment may hold any other character Unicode breaks lines at."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def counted(number: int, what: str) -> str:
    """A number of things: `1 row`, `2 rows`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
