"""Predictions as COMET's text, JSON, JSON lines or TSV. Every format marks what was imputed, failed or cut."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
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
    """A line a segment (`"type": "segment"`), then one a system (`"type": "system"`) with the signature."""
    lines: list[str] = []
    if not only_system:
        lines += [
            _segment_line(name, segment) for name, prediction in predictions.items() for segment in prediction.segments
        ]
    lines += [_system_line(name, prediction) for name, prediction in predictions.items()]
    return "".join(lines)


def _segment_line(name: str, segment: Segment) -> str:
    return json.dumps({"type": "segment", "file": name, **_segment(segment)}, ensure_ascii=False) + "\n"


def _system_line(name: str, prediction: Prediction) -> str:
    fields = {"type": "system", **_system(name, prediction), "signature": prediction.signature}
    return json.dumps(fields, ensure_ascii=False) + "\n"


class JsonLines:
    """Writes JSON lines while segments come, in the order in which they finish; then the systems.

    Args:
        write: takes a text.
        puts_off: write segments without a score at the end, when the mean that is imputed for them is known.
    """

    def __init__(self, write: Callable[[str], None], *, puts_off: bool) -> None:
        self._write = write
        self._puts_off = puts_off
        self._places: list[tuple[str, int]] = []
        self._put_off: list[int] = []

    def begin(self, sizes: Mapping[str, int]) -> Callable[[Segment], None]:
        """Start with the number of segments of each file. Returns what takes segments numbered through all files."""
        self._places = [(name, index) for name, size in sizes.items() for index in range(size)]
        self._write("")  # whether that can be written turns out before a model loads
        return self._add

    def _add(self, segment: Segment) -> None:
        if segment.status == "failed" and self._puts_off:
            self._put_off.append(segment.index)
            return
        name, index = self._places[segment.index]
        self._write(_segment_line(name, replace(segment, index=index)))

    def finish(self, predictions: Mapping[str, Prediction]) -> None:
        """Write what waited for the mean, in input order, and the systems."""
        for name, index in (self._places[place] for place in sorted(self._put_off)):
            self._write(_segment_line(name, predictions[name].segments[index]))
        for name, prediction in predictions.items():
            self._write(_system_line(name, prediction))


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
    if segment.distribution:
        belief = segment.distribution
        fields["distribution"] = {label: round(p, 6) for label, p in belief.probabilities.items() if p >= 5e-7}
        fields |= {"label_mass": belief.mass, "entropy": belief.entropy, "mode": belief.mode}
    if segment.samples:
        fields["samples"] = [{"seed": one.seed, "raw": one.raw, "text": one.text} for one in segment.samples]
    return fields


def _counts(prediction: Prediction) -> dict[Status, int]:
    return {status: n for status in NOTABLE if (n := prediction.count(status))}


def _number(value: float) -> float | None:
    """JSON knows no NaN."""
    return None if math.isnan(value) else value
