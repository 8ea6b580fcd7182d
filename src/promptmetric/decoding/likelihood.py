"""The probability of a text as a score, for models too small to grade (BARTScore: Yuan et al., 2021)."""

from __future__ import annotations

import math

from promptmetric.questions import Likelihood


def per_token(answer: Likelihood, unconditional: Likelihood | None = None) -> float:
    """Mean log-probability of the tokens, less that of the same text where its counterpart is hidden."""
    value = answer.logprob / answer.tokens
    return value if unconditional is None else value - unconditional.logprob / unconditional.tokens


def normalise(value: float, *, is_difference: bool) -> float:
    """Map to 0 … 1, keeping the order: the tokens' mean probability, or the logistic function of a difference."""
    return 1 / (1 + math.exp(-value)) if is_difference else math.exp(value)
