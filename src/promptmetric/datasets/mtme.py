"""Test sets in the folder layout of mt-metrics-eval."""

from __future__ import annotations

import math
from pathlib import Path

from promptmetric.datasets.evalset import EvalSet, Judged
from promptmetric.datasets.files import number
from promptmetric.errors import InputError
from promptmetric.texts import read_lines

_ASPECTS = ("mqm", "esa", "da-sqm")
"""What comes first where a pair was judged in several ways."""


def read_mtme(folder: Path, langs: str, *, name: str | None = None) -> EvalSet:
    """Read one language pair of a test set; rows are the outputs that have a human score of any aspect.

    A segment's id is its line in the test set, from 0. Judged references are `human`, and are not among their own
    references.

    Args:
        folder: the test set's folder, with sources/, system-outputs/ and human-scores/.
        langs: the language pair, such as `en-de`.
        name: how to call the set.

    Raises:
        InputError: a file is missing, or files differ in length.
    """
    source_file = folder / "sources" / f"{langs}.txt"
    if not source_file.is_file():
        pairs = ", ".join(sorted(path.stem for path in (folder / "sources").glob("*.txt"))) or "none"
        raise InputError(f"{source_file}: no such file.", hint=f"Language pairs there: {pairs}.")
    sources = read_lines(source_file)

    def aligned(path: Path) -> list[str]:
        lines = read_lines(path)
        if len(lines) != len(sources):
            raise InputError(f"{source_file} has {len(sources)} lines, but {path} has {len(lines)}.")
        return lines

    outputs = {path.stem: aligned(path) for path in sorted((folder / "system-outputs" / langs).glob("*.txt"))}
    references = {
        path.name.removeprefix(f"{langs}.").removesuffix(".txt"): aligned(path)
        for path in sorted((folder / "references").glob(f"{langs}.*.txt"))
    }
    human = _human_scores(folder, langs, len(sources))
    unknown = {system for scores in human.values() for system in scores} - outputs.keys()
    if unknown:
        raise InputError(f"{folder}: judged, but not in system-outputs/{langs}: {', '.join(sorted(unknown))}.")
    documents = folder / "documents" / f"{langs}.docs"
    docs = [line.split(None, 1) for line in aligned(documents)] if documents.is_file() else [[]] * len(sources)
    rows = []
    for system, hypotheses in outputs.items():
        for line, hypothesis in enumerate(hypotheses):
            scores = {
                aspect: given[system][line]
                for aspect, given in human.items()
                if system in given and not math.isnan(given[system][line])
            }
            if scores:
                rows.append(
                    Judged(
                        segment=str(line),
                        system=system,
                        src=sources[line],
                        hyp=hypothesis,
                        scores=scores,
                        refs=tuple(texts[line] for ref, texts in references.items() if ref != system),
                        doc=docs[line][1] if len(docs[line]) > 1 else None,
                        domain=docs[line][0] if docs[line] else None,
                        human=system in references,
                    )
                )
    known_as = name or f"{folder.name}/{langs}"
    return EvalSet(known_as, "translation", tuple(rows), tuple(human), langs, lines=len(sources))


def _human_scores(folder: Path, langs: str, segments: int) -> dict[str, dict[str, list[float]]]:
    """Scores by aspect and system, one a segment."""
    ending = ".seg.score"
    found = {
        path.name.removeprefix(f"{langs}.").removesuffix(ending): path
        for path in (folder / "human-scores").glob(f"{langs}.*{ending}")
    }
    if not found:
        raise InputError(f"{folder / 'human-scores'}: there is no {langs}.ASPECT{ending}.")
    ordered = sorted(found, key=lambda aspect: (_ASPECTS.index(aspect) if aspect in _ASPECTS else 9, aspect))
    human = {aspect: read_score_blocks(found[aspect]) for aspect in ordered}
    for aspect, systems in human.items():
        for system, scores in systems.items():
            if len(scores) != segments:
                raise InputError(
                    f"{found[aspect]}: {system} has {len(scores)} scores, but there are {segments} sources."
                )
    return human


def read_score_blocks(path: Path) -> dict[str, list[float]]:
    """Scores by system, in the order of lines `system<TAB>score`; NaN for None.

    Raises:
        InputError: a line is not of this form.
    """
    systems: dict[str, list[float]] = {}
    for line, content in enumerate(read_lines(path), 1):
        cells = content.rsplit(None, 1)
        if len(cells) != 2:
            raise InputError(f"{path}, line {line}: {content!r} is not a system and a score.")
        systems.setdefault(cells[0], []).append(number(cells[1], f"{path}, line {line}"))
    return systems
