"""The parser: what it must read, what it must refuse, and that no answer can make it invent a score."""

from __future__ import annotations

import gzip
import json
import math
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptmetric.decoding import read_answer
from promptmetric.decoding.fallback import apply_fallback
from promptmetric.errors import InputError, UnreadAnswerError
from promptmetric.scale import LabelScale, MqmScale, NumericScale, Scale
from promptmetric.types import Segment

PERCENT = NumericScale(min=0, max=100)
SIGNED = NumericScale(min=-100, max=100)
FIVE = NumericScale(min=1, max=5)
UNIT = NumericScale(min=0, max=1)
BINARY = NumericScale(min=0, max=1, step=1)
SIMPLE = LabelScale(labels={"bad": 1, "neutral": 3, "good": 5})
COMPLEX = LabelScale(labels={"catastrophic": 1, "indifferent": 3, "marvelous": 5}, aliases={"marvellous": "marvelous"})
JSON = NumericScale(min=0, max=100, json_field="score")
MQM = MqmScale()


@pytest.mark.parametrize(
    ("text", "scale", "value", "rule"),
    [
        ("Score: 85", PERCENT, 85, "announced"),
        ("85", PERCENT, 85, "leading"),
        ("80/100", PERCENT, 80, "leading"),
        ("Score: 80/100", PERCENT, 80, "announced"),
        ("**Score:** 77.", PERCENT, 77, "announced"),
        ("Judgment: **85**/100", PERCENT, 85, "announced"),
        ("Judgement: '85'", PERCENT, 85, "announced"),
        ("Judgment: 50. On reflection …\nJudgment: 70", PERCENT, 70, "announced"),
        ("Score: 10\n[[60]]", PERCENT, 60, "brackets"),
        ("Score (0-100): 85", PERCENT, 85, "announced"),
        ("<score>85</score>", PERCENT, 85, "announced"),
        ('{"score": 85}', PERCENT, 85, "announced"),
        ("I rate it 85. On a scale of 0-100", PERCENT, 85, "phrase"),
        ("On a scale from 0 to 100, I would give it a 90.", PERCENT, 90, "phrase"),
        ("80, because in 2019 it was different", PERCENT, 80, "leading"),
        ("90 ... GPT-4", PERCENT, 90, "leading"),
        ("1.0 (perfect)...There are 2 minor errors.", UNIT, 1, "leading"),
        ("4 out of 5 people would agree. Score: 30", PERCENT, 30, "announced"),
        ("1. The terms are right.\n2. The tone is not.\nJudgment: 60", PERCENT, 60, "announced"),
        ("4. The summary covers the article.", FIVE, 4, "leading"),
        ("a 4 out of 5", FIVE, 4, "fraction"),
        ("The summary is clear, so I would score it a 4 out of 5 for fluency.", FIVE, 4, "phrase"),
        ("resulting in a final score of 2.", FIVE, 2, "phrase"),
        ("I would score it a perfect 5 for consistency.", FIVE, 5, "phrase"),
        ("Four stars. The summary is fine.", FIVE, 4, "leading"),
        ("I would say 3 stars", FIVE, 3, "stars"),
        ("★★★★☆", FIVE, 4, "leading"),
        ("Fluency: 3\n\nIt reads well.", FIVE, 3, "line"),
        ("Final score: four out of five", FIVE, 4, "announced"),
        ("Evaluation: 2 problems were found. I rate it a 4.", FIVE, 4, "phrase"),
        ("Score: 4 The summary is fine", FIVE, 4, "announced"),
        ("Final score: 3 (inconsistent)", FIVE, 3, "announced"),
        ("4.5/5", FIVE, 4.5, "leading"),
        ("8/10", PERCENT, 80, "leading"),
        ("85%", PERCENT, 85, "leading"),
        ("Score: 85 %", UNIT, 0.85, "announced"),
        ("Score: 80-90", PERCENT, 85, "announced"),
        ("Score: 85,5", PERCENT, 85.5, "announced"),
        ("0,5", UNIT, 0.5, "leading"),
        ("Score: −50", SIGNED, -50, "announced"),
        ("Score: –50", SIGNED, -50, "announced"),
        ("-50", SIGNED, -50, "leading"),
        ("Judgment: -100", SIGNED, -100, "announced"),
        ("评分 Score：８５", PERCENT, 85, "announced"),
        ("Score: ٨٥", PERCENT, 85, "announced"),
        ("Score: 1", BINARY, 1, "announced"),
        ("<think>At first I thought score: 20.</think>Score: 80", PERCENT, 80, "announced"),
        ("The translation is fine. 75", PERCENT, 75, "closing"),
        ("bad", SIMPLE, 1, "leading"),
        ("Judgment: Good.", SIMPLE, 5, "announced"),
        ("Some bad words, yet overall\nJudgment: 'neutral'", SIMPLE, 3, "announced"),
        ('I would choose "good" here, not bad.', SIMPLE, 5, "choice"),
        ("The translation is marvellous!", COMPLEX, 5, "phrase"),
        ("Judgment: The translation as a whole seems indifferent to me", COMPLEX, 3, "phrase"),
        ("Judgment: I find it altogether neutral, really", SIMPLE, 3, "after-marker"),
        ('Options: "bad", "neutral" or "good". I take neutral', SIMPLE, 3, "choice"),
        ("Therefore the translation is 'bad'.", SIMPLE, 1, "phrase"),
        ("Judgment: neutral\n\nExplanation: The translation is good in grammar.", SIMPLE, 3, "announced"),
        ("Judgment: neutral. The translation is good in parts.", SIMPLE, 3, "announced"),
        ("Neutral. The translation is good, but lacks some details.", SIMPLE, 3, "leading"),
        ("While it's not perfect, the translation is good.", SIMPLE, 5, "phrase"),
        ("No, the translation is bad.", SIMPLE, 1, "phrase"),
        ("The translation is good but has minor errors.", SIMPLE, 5, "phrase"),
        ("The translation seems good to me.", SIMPLE, 5, "phrase"),
        ("I would give this translation a 'neutral' rating.", SIMPLE, 3, "choice"),
        ("Judgment: _good_", SIMPLE, 5, "announced"),
        ("I would score this translation 85 out of 100.", PERCENT, 85, "phrase"),
        ("It scores 85 out of 100.", PERCENT, 85, "phrase"),
        ("I would rate this translation 9/10.", PERCENT, 90, "phrase"),
        ("This translation scores 85.", PERCENT, 85, "phrase"),
        ("Nothing is missing and the score is 90.", PERCENT, 90, "phrase"),
        ("If I had to give a score, it would be 85.", PERCENT, 85, "phrase"),
        ("I give it a score of 85. To reach a score of 100, it would need work.", PERCENT, 85, "phrase"),
        ("Score: 85\n\nAccuracy score: 80\nFluency score: 90", PERCENT, 85, "announced"),
        ("Score: ~85", PERCENT, 85, "announced"),
        ("Score: about 85", PERCENT, 85, "announced"),
        ("The score would be approximately 85.", PERCENT, 85, "phrase"),
        ("I would assign a score of 85 to this translation.", PERCENT, 85, "phrase"),
        ("Score: 85 of 100", PERCENT, 85, "announced"),
        ("It reads well. It's an 85.", PERCENT, 85, "closing"),
        ("Score: __85__", PERCENT, 85, "announced"),
        ("Judgement: the verb is bad. Therefore the score is neutral", SIMPLE, 3, "phrase"),
        ("Not bad, but good.", SIMPLE, 5, "short"),
        ("Definitely good!", SIMPLE, 5, "short"),
        (r"\boxed{good}", SIMPLE, 5, "brackets"),
        (r"\boxed{85}", PERCENT, 85, "brackets"),
        ("$85$", PERCENT, 85, "leading"),
        ("Judgment: {80}", PERCENT, 80, "announced"),
        ("Judgment: <80>", PERCENT, 80, "announced"),
        ("Score: - 50", SIGNED, -50, "announced"),
        ("Score: minus 50", SIGNED, -50, "announced"),
        ("I would assign a score of minus 70.", SIGNED, -70, "phrase"),
        ("negative 50", SIGNED, -50, "leading"),
        ("85\n\nSource Text: x\nTranslation: y\nScore: 40", PERCENT, 85, "leading"),
        ("Score: 85\n\nSource Text: x\nTranslation: y\nScore: 40", PERCENT, 85, "announced"),
        ("good\n\nSource Text: x\nTranslation: y\nScore: bad", SIMPLE, 5, "leading"),
        ("I would give it a score of 85. A perfect translation would get a score of 100.", PERCENT, 85, "phrase"),
        ("The highest score is 100. I give it a 70.", PERCENT, 70, "phrase"),
        ("Score: 70; max score: 100", PERCENT, 70, "announced"),
        ("Overall score: 85\nAccuracy score: 90\nFluency score: 80", PERCENT, 85, "announced"),
        ("Judgment: 95\n\nConfidence score: 80", PERCENT, 95, "announced"),
        ("Score: 100 - 15 = 85", PERCENT, 85, "announced"),
        ("Judgment: eighty-five", PERCENT, 85, "announced"),
        ("twenty-five out of one hundred", PERCENT, 25, "leading"),
        ("Judgment: 8 (out of 10)", PERCENT, 80, "announced"),
        ("1 (poor) to 5 (excellent): 4", FIVE, 4, "closing"),
        ("Score: 85 pts", PERCENT, 85, "announced"),
        ("⭐⭐⭐⭐", FIVE, 4, "leading"),
        ("It is not fluent, so I would rate it a 40.", PERCENT, 40, "phrase"),
        ('{"score": 80, "details": {"score": 20}}', JSON, 80, "json"),
        ('{"score": 70, "why": "the word “Hund” is wrong"}', JSON, 70, "json"),
        ("[[good]]", SIMPLE, 5, "brackets"),
        ('Sure: {"score": 70, "why": "fine"}', JSON, 70, "json"),
        ('{"score": "70"}', JSON, 70, "json"),
        ('{"score": 10} then {"score": 20}', JSON, 20, "json"),
    ],
)
def test_reads(text: str, scale: Scale, value: float, rule: str) -> None:
    reading = read_answer(text, scale)
    assert (reading.value, reading.rule, reading.reason) == (pytest.approx(value), rule, None)
    assert reading.span is not None
    assert text[slice(*reading.span)].strip()


