"""Reads 14,400 recorded judge answers (SummEval, three models) and shows what the parser makes of them.

    python benchmarks/parser.py --data DATA_FOLDER               parse rate, correlation with the experts, speed
    python benchmarks/parser.py --data DATA_FOLDER --show 10     and ten random answers of every rule, for the eye

Correlation: Kendall's tau-b over all segments with the mean of three experts, for our parser and for the extraction of
the PrExMe paper (`as-published`: the last number, whatever it is). Unread answers are left out and counted. Speed is
given as a ratio within the run: our parser's time over that of the published one-line extraction, which is the floor.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from scipy.stats import kendalltau

from promptmetric.decoding import Decode, read_answer
from promptmetric.scale import NumericScale
from promptmetric.types import Reading

SCALE = NumericScale(min=1, max=5)
Answer = dict[str, Any]


def read_lines(path: Path) -> list[Answer]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def timed(answers: list[Answer], decode: Decode) -> tuple[list[Reading], float]:
    start = time.perf_counter()
    readings = [read_answer(answer["response"], SCALE, decode) for answer in answers]
    return readings, time.perf_counter() - start


def tau(readings: list[Reading], human: list[float]) -> float:
    pairs = [(r.value, h) for r, h in zip(readings, human, strict=True) if r.value is not None]
    return float(kendalltau(*zip(*pairs, strict=True)).statistic) if len(pairs) > 1 else math.nan


def show(answers: list[Answer], readings: list[Reading], count: int) -> None:
    by_rule = defaultdict(list)
    for answer, reading in zip(answers, readings, strict=True):
        by_rule[reading.rule if reading.value is not None else "unread"].append((answer["response"], reading))
    rng = random.Random(1)
    for rule, found in sorted(by_rule.items(), key=lambda item: -len(item[1])):
        print(f"\n{rule}: {len(found)} answers")
        for text, reading in rng.sample(found, min(count, len(found))):
            start, end = reading.span or (len(text), len(text))
            before, after = text[max(0, start - 70) : start], text[end : end + 30]
            shown = f"{before}>>{text[start:end]}<<{after}".replace("\n", "↵")
            value = "-" if reading.value is None else f"{reading.value:g}"
            print(f"  {value:4} {shown}" + (f"   ({reading.reason})" if reading.reason else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with llm_outputs/ and summeval/")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N random answers of every rule")
    arguments = parser.parse_args()
    answers = read_lines(arguments.data / "llm_outputs/damo_summeval_judge_outputs.jsonl.gz")
    experts = {
        (row["doc_id"], row["system_id"]): row["scores"]
        for row in read_lines(arguments.data / "summeval/summeval_1600.jsonl.gz")
    }
    ours, our_time = timed(answers, "text")
    published, published_time = timed(answers, "as-published")
    groups = defaultdict(list)
    for index, answer in enumerate(answers):
        groups[answer["judge"], answer["prompt"], answer["aspect"]].append(index)
    print(f"{'judge':22} {'prompt':9} {'aspect':12} {'n':>5} {'read':>7} {'differ':>7} {'tau':>6} {'as-published':>13}")
    for (judge, prompt, aspect), members in sorted(groups.items()):
        human = [experts[answers[i]["doc_id"], answers[i]["system_id"]][aspect] for i in members]
        mine, theirs = [ours[i] for i in members], [published[i] for i in members]
        read = sum(reading.value is not None for reading in mine) / len(members)
        differ = sum(a.value != b.value for a, b in zip(mine, theirs, strict=True))
        print(
            f"{judge:22} {prompt:9} {aspect:12} {len(members):5} {read:7.2%} {differ:7} "
            f"{tau(mine, human):6.3f} {tau(theirs, human):13.3f}"
        )
    total = sum(reading.value is not None for reading in ours)
    print(f"\nread: {total} of {len(answers)} ({total / len(answers):.2%})")
    print(
        f"time: {1e6 * our_time / len(answers):.0f} µs an answer, "
        f"{our_time / published_time:.0f} times the published extraction"
    )
    if arguments.show:
        show(answers, ours, arguments.show)


if __name__ == "__main__":
    main()
