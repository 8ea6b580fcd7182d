"""The plain values that users meet: samples in, segments and their prediction out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from promptmetric.errors import InputError

EMBEDDED_MODEL = "smollm2-135m"
"""Name of the embedded demonstration model, which `auto` means where no model is named."""

Task = Literal["translation", "summarization"]
Status = Literal["ok", "truncated", "empty", "imputed", "failed"]
"""How a segment came by its score.

- `ok`: read from the model's answer.
- `truncated`: read from the answer to a shortened source, because the full one exceeds the model's window.
- `empty`: the hypothesis is empty, so it gets the worst score and the model is not asked.
- `imputed`: nothing could be read; the score is the mean of the scores that were read in this run.
- `failed`: nothing could be read; the score is NaN.
"""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A graded example shown inside a one-shot prompt. `score` is the text the model sees."""

    src: str
    hyp: str
    score: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One segment to be scored: a source and a hypothesis, and what is known about them."""

    src: str
    hyp: str
    ref: str | None = None
    src_lang: str | None = None
    tgt_lang: str | None = None
    doc: str | None = None
    system: str | None = None
    examples: tuple[Demonstration, ...] = ()

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], where: str) -> Sample:
        """Build a sample from a mapping such as COMET takes (`src`, `mt`) or ours (`src`, `hyp`).

        Args:
            fields: `src`, `mt` or `hyp`, and optionally `ref`, `src_lang`, `tgt_lang`, `doc`, `system` and
                `examples` (a list of `{src, hyp, score}`). Other keys are ignored.
            where: what to call this sample in an error message.

        Raises:
            InputError: a field is missing, twice given, or not text.
        """
        if "mt" in fields and "hyp" in fields and fields["mt"] != fields["hyp"]:
            raise InputError(f"{where}: 'mt' and 'hyp' are both given and differ.", hint="Keep one of them.")
        hyp_key = "hyp" if "hyp" in fields else "mt"
        return cls(
            src=_text(fields, "src", where),
            hyp=_text(fields, hyp_key, where),
            ref=_optional_text(fields, "ref", where),
            src_lang=_optional_text(fields, "src_lang", where),
            tgt_lang=_optional_text(fields, "tgt_lang", where),
            doc=None if fields.get("doc") is None else str(fields["doc"]),
            system=None if fields.get("system") is None else str(fields["system"]),
            examples=_demonstrations(fields.get("examples"), where),
        )


def _text(fields: Mapping[str, Any], key: str, where: str) -> str:
    if key not in fields:
        wanted = "'mt' or 'hyp'" if key == "mt" else f"'{key}'"
        has = ", ".join(map(str, fields)) or "nothing"
        raise InputError(f"{where}: {wanted} is missing (it has: {has}).")
    value = fields[key]
    if not isinstance(value, str):
        raise InputError(f"{where}: '{key}' must be text, not {type(value).__name__}.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: '{key}' holds half a character (a lone surrogate) at {error.start}.") from error
    return value


def _optional_text(fields: Mapping[str, Any], key: str, where: str) -> str | None:
    return None if fields.get(key) is None else _text(fields, key, where)


def _demonstrations(value: Any, where: str) -> tuple[Demonstration, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise InputError(f"{where}: 'examples' must be a list of objects with src, hyp and score.")
    demonstrations = []
    for number, item in enumerate(value, 1):
        place = f"{where}, example {number}"
        if isinstance(item, Demonstration):
            demonstrations.append(item)
        elif isinstance(item, Mapping) and "score" in item:
            demonstrations.append(
                Demonstration(_text(item, "src", place), _text(item, "hyp", place), str(item["score"]))
            )
        else:
            raise InputError(f"{place}: an example needs src, hyp and score.")
    return tuple(demonstrations)


@dataclass(frozen=True, slots=True)
class ErrorSpan:
    """One error a model named, with its severity (`critical`, `major` or `minor`)."""

    severity: str
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer means on a scale.

    Attributes:
        value: the score on the prompt's own scale; None where none could be read.
        rule: the parser rule that found it.
        span: start and end of the match in the answer.
        reason: why there is no value.
        errors: the errors named in the answer, for scales that count errors.
    """

    value: float | None
    rule: str | None = None
    span: tuple[int, int] | None = None
    reason: str | None = None
    errors: tuple[ErrorSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Distribution:
    """How a model's belief spreads over the labels of a scale, as read at the place where its answer begins.

    Attributes:
        probabilities: each label's share; they sum to 1.
        mass: how probable it was that the answer would be a label at all, 0 to 1. Where it is small, the model wanted
            to write something else, and the shares tell little.
        unread: probability that was not followed far enough to know which label it belongs to.
    """

    probabilities: Mapping[str, float]
    mass: float
    unread: float = 0.0

    @property
    def mode(self) -> str:
        """The most probable label."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def entropy(self) -> float:
        """In bits: 0 is certain."""
        return -math.fsum(p * math.log2(p) for p in self.probabilities.values() if p > 0)


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One of several answers to the same question.

    Attributes:
        seed: of its random draws.
        text: the answer.
        raw: the value on the prompt's own scale; None where none could be read.
    """

    seed: int
    text: str
    raw: float | None


@dataclass(frozen=True, slots=True)
class Segment:
    """The score of one sample.

    Attributes:
        index: position of the sample in the input, from 0.
        score: 0 worst … 1 best; NaN where `status` is `failed`. Only `decode="as-published"` may leave that range.
        raw: the value on the prompt's own scale, as read; None where nothing was read.
        status: how the score came about.
        text: the model's answer; None where the model was not asked.
        rule: the parser rule that found the value in the answer.
        reason: why the status is not `ok`.
        errors: the errors the model named, for prompts that ask for them.
        attempts: how often the model was asked (more than once with `fallback="retry"`).
        distribution: with `decode="expected"`, the probabilities behind the score.
        samples: with `samples` above 1, the answers behind the score.
    """

    index: int
    score: float
    raw: float | None
    status: Status
    text: str | None = None
    rule: str | None = None
    reason: str | None = None
    errors: tuple[ErrorSpan, ...] = ()
    attempts: int = 1
    distribution: Distribution | None = None
    samples: tuple[SampledAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction(Mapping[str, Any]):
    """Scores of a run. Reads like COMET's output: `.scores`, `["scores"]`, `[0]`, `.system_score`.

    Attributes:
        scores: one per sample, in input order, 0 worst … 1 best, NaN where nothing could be read.
        system_score: their mean; NaN where a score is NaN.
        segments: the same with answer, status and reason.
        signature: one line that pins prompt, model, engine, decoding and version.
    """

    scores: list[float]
    system_score: float
    segments: list[Segment] = field(repr=False)
    signature: str

    @classmethod
    def from_segments(cls, segments: list[Segment], signature: str) -> Prediction:
        """Collect segments, which must be in input order."""
        scores = [segment.score for segment in segments]
        return cls(scores, mean(scores), segments, signature)

    def count(self, *statuses: Status) -> int:
        """How many segments have one of these statuses."""
        return sum(segment.status in statuses for segment in self.segments)

    @property
    def failed_share(self) -> float:
        """Share of the segments whose answer held no score, imputed or not (0 for no segments)."""
        return self.count("imputed", "failed") / len(self.segments) if self.segments else 0.0

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, int):
            return (self.scores, self.system_score)[key]
        if key in _PREDICTION_KEYS:
            return getattr(self, key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(_PREDICTION_KEYS)

    def __len__(self) -> int:
        return len(_PREDICTION_KEYS)


_PREDICTION_KEYS = ("scores", "system_score", "segments", "signature")


def mean(values: list[float]) -> float:
    """Arithmetic mean; NaN for an empty list and where a value is NaN."""
    return math.fsum(values) / len(values) if values else math.nan