@pytest.mark.parametrize(
    ("text", "scale", "reason"),
    [
        ("", PERCENT, "no score"),
        ("The translation is fine.", PERCENT, "no score"),
        ("Score: 150", PERCENT, "off the scale"),
        ("Score: -5", PERCENT, "off the scale"),
        ("1,000", PERCENT, "off the scale"),
        ("Score: 2019", PERCENT, "off the scale"),
        ("0.5", BINARY, "off the scale"),
        ("5 out of 7", NumericScale(min=0, max=4), "another scale"),
        ("Final score: 8/10", FIVE, "another scale"),
        ("It has 3 errors and 2 typos.", FIVE, "none announced"),
        ("Errors: 3", FIVE, "no score"),
        ("Evaluation: 2 problems were found.", FIVE, "none announced"),
        ("as in GPT-4 or v2", FIVE, "none announced"),
        ("Score: 0-100", PERCENT, "none announced"),
        ("from 0 to 100", PERCENT, "none announced"),
        ("a scale where 0 means bad and 100 means perfect", PERCENT, "no score"),
        ("<think>Score: 20</think>", PERCENT, "no score"),
        ("not bad", SIMPLE, "no label"),
        ("It isn't very good", SIMPLE, "no label"),
        ("a badge of goodness", SIMPLE, "no label"),
        ("catastrophically", COMPLEX, "no label"),
        ('either "bad", "neutral" or "good"', SIMPLE, "no label"),
        ("good style and bad grammar", SIMPLE, "none announced"),
        ("I don't think this translation is good", SIMPLE, "no label"),
        ("I would not say that the translation is good", SIMPLE, "no label"),
        ("Judgment: The translation is anything but good.", SIMPLE, "no label"),
        ("Nobody would say it is good", SIMPLE, "no label"),
        ("This translation fails to be good.", SIMPLE, "no label"),
        ("If it were correct, it would be good.", SIMPLE, "no label"),
        ("There is nothing bad about the translation.", SIMPLE, "no label"),
        ("I feel good about this. The translation is terrible.", SIMPLE, "none announced"),
        ("The source talks about a bad dog. The translation keeps the meaning.", SIMPLE, "none announced"),
        ("A good translation would be 'Hund'. This one says 'Katze'.", SIMPLE, "none announced"),
        ("That's a good question.", SIMPLE, "none announced"),
        ("Is the translation good?", SIMPLE, "none announced"),
        ("Bad? Not at all", SIMPLE, "none announced"),
        ("Judgment: Good fluency, but bad accuracy.", SIMPLE, "none announced"),
        ("Judgment: good grammar but the meaning is bad", SIMPLE, "none announced"),
        ("Judgment: neutral to good", SIMPLE, "none announced"),
        ("Judgment: marvelous? No: catastrophic", COMPLEX, "none announced"),
        ("It has good parts. In the end bad wins", SIMPLE, "none announced"),
        ("I would not give it a score of 100.", PERCENT, "none announced"),
        ("No one would rate it a 5", FIVE, "none announced"),
        ("If that were mended, I would give it a 90.", PERCENT, "none announced"),
        ("Translation: 15", PERCENT, "none announced"),
        ("Time: 10:30", PERCENT, "none announced"),
        ("Confidence: 90%", PERCENT, "none announced"),
        ("The number is wrong: 15", PERCENT, "none announced"),
        ("Score: <50", PERCENT, "a bound"),
        ("It scores less than 50.", PERCENT, "none announced"),
        ("The price is given as 20.", PERCENT, "none announced"),
        ("The translation gives the wrong date as 12.", PERCENT, "none announced"),
        ("2 of 5 facts are wrong.", FIVE, "none announced"),
        ("-1, 0 or 1", NumericScale(min=-1, max=1, step=1), "no score"),
        ("4 stars", PERCENT, "another scale"),
        ("50%", SIGNED, "another scale"),
        ("Score: 90-80", PERCENT, "off the scale"),
        ('{"score": ' + "9" * 5000 + "}", JSON, "no JSON object"),
        ("Critical:", MQM, "nothing is said under Critical"),
        ("critical\nmajor\nminor", MQM, "nothing is said"),
        ("Critical: no-error\nMajor: no-error", MQM, "nothing is said of minor ones"),
        ("Critical: 0\nMajor: 1\nMinor: 2", MQM, "a number of errors"),
        ("85", SIMPLE, "no label"),
        ("Score: good", PERCENT, "no score"),
        ('{"rating": 3}', JSON, "no JSON object"),
        ('{"score": true}', JSON, "no number"),
        ('{"score": NaN}', JSON, "no number"),
        ('{"score": 101}', JSON, "off the scale"),
        ("The translation is perfect.", MQM, "no Critical"),
        ("", MQM, "no Critical"),
    ],
)
def test_refuses(text: str, scale: Scale, reason: str) -> None:
    reading = read_answer(text, scale)
    assert reading.value is None
    assert reason in (reading.reason or "")


