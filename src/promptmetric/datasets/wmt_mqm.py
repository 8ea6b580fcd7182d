"""Google's MQM annotations of WMT systems: one error a line."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from promptmetric.datasets.evalset import EvalSet, Judged, mean_of
from promptmetric.datasets.files import Table, load_table
from promptmetric.datasets.table import unmarked
from promptmetric.errors import InputError

SEVERITIES = {"major": 5.0, "minor": 1.0, "neutral": 0.0, "no-error": 0.0}
NON_TRANSLATION = 25.0
MINOR_PUNCTUATION = 0.1
UNCOUNTED = ("source issue", "accuracy/creative reinterpretation")
"""Categories that weigh nothing: WMT23 introduced them for what is no fault of the translation."""
ATTENTION_TEST = "hotw-test"
"""Errors planted to see whether raters look; they say nothing about a system."""

_REFERENCE = re.compile(r"(ref|human|reference)([-_.]?[a-z0-9])?([._]\d+)?", re.IGNORECASE)


def read_wmt_mqm(path: Path, *, name: str | None = None, langs: str | None = None) -> EvalSet:
    """Read a TSV file as released: the negative sum of the weights a rater, and the mean of the raters.

    Weights (Freitag et al. 2021): non-translation 25, major 5, minor 1, minor punctuation 0.1, neutral 0, and 0 for
    issues of the source and creative reinterpretation, as in the official scores of WMT23. Raters have
    edited some texts while marking errors; a row has the wording that most of its lines have, without marks. Planted
    errors (HOTW-test) do not count; a row nobody judged otherwise has no score and is left out.

    Args:
        path: columns system, doc, doc_id, seg_id, rater, source, target, category and severity, under the names of
            any year; a `.tsv` file without quoting.
        name: how to call the set.
        langs: the language pair.

    Raises:
        InputError: a column is missing or a severity unknown.
    """
    table = load_table(path, quoted=False)
    systems, docs, raters = table.texts("system"), table.texts("doc"), table.texts("rater")
    sources, targets = table.texts("source"), table.texts("target")
    segments = _segments(table, docs)
    weights = [_weight(table, row) for row in range(len(table))]
    lines: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(systems, segments, strict=True)):
        lines[key].append(row)
    names = tuple(sorted(set(raters)))
    rows = []
    for (system, segment), at in lines.items():
        ratings = tuple(_rating([weights[row] for row in at if raters[row] == rater]) for rater in names)
        if all(math.isnan(rating) for rating in ratings):
            continue
        rows.append(
            Judged(
                segment=segment,
                system=system,
                src=_wording([sources[row] for row in at]),
                hyp=_wording([targets[row] for row in at]),
                scores={"mqm": mean_of(ratings)},
                ratings={"mqm": ratings},
                doc=docs[at[0]],
                human=_REFERENCE.fullmatch(system) is not None,
            )
        )
    return EvalSet(name or path.name, "translation", tuple(rows), ("mqm",), langs, names)


def _segments(table: Table, docs: Sequence[str]) -> list[str]:
    """The number in the test set, or document and number where numbers start anew in each document."""
    column = table.find("globalSegId", "seg_id", "segment_id") or "seg_id"
    numbers = table.texts(column)
    first: dict[str, str] = {}
    if all(first.setdefault(number, doc) == doc for number, doc in zip(numbers, docs, strict=True)):
        return numbers
    return [f"{doc}:{number}" for number, doc in zip(numbers, docs, strict=True)]


def _weight(table: Table, row: int) -> float | None:
    severity = str(table.column("severity")[row]).strip().casefold().replace(" ", "-")
    category = str(table.column("category")[row]).strip().casefold()
    if severity == ATTENTION_TEST:
        return None
    if severity not in SEVERITIES:
        raise InputError(
            f"{table.place(row)}: unknown severity {table.column('severity')[row]!r}.",
            hint=f"Known: {', '.join(SEVERITIES)}.",
        )
    if category in UNCOUNTED:
        return 0.0
    if category.startswith("non-translation") and SEVERITIES[severity]:
        return NON_TRANSLATION
    if severity == "minor" and category.startswith("fluency/punctuation"):
        return MINOR_PUNCTUATION
    return SEVERITIES[severity]


def _rating(weights: Sequence[float | None]) -> float:
    """A rater's score; NaN where there are no lines, or tests of attention alone."""
    known = [weight for weight in weights if weight is not None]
    return -round(math.fsum(known), 6) if known else math.nan


def _wording(texts: Sequence[str]) -> str:
    """What most lines have, the first of equals."""
    return Counter(map(_plain, texts)).most_common(1)[0][0]


def _plain(text: str) -> str:
    """Without marks, and without the quotes which a cell keeps where it was quoted once too often."""
    text = unmarked(text)
    inside = text[1:-1]
    wrapped = len(text) > 1 and text[0] == text[-1] == '"' and '"' in inside
    return inside.replace('""', '"') if wrapped and '"' not in inside.replace('""', "") else text
