"""SEAHORSE: summaries in six languages with yes-or-no judgments."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

from promptmetric.datasets.evalset import EvalSet, Judged, mean_of
from promptmetric.datasets.files import Table, load_table
from promptmetric.errors import InputError

QUESTIONS = tuple(f"question{n}" for n in range(1, 6))
"""Comprehensible, no repetition, grammatical, attributable, main ideas. The sixth, conciseness, is not counted."""

_ANSWERS = {"yes": 1, "no": 0, "unsure": 0, "": 0}


def read_seahorse(
    path: Path, sources: Path | None = None, *, name: str | None = None, lang: str | None = None
) -> EvalSet:
    """Read a TSV file as released.

    The score is PrExMe's: 0 where the first question (is it comprehensible?) is answered No, else 0.2 for every Yes
    among the first five. Where several workers judged a summary, the score is their mean and each is a rating.

    Args:
        path: columns gem_id, worker_lang, summary, model, question1 … question6.
        sources: JSON lines with gem_id and source, since the TSV has no articles; else sources are empty.
        name: how to call the set.
        lang: keep only this `worker_lang`.

    Raises:
        InputError: a column, an answer or a source is missing or unknown.
    """
    table = load_table(path, quoted=False)
    segments, systems, summaries = table.texts("gem_id"), table.texts("model"), table.texts("summary")
    languages = table.texts("worker_lang")
    texts = _sources(sources) if sources else {}
    judged: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in range(len(table)):
        if lang in (None, languages[row]):
            judged[segments[row], systems[row]].append(row)
    if not judged:
        there = ", ".join(sorted(set(languages))) or "none"
        raise InputError(f"{path}: no row has worker_lang {lang}.", hint=f"There are: {there}.")
    workers = max(map(len, judged.values()))
    rows = []
    for (segment, system), at in judged.items():
        if sources and segment not in texts:
            raise InputError(f"{table.place(at[0])}: {sources} has no source for {segment}.")
        differing = next((row for row in at if summaries[row] != summaries[at[0]]), None)
        if differing is not None:
            raise InputError(f"{table.place(differing)}: {system} has another summary of {segment} further up.")
        scores = [_score(table, row) for row in at]
        rows.append(
            Judged(
                segment=segment,
                system=system,
                src=texts.get(segment, ""),
                hyp=summaries[at[0]],
                scores={"score": mean_of(scores)},
                ratings={"score": tuple(scores) + (math.nan,) * (workers - len(at))} if workers > 1 else {},
                human=system == "reference",
            )
        )
    raters = tuple(f"worker {n}" for n in range(1, workers + 1)) if workers > 1 else ()
    return EvalSet(name or path.name, "summarization", tuple(rows), ("score",), raters=raters)


def _score(table: Table, row: int) -> float:
    answers = [_answer(table, question, row) for question in QUESTIONS]
    first = str(table.column(QUESTIONS[0])[row]).strip().casefold()
    return 0.0 if first == "no" else round(0.2 * sum(answers), 1)


def _answer(table: Table, question: str, row: int) -> int:
    value = str(table.column(question)[row]).strip()
    if value.casefold() not in _ANSWERS:
        raise InputError(f"{table.place(row)}: {question} is {value!r}, not Yes, No or Unsure.")
    return _ANSWERS[value.casefold()]


def _sources(path: Path) -> dict[str, str]:
    table = load_table(path)
    return dict(zip(table.texts("gem_id"), table.texts("source", "src", "text"), strict=True))