def test_mqm_counts_errors_by_severity() -> None:
    text = """**Critical:**
no-error
**Major:**
1. accuracy/mistranslation - "Hund"
2. accuracy/omission - "rot"
Minor errors:

fluency/grammar - "einen"

Apart from that, the translation reads well."""
    reading = read_answer(text, MQM)
    assert (reading.value, reading.rule) == (-11, "mqm")
    assert [(error.severity, error.text) for error in reading.errors] == [
        ("major", 'accuracy/mistranslation - "Hund"'),
        ("major", 'accuracy/omission - "rot"'),
        ("minor", 'fluency/grammar - "einen"'),
    ]
    assert read_answer("Critical:\nno-error\nMajor:\nnone\nMinor:\nno errors", MQM).value == 0
    assert read_answer("Critical: untranslated\nMajor: x\nMinor: no-error", MQM).value == -25
    assert read_answer("no-error", MQM).value == 0
    assert read_answer("No errors found.", MQM).value == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Critical:\nThere are no critical errors in this translation.\nMajor:\nno-error\nMinor:\nno-error", 0),
        ("Critical:\nno-error (the translation is fine)\nMajor: None\nMinor: n/a", 0),
        ("**Critical:** no-error **Major:** no-error **Minor:** grammar", -1),
        ("Critical: no-error; Major: no-error; Minor: grammar", -1),
        ("### Critical\nNone\n### Major\nNone identified\n### Minor\nNone found", 0),
        ("Critical:\nno-error\nMajor:\nno-error\nMinor:\nno-error\n\nThe translation is excellent.", 0),
        ("Minor:\n- a\n- b\n- c\n- d\n- e\nMajor:\n- f\nCritical:\n- g", -25),
        ("1. Critical:\nno-error\n2. Major (1):\n- wrong word\n3. Minor: none", -5),
        ("Critical: 0\nMajor: 0\nMinor:\n- comma", -1),
        ("Critical:\n-\nMajor:\n-\nMinor:\n-", 0),
        ('Critical:\nNone\n\nMajor:\nNone\n\nMinor:\n- style - "x"\n\n- grammar - "y"', -2),
    ],
)
def test_mqm_knows_the_ways_to_say_there_is_none(text: str, value: float) -> None:
    assert read_answer(text, MQM).value == value


