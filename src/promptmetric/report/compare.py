"""A comparison of systems as text, markdown, JSON or TSV."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any, Literal

from promptmetric.bench.compare import SystemComparison
from promptmetric.report.tables import markdown_table, table
from promptmetric.stats.paired import PairedDifference
from promptmetric.texts import counted

CompareFormat = Literal["text", "markdown", "json", "tsv"]


def format_comparison(found: SystemComparison, output: CompareFormat) -> str:
    """The whole output, ending in a line feed."""
    if output == "json":
        return json.dumps(_as_json(found), ensure_ascii=False, indent=1) + "\n"
    if output == "tsv":
        return _tsv(found)
    draw = table if output == "text" else markdown_table
    systems = [
        [str(one.rank), one.name, f"{one.score:.4f}", f"[{one.interval.low:.4f}, {one.interval.high:.4f}]"]
        for one in found.systems
    ]
    pairs = [
        [
            f"{found.systems[one.first].name} {_sign(one)} {found.systems[one.second].name}",
            f"{one.delta:.4f}",
            f"[{one.interval.low:.4f}, {one.interval.high:.4f}]",
            f"{one.p:.4f}",
            f"{one.adjusted:.4f}",
            f"{one.wins}/{one.ties}/{one.losses}",
            _verdict(found, one),
        ]
        for one in found.differences
    ]
    lines = [
        draw(["cluster", "system", "score", "95 % interval"], systems),
        "",
        draw(
            ["pair", "difference", "95 % interval", "p", "p (Holm)", "wins/ties/losses", f"at n={found.segments}"],
            pairs,
        ),
        "",
        *_foot(found),
    ]
    return "\n".join(lines) + "\n"


def _sign(one: PairedDifference) -> str:
    """`=` where the observed scores are the same, which is no statement about the systems."""
    return "=" if one.wins == one.losses == 0 else ">"


def _verdict(found: SystemComparison, one: PairedDifference) -> str:
    if one.adjusted < found.alpha:
        return "distinguishable from noise"
    if one.wins == one.losses == 0:
        return "the same score on every segment"
    if one.detectable is None:
        return f"no difference can be found with {_too_few(found)}"
    return f"not distinguishable; a true difference of {one.detectable:.4f} would mostly be found"


def _too_few(found: SystemComparison) -> str:
    """What there is too little of."""
    by_segments = 2 * 0.5**found.segments * len(found.differences)
    return counted(found.segments, "segment") if by_segments >= found.alpha else counted(found.draws, "draw")


def _foot(found: SystemComparison) -> list[str]:
    pairs = counted(len(found.differences), "pair")
    how = f"exact (all {2**found.segments} exchanges)" if found.exact else f"{found.draws} draws, seed {found.seed}"
    lines = [
        f"Paired permutation test, two-sided, {how}; clusters and verdicts by p after Holm's correction for {pairs} "
        f"< {found.alpha:g}. Not distinguishable does not mean equal.",
    ]
    if found.lowest >= found.alpha:
        lines.append(
            f"With {_too_few(found)}, p after the correction is {found.lowest:.4f} at best, however large a difference "
            f"is: the test can find none, which says nothing about the systems."
        )
    else:
        lines.append(
            "Would mostly be found: about four times out of five, with as many segments and p after the correction."
        )
    lines.append(f"Intervals: {found.draws} bootstrap draws of segments, seed {found.seed}.")
    if found.left_out:
        total = found.segments + found.left_out
        lines.append(f"Left out: {found.left_out} of {total} segments, for which some system's answer holds no score.")
    lines.append("Whether the metric itself can be trusted, `promptmetric meta-eval` tells.")
    lines.append(f"Signature: {found.signature}")
    return lines


def _as_json(found: SystemComparison) -> dict[str, Any]:
    content = asdict(found)
    for one in content["differences"]:
        one["first"], one["second"] = (found.systems[one[side]].name for side in ("first", "second"))
    return content


def _tsv(found: SystemComparison) -> str:
    """A row a pair of systems, the better one first, with both scores."""
    columns = ["first", "second", "first_score", "second_score", "difference", "low", "high", "p", "p_holm"]
    columns += ["wins", "ties", "losses", "detectable", "n"]
    out = io.StringIO()
    writer = csv.writer(out, dialect="excel-tab", lineterminator="\n")
    writer.writerow(columns)
    for one in found.differences:
        first, second = found.systems[one.first], found.systems[one.second]
        interval = (one.interval.low, one.interval.high)
        counts = (one.wins, one.ties, one.losses, one.detectable, found.segments)
        scores = (first.score, second.score, one.delta, *interval, one.p, one.adjusted)
        writer.writerow([first.name, second.name, *scores, *counts])
    return out.getvalue()
