"""`promptmetric data`: what a user types, sees, and gets wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner, Result

from promptmetric import Sample
from promptmetric.cli import cli
from promptmetric.cli.data import FORMATS
from promptmetric.datasets.catalogue import Format
from promptmetric.inputs import read_samples


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROMPTMETRIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PROMPTMETRIC_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    rows = ["src\tmt\tref\tsystem\tseg_id\tdoc\tmqm", "s\ta\tr\tA\t0\td\t-1.5", "s\t\tr\tB\t0\td\t"]
    (tmp_path / "mine.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["data", *arguments])


def test_list_says_where_sets_are_or_come_from() -> None:
    lines = run("list").stdout.splitlines()
    assert lines[0].split() == ["id", "task", "pair", "rows", "systems", "where"]
    cells = {line.split()[0]: line for line in lines[1:]}
    assert cells["eval4nlp/train/en-de"].endswith("downloaded when first used")
    assert "not here; https://" in cells["summeval"]
    run("add", "mine", "mine.tsv", "-l", "en-de")
    assert str(Path("mine.tsv").absolute()) in run("list").stdout
    listed = {entry["id"]: entry for entry in json.loads(run("list", "--format", "json").stdout)}
    assert listed["mine"]["files"] == [str(Path("mine.tsv").absolute())]
    assert listed["mine"]["get"] is None
    assert "PROMPTMETRIC_DATA" in listed["summeval"]["get"]
    assert listed["wmt22/en-de"]["rows"] == 18410


def test_add_reads_the_set_first() -> None:
    done = run("add", "mine", "mine.tsv", "--langs", "en-de")
    assert done.exit_code == 0, done.output
    assert done.stdout == "mine: 2 rows, 2 systems, 1 segment, judged for mqm\n"
    for arguments, message in {
        ("mine", "nothing.tsv"): "no such file",
        ("mine", "mine.tsv", "--aspect", "esa"): "there is no column 'esa'",
        ("mine", "mine.tsv", "--where", "lp"): "--where lp: there is no = in it",
        ("mine", "mine.tsv", "--column", "source=src"): "no such column of a set: source",
        ("mine", "mine.tsv", "-l", "en-qx"): "'qx' is not a language code",
        ("mine", "mine.tsv", "-l", "german"): "'german' is not a language pair",
        ("my set", "mine.tsv"): "'my set' cannot be a set's name",
        ("", "mine.tsv"): "'' cannot be a set's name",
    }.items():
        failed = run("add", *arguments)
        assert failed.exit_code == 2
        assert message in failed.stderr


def test_add_says_what_it_replaces_and_remove_forgets(folder: Path) -> None:
    assert run("add", "mine", "mine.tsv").stderr == ""
    again = run("add", "mine", "mine.tsv", "-l", "en-de")
    assert f"replaces the set registered as mine before: {folder / 'mine.tsv'}" in again.stderr
    gone = run("remove", "mine")
    assert (gone.exit_code, gone.stdout) == (0, "mine is no longer registered.\n")
    assert (folder / "mine.tsv").exists()
    assert "\nmine " not in run("list").stdout
    twice = run("remove", "mine")
    assert twice.exit_code == 2
    assert "You registered none." in twice.stderr


def test_export_is_what_the_scorer_takes(folder: Path) -> None:
    run("add", "mine", "mine.tsv", "-l", "en-de")
    printed = run("export", "mine")
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert rows[0] == {
        "src": "s",
        "hyp": "a",
        "mt": "a",
        "ref": "r",
        "src_lang": "en",
        "tgt_lang": "de",
        "system": "A",
        "segment": "0",
        "doc": "d",
        "scores": {"mqm": -1.5},
    }
    assert rows[1]["scores"] == {}
    written = run("export", "mine", "-o", "set.jsonl")
    assert written.stdout == ""
    assert (folder / "set.jsonl").read_text(encoding="utf-8") == printed.stdout
    systems = read_samples("set.jsonl", [])
    assert systems["A"] == [Sample("s", "a", "r", src_lang="en", tgt_lang="de", doc="d", system="A")]
    assert [sample.hyp for sample in systems["B"]] == [""]
    assert "cannot be written" in run("export", "mine", "-o", "no/such/folder/x").stderr


def test_verify_compares_what_is_here() -> None:
    nothing = run("verify")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "No set is here" in nothing.stderr
    run("add", "mine", "mine.tsv")
    alone = run("verify")
    assert alone.exit_code == 0
    assert alone.stdout == "mine: ok, 2 rows, 2 systems, 1 segment (nothing to compare with)\n"
    missing = run("verify", "rose")
    assert missing.exit_code == 2
    assert "rose: not here. " in missing.stdout
    run("add", "wmt21/en-de", "mine.tsv", "--format", "table", "--where", "doc=d")
    differing = run("verify", "wmt21/en-de")
    assert differing.exit_code == 2
    assert "2 rows, but 8959 are expected" in differing.stdout
    unknown = run("verify", "summevall")
    assert unknown.exit_code == 2
    assert "Did you mean summeval" in unknown.stderr


@pytest.mark.data
def test_verify_published_sets(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTMETRIC_DATA", str(data_folder))
    done = run("verify", "eval4nlp/dev/summarization", "wmt23/he-en")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "eval4nlp/dev/summarization: ok, 1280 rows, 16 systems, 100 segments "
        "(sha256, rows, systems, segments as expected)",
        "wmt23/he-en: ok, 10660 rows, 13 systems, 820 segments (rows, systems, segments as expected)",
    ]


def test_formats_are_those_of_the_readers() -> None:
    assert set(FORMATS) == set(get_args(Format))
