"""Where results go: stdout, or a file that is replaced in one step."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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


def is_stream(output: str | None) -> bool:
    """Whether what is written there is passed on at once: stdout, a pipe or a device, and no file."""
    return not output or output == STDOUT or (Path(output).exists() and not Path(output).is_file())


@contextmanager
def open_stream(output: str | None) -> Iterator[Callable[[str], None]]:
    """Write a result piece by piece: to a stream, or to FILE.part, where it can be watched until FILE is there.

    FILE.part goes in the end, and stays where an error ends the run after something was written.

    Yields:
        A function that writes a text at once. Its first call opens the file, and refuses one that another run writes.
    """
    if not output or output == STDOUT:
        yield _print
        return
    part = None if is_stream(output) else _part_of(Path(output))
    path = part or Path(output)
    file: TextIO | None = None

    def write(text: str) -> None:
        nonlocal file
        try:
            file = file or (_open_part(path, output) if part else path.open("w", encoding="utf-8"))
            file.write(text)
            file.flush()
        except BrokenPipeError:  # the reader has seen enough
            raise
        except OSError as error:
            raise PromptmetricError(f"{path}: cannot be written: {error.strerror}.") from error

    is_done = False
    try:
        yield write
        is_done = True
    finally:
        if file is not None:
            with suppress(OSError):  # closing tries a failed write again, which was told already
                file.close()
                if part and (is_done or part.stat().st_size == 0):
                    part.unlink()


def _part_of(output: Path) -> Path:
    """FILE.part, beside the file that a link leads to."""
    target = output.resolve()
    return target.with_name(f"{target.name}.part")


def _open_part(path: Path, output: str) -> TextIO:
    """Open a file and empty it, unless another run writes it: its lock ends with its process, however that ends."""
    file = path.open("a", encoding="utf-8")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise InputError(f"{output}: another run is writing it.", hint="Wait for its end, or name another.") from error
    except (ImportError, OSError):  # Windows, and file systems without locks
        pass
    file.truncate(0)
    return file


def check_output(output: str | None, taken: Sequence[str | None]) -> None:
    """Refuse, before anything is computed, an output that cannot be written or would overwrite what the run needs."""
    if not output or output == STDOUT:
        return
    target = Path(output)
    for mine in (target, _part_of(target)):
        if any(name and _is_same_file(mine, Path(name)) for name in taken):
            raise InputError(f"{mine}: is also an input, a recording or the model; it would be overwritten.")
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
        scratch = target.with_name(f".{target.name}.{os.getpid()}.part")  # another run may end at the same time
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
