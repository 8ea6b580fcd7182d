"""Registers sets of the user's own, and says where the package's are."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from promptmetric.datasets.catalogue import Format, SetSpec, catalogue, guess_format, registered, registry_file
from promptmetric.datasets.evalset import EvalSet
from promptmetric.datasets.load import files_in, read
from promptmetric.errors import InputError
from promptmetric.types import Task

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
        InputError: there is no such file, the fields do not fit together, or the set cannot be read.
    """
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
        raise InputError(f"{name}: {path} holds several language pairs.", hint="Name one with -l, such as -l en-de.")
    files = files_in(spec.folder or path.parent, spec)
    if files is None:
        raise InputError(f"{path}: there is no {' and '.join(spec.files)} in it.")
    evalset = read(spec, files)
    _write({**registered(), name: spec})
    return evalset


def _fields(name: str, path: Path, given: Format | None, extra: Path | None) -> dict[str, object]:
    described = catalogue().get(name)
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
