"""Judged summaries, dialogue turns and data-to-text: SummEval's own annotations, and the layout others copied."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from promptmetric.datasets.evalset import EvalSet, Judged, mean_of
from promptmetric.datasets.files import load_table, number
from promptmetric.errors import InputError

OVERALL = "overall"


def read_summeval_annotations(path: Path, sources: Path | None = None, *, name: str | None = None) -> EvalSet:
    """Read `model_annotations.aligned.jsonl`: gold is the mean of the experts, ratings are single experts.

    The crowd workers in the same file do not agree with the experts and are left out, as their authors advise.

    Args:
        path: objects with id, model_id, decoded, expert_annotations, references [, text].
        sources: JSON lines with id and text (or source), where the file has no texts; else sources are empty.
        name: how to call the set.

    Raises:
        InputError: a field is missing, or a source.
    """
    texts = _sources(sources) if sources else {}
    rows, aspects, raters = [], dict[str, None](), 0
    for place, fields in load_table(path).records():
        experts = [_scores(given, place) for given in _field(fields, "expert_annotations", place, list)]
        for expert in experts:
            expert.setdefault(OVERALL, mean_of(expert.values()))
            aspects.update(dict.fromkeys(expert))
        raters = max(raters, len(experts))
        segment = str(_field(fields, "id", place))
        if sources and segment not in texts:
            raise InputError(f"{place}: {sources} has no source for {segment}.")
        judged = dict.fromkeys(aspect for expert in experts for aspect in expert)
        ratings = {aspect: tuple(expert.get(aspect, math.nan) for expert in experts) for aspect in judged}
        rows.append(
            Judged(
                segment=segment,
                system=str(_field(fields, "model_id", place)),
                src=texts[segment] if sources else str(fields.get("text", "")),
                hyp=str(_field(fields, "decoded", place)),
                scores={aspect: mean_of(given) for aspect, given in ratings.items()},
                ratings=ratings,
                refs=_references(fields, place),
            )
        )
    return EvalSet(
        name or path.name,
        "summarization",
        tuple(_pad(row, raters) for row in rows),
        _overall_first(aspects),
        raters=tuple(f"expert {rater}" for rater in range(1, raters + 1)),
    )


def read_paired(path: Path, *, name: str | None = None) -> EvalSet:
    """Read JSON lines, or a JSON list, of texts with their mean human scores by aspect.

    Objects hold source, system_output and scores; doc_id, system_id, references (or reference) and context where they
    are known. Without doc_id, rows with the same source are one segment. The context, which judges of dialogues saw
    beside the history, follows the source after an empty line. SummEval gets the aspect `overall`, the mean of the
    others; all scores are rounded to 6 decimals, since they are means whose binary noise would split ties.

    Raises:
        InputError: a field is missing or malformed.
    """
    rows, aspects, seen = [], dict[str, None](), dict[tuple[str, str], str]()
    for place, fields in load_table(path).records():
        scores = _scores(_field(fields, "scores", place, dict), place)
        scores.setdefault(OVERALL, mean_of(scores.values()))
        aspects.update(dict.fromkeys(scores))
        source = str(_field(fields, "source", place))
        context = str(fields.get("context", ""))
        segment = str(fields["doc_id"]) if "doc_id" in fields else seen.setdefault((source, context), str(len(seen)))
        rows.append(
            Judged(
                segment=segment,
                system=str(fields.get("system_id", "system")),
                src=f"{source.rstrip()}\n\n{context}" if context else source,
                hyp=str(_field(fields, "system_output", place)),
                scores={aspect: round(score, 6) for aspect, score in scores.items() if not math.isnan(score)},
                refs=_references(fields, place),
            )
        )
    return EvalSet(name or path.name, "summarization", tuple(rows), _overall_first(aspects))


def _field(fields: Mapping[str, Any], key: str, place: str, kind: type = object) -> Any:
    if key not in fields:
        raise InputError(f"{place}: {key!r} is missing.", hint=f"It has: {', '.join(fields)}.")
    if not isinstance(fields[key], kind):
        raise InputError(f"{place}: {key!r} must be a {kind.__name__}, not {type(fields[key]).__name__}.")
    return fields[key]


def _references(fields: Mapping[str, Any], place: str) -> tuple[str, ...]:
    """A list of texts, or one text."""
    given = fields.get("references", fields.get("reference", []))
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{place}: references must be a text or a list of texts, not {given!r:.60}.")
    return tuple(texts)


def _scores(given: Any, place: str) -> dict[str, float]:
    if not isinstance(given, Mapping) or not given:
        raise InputError(f"{place}: scores must be an object of aspects, not {given!r}.")
    return {aspect: number(score, f"{place}, {aspect}") for aspect, score in given.items()}


def _sources(path: Path) -> dict[str, str]:
    table = load_table(path)
    return dict(zip(table.texts("id", "doc_id"), table.texts("text", "source", "src"), strict=True))


def _overall_first(aspects: Mapping[str, None]) -> tuple[str, ...]:
    return tuple(sorted(aspects, key=lambda aspect: aspect != OVERALL))


def _pad(row: Judged, raters: int) -> Judged:
    """A row with as many ratings as there are raters."""
    padded = {aspect: given + (math.nan,) * (raters - len(given)) for aspect, given in row.ratings.items()}
    return dataclasses.replace(row, ratings=padded)
