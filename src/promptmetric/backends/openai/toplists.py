"""Label probabilities where a server tells no more than the most probable first tokens of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from promptmetric.backends.tries import LEAST_SHARE
from promptmetric.errors import BackendError
from promptmetric.questions import LabelLogprobs


def read_top(top: Sequence[tuple[str, float]], labels: Sequence[str]) -> LabelLogprobs:
    """Labels from the most probable first tokens of an answer, where that is exact.

    Args:
        top: texts of tokens and their log-probabilities.
        labels: the labels. One that is a token of the list has that token's probability; one that is not has -inf, and
            what it may have beyond the list is counted as unread.

    Raises:
        BackendError: much of the probability is that of a token which only begins a label.
    """
    found = dict.fromkeys(labels, 0.0)
    tokens = {token for token, _ in top}
    missing = [label for label in labels if label not in tokens]
    begun = 0.0
    begins: tuple[float, str, str] | None = None
    for token, logprob in top:
        probability = math.exp(logprob)
        longer = next((label for label in missing if label != token and label.startswith(token)), None)
        if longer is None:
            if token in found:
                found[token] += probability
        else:
            begun += probability
            # One without text is a control token for all we know, which ends the answer: no reason to refuse.
            if token and (begins is None or probability > begins[0]):
                begins = (probability, token, longer)
    total = math.fsum(found.values())
    if begins is not None and begins[0] > LEAST_SHARE * (total + begun):
        raise BackendError(
            f"the label {begins[2]!r} has several tokens, of which this server tells the first alone ({begins[1]!r}).",
            hint="Take a scale whose labels are single tokens, serve the model with vLLM, which tells all, "
            "or read text instead (decode='text').",
        )
    outside = max(0.0, 1.0 - math.fsum(math.exp(logprob) for _, logprob in top))
    least = min(math.exp(logprob) for _, logprob in top)
    unread = begun + min(outside, len(missing) * least)
    return LabelLogprobs(
        tuple(math.log(found[label]) if found[label] > 0 else -math.inf for label in labels), min(1.0, unread)
    )
