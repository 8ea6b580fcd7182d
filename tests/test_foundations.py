"""Scales, signatures, samples and predictions."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from promptmetric.errors import InputError
from promptmetric.scale import LabelScale, MqmScale, NumericScale
from promptmetric.signature import Signature
from promptmetric.types import Demonstration, Prediction, Sample, Segment


def test_numeric_scale_maps_to_the_unit_interval() -> None:
    scale = NumericScale(min=-100, max=100)
    assert [scale.normalise(value) for value in (-100, 0, 100)] == [0, 0.5, 1]
    assert scale.contains(99.5)
    assert not scale.contains(100.5)
    assert scale.worst == -100


def test_steps_admit_nothing_between() -> None:
    scale = NumericScale(min=-1, max=1, step=1)
    assert [scale.contains(value) for value in (-1, 0, 1, 0.5)] == [True, True, True, False]
    assert NumericScale(min=0, max=1, step=0.1).contains(0.3)


def test_a_scale_may_point_down() -> None:
    scale = NumericScale(min=0, max=10, higher_is_better=False)
    assert (scale.normalise(0), scale.normalise(10), scale.worst) == (1, 0, 10)


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1)])
def test_a_scale_needs_a_range(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="min < max"):
        NumericScale(min=bounds[0], max=bounds[1])


def test_labels_are_ordered_by_value() -> None:
    scale = LabelScale(labels={"bad": 1, "neutral": 3, "good": 5}, aliases={"okay": "neutral"})
    assert scale.worst == 1
    assert [scale.normalise(value) for value in (1, 3, 5)] == [0, 0.5, 1]
    assert scale.words == {"bad": 1, "neutral": 3, "good": 5, "okay": 3}


def test_labels_that_cannot_rank_are_refused() -> None:
    with pytest.raises(ValidationError, match="different values"):
        LabelScale(labels={"yes": 1, "no": 1})
    with pytest.raises(ValidationError, match="not a label"):
        LabelScale(labels={"yes": 1, "no": 0}, aliases={"nope": "never"})


def test_mqm_scale() -> None:
    assert MqmScale().worst == -25
    assert [MqmScale().normalise(value) for value in (-25, -5, 0)] == [0, 0.8, 1]


_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(_TEXT, min_size=10, max_size=10))
def test_signatures_survive_any_value(values: list[str]) -> None:
    signature = Signature(*values)
    line = str(signature)
    assert Signature.parse(line) == signature
    assert Signature.parse(f"{line}\n") == signature
    assert "\n" not in line


def test_signature_is_readable() -> None:
    values = {field.name: "x" for field in fields(Signature)} | {"prompt": "prexme:zs/polite/0..100", "model": "a|b%"}
    line = str(Signature(**values))
    assert line.startswith("prompt:prexme:zs/polite/0..100|content:x|")
    assert "|model:a%7Cb%25|" in line


@pytest.mark.parametrize("line", ["", "prompt", "prompt:x", "prompt:a|prompt:b", "BLEU|nrefs:1"])
def test_other_lines_are_no_signatures(line: str) -> None:
    with pytest.raises(InputError, match="not a promptmetric signature"):
        Signature.parse(line)


def test_samples_take_comet_fields() -> None:
    assert Sample.from_dict({"src": "a", "mt": "b", "ref": "c", "score": 1}, "x") == Sample("a", "b", "c")
    assert Sample.from_dict({"src": "a", "hyp": "b", "mt": "b"}, "x") == Sample("a", "b")


def test_samples_bring_demonstrations() -> None:
    sample = Sample.from_dict({"src": "a", "hyp": "b", "examples": [{"src": "c", "hyp": "d", "score": 3}]}, "x")
    assert sample.examples == (Demonstration("c", "d", "3"),)


@pytest.mark.parametrize(
    ("fields_", "message"),
    [
        ({"src": "a"}, "sample 3: 'mt' or 'hyp' is missing"),
        ({"mt": "a"}, "sample 3: 'src' is missing"),
        ({}, "it has: nothing"),
        ({"src": "a", "mt": None}, "'mt' must be text, not NoneType"),
        ({"src": 1, "mt": "a"}, "'src' must be text, not int"),
        ({"src": "a", "mt": "x \ud83d"}, "lone surrogate"),
        ({"src": "a", "mt": "b", "hyp": "c"}, "both given and differ"),
        ({"src": "a", "mt": "b", "examples": "x"}, "must be a list"),
        ({"src": "a", "mt": "b", "examples": [{"src": "a"}]}, "example 1: an example needs"),
        ({"src": "a", "mt": "b", "ref": 3}, "'ref' must be text"),
    ],
)
def test_bad_samples_say_where_and_what(fields_: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sample.from_dict(fields_, "sample 3")


def _segment(index: int, score: float) -> Segment:
    return Segment(index, score, score, "ok")


def test_predictions_read_like_comets_output() -> None:
    prediction = Prediction.from_segments([_segment(0, 0.5), _segment(1, 1.0)], "prompt:x")
    assert prediction.scores == [0.5, 1.0]
    assert prediction.system_score == 0.75
    assert prediction["scores"] == prediction.scores == prediction[0]
    assert prediction["system_score"] == prediction[1] == prediction.system_score
    assert dict(prediction)["signature"] == "prompt:x"
    assert prediction.get("metadata") is None
    with pytest.raises(KeyError):
        prediction["metadata"]


def test_an_undefined_score_makes_the_system_score_undefined() -> None:
    assert math.isnan(Prediction.from_segments([_segment(0, 0.5), _segment(1, math.nan)], "").system_score)
    assert math.isnan(Prediction.from_segments([], "").system_score)
