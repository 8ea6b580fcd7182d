"""Scores that know nothing of quality, which stand beside every metric: what they reach is no achievement."""

from __future__ import annotations

import zlib

import numpy as np

from promptmetric.datasets import EvalSet, Judged

GRAM = 4
"""Characters of the pieces that are looked for in the source."""

CONTROLS = {
    "length": "minus the number of characters of the hypothesis: shorter is better",
    "length-ratio": "characters of the source a character of the hypothesis",
    "copy-of-source": f"share of the hypothesis's {GRAM}-character pieces that the source has as well",
    "random": "a random number for each hypothesis, with a fixed seed",
}


def control_scores(evalset: EvalSet) -> dict[str, list[float]]:
    """Scores of each control for the rows of a set; those that need sources are left out where it has none."""
    rows = evalset.rows
    rng = np.random.default_rng(zlib.crc32(evalset.name.encode()))
    scores = {"length": [-float(len(row.hyp)) for row in rows]}
    if any(row.src for row in rows):
        scores["length-ratio"] = [len(row.src) / max(1, len(row.hyp)) for row in rows]
        scores["copy-of-source"] = _copied(rows)
    scores["random"] = rng.random(len(rows)).tolist()
    return scores


def _copied(rows: tuple[Judged, ...]) -> list[float]:
    pieces: dict[str, set[str]] = {}
    shares = []
    for row in rows:
        if row.src not in pieces:
            pieces[row.src] = set(_grams(row.src))
        own = _grams(row.hyp)
        found = sum(gram in pieces[row.src] for gram in own)
        shares.append(found / len(own) if own else 0.0)
    return shares


def _grams(text: str) -> list[str]:
    if len(text) < GRAM:
        return [text] if text else []
    return [text[i : i + GRAM] for i in range(len(text) - GRAM + 1)]