def test_mqm_counts_no_more_than_the_first_errors() -> None:
    assert read_answer("Minor:\n" + "\n".join(f"- e{n}" for n in range(9)), MQM).value == -5


def test_a_cut_answer_is_not_trusted_at_its_end() -> None:
    assert read_answer("Score: 8", PERCENT, complete=False).value is None
    assert "token limit" in (read_answer("Score: 8", PERCENT, complete=False).reason or "")
    assert read_answer("Score: 80\nbecause", PERCENT, complete=False).value == 80
    assert read_answer("Major:\nx", MQM, complete=False).value is None
    assert "token limit" in (read_answer("Well, I think", PERCENT, complete=False).reason or "")
    assert read_answer("Score: 0.", UNIT, complete=False).value is None
    assert read_answer("First, I would give accuracy a 70. Then", PERCENT, complete=False).value is None
    assert read_answer("First, the text is about a good dog. The translation", SIMPLE, complete=False).value is None
    assert read_answer("Judgment: good\nbecause", SIMPLE, complete=False).value == 5


# What the published extraction does with the same answers (measured on the published code).
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Score: 80/100", 100),
        ("4 out of 5", 5),
        ("0-100", -100),
        ("I rate it 85. On a scale of 0-100", -100),
        ("1.0 (perfect)...There are 2 minor errors.", 2),
        ("90 ... GPT-4", -4),
        ("80, because in 2019 it", 2019),
        ("1e-3", -3),
        ("1,000", 0),
        ("...5", None),
        ("\u221250", 50),
        ("８５", 85),
        ("٨٥", 85),
        ("no number", None),
    ],
)
def test_as_published_numbers(text: str, value: float | None) -> None:
    assert read_answer(text, PERCENT, "as-published").value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("not bad", 1),
        ("a badge", 1),
        ("goodness", 5),
        ('either "bad", "neutral" or "good"', 5),
        ("BAD. Well, NEUTRAL", 3),
        ("85", None),
    ],
)
def test_as_published_labels(text: str, value: float | None) -> None:
    assert read_answer(text, SIMPLE, "as-published").value == value


