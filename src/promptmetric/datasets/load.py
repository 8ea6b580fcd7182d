"""From a name or a path to a set."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from promptmetric.datasets.catalogue import FOLDER_VARIABLE, SetSpec, data_folder, get_spec, guess_format, known_sets
from promptmetric.datasets.evalset import EvalSet
from promptmetric.errors import InputError
from promptmetric.prompts import LanguagePair
from promptmetric.texts import counted

_WITH_LANGS = re.compile(r"(?P<path>.+):(?P<langs>[a-z]{2,3}(?:_[A-Za-z]+)?-[a-z]{2,3}(?:_[A-Za-z]+)?)")


def load_set(name_or_path: str | Path, *, data: Path | None = None) -> EvalSet:
    """Read a set of human judgments.

    Args:
        name_or_path: a set's name (`known_sets`); a file, read by its header; or a folder of mt-metrics-eval with the
            language pair, as `FOLDER:en-de` (which names the pair of a file, too).
        data: a data folder, looked into before all others.

    A named set is looked for in `data`, where the user registered it, in `PROMPTMETRIC_DATA` and among downloads; and
    downloaded where its address and its checksum are known.

    Raises:
        InputError: there is no such set, its files are not here (with the way to get them), or they are malformed.
    """
    name = str(name_or_path)
    known = {spec.id for spec in known_sets()}
    if name not in known:
        spec = _spec_of_path(name)
        return read(spec, [Path(file) for file in spec.files])
    spec = get_spec(name)
    return read(spec, find_files(spec, data) or _download(spec))


def find_files(spec: SetSpec, data: Path | None = None) -> list[Path] | None:
    """A set's files, in the first folder that has them all; None where none does."""
    named = os.environ.get(FOLDER_VARIABLE)
    folders = (data, spec.folder, Path(named).expanduser() if named else None, data_folder())
    for folder in folders:
        if folder is not None and (found := files_in(folder, spec)):
            return found
    return None


def files_in(folder: Path, spec: SetSpec) -> list[Path] | None:
    """A set's files in this folder; None where one is missing."""
    files = [folder / file for file in spec.files]
    return files if all(file.exists() for file in files) else None


def how_to_get(spec: SetSpec) -> str:
    """What to do where a set's files are not here."""
    steps = [spec.get or (f"It comes from {spec.address}." if spec.address else "")]
    steps.append(
        f"Put {' and '.join(spec.files)} into a folder named by {FOLDER_VARIABLE}, "
        f"or run `promptmetric data add {spec.id} FOLDER`."
    )
    return " ".join(step for step in steps if step)


def read(spec: SetSpec, files: list[Path]) -> EvalSet:
    """Read files as a set says."""
    evalset = _read(spec, files)
    return replace(evalset, lines=spec.lines) if spec.lines else evalset


def _read(spec: SetSpec, files: list[Path]) -> EvalSet:
    first, second = files[0], files[1] if len(files) > 1 else None
    match spec.format:
        case "eval4nlp":
            from promptmetric.datasets.eval4nlp import read_eval4nlp

            return read_eval4nlp(first, second, name=spec.id, langs=spec.langs)
        case "mtme":
            from promptmetric.datasets.mtme import read_mtme

            return read_mtme(first, spec.langs or "", name=spec.id)
        case "paired":
            from promptmetric.datasets.summeval import read_paired

            return read_paired(first, name=spec.id)
        case "rose":
            from promptmetric.datasets.rose import read_rose

            return read_rose(first, name=spec.id)
        case "seahorse":
            from promptmetric.datasets.seahorse import read_seahorse

            return read_seahorse(first, second, name=spec.id, lang=spec.langs)
        case "summeval":
            from promptmetric.datasets.summeval import read_summeval_annotations

            return read_summeval_annotations(first, second, name=spec.id)
        case "wmt-mqm":
            from promptmetric.datasets.wmt_mqm import read_wmt_mqm

            return read_wmt_mqm(first, name=spec.id, langs=spec.langs)
        case "table":
            from promptmetric.datasets.table import read_table

            return read_table(
                first,
                name=spec.id,
                task=spec.task,
                langs=spec.langs,
                columns=spec.columns,
                aspects=spec.aspects or None,
                where=spec.where,
                join=second,
                on=spec.on,
                marked=spec.marked,
            )


def _spec_of_path(name: str) -> SetSpec:
    path, langs = Path(name).expanduser(), None
    match = _WITH_LANGS.fullmatch(name)
    if match and not path.exists():
        path, langs = Path(match["path"]).expanduser(), match["langs"]
        if path.is_file():
            LanguagePair.parse(langs)
    if not path.exists():
        if match or path.suffix or len(path.parts) > 3:
            raise InputError(
                f"{path}: no such file, and no set has this name.",
                hint="`promptmetric data list` prints the sets there are.",
            )
        get_spec(name)  # raises, with near names
    if path.is_dir() and langs is None:
        pairs = ", ".join(sorted(file.stem for file in (path / "sources").glob("*.txt")))
        raise InputError(f"{path} is a folder.", hint=f"Name its language pair: {path}:PAIR, of {pairs or 'en-de, …'}.")
    companion = path.with_suffix(".seg.scores")
    found = guess_format(path)
    files = (str(path), str(companion)) if found == "eval4nlp" and companion.exists() else (str(path),)
    return SetSpec(id=name, format=found, langs=langs, files=files)


def _download(spec: SetSpec) -> list[Path]:
    if not spec.urls:
        raise InputError(f"{spec.id}: its files are not here.", hint=how_to_get(spec))
    from promptmetric.datasets.download import fetch

    targets = [data_folder() / file for file in spec.files]
    for target, url, sha256 in zip(targets, spec.urls, spec.sha256, strict=True):
        if not target.exists():
            fetch(url, target, sha256)
    return targets


@dataclass(frozen=True)
class SetReport:
    """What `verify_set` found.

    Attributes:
        name: the set.
        files: where it was read from; none where it is not here.
        rows, systems, segments: its counts.
        problems: what differs from the catalogue, or kept it from being read.
        checked: what was compared.
    """

    name: str
    files: tuple[Path, ...]
    rows: int = 0
    systems: int = 0
    segments: int = 0
    problems: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the set is here and as it should be."""
        return bool(self.files) and not self.problems


def verify_set(name: str, *, data: Path | None = None) -> SetReport:
    """Compare a set's files with what the catalogue says of them: checksums, and counts as read. Downloads nothing.

    Raises:
        InputError: no set has this name.
    """
    spec = get_spec(name)
    files = find_files(spec, data)
    if files is None:
        return SetReport(name, (), problems=(f"not here. {how_to_get(spec)}",))
    problems, checked = [], []
    for file, expected in zip(files, spec.sha256, strict=False):
        checked.append("sha256")
        with file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != expected:
            problems.append(f"{file}: its sha256 is {found}, not {expected}.")
    try:
        evalset = read(spec, files)
    except InputError as error:
        return SetReport(name, tuple(files), problems=(*problems, str(error)))
    counts = {"rows": len(evalset.rows), "systems": len(evalset.systems), "segments": len(evalset.segments)}
    for what, count in counts.items():
        expected_count = getattr(spec, what)
        if expected_count is not None:
            checked.append(what)
            if count != expected_count:
                problems.append(f"{counted(count, what.removesuffix('s'))}, but {expected_count} are expected.")
    return SetReport(name, tuple(files), **counts, problems=tuple(problems), checked=tuple(dict.fromkeys(checked)))
