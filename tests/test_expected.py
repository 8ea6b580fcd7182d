"""Label probabilities to scores: which texts stand for a label, what they add up to, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptmetric.decoding.expected import LabelReader, label_values
from promptmetric.errors import InputError
from promptmetric.prompts import get_prompt
from promptmetric.prompts.grid import grid
from promptmetric.questions import LabelLogprobs
from promptmetric.scale import LabelScale, LikelihoodScale, MqmScale, NumericScale, Scale


@pytest.mark.parametrize(
    ("form", "labels", "first", "last"),
    [
        ("0-or-1", 2, "0", "1"),
        ("-1-or-0-or-1", 3, "-1", "1"),
        ("0..5", 6, "0", "5"),
        ("-5..5", 11, "-5", "5"),
        ("0..100", 101, "0", "100"),
        ("-100..100", 201, "-100", "100"),
        ("0.0..1.0", 11, "0.0", "1.0"),
        ("-1.0..1.0", 21, "-1.0", "1.0"),
        ("simple-labels", 3, "bad", "good"),
        ("complex-labels", 3, "catastrophic", "marvelous"),
    ],
)
def test_labels_of_the_published_formats(form: str, labels: int, first: str, last: str) -> None:
    scale = next(part.scale for part in grid().formats if part.id == form)
    values = label_values(scale)
    assert len(values) == labels
    assert next(iter(values)) == first
    assert list(values)[-1] == last
    assert (min(values.values()), max(values.values())) == scale.bounds


def test_values_are_what_labels_say() -> None:
    for scale in (NumericScale(min=-1, max=1), NumericScale(min=0, max=10, step=0.25), NumericScale(min=1, max=5)):
        assert all(float(label) == pytest.approx(value) for label, value in label_values(scale).items())


def test_spaces_capitals_and_aliases_are_one_label() -> None:
    reader = LabelReader(get_prompt("prexme:zs/neutral/complex-labels").scale)
    meant = dict(zip(reader.texts, reader.meant, strict=True))
    assert meant["marvelous"] == meant[" Marvelous"] == meant["marvellous"] == meant[" Marvellous"] == "marvelous"
    assert len(reader.texts) == len(set(reader.texts))
    tenths = LabelReader(NumericScale(min=0, max=1))
    assert dict(zip(tenths.texts, tenths.meant, strict=True))["1"] == "1.0"


SIMPLE = LabelScale(labels={"bad": 1, "neutral": 3, "good": 5})


def answer(reader: LabelReader, unread: float = 0.0, **probabilities: float) -> LabelLogprobs:
    """Log-probabilities of given texts; `_` stands for a leading space."""
    found = {text.replace("_", " "): p for text, p in probabilities.items()}
    return LabelLogprobs(tuple(math.log(found[text]) if text in found else -math.inf for text in reader.texts), unread)


def test_expectation_mass_entropy_and_mode() -> None:
    reader = LabelReader(SIMPLE)
    belief = reader.distribution(answer(reader, good=0.1, _good=0.2, Good=0.1, bad=0.4))
    assert not isinstance(belief, str)
    assert belief.probabilities == pytest.approx({"bad": 0.5, "neutral": 0, "good": 0.5})
    assert belief.mass == pytest.approx(0.8)
    assert belief.entropy == pytest.approx(1)
    assert reader.expectation(belief) == pytest.approx(3)
    sure = reader.distribution(answer(reader, neutral=0.3))
    assert not isinstance(sure, str)
    assert (sure.mode, sure.entropy, reader.expectation(sure)) == ("neutral", 0, 3)


def test_nothing_is_made_up() -> None:
    reader = LabelReader(SIMPLE)
    assert reader.distribution(answer(reader)) == "the model gives no label any probability"
    assert "could not be told to a label" in str(reader.distribution(answer(reader, 0.1, good=0.5)))


@pytest.mark.parametrize("scale", [MqmScale(), LikelihoodScale(), NumericScale(min=0, max=10, step=0.001)])
def test_scales_without_labels_or_with_too_many_are_refused(scale: Scale) -> None:
    with pytest.raises(InputError, match="labels"):
        LabelReader(scale)


@given(st.lists(st.floats(1e-6, 0.3), min_size=3, max_size=3))
def test_an_expectation_stays_on_the_scale(probabilities: list[float]) -> None:
    reader = LabelReader(SIMPLE)
    belief = reader.distribution(answer(reader, **dict(zip(("bad", "neutral", "good"), probabilities, strict=True))))
    assert not isinstance(belief, str)
    assert 1 <= reader.expectation(belief) <= 5
    assert 0 <= belief.entropy <= math.log2(3) + 1e-9
