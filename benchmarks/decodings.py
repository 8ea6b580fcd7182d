"""Which way of getting a score out of a small model agrees best with humans: its text, its most probable label, the
expectation over labels, or the likelihood of the hypothesis?

    python benchmarks/decodings.py --data DATA                                       the embedded model
    python benchmarks/decodings.py --data DATA --model FOLDER --model auto --set summeval

For every set, about 500 hypotheses (all systems of segments that are drawn with a fixed seed): length and likelihood,
then every format of PrExMe's plain zero-shot prompt, and for the embedded model the prompt with graded examples that
was written for it. Kendall's tau-b over all hypotheses and its mean over segments, each with a 95 % bootstrap interval
resampled by segment; the share of answers that held a score (text) or the median probability of the labels (mode,
expectation); how many different scores there are. An undefined correlation prints as nan with its reason, and an
interval as undefined where more than a twentieth of its draws are. Answers are kept in the user's cache: an interrupted
run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from promptmetric.backends import open_backend
from promptmetric.backends.base import Backend
from promptmetric.bench.controls import control_scores
from promptmetric.bench.measures import MEASURES
from promptmetric.datasets import EvalSet, load_set
from promptmetric.decoding import Decode
from promptmetric.decoding.expected import LabelReader
from promptmetric.execution import Ask, asker, open_cache
from promptmetric.judging import Judge
from promptmetric.prompts import LanguagePair, get_prompt
from promptmetric.questions import LabelRequest, Question, Request
from promptmetric.scale import Scale
from promptmetric.segments import from_completion
from promptmetric.stats.bootstrap import draw_weights, interval
from promptmetric.types import EMBEDDED_MODEL, Distribution, Segment, Task

_T = TypeVar("_T")

SETS: dict[str, tuple[Task, int]] = {
    "wmt23/en-de": ("translation", 42),
    "wmt22/zh-en": ("translation", 36),
    "summeval": ("summarization", 32),
}
"""By name: the task, and how many segments are drawn, each with all its systems."""

FORMATS = ("0-or-1", "0..5", "0..100", "0.0..1.0", "simple-labels", "complex-labels")
TEXT_TOKENS = 8
"""Enough for "Score: 85/100"; small models go on forever."""

LIKELIHOODS: tuple[tuple[str, Decode], ...] = (
    ("likelihood", "likelihood"),
    ("likelihood", "likelihood-pmi"),
    ("likelihood-source", "likelihood"),
    ("likelihood-source", "likelihood-pmi"),
)
"""Beginnings of prompts, and decodings. All are tried on one set; the first, which did best there, on the others."""

CHOSEN_ON = "wmt22/zh-en"
MEASURED = ("kendall", "kendall-item")
DRAWS = 1000


class Row(NamedTuple):
    """One way of scoring on one set: its scores by sample, and what is known of the answers behind them."""

    model: str
    set: str
    format: str
    decoding: str
    scores: list[float]
    read: float | None


def rows(
    model: str, backend: Backend, evalset: EvalSet, task: Task, formats: tuple[str, ...], ask: Ask
) -> Iterator[Row]:
    """The likelihoods, then every decoding of every format."""
    langs = LanguagePair.parse(evalset.langs) if evalset.langs else None
    samples = dict(enumerate(evalset.samples()))
    name, what = backend.fingerprint().model, f"{model} {evalset.name}"
    suffix = "translation" if task == "translation" else "summary"
    for beginning, decode in LIKELIHOODS if evalset.name == CHOSEN_ON else LIKELIHOODS[:1]:
        prompt = f"{beginning}-{suffix}"
        judge = Judge(get_prompt(prompt), task, langs, name, decode)
        yield _from_segments(model, evalset, prompt, decode, _in_order(judge, evalset, ask, what))
    judges = {form: Judge(get_prompt(f"prexme:zs/neutral/{form}"), task, langs, name, "text") for form in formats}
    # All formats at once: they differ in their last line only, so a segment's own text is computed once for all.
    prompts = {
        (form, position): judges[form].render(sample, position)
        for form in formats
        for position, sample in samples.items()
    }
    readers = {form: LabelReader(judge.prompt.scale) for form, judge in judges.items()}
    read = _answers(
        {key: LabelRequest(prompt, readers[key[0]].texts) for key, prompt in prompts.items()}, ask, f"{what} labels"
    )
    for form in formats:
        beliefs = [readers[form].distribution(read[form, position]) for position in samples]
        yield from _from_beliefs(model, evalset, form, judges[form].prompt.scale, readers[form], beliefs)
    written = _answers({key: Request(prompt, TEXT_TOKENS) for key, prompt in prompts.items()}, ask, f"{what} text")
    for form in formats:
        scale = judges[form].prompt.scale
        segments = [
            from_completion(position, written[form, position], scale, "text", shortened=None, attempts=1)
            for position in samples
        ]
        yield _from_segments(model, evalset, form, "text", segments)
    if name == EMBEDDED_MODEL:
        yield from _shown(model, evalset, Judge(get_prompt(f"demo-{suffix}"), task, langs, name, "text"), ask, what)


def _shown(model: str, evalset: EvalSet, judge: Judge, ask: Ask, what: str) -> Iterator[Row]:
    """A prompt with graded examples, by text and by its labels; these are read where the examples have their score."""
    reader = LabelReader(judge.prompt.scale)
    expecting = replace(judge, decode="expected")
    read = [segment.distribution or "" for segment in _in_order(expecting, evalset, ask, what)]
    yield from _from_beliefs(model, evalset, judge.prompt.id, judge.prompt.scale, reader, read)
    yield _from_segments(model, evalset, judge.prompt.id, "text", _in_order(judge, evalset, ask, what))


def _in_order(judge: Judge, evalset: EvalSet, ask: Ask, what: str) -> list[Segment]:
    samples = dict(enumerate(evalset.samples()))
    found = _watched(judge.segments(samples, ask), len(samples), f"{what} {judge.prompt.id} {judge.decode}")
    return sorted(found, key=lambda segment: segment.index)


def _from_beliefs(
    model: str, evalset: EvalSet, form: str, scale: Scale, reader: LabelReader, beliefs: list[Distribution | str]
) -> Iterator[Row]:
    """The most probable label and the expectation; a belief that is text is the reason why there is none."""
    known = [None if isinstance(belief, str) else belief for belief in beliefs]
    mass = statistics.median(belief.mass if belief else 0.0 for belief in known)
    modes = [scale.normalise(reader.values[belief.mode]) if belief else math.nan for belief in known]
    means = [scale.normalise(reader.expectation(belief)) if belief else math.nan for belief in known]
    yield Row(model, evalset.name, form, "mode", modes, mass)
    yield Row(model, evalset.name, form, "expectation", means, mass)


def _answers(questions: Mapping[tuple[str, int], Question], ask: Ask, what: str) -> dict[tuple[str, int], Any]:
    keys = list(questions)
    answers = _watched(ask(dict(enumerate(questions.values()))), len(keys), what)
    return {keys[number]: answer for number, answer in answers}


def _from_segments(model: str, evalset: EvalSet, prompt: str, decoding: str, segments: list[Segment]) -> Row:
    read = sum(segment.raw is not None for segment in segments) / len(segments)
    return Row(model, evalset.name, prompt, decoding, [segment.score for segment in segments], read)


def _watched(items: Iterable[_T], total: int, what: str) -> Iterator[_T]:
    """Pass items on, and say now and then how far it is."""
    start = said = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        if time.monotonic() - said > 30 or count == total:
            said = time.monotonic()
            print(f"{what}: {count} of {total} in {said - start:.0f} s", file=sys.stderr, flush=True)


def measured(row: Row, evalset: EvalSet) -> dict[str, Any]:
    """The row's correlations with intervals; answers without a score get the mean of the others (PrExMe's rule)."""
    known = [score for score in row.scores if not math.isnan(score)]
    filled = [statistics.fmean(known) if math.isnan(score) else score for score in row.scores] if known else row.scores
    result: dict[str, Any] = {**row._asdict(), "distinct": len(set(known)), "n": len(row.scores)}
    del result["scores"]
    human, metric = evalset.human(), evalset.matrix(filled)
    weights = draw_weights(human.shape[1], DRAWS, seed=1)
    for name in MEASURED:
        if len(set(known)) < 2:
            result[name] = "nan (all scores are equal)" if known else "nan (no answer held a score)"
            continue
        compute, _, resample = MEASURES[name]
        found = compute(human, metric)
        if resample is None:
            raise ValueError(f"{name} has no interval")
        spread = interval(resample(human, metric, weights, found))
        if math.isnan(spread.low):
            result[name] = f"{found.value:+.3f} [mostly undefined]"
        else:
            result[name] = f"{found.value:+.3f} [{spread.low:+.3f}, {spread.high:+.3f}]"
            result[f"{name} interval"] = [spread.low, spread.high]
    return result


COLUMNS = {
    "model": 24,
    "set": 12,
    "format": 29,
    "decoding": 14,
    "kendall": 26,
    "kendall-item": 26,
    "read": 6,
    "distinct": 8,
}


def line(result: dict[str, Any]) -> str:
    read = result.get("read")
    cells = {**result, "read": f"{read:.3f}" if isinstance(read, float) else ""}
    return "  ".join(f"{cells[name]!s:{width}}" for name, width in COLUMNS.items()).rstrip()


def tally(results: list[dict[str, Any]]) -> str:
    """How many gradings (text, modes and expectations) are told from chance between hypotheses for one segment."""
    gradings = [result for result in results if result["decoding"] in ("text", "mode", "expectation")]
    intervals = [result["kendall-item interval"] for result in gradings if "kendall-item interval" in result]
    above, below = sum(low > 0 for low, _ in intervals), sum(high < 0 for _, high in intervals)
    return (
        f"{len(gradings)} gradings; kendall-item has an interval for {len(intervals)} of them, "
        f"above zero for {above}, below zero for {below}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with wmt/ and summeval/")
    parser.add_argument("--model", action="append", help="model folder or hub id; default: the embedded model")
    parser.add_argument("--backend", default="auto", choices=["auto", "transformers", "vllm"])
    parser.add_argument("--set", choices=SETS, action="append", help="default: all")
    parser.add_argument("--format", choices=FORMATS, action="append", help="default: all")
    parser.add_argument("--segments", type=int, help="segments drawn, instead of about 500 hypotheses' worth")
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--output", type=Path, help="also write the results as JSON lines")
    arguments = parser.parse_args()
    print("  ".join(f"{name:{width}}" for name, width in COLUMNS.items()).rstrip(), flush=True)
    for model in arguments.model or ["auto"]:
        backend = open_backend(model, arguments.backend, gpus=1)
        label = backend.fingerprint().model
        cache = open_cache()
        ask = asker(backend, arguments.batch_size, cache)
        results = []
        for name in arguments.set or SETS:
            task, segments = SETS[name]
            evalset = load_set(name, data=arguments.data).without_humans().draw(arguments.segments or segments, seed=1)
            formats = tuple(arguments.format or FORMATS)
            length = Row("(length)", name, "", "length", control_scores(evalset)["length"], None)
            _print(measured(length, evalset), arguments.output)
            for row in rows(label, backend, evalset, task, formats, ask):
                results.append(measured(row, evalset))
                _print(results[-1], arguments.output)
        print(f"{label}: {tally(results)}", flush=True)
        if cache:
            cache.close()
        backend.close()


def _print(result: dict[str, Any], output: Path | None) -> None:
    print(line(result), flush=True)
    if output:
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
