"""How the embedded model fares on human judgments, by text, beside scores that look at the length alone.

    python benchmarks/embedded.py --data DATA_FOLDER                      both sets
    python benchmarks/embedded.py --data DATA_FOLDER --set wmt23-en-de    one of them
    python benchmarks/embedded.py --data DATA_FOLDER --set wmt22-en-de --prompt my.toml

Prints Kendall's tau-b over all segments with a 95 % bootstrap interval resampled by source, the same for the length
of the hypothesis (shorter is better), the parse rate (share of the asked segments whose answer held a score), how many
different scores there are, and the time. Segments are drawn with a fixed seed; an undefined correlation prints as nan
with its reason.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.stats import kendalltau

from promptmetric import Sample, Scorer
from promptmetric.types import Task


class Judged(NamedTuple):
    """Samples with their human scores (higher is better)."""

    task: Task
    langs: str | None
    samples: list[Sample]
    human: np.ndarray


def wmt(data: Path, year: str, langs: str, n: int, seed: int) -> Judged:
    """Segments of the WMT MQM judgments: system outputs only, human references left out."""
    mine = pl.col("lp") == langs
    segments = pl.read_parquet(data / f"wmt/wmt{year}_segments.parquet").filter(mine)
    outputs = pl.read_parquet(data / f"wmt/wmt{year}_outputs.parquet").filter(mine & ~pl.col("is_human"))
    judged = outputs.filter(pl.col("mqm").is_not_null()).join(segments, on=["lp", "seg_id"])
    drawn = judged.sort("system", "seg_id").sample(n, seed=seed, shuffle=True)
    samples = [Sample(row["src"], row["hyp"], system=row["system"]) for row in drawn.iter_rows(named=True)]
    return Judged("translation", langs, samples, drawn["mqm"].to_numpy())


def summeval(data: Path, half: int, n: int, seed: int) -> Judged:
    """SummEval: mean of the four aspects' expert scores, from one half of the articles (0 to choose, 1 to report)."""
    with gzip.open(data / "summeval/summeval_1600.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    articles = sorted({row["doc_id"] for row in rows})
    chosen = set(articles[half::2])
    rows = sorted((r for r in rows if r["doc_id"] in chosen), key=lambda r: (r["doc_id"], r["system_id"]))
    drawn = np.random.default_rng(seed).permutation(len(rows))[:n]
    samples = [Sample(rows[i]["source"], rows[i]["system_output"], doc=rows[i]["doc_id"]) for i in drawn]
    human = np.array([round(float(np.mean(list(rows[i]["scores"].values()))), 6) for i in drawn])
    return Judged("summarization", None, samples, human)


SETS: dict[str, tuple[int, Callable[[Path, int], Judged]]] = {
    "wmt22-en-de": (200, lambda data, n: wmt(data, "22", "en-de", n, seed=1)),
    "wmt22-zh-en": (200, lambda data, n: wmt(data, "22", "zh-en", n, seed=1)),
    "summeval-choose": (100, lambda data, n: summeval(data, 0, n, seed=1)),
    "wmt23-en-de": (200, lambda data, n: wmt(data, "23", "en-de", n, seed=1)),
    "summeval": (100, lambda data, n: summeval(data, 1, n, seed=1)),
}
REPORTED = ("wmt23-en-de", "summeval")


def tau(scores: np.ndarray, human: np.ndarray) -> float:
    """Kendall's tau-b; nan where one side is constant."""
    if len(set(scores)) < 2 or len(set(human)) < 2:
        return float("nan")
    return float(kendalltau(scores, human).statistic)


def with_interval(scores: np.ndarray, judged: Judged, draws: int = 1000) -> str:
    """Tau with its bootstrap interval: sources are drawn with all their segments."""
    value = tau(scores, judged.human)
    if np.isnan(value):
        return "nan (all scores are equal)"
    sources: dict[str, list[int]] = {}
    for index, sample in enumerate(judged.samples):
        sources.setdefault(sample.src, []).append(index)
    groups = [np.array(group) for group in sources.values()]
    rng = np.random.default_rng(1)
    values = []
    for _ in range(draws):
        drawn = np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))])
        values.append(tau(scores[drawn], judged.human[drawn]))
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with wmt/ and summeval/")
    parser.add_argument("--set", choices=SETS, action="append", help="default: the two that are reported")
    parser.add_argument("--prompt", help="instead of the embedded model's own")
    parser.add_argument("--model", default="auto")
    parser.add_argument("--limit", type=int, help="segments per set")
    arguments = parser.parse_args()
    print(f"{'set':16} {'n':>4} {'tau of the model':28} {'tau of the length':28} parsed  distinct  seconds  prompt")
    for name in arguments.set or REPORTED:
        size, load = SETS[name]
        judged = load(arguments.data, arguments.limit or size)
        start = time.monotonic()
        with Scorer(arguments.model, prompt=arguments.prompt, task=judged.task, langs=judged.langs) as scorer:
            prediction = scorer.predict(judged.samples)
            prompt = scorer.prompt.id
        seconds = time.monotonic() - start
        scores = np.array(prediction.scores)
        lengths = np.array([-len(sample.hyp) for sample in judged.samples])
        asked = len(scores) - prediction.count("empty")
        print(
            f"{name:16} {len(scores):4} {with_interval(scores, judged):28} {with_interval(lengths, judged):28} "
            f"{1 - prediction.count('imputed', 'failed') / asked:6.1%} {len(set(scores)):9} {seconds:8.0f}  {prompt}",
            flush=True,
        )


if __name__ == "__main__":
    main()
