"""Predictions as COMET's text, JSON, JSON lines or TSV. Every format marks what was imputed, failed or cut."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from promptmetric.types import Prediction, Segment, Status

OutputFormat = Literal["text", "json", "jsonl", "tsv"]
NOTABLE: tuple[Status, ...] = ("imputed", "failed", "truncated", "empty")


def format_predictions(
    predictions: Mapping[str, Prediction], output: OutputFormat, *, only_system: bool = False
) -> str:
    """Write the predictions of several systems.

    Args:
        predictions: by the name of the hypothesis file.
        output: the format.
        only_system: leave the segments out.

    Returns:
        The whole output, ending in a line feed.
    """
    return _WRITERS[output](predictions, only_system)


def _text(predictions: Mapping[str, Prediction], only_system: bool) -> str:
    """COMET's lines; a segment that is not plainly scored carries its status in a further column."""
    lines = []
    for name, prediction in predictions.items():
        if not only_system:
            for segment in prediction.segments:
                mark = "" if segment.status == "ok" else f"\t{segment.status}"
                lines.append(f"{name}\tSegment {segment.index}\tscore: {segment.score:.4f}{mark}")
        marks = "".join(f"\t{status}: {n} of {len(prediction.scores)}" for status, n in _counts(prediction).items())
        lines.append(f"{name}\tscore: {prediction.system_score:.4f}{marks}")
    return "\n".join(lines) + "\n"


def _json(predictions: Mapping[str, Prediction], only_system: bool) -> str:
    systems = []
    for name, prediction in predictions.items():
        system = _system(name, prediction)
        if not only_system:
            system["segments"] = [_segment(segment) for segment in prediction.segments]
        systems.append(system)
    signature = next(iter(predictions.values())).signature if predictions else None
    return json.dumps({"signature": signature, "systems": systems}, ensure_ascii=False, indent=1) + "\n"


def _jsonl(predictions: Mapping[str, Prediction], only_system: bool) -> str:
    """A line a segment (`"type": "segment"`), then one for its system (`"type": "system"`) with the signature."""
    lines: list[dict[str, Any]] = []
    for name, prediction in predictions.items():
        if not only_system:
            lines += [{"type": "segment", "file": name, **_segment(segment)} for segment in prediction.segments]
        lines.append({"type": "system", **_system(name, prediction), "signature": prediction.signature})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _tsv(predictions: Mapping[str, Prediction], only_system: bool) -> str:
    """A header, a row a segment and a row a system (segment "system"); missing values are empty."""
    columns = ["file", "segment", "score", "raw", "status", "reason", "text", "signature"]
    rows: list[Iterable[Any]] = [columns]
    for name, prediction in predictions.items():
        if not only_system:
            for segment in prediction.segments:
                fields = _segment(segment)
                rows.append([name, *(fields[column] for column in columns[1:-1]), prediction.signature])
        marks = ", ".join(f"{status}: {n}" for status, n in _counts(prediction).items()) or "ok"
        rows.append([name, "system", _number(prediction.system_score), "", marks, "", "", prediction.signature])
    out = io.StringIO()
    csv.writer(out, dialect="excel-tab", lineterminator="\n").writerows(rows)
    return out.getvalue()


_WRITERS: dict[OutputFormat, Callable[[Mapping[str, Prediction], bool], str]] = {
    "text": _text,
    "json": _json,
    "jsonl": _jsonl,
    "tsv": _tsv,
}


def _system(name: str, prediction: Prediction) -> dict[str, Any]:
    return {
        "file": name,
        "score": _number(prediction.system_score),
        "n": len(prediction.scores),
        **{status: prediction.count(status) for status in NOTABLE},
    }


def _segment(segment: Segment) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "segment": segment.index,
        "score": _number(segment.score),
        "raw": segment.raw,
        "status": segment.status,
        "rule": segment.rule,
        "reason": segment.reason,
        "text": segment.text,
        "attempts": segment.attempts,
    }
    if segment.errors:
        fields["errors"] = [{"severity": error.severity, "text": error.text} for error in segment.errors]
    return fields


def _counts(prediction: Prediction) -> dict[Status, int]:
    return {status: n for status in NOTABLE if (n := prediction.count(status))}


def _number(value: float) -> float | None:
    """JSON knows no NaN."""
    return None if math.isnan(value) else value
