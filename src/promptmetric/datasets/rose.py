"""RoSE: summaries judged by the atomic facts of the reference which they hold (ACU)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from promptmetric.datasets.evalset import EvalSet, Judged
from promptmetric.datasets.files import load_table, number
from promptmetric.errors import InputError

ASPECTS = ("normalized_acu", "acu")


def read_rose(path: Path, *, name: str | None = None) -> EvalSet:
    """Read JSON lines (or a JSON list) of articles, each with the summaries of all systems.

    Objects hold source, reference, system_outputs {system: summary} and annotations {system: {normalized_acu, acu}}.
    The normalized score, which does not reward length, comes first. A summary without annotation is left out.

    Raises:
        InputError: a field is missing or malformed, or an annotation has no summary.
    """
    rows = []
    for index, (place, fields) in enumerate(load_table(path).records()):
        for key in ("source", "system_outputs", "annotations"):
            if key not in fields:
                raise InputError(f"{place}: {key!r} is missing.", hint=f"It has: {', '.join(fields)}.")
        outputs, annotations = (_object(fields[key], f"{place}, {key}") for key in ("system_outputs", "annotations"))
        unknown = annotations.keys() - outputs.keys()
        if unknown:
            raise InputError(f"{place}: no summary of {', '.join(sorted(unknown))}, which annotations has.")
        segment = str(fields.get("example_id", fields.get("count_id", index)))
        rows += [
            Judged(
                segment=segment,
                system=system,
                src=str(fields["source"]),
                hyp=str(outputs[system]),
                scores=_scores(annotation, f"{place}, {system}"),
                refs=(str(fields["reference"]),) if "reference" in fields else (),
            )
            for system, annotation in annotations.items()
        ]
    aspects = tuple(aspect for aspect in ASPECTS if any(aspect in row.scores for row in rows))
    return EvalSet(name or path.name, "summarization", tuple(rows), aspects)


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{place}: must be an object, not {value!r:.60}.")
    return value


def _scores(given: Any, place: str) -> dict[str, float]:
    annotation = _object(given, place)
    found = {aspect: number(annotation[aspect], f"{place}, {aspect}") for aspect in ASPECTS if aspect in annotation}
    if not found:
        raise InputError(f"{place}: neither {' nor '.join(ASPECTS)} is given.")
    return found
