"""What a prompt asks the model to answer with: a number, a label or a list of errors; or nothing.

A scale knows its range, its direction and its map to [0, 1]. It stands on the ground floor because prompts declare
one and the decoder reads by it.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Scale(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @cached_property
    def _content(self) -> str:
        return self.model_dump_json()

    def __hash__(self) -> int:
        """Labels come as a dict, which pydantic's own hash refuses."""
        return hash(self._content)

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value."""
        raise NotImplementedError

    @property
    def worst(self) -> float:
        """The value of the worst possible output."""
        return self.bounds[0]

    def contains(self, value: float) -> bool:
        """Whether a value may stand on this scale."""
        low, high = self.bounds
        return low <= value <= high

    def normalise(self, value: float) -> float:
        """Map a value linearly to 0 (worst) … 1 (best). A value outside the scale lands outside [0, 1]."""
        low, high = self.bounds
        return (value - low) / (high - low)


class NumericScale(_Scale):
    """Numbers from `min` to `max`, every `step` where one is given; `higher_is_better=false` turns it round.

    With `json_field`, the answer is a JSON object and the number stands in that field.
    """

    kind: Literal["numeric"] = "numeric"
    min: float
    max: float
    step: float | None = Field(default=None, gt=0)
    higher_is_better: bool = True
    json_field: str | None = None

    @model_validator(mode="after")
    def _is_a_range(self) -> NumericScale:
        if not (math.isfinite(self.min) and math.isfinite(self.max) and self.min < self.max):
            raise ValueError("a scale needs finite min < max")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        return self.min, self.max

    @property
    def worst(self) -> float:
        return self.min if self.higher_is_better else self.max

    def contains(self, value: float) -> bool:
        if not self.min <= value <= self.max:
            return False
        if self.step is None:
            return True
        steps = (value - self.min) / self.step
        return math.isclose(steps, round(steps), abs_tol=1e-9)

    def normalise(self, value: float) -> float:
        share = (value - self.min) / (self.max - self.min)
        return share if self.higher_is_better else 1 - share

    def __str__(self) -> str:
        every = f" in steps of {self.step:g}" if self.step else ""
        where = f', JSON field "{self.json_field}"' if self.json_field else ""
        return f"{self.min:g} to {self.max:g}{every}{where}"


class LabelScale(_Scale):
    """Words with values, such as bad 1, neutral 3, good 5 (PrExMe, Section 3).

    `aliases` are other spellings, each mapped to a label.
    """

    kind: Literal["labels"] = "labels"
    labels: dict[str, float] = Field(min_length=2)
    aliases: dict[str, str] = {}

    @model_validator(mode="after")
    def _is_consistent(self) -> LabelScale:
        spellings = [word.lower() for word in (*self.labels, *self.aliases)]
        if len(set(spellings)) < len(spellings):
            raise ValueError("labels and aliases must differ in more than capitals")
        if len(set(self.labels.values())) < 2:
            raise ValueError("labels need at least two different values")
        for alias, label in self.aliases.items():
            if label not in self.labels:
                raise ValueError(f"alias {alias!r} points to {label!r}, which is not a label")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        return min(self.labels.values()), max(self.labels.values())

    @property
    def words(self) -> dict[str, float]:
        """Every accepted spelling in lower case, with its value."""
        spellings = self.labels | {alias: self.labels[label] for alias, label in self.aliases.items()}
        return {word.lower(): value for word, value in spellings.items()}

    def __str__(self) -> str:
        return ", ".join(f"{label} = {value:g}" for label, value in self.labels.items())


class MqmScale(_Scale):
    """Errors by severity, counted as in MQM: −(25 critical + 5 major + 1 minor), not below −`cap`.

    Only the first `max_errors` errors count (GEMBA-MQM's rule, so that one broken answer does not run away).
    """

    kind: Literal["mqm"] = "mqm"
    cap: float = Field(default=25, gt=0)
    max_errors: int = Field(default=5, ge=1)

    @property
    def bounds(self) -> tuple[float, float]:
        return -self.cap, 0.0

    def __str__(self) -> str:
        return f"MQM errors, {-self.cap:g} to 0"


class LikelihoodScale(_Scale):
    """Mean log-probability of a text's tokens: nothing is asked of the model; a text it finds likely is a good one."""

    kind: Literal["likelihood"] = "likelihood"

    @property
    def bounds(self) -> tuple[float, float]:
        return -math.inf, 0.0

    def normalise(self, value: float) -> float:
        """The geometric mean of the tokens' probabilities."""
        return math.exp(value)

    def __str__(self) -> str:
        return "log-probability per token"


Scale = Annotated[NumericScale | LabelScale | MqmScale | LikelihoodScale, Field(discriminator="kind")]
