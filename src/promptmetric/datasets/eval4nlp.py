"""Eval4NLP 2023: WMT22 MQM and SummEval, drawn anew into train and dev."""

from __future__ import annotations

import math
from pathlib import Path

from promptmetric.datasets.evalset import EvalSet, Judged
from promptmetric.datasets.files import Table, load_table, number
from promptmetric.errors import InputError
from promptmetric.texts import read_lines

DECIMALS = 6
"""Summaries' scores carry binary noise (4.666666666675 beside 4.66666666665) that would split ties."""


def read_eval4nlp(
    path: Path, scores: Path | None = None, *, name: str | None = None, langs: str | None = None
) -> EvalSet:
    """Read a TSV file as released; its cells are quoted, whatever its README says.

    Its seg-id counts the lines of the WMT22 test set from 1. Ours count from 0, as those of mt-metrics-eval do, so that
    scores published for WMT22 fit.

    Args:
        path: columns SRC, HYP, DOC, system-name, seg-id, domain [, mqm], or SRC, HYP [, Score], model_id, id.
        scores: human scores, one a line, where the TSV has none.
        name: how to call the set.
        langs: the language pair.

    Raises:
        InputError: a column or a score is missing, or the two files differ in length.
    """
    table = load_table(path)
    summaries = table.find("model_id") is not None
    aspect = "overall" if summaries else "mqm"
    gold = _gold(table, scores, "Score" if summaries else "mqm")
    if summaries:
        gold = [round(score, DECIMALS) for score in gold]
    segments = table.texts("id") if summaries else _lines(table)
    systems = table.texts("model_id", "system-name")
    sources, hypotheses = table.texts("SRC"), table.texts("HYP")
    docs, domains = (None, None) if summaries else (table.texts("DOC"), table.texts("domain"))
    rows = tuple(
        Judged(
            segment=segments[row],
            system=systems[row],
            src=sources[row],
            hyp=hypotheses[row],
            scores={aspect: gold[row]},
            doc=docs[row] if docs else None,
            domain=domains[row] if domains else None,
        )
        for row in range(len(table))
    )
    if summaries:
        return EvalSet(name or path.name, "summarization", rows, (aspect,))
    return EvalSet(name or path.name, "translation", rows, (aspect,), langs)


def _lines(table: Table) -> list[str]:
    ids = table.texts("seg-id")
    wrong = next((row for row, segment in enumerate(ids) if not segment.isdecimal() or segment == "0"), None)
    if wrong is not None:
        raise InputError(f"{table.place(wrong)}: seg-id is {ids[wrong]!r}, not a number from 1.")
    return [str(int(segment) - 1) for segment in ids]


def _gold(table: Table, scores: Path | None, column: str) -> list[float]:
    if scores is None:
        gold, places = table.numbers(column), [table.place(row) for row in range(len(table))]
    else:
        lines = read_lines(scores)
        places = [f"{scores}, line {line}" for line in range(1, len(lines) + 1)]
        gold = [number(line, place) for line, place in zip(lines, places, strict=True)]
        if len(gold) != len(table):
            raise InputError(f"{table.path} has {len(table)} rows, but {scores} has {len(gold)} scores.")
    for score, place in zip(gold, places, strict=True):
        if math.isnan(score):
            raise InputError(f"{place}: the human score is missing.")
    return gold
