"""Where results go: stdout, or a file that is replaced in one step."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from promptmetric.errors import InputError, PromptmetricError

STDOUT = "-"


def deliver(text: str, output: str | None) -> None:
    """Write a result to a file, or to stdout where none (or `-`) is named."""
    if output and output != STDOUT:
        _write(output, text)
    else:
        _print(text)


def _print(text: str) -> None:
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise PromptmetricError(f"stdout: cannot be written: {error.strerror}.") from error


@contextmanager
def open_stream(output: str | None) -> Iterator[Callable[[str], None]]:
    """Write a result line by line: to stdout, or to FILE.part, which becomes FILE where all goes well.

    Yields:
        A function that writes a text at once.
    """
    if not output or output == STDOUT or (Path(output).exists() and not Path(output).is_file()):
        yield _print if not output or output == STDOUT else lambda text: _write(output, text)
        return
    target = Path(output).resolve()
    part = target.with_name(f"{target.name}.part")
    file: TextIO | None = None

    def write(text: str) -> None:
        nonlocal file
        try:
            file = file or part.open("w", encoding="utf-8")
            file.write(text)
            file.flush()
        except OSError as error:
            raise PromptmetricError(f"{part}: cannot be written: {error.strerror}.") from error

    try:
        yield write
    finally:
        if file is not None:
            file.close()
    _replace(part, target)


def check_output(output: str | None, taken: Sequence[str | None]) -> None:
    """Refuse, before anything is computed, an output that cannot be written or would overwrite what the run needs."""
    if not output or output == STDOUT:
        return
    target = Path(output)
    if any(name and _is_same_file(target, Path(name)) for name in taken):
        raise InputError(f"{output}: is also an input, a recording or the model; it would be overwritten.")
    if target.is_dir():
        raise InputError(f"{output}: is a folder.")
    folder = target.resolve().parent if target.is_symlink() else target.absolute().parent
    if not folder.is_dir() and not target.exists():
        raise InputError(f"{output}: there is no folder {folder}.")
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise InputError(f"{output}: cannot be written: permission denied.")


def _is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths name one file, be it there already or not."""
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))


def _write(output: str, text: str) -> None:
    """Replace a file in one step, so that a crash leaves the old one or the new one; write through to anything else."""
    target = Path(output)
    try:
        if target.exists() and not target.is_file():  # a pipe or device
            target.write_text(text, encoding="utf-8")
            return
        target = target.resolve()
        scratch = target.with_name(f".{target.name}.part")
        scratch.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PromptmetricError(f"{output}: cannot be written: {error.strerror}.") from error
    _replace(scratch, target)


def _replace(part: Path, target: Path) -> None:
    try:
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    except OSError as error:
        raise PromptmetricError(f"{target}: cannot be written: {error.strerror}.") from error
