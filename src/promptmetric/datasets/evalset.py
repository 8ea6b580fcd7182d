"""The one shape of a set of human judgments, whatever format it was published in."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from promptmetric.errors import InputError
from promptmetric.types import Sample, Task


@dataclass(frozen=True, slots=True)
class Judged:
    """One hypothesis with its human judgments.

    Attributes:
        segment: id of the source. Rows of one set with the same id are hypotheses for the same source.
        system: what produced the hypothesis.
        src: the source; empty where the published file has none.
        hyp: the hypothesis; may be empty.
        scores: by aspect, higher is better. An aspect nobody judged is left out.
        ratings: by aspect, the scores of single raters, in the order of `EvalSet.raters`; NaN for a rater who did
            not judge this row.
        refs: references.
        doc: the document the source is part of.
        domain: such as `news`.
        human: whether people wrote the hypothesis (a reference that was judged as if it were a system).
    """

    segment: str
    system: str
    src: str
    hyp: str
    scores: Mapping[str, float] = field(default_factory=dict)
    ratings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    refs: tuple[str, ...] = ()
    doc: str | None = None
    domain: str | None = None
    human: bool = False


@dataclass(frozen=True)
class EvalSet:
    """A set of human judgments.

    Attributes:
        name: how the set is called in reports.
        task: what was judged.
        rows: in the order of the published file.
        aspects: what was judged, the most important first.
        langs: the language pair, such as `en-de`; None for summaries.
        raters: names of the raters, where single ratings are known.
        lines: how many segments the test set has that this was drawn from, judged or not; None where that is not
            known.

    Raises:
        InputError: there are no rows, or a system has two hypotheses for one segment.
    """

    name: str
    task: Task
    rows: tuple[Judged, ...]
    aspects: tuple[str, ...]
    langs: str | None = None
    raters: tuple[str, ...] = ()
    lines: int | None = None

    def __post_init__(self) -> None:
        if not self.rows:
            raise InputError(f"{self.name}: there are no judgments in it.")
        seen: set[tuple[str, str]] = set()
        for row in self.rows:
            if (row.system, row.segment) in seen:
                raise InputError(f"{self.name}: system {row.system} has segment {row.segment} twice.")
            seen.add((row.system, row.segment))

    @cached_property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, sorted."""
        return tuple(sorted({row.system for row in self.rows}))

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """Ids of the segments, in order of first appearance."""
        return tuple(dict.fromkeys(row.segment for row in self.rows))

    @cached_property
    def _cells(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        system_at = {system: i for i, system in enumerate(self.systems)}
        segment_at = {segment: i for i, segment in enumerate(self.segments)}
        systems = [system_at[row.system] for row in self.rows]
        segments = [segment_at[row.segment] for row in self.rows]
        return np.array(systems, dtype=np.intp), np.array(segments, dtype=np.intp)

    def matrix(self, values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """One value a row of this set, as a matrix of systems × segments; NaN where the set has no such row.

        Raises:
            InputError: there are not as many values as rows.
        """
        if len(values) != len(self.rows):
            raise InputError(f"{self.name} has {len(self.rows)} rows, but {len(values)} scores were given.")
        matrix = np.full((len(self.systems), len(self.segments)), math.nan)
        matrix[self._cells] = values
        return matrix

    def human(self, aspect: str | None = None) -> NDArray[np.float64]:
        """Human scores as systems × segments; NaN where there is none. `aspect=None` is the first one."""
        name = self._aspect(aspect)
        return self.matrix([row.scores.get(name, math.nan) for row in self.rows])

    def ratings(self, aspect: str | None = None) -> NDArray[np.float64]:
        """Single ratings as raters × systems × segments; NaN where there is none.

        Raises:
            InputError: the set has no single ratings of this aspect.
        """
        name = self._aspect(aspect)
        if not any(name in row.ratings for row in self.rows):
            raise InputError(f"{self.name} has no single raters' scores of {name}.")
        missing = (math.nan,) * len(self.raters)
        return np.stack(
            [
                self.matrix([row.ratings.get(name, missing)[rater] for row in self.rows])
                for rater in range(len(self.raters))
            ]
        )

    def _aspect(self, aspect: str | None) -> str:
        if aspect is None:
            return self.aspects[0]
        if aspect not in self.aspects:
            raise InputError(f"{self.name} has no aspect {aspect!r}.", hint=f"It has: {', '.join(self.aspects)}.")
        return aspect

    def samples(self) -> list[Sample]:
        """The rows as the scorer takes them, in their order."""
        source, _, target = (self.langs or "").partition("-")
        return [
            Sample(
                src=row.src,
                hyp=row.hyp,
                ref=row.refs[0] if row.refs else None,
                src_lang=source or None,
                tgt_lang=target or None,
                doc=row.doc,
                system=row.system,
            )
            for row in self.rows
        ]

    def where(self, keep: Callable[[Judged], bool]) -> EvalSet:
        """The same set with fewer rows."""
        return dataclasses.replace(self, rows=tuple(row for row in self.rows if keep(row)))

    def without_humans(self) -> EvalSet:
        """The same set without the human translations that were judged as if they were systems."""
        return self.where(lambda row: not row.human) if any(row.human for row in self.rows) else self

    def draw(self, segments: int, seed: int = 0) -> EvalSet:
        """A random draw of segments, each with the hypotheses of all systems; the whole set where it has no more."""
        if segments >= len(self.segments):
            return self
        drawn = np.random.default_rng(seed).permutation(len(self.segments))[:segments]
        kept = {self.segments[i] for i in drawn}
        return self.where(lambda row: row.segment in kept)


def mean_of(values: Iterable[float], decimals: int = 6) -> float:
    """Mean of a few ratings, without the noise of binary fractions, which would split what is a tie (NaN for none)."""
    known = [value for value in values if not math.isnan(value)]
    return round(math.fsum(known) / len(known), decimals) if known else math.nan
