"""The throughput benchmark: its four ways agree on a tiny model of random weights, and its double scores."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from promptmetric.datasets.evalset import EvalSet, Judged

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def throughput(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("throughput")


SOURCES = ("The bridge was closed for repairs on Monday.", "Two of the three lakes froze over in January.")
ROWS = tuple(
    Judged(segment=str(number), system=system, src=source, hyp=hyp)
    for system, hyp in (("A", "Eine Brücke."), ("B", "Drei Seen froren zu."), ("C", "Eine Brücke."))
    for number, source in enumerate(SOURCES)
)


PROMPT = """
id = "test:short"
max_tokens = 4
[scale]
kind = "labels"
labels = { bad = 1, good = 5 }
[[messages]]
role = "user"
content = "{{ src }} => {{ hyp }}: bad or good?"
"""


@pytest.mark.engine
def test_all_ways_ask_the_same_of_a_real_engine(
    throughput: ModuleType,
    embedded_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(throughput, "PUBLISHED_TOKENS", 4)
    (tmp_path / "prompt.toml").write_text(PROMPT)
    arguments = argparse.Namespace(
        model=str(embedded_folder),
        engine="transformers",
        random="tiny",
        prompt=str(tmp_path / "prompt.toml"),
        batch_size=4,
        published=4,
        repeat=2,
    )
    engine = throughput.open_engine(arguments, tmp_path)
    evalset = EvalSet("made up", "translation", ROWS, (), langs="en-de")
    result = throughput.compare(engine, evalset, arguments)
    assert "6 segments of 2 sources, 4 different questions" in capsys.readouterr().out
    assert result["largest difference of a probability"] < 1e-6
    assert len(result["runs"]["label reading"]["all_seconds"]) == 2

    # The tokens by hand: whole prompts where nothing is shared; else what all share, what a source's share, the rest.
    work = throughput.Workload(evalset, engine, arguments.prompt)
    lengths = [len(tokens) for tokens in work.sequences]
    published, raw = result["runs"]["as published"], result["runs"]["raw engine"]
    assert published["prefill"] == 4 * max(lengths[:4])
    assert published["steps"] <= 4 * 3
    header = throughput.common(work.distinct)
    shared = [throughput.common(group) for group in work.groups]
    rests = [2 * (max(map(len, group)) - common) for group, common in zip(work.groups, shared, strict=True)]
    assert raw["prefill"] == header + sum(common - header for common in shared) + sum(rests) < sum(lengths)


def test_what_sequences_begin_with(throughput: ModuleType) -> None:
    assert throughput.common([[1, 2, 3], [1, 2, 4, 5], [1, 2, 3, 9]]) == 2
    assert throughput.common([[1, 2], [1, 2, 4]]) == 1, "the last token of each is left over"
    assert throughput.common([[1, 2, 3]]) == 2


def test_whole_sources_in_the_order_of_the_file(throughput: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    evalset = EvalSet("made up", "translation", ROWS, (), langs="en-de")
    monkeypatch.setattr(throughput, "load_set", lambda name, data: evalset)
    assert throughput.first_sources("made up", Path(), 2).rows == ROWS[::2]
    assert throughput.first_sources("made up", Path(), 4).rows == ROWS


def test_recorded_questions_come_again_in_another_order(throughput: ModuleType) -> None:
    samples = list(throughput.varied(12_000))
    first, second = samples[:10_000], samples[10_000:]
    assert len(set(first)) == 10_000
    assert set(second) <= set(first)
    assert second != first[:2000]


def test_the_pipeline_reads_every_answer_of_the_doubles() -> None:
    command = [sys.executable, str(BENCHMARKS / "throughput.py"), "--pipeline", "--sizes", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ways = [line[:21].strip() for line in done.stdout.splitlines()[2:]]
    assert ways == ["text, short answers", "text, long answers", "label reading"], done.stdout
