"""Registers sets of the user's own, and says where the package's are."""

from __future__ import annotations

import difflib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from promptmetric.datasets.catalogue import Format, SetSpec, catalogue, guess_format, registered, registry_file
from promptmetric.datasets.evalset import EvalSet
from promptmetric.datasets.load import files_in, read
from promptmetric.errors import InputError
from promptmetric.prompts import LanguagePair
from promptmetric.prompts.languages import language_name
from promptmetric.types import Task

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*(/[\w.+-]+)*")
_SUMMARIES = ("paired", "rose", "seahorse", "summeval")


def add_set(
    name: str,
    path: Path | str,
    format: Format | None = None,
    *,
    task: Task | None = None,
    langs: str | None = None,
    columns: Mapping[str, str] | None = None,
    aspects: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
    extra: Path | str | None = None,
    on: Sequence[str] = (),
) -> EvalSet:
    """Register a set under a name, for this user, once it could be read.

    Args:
        name: how to call it. The name of a set the package describes says where its files are.
        path: its file; or the folder that holds a set the package describes; or a test set of mt-metrics-eval.
        format: of its file; found by its header where it is left out.
        task, langs, columns, aspects, where, on: see `read_table`; where they are left out, those of the package's set
            of this name.
        extra: the second file, where the set has one.

    Returns:
        The set.

    Raises:
        InputError: the name or the language pair is none, there is no such file, the fields do not fit together, or the
            set cannot be read.
    """
    _check_name(name)
    path = Path(path).expanduser().absolute()
    if not path.exists():
        raise InputError(f"{path}: no such file or folder.")
    changes = {
        "task": task,
        "langs": langs,
        "columns": dict(columns or {}),
        "aspects": tuple(aspects),
        "where": dict(where or {}),
        "on": tuple(on),
    }
    fields = _fields(name, path, format, Path(extra).expanduser().absolute() if extra else None)
    try:
        spec = SetSpec.model_validate({**fields, **{field: value for field, value in changes.items() if value}})
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise InputError(f"{name}: {reasons}.") from error
    if spec.format == "mtme" and spec.langs is None:
        spec = spec.model_copy(update={"langs": _only_pair(name, path)})
    if langs is not None:
        _check_langs(langs, spec.format)
    files = files_in(spec.folder or path.parent, spec)
    if files is None:
        raise InputError(f"{path}: there is no {' and '.join(spec.files)} in it.")
    evalset = read(spec, files)
    _write({**registered(), name: spec})
    return evalset


def _fields(name: str, path: Path, given: Format | None, extra: Path | None) -> dict[str, object]:
    described = catalogue().get(name)
    if described and path.is_dir() and (given == "mtme" or (path / "sources").is_dir()):
        kept = described.model_dump(include={"id", "task", "langs", "address", "licence"})
        return {**kept, "format": "mtme", "folder": path.parent, "files": (path.name,)}
    if described and path.is_dir():
        return {**described.model_dump(), "folder": path}
    if described and len(described.files) > 1 and not extra:
        raise InputError(
            f"{name} is made of {len(described.files)} files: {', '.join(described.files)}.",
            hint="Name the folder that holds them.",
        )
    files = (path.name, *([str(extra)] if extra else []))
    if described:
        return {**described.model_dump(exclude={"sha256", "urls"}), "folder": path.parent, "files": files}
    found = given or guess_format(path)
    task = "summarization" if found in _SUMMARIES else "translation"
    return {"id": name, "format": found, "task": task, "folder": path.parent, "files": files}


def _only_pair(name: str, path: Path) -> str:
    """The language pair of a test set of mt-metrics-eval that has just one."""
    pairs = sorted(file.stem for file in (path / "sources").glob("*.txt"))
    if len(pairs) != 1:
        listed = ", ".join(pairs) or "none"
        raise InputError(
            f"{name}: {path} does not hold exactly one language pair, but {listed}.",
            hint="Name one with -l, such as -l en-de." if pairs else "A test set has sources/PAIR.txt.",
        )
    return pairs[0]


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be a set's name.",
            hint="Take letters, digits, -, _ and ., with / between parts, such as mine/en-de.",
        )


def _check_langs(langs: str, set_format: Format) -> None:
    """A pair, or for SEAHORSE a single language."""
    if set_format == "seahorse":
        language_name(langs)
    else:
        LanguagePair.parse(langs)


def remove_set(name: str) -> None:
    """Forget a set that the user registered. Its files stay; a set the package describes is as it was before.

    Raises:
        InputError: the user registered none of this name.
    """
    own = registered()
    if name not in own:
        near = difflib.get_close_matches(name, own, n=3) or sorted(own)
        hint = f"You registered: {', '.join(near)}." if near else "You registered none."
        raise InputError(f"you registered no set {name!r}.", hint=hint)
    _write({other: spec for other, spec in own.items() if other != name})


def _write(specs: Mapping[str, SetSpec]) -> None:
    """Replace the file at once, so that an interruption leaves the old one."""
    path = registry_file()
    entries = [spec.model_dump(mode="json", exclude_defaults=True) for spec in specs.values()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as file:
            json.dump(entries, file, ensure_ascii=False, indent=1)
        Path(file.name).replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.") from error
