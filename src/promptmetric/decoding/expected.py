"""The expectation over a scale's labels: which texts stand for them, and the score that their probabilities make.

An expected rating needs no text and tells apart what one sampled digit cannot (Liu et al., 2023, G-Eval, Section 2).
"""

from __future__ import annotations

import math

from promptmetric.errors import InputError
from promptmetric.questions import LabelLogprobs
from promptmetric.scale import LabelScale, NumericScale, Scale
from promptmetric.types import Distribution

MOST_LABELS = 1001
MOST_UNREAD = 0.01
"""Share of the labels' probability that may be left unread before a reading is refused."""


def label_values(scale: Scale) -> dict[str, float]:
    """Every label of a scale and its value.

    Numbers without a step are read whole on wide scales (0 to 100: "85.5" counts as 85), and to one decimal on scales
    no wider than 2 (0.0 to 1.0: "0.85" counts as 0.8).

    Raises:
        InputError: the scale has no labels, or too many.
    """
    if isinstance(scale, LabelScale):
        return dict(scale.labels)
    if not isinstance(scale, NumericScale):
        raise InputError(f"a scale of {scale} has no labels to read.", hint="Take decode='text', or another prompt.")
    is_narrow = scale.max - scale.min <= 2 or scale.min % 1 or scale.max % 1
    step = scale.step or (0.1 if is_narrow else 1)
    count = round((scale.max - scale.min) / step) + 1
    if count > MOST_LABELS:
        raise InputError(
            f"the scale {scale} has {count} labels, too many to read.", hint="Take decode='text' with samples=5."
        )
    decimals = max(len(f"{part:.6f}".rstrip("0").partition(".")[2]) for part in (step, scale.min))
    values = (round(scale.min + n * step, 6) for n in range(count))
    return {f"{value:.{decimals}f}": value for value in values}


class LabelReader:
    """Reads the probabilities of a scale's labels.

    Attributes:
        values: every label and its value.
        texts: the texts to look for: a space before a label or a capital changes nothing.
        meant: the label each text stands for.

    Raises:
        InputError: the scale has no labels, or too many.
    """

    def __init__(self, scale: Scale) -> None:
        self.values = label_values(scale)
        meant: dict[str, str] = {}
        for word, label in _words(scale, self.values):
            for form in (word, word.lower(), word.capitalize()):
                meant.setdefault(form, label)
                meant.setdefault(f" {form}", label)
        self.texts = tuple(meant)
        self.meant = tuple(meant.values())

    def distribution(self, answer: LabelLogprobs) -> Distribution | str:
        """Merge the texts of each label.

        Returns:
            The distribution over labels, or why there is none.
        """
        merged = dict.fromkeys(self.values, 0.0)
        for label, logprob in zip(self.meant, answer.logprobs, strict=True):
            merged[label] += math.exp(logprob)
        mass = math.fsum(merged.values())
        if mass <= 0:
            return "the model gives no label any probability"
        if answer.unread > MOST_UNREAD * (mass + answer.unread):
            return f"{answer.unread:.2g} of probability could not be told to a label, beside {mass:.2g} that could"
        return Distribution({label: p / mass for label, p in merged.items()}, mass, answer.unread)

    def expectation(self, belief: Distribution) -> float:
        """The mean value on the prompt's own scale."""
        return math.fsum(p * self.values[label] for label, p in belief.probabilities.items())


def _words(scale: Scale, values: dict[str, float]) -> list[tuple[str, str]]:
    """Every way to write a label, with the label."""
    words = [(label, label) for label in values]
    if isinstance(scale, LabelScale):
        return words + list(scale.aliases.items())
    return words + [(label.removesuffix(".0"), label) for label in values]
