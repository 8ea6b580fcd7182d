"""The command line, on recorded answers: what a user types, sees, and gets wrong."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from promptmetric import Sample, Signature
from promptmetric.cli import cli

PROMPT_TOML = """
id = "test:direct"
max_tokens = 20
scale = { kind = "numeric", min = 0, max = 100 }
[[messages]]
role = "user"
content = "{{ src }} => {{ hyp }}"
"""
A = [Sample("s1", "a1"), Sample("s2", "a2"), Sample("s3", "a3")]
B = [Sample("s1", "b1"), Sample("s2", "b2"), Sample("s3", "b3")]


@pytest.fixture
def folder(tmp_path: Path, record: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Path:
    record(A, ["Score: 90", "Score: 80", "no idea"])
    record(B, ["Score: 10", "Score: 20", "Score: 30"])
    (tmp_path / "p.toml").write_text(PROMPT_TOML, encoding="utf-8")
    (tmp_path / "src.txt").write_text("s1\ns2\ns3\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("a1\na2\na3\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("b1\r\nb2\r\nb3", encoding="utf-8")
    (tmp_path / "short.txt").write_text("b1\nb2\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def score(*arguments: str, stdin: str | None = None) -> Result:
    return run("score", "-m", "answers.jsonl", "-p", "p.toml", "--max-failed", "0.5", *arguments, stdin=stdin)


def test_text_output_is_comets(folder: Path) -> None:
    result = score("-s", "src.txt", "-t", "b.txt")
    assert result.exit_code == 0
    assert result.stdout == (
        "b.txt\tSegment 0\tscore: 0.1000\n"
        "b.txt\tSegment 1\tscore: 0.2000\n"
        "b.txt\tSegment 2\tscore: 0.3000\n"
        "b.txt\tscore: 0.2000\n"
    )
    line = next(line for line in result.stderr.splitlines() if "signature" in line)
    assert Signature.parse(line.split("signature ")[1]).prompt == "test:direct"


def test_several_files_in_either_spelling(folder: Path) -> None:
    several = score("-s", "src.txt", "-t", "a.txt", "b.txt", "--only-system")
    assert several.exit_code == 0, several.output
    assert [line.split("\t")[0] for line in several.stdout.splitlines()] == ["a.txt", "b.txt"]
    again = score("--sources", "src.txt", "--translations=a.txt", "b.txt", "--only_system")
    assert again.stdout == several.stdout


def test_imputed_segments_are_marked_in_every_format(folder: Path) -> None:
    arguments = ("-s", "src.txt", "-t", "a.txt", "b.txt")
    mean = (0.9 + 0.8 + 0.1 + 0.2 + 0.3) / 5
    text = score(*arguments)
    assert f"a.txt\tSegment 2\tscore: {mean:.4f}\timputed\n" in text.stdout
    assert "\timputed: 1 of 3\n" in text.stdout
    assert "no score for 1 of 6 segments (16.7%; " in text.stderr
    found = json.loads(score(*arguments, "--format", "json").stdout)
    assert found["systems"][0]["imputed"] == 1
    assert found["systems"][0]["segments"][2]["status"] == "imputed"
    assert found["systems"][0]["segments"][2]["score"] == pytest.approx(mean)
    assert found["systems"][1]["score"] == pytest.approx(0.2)
    assert Signature.parse(found["signature"]).model == "recorded"
    lines = [json.loads(line) for line in score(*arguments, "--format", "jsonl").stdout.splitlines()]
    assert [line["type"] for line in lines] == ["segment"] * 6 + ["system"] * 2
    assert (lines[5]["status"], lines[5]["file"], lines[5]["segment"]) == ("imputed", "a.txt", 2)
    assert lines[6]["imputed"] == 1
    rows = list(csv.DictReader(io.StringIO(score(*arguments, "--format", "tsv").stdout), dialect="excel-tab"))
    assert rows[2]["status"] == "imputed"
    assert rows[3]["segment"] == "system"
    assert rows[3]["status"] == "imputed: 1"
    assert rows[0]["signature"] == found["signature"]


def test_json_lines_in_a_file_are_in_input_order(folder: Path) -> None:
    result = score("-s", "src.txt", "-t", "a.txt", "b.txt", "--format", "jsonl", "-o", "out.jsonl")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    places = [(line["file"], line.get("segment")) for line in lines]
    assert places[:6] == [(name, index) for name in ("a.txt", "b.txt") for index in range(3)]
    assert places[6:] == [("a.txt", None), ("b.txt", None)]
    assert lines[2]["status"] == "imputed"
    live = score("-s", "src.txt", "-t", "a.txt", "b.txt", "--format", "jsonl").stdout.splitlines()
    assert sorted(map(json.loads, live), key=str) == sorted(lines, key=str)
    assert sorted(path.name for path in folder.iterdir() if "part" in path.name) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_json_lines_go_through_a_named_pipe(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    assert score("-s", "src.txt", "-t", "a.txt", "--format", "jsonl", "-o", "pipe").exit_code == 0
    reader.join(10)
    lines = [json.loads(line) for line in got[0].splitlines()]
    assert [line["type"] for line in lines] == ["segment"] * 3 + ["system"]
    assert (lines[2]["segment"], lines[2]["status"]) == (2, "imputed")
    assert pipe.is_fifo()


def test_an_error_before_the_first_segment_leaves_no_part(folder: Path) -> None:
    arguments = ("-s", "src.txt", "-t", "a.txt", "--format", "jsonl", "-o", "out.jsonl")
    assert score(*arguments, "--samples", "2", "--decode", "expected").exit_code == 2
    assert not list(folder.glob("out.jsonl*"))


def test_the_part_overwrites_no_input_either(folder: Path) -> None:
    part = folder / "out.jsonl.part"
    part.write_text("s1\ns2\ns3\n", encoding="utf-8")
    (folder / "link.jsonl").symlink_to("out.jsonl")
    for arguments in (
        ("-s", "out.jsonl.part", "-o", "out.jsonl"),
        ("-s", "out.jsonl.part", "-o", "link.jsonl"),
        ("-s", "src.txt", "--record", "out.jsonl.part", "-o", "out.jsonl"),
    ):
        result = score(*arguments, "-t", "a.txt", "--format", "jsonl")
        assert result.exit_code == 2
        assert "out.jsonl.part: is also an input" in result.stderr
    assert part.read_text(encoding="utf-8") == "s1\ns2\ns3\n"


def test_undefined_scores_are_null_not_nan(folder: Path) -> None:
    result = score("-s", "src.txt", "-t", "a.txt", "--fallback", "nan", "--format", "json")
    system = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(name))["systems"][0]
    assert system["score"] is None
    assert system["segments"][2]["score"] is None
    text = score("-s", "src.txt", "-t", "a.txt", "--fallback", "nan").stdout
    assert "a.txt\tSegment 2\tscore: nan\tfailed\n" in text


def test_too_many_failures_exit_with_3_and_lose_nothing(folder: Path) -> None:
    result = score("-s", "src.txt", "-t", "a.txt", "--max-failed", "0.3")
    assert result.exit_code == 3
    assert result.stdout.count("Segment") == 3
    assert "a.txt: 33.3% of the segments hold no score, more than --max-failed 30.0%" in result.stderr
    assert score("-s", "src.txt", "-t", "a.txt", "b.txt", "--max-failed", "0.3").exit_code == 3
    assert score("-s", "src.txt", "-t", "a.txt", "--fallback", "error").exit_code == 3


def test_stdin_gzip_and_limit(folder: Path) -> None:
    plain = score("-s", "src.txt", "-t", "b.txt").stdout
    assert score("-s", "-", "-t", "b.txt", stdin="s1\ns2\ns3\n").stdout == plain
    (folder / "src.gz").write_bytes(gzip.compress(b"s1\ns2\ns3\n"))
    assert score("-s", "src.gz", "-t", "b.txt").stdout == plain
    assert score("-s", "src.txt", "-t", "-", stdin="b1\nb2\nb3\n").stdout == plain.replace("b.txt", "-")
    assert score("-s", "src.txt", "-t", "a.txt", "b.txt", "--limit", "1").stdout.count("Segment") == 2


def test_json_lines_hold_sources_with_line_breaks(folder: Path, record: Callable[..., str]) -> None:
    record([Sample("two\nlines", "h")], ["Score: 60"])
    row = json.dumps({"src": "two\nlines", "hyp": "h"})
    (folder / "both.jsonl").write_text(row + "\n\n", encoding="utf-8")
    assert score("-s", "both.jsonl").stdout.startswith("both.jsonl\tSegment 0\tscore: 0.6000\n")
    assert score("-s", "-", stdin=row).stdout.startswith("-\tSegment 0\tscore: 0.6000\n")
    (folder / "src.jsonl").write_text('{"src": "s1", "hyp": "zzz"}\n{"src": "s2"}\n{"src": "s3"}\n', encoding="utf-8")
    (folder / "b.jsonl").write_text('{"mt": "b1"}\n{"hyp": "b2"}\n{"hyp": "b3"}\n', encoding="utf-8")
    assert "score: 0.2000\n" in score("-s", "src.jsonl", "-t", "b.jsonl").stdout
    assert "score: 0.2000\n" in score("-s", "src.jsonl", "-t", "b.txt").stdout


def test_lines_break_at_line_feeds_only(folder: Path, record: Callable[..., str]) -> None:
    record([Sample("s\u2028x\x0cy", "h\x85")], ["Score: 60"])
    (folder / "u.txt").write_text("s\u2028x\x0cy\n", encoding="utf-8")
    (folder / "v.txt").write_text("\ufeffh\x85\n", encoding="utf-8")
    assert "score: 0.6000\n" in score("-s", "u.txt", "-t", "v.txt").stdout


def test_empty_hypotheses_are_worst_and_marked(folder: Path) -> None:
    (folder / "gap.txt").write_text("b1\n\nb3\n", encoding="utf-8")
    result = score("-s", "src.txt", "-t", "gap.txt")
    assert "gap.txt\tSegment 1\tscore: 0.0000\tempty\n" in result.stdout
    assert result.exit_code == 0


def test_output_goes_to_a_file_whole(folder: Path) -> None:
    result = score("-s", "src.txt", "-t", "b.txt", "-o", "out.txt", "-q")
    assert result.stdout == ""
    assert result.stderr == ""
    assert (folder / "out.txt").read_text(encoding="utf-8") == score("-s", "src.txt", "-t", "b.txt").stdout
    (folder / "link.txt").symlink_to("out.txt")
    assert score("-s", "src.txt", "-t", "a.txt", "-o", "link.txt").exit_code == 0
    assert (folder / "link.txt").is_symlink()
    assert "a.txt" in (folder / "out.txt").read_text(encoding="utf-8")
    assert score("-s", "src.txt", "-t", "b.txt", "-o", "/dev/null").exit_code == 0
    assert Path("/dev/null").is_char_device()
    assert score("-s", "src.txt", "-t", "b.txt", "-o", "missing/out.txt").exit_code == 2
    assert score("-s", "src.txt", "-t", "b.txt", "-o", ".").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (("-s", "src.txt", "-t", "short.txt"), ("src.txt has 3 segments", "short.txt has 2")),
        (("-s", "missing.txt", "-t", "a.txt"), ("missing.txt: no such file",)),
        (("-s", "src.txt", "-t", "missing.txt"), ("missing.txt: no such file",)),
        (("-s", ".", "-t", "a.txt"), (".: is a folder",)),
        (("-s", "src.txt"), ("src.txt holds no hypotheses", "-t")),
        (("-s", "src.txt", "-t", "a.txt", "a.txt"), ("a.txt: given twice",)),
        (("-s", "blank.jsonl"), ("blank.jsonl is empty",)),
        (("-s", "src.txt", "-t", "other.jsonl"), ("src.txt, line 1 and other.jsonl, line 1: the sources differ",)),
        (("-s", "nosrc.jsonl", "-t", "a.txt"), ("nosrc.jsonl, line 1: 'src' is missing",)),
        (("-s", "-", "-t", "-"), ("stdin (-) can be read only once",)),
        (("-s", "src.txt", "-t", "a.txt", "-l", "english"), ("'english' is not a language pair",)),
        (("-s", "src.txt", "-t", "a.txt", "-p", "zzz"), ("no prompt is named 'zzz'",)),
        (("-s", "src.txt", "-t", "a.txt", "-p", "bad.toml"), ("bad.toml: not a valid prompt", "unknown placeholder x")),
        (("-s", "src.txt", "-t", "a.txt", "--limit", "0"), ("--limit",)),
        (("-s", "src.txt", "-t", "a.txt", "--max-failed", "2"), ("--max-failed",)),
        (("-s", "src.txt", "-t", "a.txt", "--max-failed", "nan"), ("--max-failed",)),
        (("-s", "src.txt", "-t", "a.txt", "--decode", "magic"), ("--decode",)),
        (("-s", "src.txt", "-t", "a.txt", "-m", "none.jsonl"), ("none.jsonl: no such file",)),
        (("-s", "src.txt", "-t", "a.txt", "-b", "x"), ("--batch-size",)),
        (("-t", "a.txt"), ("--sources",)),
        (("-s", "src.txt", "-t", "empty.txt"), ("empty.txt is empty",)),
        (("-s", "src.txt", "-t", "latin.txt"), ("latin.txt, line 2: not UTF-8",)),
        (("-s", "src.txt", "-t", "bad.gz"), ("bad.gz: cannot be read",)),
        (("-s", "bad.jsonl"), ("bad.jsonl, line 2: not valid JSON",)),
        (("-s", "list.jsonl"), ("list.jsonl, line 1: not a JSON object",)),
        (("-s", "number.jsonl"), ("number.jsonl, line 1: 'hyp' must be text, not int",)),
    ],
)
def test_bad_input_is_named_before_any_model_loads(
    arguments: tuple[str, ...], messages: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bad.toml").write_text(PROMPT_TOML.replace("{{ src }}", "{{ x }}"), encoding="utf-8")
    (folder / "empty.txt").touch()
    (folder / "blank.jsonl").write_text("\n\n", encoding="utf-8")
    (folder / "other.jsonl").write_text('{"src": "x", "hyp": "a1"}\n' * 3, encoding="utf-8")
    (folder / "nosrc.jsonl").write_text('{"hyp": "a1"}\n' * 3, encoding="utf-8")
    (folder / "latin.txt").write_bytes(b"a1\nb\xe4r\na3\n")
    (folder / "bad.gz").write_bytes(b"no gzip")
    (folder / "bad.jsonl").write_text('{"src": "a", "hyp": "b"}\n{"src"\n', encoding="utf-8")
    (folder / "list.jsonl").write_text("[1]\n", encoding="utf-8")
    (folder / "number.jsonl").write_text('{"src": "a", "hyp": 1}\n', encoding="utf-8")
    monkeypatch.setattr("promptmetric.backends._open_local", lambda *a, **k: pytest.fail("a model was loaded"))
    result = score(*arguments)
    assert result.exit_code == 2, result.output
    for message in messages:
        assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("output", ["src.txt", "a.txt", "p.toml", "answers.jsonl", "./a.txt"])
def test_output_never_overwrites_what_the_run_needs(output: str, folder: Path) -> None:
    before = (folder / output).read_bytes()
    result = score("-s", "src.txt", "-t", "a.txt", "-o", output)
    assert result.exit_code == 2
    assert "would be overwritten" in result.stderr
    assert (folder / output).read_bytes() == before


def test_output_and_recording_are_two_files(folder: Path) -> None:
    result = score("-s", "src.txt", "-t", "a.txt", "-o", "new.jsonl", "--record", "new.jsonl")
    assert result.exit_code == 2
    assert "would be overwritten" in result.stderr


def test_output_keeps_the_mode_and_dash_is_stdout(folder: Path) -> None:
    out = folder / "out.txt"
    out.touch(0o640)
    assert score("-s", "src.txt", "-t", "b.txt", "-o", "out.txt").exit_code == 0
    assert out.stat().st_mode & 0o777 == 0o640
    assert score("-s", "src.txt", "-t", "b.txt", "-o", "-").stdout == out.read_text(encoding="utf-8")


def test_nearly_a_preset_is_not_looked_for_on_the_hub(folder: Path) -> None:
    result = run("score", "-s", "src.txt", "-t", "a.txt", "-m", "tower13b")
    assert result.exit_code == 2
    assert "Did you mean tower-13b?" in result.stderr


def test_a_pattern_without_prompts_is_an_error() -> None:
    assert run("prompts", "list", "nope").exit_code == 2


def test_runtime_failures_exit_with_1(folder: Path) -> None:
    (folder / "other.txt").write_text("x\ny\nz\n", encoding="utf-8")
    result = score("-s", "src.txt", "-t", "other.txt")
    assert result.exit_code == 1
    assert "no recorded answer for 3 of 3 questions" in result.stderr


def test_interruption_is_no_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("promptmetric.scorer.asker", interrupt)
    result = score("-s", "src.txt", "-t", "a.txt")
    assert result.exit_code == 130
    assert "goes on with what was kept" in result.stderr


def test_prompts_list() -> None:
    text = run("prompts", "list").stdout
    for part in ("demo-translation", "zs-cot-em", "dire-warning", "-100..100", "mends relaxed"):
        assert part in text
    assert run("prompts", "list", "prexme:zs/polite/*labels").stdout.splitlines() == [
        "prexme:zs/polite/simple-labels",
        "prexme:zs/polite/complex-labels",
    ]
    found = json.loads(run("prompts", "list", "demo-*", "--format", "json").stdout)
    assert [prompt["id"] for prompt in found] == ["demo-summary", "demo-translation"]
    assert found[0]["scale"]["max"] == 100


def test_prompts_show(folder: Path) -> None:
    text = run("prompts", "show", "prexme:zs-cot/relaxed/simple-labels", "-l", "en-zh").stdout
    assert "can you please translation from English to Chinese." in text
    assert "defect" in text
    assert "bad = 1, neutral = 3, good = 5" in text
    assert "measured with" in run("prompts", "show", "prexme:zs-cot/dire-warning/simple-labels").stdout
    found = json.loads(run("prompts", "show", "prexme:os/polite/0..5", "--format", "json").stdout)
    assert "Score: <score>" in found["rendered"][0]["content"]
    assert "<source> => <hypothesis>" in run("prompts", "show", "p.toml").stdout
    assert run("prompts", "show", "demo-summary").exit_code == 0
    assert run("prompts", "show", "zzz").exit_code == 2


def test_prompts_recommend() -> None:
    for arguments, rows in (
        (("-l", "zh-en"), [["translation", "zh-en"]]),
        (("-l", "en-fr"), [["translation", "en-de"], ["translation", "zh-en"]]),  # not measured: what comes next
        (("--task", "summarization"), [["summarization", "-"]]),
    ):
        text = run("prompts", "recommend", "-m", "tower-13b", *arguments).stdout
        assert text.startswith("prexme:zs-cot/")
        assert [line.split()[2:4] for line in text.splitlines() if line.startswith("tower-13b")] == rows
    found = json.loads(run("prompts", "recommend", "-m", "x/y", "--format", "json").stdout)
    assert not found["measured"]
    assert run("prompts", "recommend", "-m", "auto").stdout.startswith("likelihood-translation")
    assert run("prompts", "recommend", "-m", "auto", "--decode", "text").stdout.startswith("demo-translation")
    assert run("prompts", "recommend", "-m", "x", "-l", "xx-yy").exit_code == 2
    assert "Did you mean tower-13b?" in run("prompts", "recommend", "-m", "towr-13b").stderr


def test_models_list() -> None:
    assert "TheBloke/Platypus2-70B-Instruct-GPTQ" in run("models", "list").stdout
    found = {row["name"]: row for row in json.loads(run("models", "list", "--format", "json").stdout)}
    assert found["platypus2-70b"]["choice"]["pattern"] == "zs/-100..100"
    assert found["smollm2-135m"]["choice"] is None


def test_it_runs_as_a_module_and_tells_its_version() -> None:
    command = [sys.executable, "-m", "promptmetric"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("promptmetric, version 0.")
    assert "score" in subprocess.run([*command, "-h"], capture_output=True, text=True, check=True).stdout


def test_scores_are_between_worst_and_best(folder: Path) -> None:
    lines = score("-s", "src.txt", "-t", "b.txt", "--format", "jsonl").stdout.splitlines()
    scores = [json.loads(line)["score"] for line in lines]
    assert all(0 <= value <= 1 and not math.isnan(value) for value in scores)
