"""Downloads with a pinned checksum: into a part file, checked, then renamed."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from promptmetric.errors import InputError

TIMEOUT = 30.0
"""Seconds without a byte before a download is given up."""

MOST_BYTES = 2**30
"""No set is larger; more is a mistake, or an archive made to fill the disk."""

_PATIENCE = 2.0
"""Seconds before progress is shown, and between two lines of it."""

_CHUNK = 2**16


def fetch(url: str, target: Path, sha256: str) -> None:
    """Download a file, or the one of its kind in a zip archive, and put it in its place once its checksum is right.

    Args:
        url: the address of the file; it ends in `.zip` where that is an archive which holds it.
        target: where to put it.
        sha256: of the file itself.

    Raises:
        InputError: it cannot be fetched, is not in the archive, or has another checksum. Nothing is left behind.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    by_hand = f"By hand: fetch {url} and put {target.name} at {target}."
    with _part_file(target) as part, _part_file(target) as unpacked:
        _stream(url, part, by_hand)
        zipped = url.endswith(".zip") and target.suffix != ".zip"
        if zipped:
            _unpack(url, part, unpacked, target.name)
        found = unpacked if zipped else part
        with found.open("rb") as content:
            checksum = hashlib.file_digest(content, "sha256").hexdigest()
        if checksum != sha256:
            raise InputError(
                f"{url}: {target.name} has sha256 {checksum}, not {sha256}; it is not used.",
                hint="It was changed since, or on its way.",
            )
        found.chmod(0o644)  # a cache may be shared
        found.replace(target)


@contextmanager
def _part_file(target: Path) -> Iterator[Path]:
    """A file beside the target, gone in the end; each download has its own, so that two do not mix."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", suffix=".part", delete=False) as it:
        part = Path(it.name)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _stream(url: str, part: Path, by_hand: str) -> None:
    import httpx

    progress = _Progress(url)
    try:
        with (
            httpx.stream("GET", url, follow_redirects=True, timeout=TIMEOUT) as response,
            part.open("wb") as out,
        ):
            response.raise_for_status()
            length = int(response.headers.get("content-length", 0))
            _within_limit(url, length)
            size = 0
            for chunk in response.iter_bytes(_CHUNK):
                size += len(chunk)
                _within_limit(url, size)
                out.write(chunk)
                progress.show(size, length)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InputError(f"{url}: cannot be fetched: {error or type(error).__name__}.", hint=by_hand) from error


def _within_limit(url: str, size: int) -> None:
    if size > MOST_BYTES:
        raise InputError(f"{url}: larger than {MOST_BYTES // 2**20} MB; given up.")


def _unpack(url: str, archive: Path, target: Path, name: str) -> None:
    """Take one file out of a zip archive: the one of this name, or the only one with this ending."""
    try:
        with zipfile.ZipFile(archive) as packed:
            member = _member(url, packed, name)
            _within_limit(url, member.file_size)
            with packed.open(member) as content, target.open("wb") as out:
                _copy(url, content, out)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{url}: not a usable zip archive: {error}.") from error


def _member(url: str, packed: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    for info in packed.infolist():
        path = PurePosixPath(info.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"{url}: refused, since it holds {info.filename!r}, outside its own folder.")
    # Archives made on a Mac hold a shadow of each file.
    members = [info for info in packed.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    named = [info for info in members if PurePosixPath(info.filename).name == name]
    alike = [info for info in members if PurePosixPath(info.filename).suffix == Path(name).suffix]
    for found in (named, alike):
        if len(found) == 1:
            return found[0]
    raise InputError(f"{url}: no {name} in it, but {', '.join(info.filename for info in members) or 'nothing'}.")


def _copy(url: str, content: IO[bytes], out: BinaryIO) -> None:
    """Unpack no more than the limit, whatever size the archive states."""
    size = 0
    while chunk := content.read(_CHUNK):
        size += len(chunk)
        _within_limit(url, size)
        out.write(chunk)


class _Progress:
    """Now and then a line on stderr, none where it is over quickly."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._next = time.monotonic() + _PATIENCE

    def show(self, size: int, length: int) -> None:
        if time.monotonic() >= self._next:
            of = f" of {length / 2**20:.1f}" if length else ""
            print(f"{self._url}: {size / 2**20:.1f}{of} MB", file=sys.stderr)
            self._next = time.monotonic() + _PATIENCE