def test_as_published_spelling() -> None:
    assert read_answer("catastrophically", COMPLEX, "as-published").value == 1
    assert read_answer("Marvellous", COMPLEX, "as-published").value is None


def test_as_published_knows_two_kinds_of_scale() -> None:
    for scale in (MQM, JSON):
        with pytest.raises(InputError, match="numbers and labels only"):
            read_answer("x", scale, "as-published")


_SCALES = st.sampled_from([PERCENT, SIGNED, FIVE, UNIT, BINARY, SIMPLE, COMPLEX, JSON, MQM])
_PIECES = st.lists(
    st.sampled_from(
        [*"0123456789", ".", ",", "-", "−", "/", "%", " ", "\n", ":", "[[", "]]", '"', "*", "Score", "Judgment",
         "out of", "to",
         "good", "bad", "not ", "four", "★", "1. ", "2) ", "scale", "Major:", "no-error", "{", '"score": ', "}", "٣"]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(st.one_of(st.text(), _PIECES), _SCALES, st.booleans())
def test_no_answer_yields_a_value_off_the_scale(text: str, scale: Scale, complete: bool) -> None:
    reading = read_answer(text, scale, complete=complete)
    if reading.value is None:
        assert reading.reason
    else:
        assert scale.contains(reading.value)
        assert reading.rule
        assert reading.reason is None
    if reading.span is not None:
        assert 0 <= reading.span[0] <= reading.span[1] <= len(text)


@given(st.text(st.characters(exclude_categories=["N", "Cs"], exclude_characters="★")))
def test_no_digits_no_number(text: str) -> None:
    words = re.compile(
        r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|[a-z]+ty", re.IGNORECASE
    )
    reading = read_answer(words.sub("", text), PERCENT)
    assert reading.value is None


_FRAMES = [
    "{}", "{}.",
    "Score: {}", "Judgment: {}.", "**Score:** {}\n", "[[{}]]", "My final score is {}.", "Rating: {} (fair)",
    "{}\n\nbecause it is so",
    "It reads well.\n\nFinal judgment: {}", "I would give it a {}.", "score of {}.", '{{"score": {}}}',
]  # fmt: skip


@given(st.integers(-100, 100), st.sampled_from(_FRAMES))
def test_announced_integers_are_read_exactly(value: int, frame: str) -> None:
    assert read_answer(frame.format(value), SIGNED).value == value


@given(st.floats(0, 100).map(lambda x: round(x, 2)), st.sampled_from(_FRAMES))
def test_announced_decimals_are_read_exactly(value: float, frame: str) -> None:
    assert read_answer(frame.format(f"{value:.2f}"), PERCENT).value == pytest.approx(value)


@given(st.integers(-100, 100), st.sampled_from(["{}", "Score: {}", "Judgment: {}"]))
def test_as_published_agrees_on_plain_answers(value: int, frame: str) -> None:
    text = frame.format(value)
    assert read_answer(text, SIGNED).value == read_answer(text, SIGNED, "as-published").value


@given(
    st.sampled_from(["bad", "neutral", "good"]), st.sampled_from(["{}", "Judgment: {}", '"{}"', "It is {}.", "[[{}]]"])
)
def test_announced_labels_are_read(label: str, frame: str) -> None:
    for text in (frame.format(label), frame.format(label.upper()), frame.format(label.title())):
        assert read_answer(text, SIMPLE).value == SIMPLE.labels[label]


@given(
    st.sampled_from(["1" * 5000, " " * 5000, "Score " * 1000, "score: " + "(" * 5000, "1 to " * 1000, "bad or " * 900]),
    _SCALES,
)
def test_degenerate_answers_are_harmless(text: str, scale: Scale) -> None:
    read_answer(text, scale)


def _segment(index: int, score: float) -> Segment:
    if math.isnan(score):
        return Segment(index, score, None, "failed", "hm", reason="no score in the answer")
    return Segment(index, score, score, "ok", "x", rule="leading")


def test_fallback_mean_is_of_the_read_answers_and_marked() -> None:
    empty = Segment(2, 0.0, 0.0, "empty")
    filled = apply_fallback([_segment(0, 0.2), _segment(1, math.nan), empty, _segment(3, 0.6)], "mean")
    assert [segment.score for segment in filled] == [0.2, pytest.approx(0.4), 0.0, 0.6]
    assert [segment.status for segment in filled] == ["ok", "imputed", "empty", "ok"]
    assert filled[1].raw is None
    assert filled[1].reason == "no score in the answer"


def test_fallback_has_nothing_to_impute_from() -> None:
    assert [s.status for s in apply_fallback([_segment(0, math.nan)], "mean")] == ["failed"]


def test_fallback_nan_and_retry_leave_failures_alone() -> None:
    segments = [_segment(0, 0.2), _segment(1, math.nan)]
    assert apply_fallback(segments, "nan") == apply_fallback(segments, "retry") == segments


def test_fallback_error_names_the_first_failure() -> None:
    with pytest.raises(
        UnreadAnswerError, match=r"1 of 2 segments; the first is segment 1: no score in the answer.*'hm'"
    ):
        apply_fallback([_segment(0, 0.2), _segment(1, math.nan)], "error")
    assert apply_fallback([_segment(0, 0.2)], "error")


@pytest.fixture(scope="module")
def recorded_answers(data_folder: Path) -> list[dict[str, str]]:
    with gzip.open(data_folder / "llm_outputs/damo_summeval_judge_outputs.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.data
def test_recorded_answers_are_read(recorded_answers: list[dict[str, str]]) -> None:
    assert len(recorded_answers) == 14400
    readings = [read_answer(row["response"], FIVE) for row in recorded_answers]
    unread = [row["response"][-60:] for row, r in zip(recorded_answers, readings, strict=True) if r.value is None]
    assert len(unread) <= 7, unread
    assert Counter(reading.rule for reading in readings).keys() >= {"announced", "leading", "phrase", "fraction"}


@pytest.mark.data
def test_stars_of_recorded_answers_are_the_first_word(recorded_answers: list[dict[str, str]]) -> None:
    """An independent reading: these answers begin with "4 stars" or "Four stars"."""
    words = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
    rows = [row["response"] for row in recorded_answers if row["prompt"] == "stareval"]
    for text in rows:
        first = text.split()[0].lower()
        assert read_answer(text, FIVE).value == (words[first] if first in words else float(first))


@pytest.mark.data
def test_reading_right_ranks_better_than_as_published(
    recorded_answers: list[dict[str, str]], data_folder: Path
) -> None:
    """Against the experts' scores, the published last-number rule loses where answers say "4 out of 5"."""
    scipy_stats = pytest.importorskip("scipy.stats")
    with gzip.open(data_folder / "summeval/summeval_1600.jsonl.gz", "rt", encoding="utf-8") as lines:
        human = {(row["doc_id"], row["system_id"]): row["scores"] for row in map(json.loads, lines)}
    taus: dict[str, list[float]] = {"text": [], "as-published": []}
    rows = [row for row in recorded_answers if row["judge"] == "llama-2-13b-chat-hf"]
    for aspect in sorted({row["aspect"] for row in rows}):
        mine = [row for row in rows if row["aspect"] == aspect]
        gold = [human[row["doc_id"], row["system_id"]][aspect] for row in mine]
        for decode in ("text", "as-published"):
            values = [read_answer(row["response"], FIVE, decode).value or math.nan for row in mine]
            pairs = [(v, g) for v, g in zip(values, gold, strict=True) if not math.isnan(v)]
            taus[decode].append(scipy_stats.kendalltau(*zip(*pairs, strict=True)).statistic)
    assert statistics.mean(taus["text"]) > statistics.mean(taus["as-published"]) + 0.02
