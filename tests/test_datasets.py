"""Sets of human judgments: every format on a few rows, every known set on the published files, and how sets are got."""

from __future__ import annotations

import csv
import gzip
import hashlib
import http.server
import io
import json
import math
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from promptmetric.datasets import EvalSet, add_set, catalogue, known_sets, load_set, verify_set
from promptmetric.datasets.download import fetch
from promptmetric.datasets.eval4nlp import read_eval4nlp
from promptmetric.datasets.files import load_table, number
from promptmetric.datasets.mtme import read_mtme
from promptmetric.datasets.rose import read_rose
from promptmetric.datasets.seahorse import read_seahorse
from promptmetric.datasets.summeval import read_paired, read_summeval_annotations
from promptmetric.datasets.table import read_table
from promptmetric.datasets.wmt_mqm import read_wmt_mqm
from promptmetric.errors import InputError

HERE = [spec for spec in catalogue.catalogue().values() if spec.id not in ("seahorse", "rose")]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTMETRIC_CACHE", str(tmp_path / "cache"))


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def jsonl(path: Path, *rows: object) -> Path:
    return write(path, *(json.dumps(row, ensure_ascii=False) for row in rows))


# Eval4NLP

MT_HEADER = "SRC\tHYP\tDOC\tsystem-name\tseg-id\tdomain"


def test_eval4nlp_translation_is_quoted_and_counts_lines_from_one(tmp_path: Path) -> None:
    path = write(
        tmp_path / "train.tsv",
        f"{MT_HEADER}\tmqm",
        '"She said ""no""."\t„Nein“, sagte sie.\td1\tA\t1\tnews\t-0.3000000000000000444',
        "Rain.\t\td1\tA\t2\tnews\t-25.0",
    )
    evalset = read_eval4nlp(path, langs="en-de")
    assert evalset.rows[0].src == 'She said "no".'
    assert [row.segment for row in evalset.rows] == ["0", "1"]
    assert evalset.rows[0].scores == {"mqm": -0.30000000000000004}, "as published"
    assert evalset.rows[1].hyp == ""
    assert evalset.rows[1].domain == "news"
    assert evalset.samples()[0].tgt_lang == "de"


def test_eval4nlp_scores_beside_the_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.tsv", MT_HEADER, "a\tb\td\tA\t1\tnews", "c\td\td\tA\t2\tnews")
    scores = write(tmp_path / "dev.seg.scores", "-1.0", "-0.0")
    assert read_eval4nlp(path, scores).human().tolist() == [[-1.0, 0.0]]
    assert load_set(path).human().tolist() == [[-1.0, 0.0]], "the companion is found"
    with pytest.raises(InputError, match=r"has 2 rows, but .* has 1 scores"):
        read_eval4nlp(path, write(tmp_path / "one", "-1.0"))
    with pytest.raises(InputError, match=r"bad, line 2: 'x' is not a number"):
        read_eval4nlp(path, write(tmp_path / "bad", "-1.0", "x"))
    with pytest.raises(InputError, match=r"gap, line 2: the human score is missing"):
        read_eval4nlp(path, write(tmp_path / "gap", "-1.0", ""))
    with pytest.raises(InputError, match="no column 'mqm'"):
        read_eval4nlp(path)


def test_eval4nlp_summaries_lose_their_binary_noise(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.tsv",
        "SRC\tHYP\tScore\tmodel_id\tid",
        "a\tb\t4.666666666675\tM1\tx",
        "a\tc\t4.66666666665\tM2\tx",
    )
    evalset = read_eval4nlp(path)
    assert (evalset.task, evalset.aspects, evalset.langs) == ("summarization", ("overall",), None)
    assert evalset.human().tolist() == [[4.666667], [4.666667]]


def test_eval4nlp_refuses_a_system_twice_in_a_segment(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", f"{MT_HEADER}\tmqm", *["a\tb\td\tA\t1\tnews\t-1"] * 2)
    with pytest.raises(InputError, match="system A has segment 0 twice"):
        read_eval4nlp(path)
    path = write(tmp_path / "t.tsv", f"{MT_HEADER}\tmqm", "a\tb\td\tA\t0\tnews\t-1")
    with pytest.raises(InputError, match=r"t\.tsv, line 2: seg-id is '0'"):
        read_eval4nlp(path)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(texts=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
def test_any_text_survives_quoting(tmp_path: Path, texts: list[tuple[str, str]]) -> None:
    assume(not any("\t" in text and "\n" in text for row in texts for text in row))  # refused, see below
    path = tmp_path / "q.tsv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_ALL)
        writer.writerow(["src", "hyp", "score"])
        writer.writerows([src, hyp, "1"] for src, hyp in texts)
    rows = read_table(path).rows
    assert [(row.src, row.hyp) for row in rows] == texts


HEADER = "src\thyp\tsystem\tsegment\tscore"


def test_quotes_of_the_texts_themselves_cost_no_rows(tmp_path: Path) -> None:
    lines = ["one\th0\ta\t0\t1", '"Hello.\th1\ta\t1\t3', 'Bye."\th2\ta\t2\t4', '"Yes."\t"No\ta\t3\t5']
    rows = read_table(write(tmp_path / "t.tsv", HEADER, *lines)).rows
    assert [row.src for row in rows] == ["one", '"Hello.', 'Bye."', '"Yes."'], "as it stands"
    assert [row.hyp for row in rows] == ["h0", "h1", "h2", '"No']
    closed = write(tmp_path / "t.tsv", HEADER, '"Hello."\th1\ta\t1\t3', 'a "b" c\th2\ta\t2\t4')
    assert [row.src for row in read_table(closed).rows] == ["Hello.", 'a "b" c'], "quoted where it can be"


def test_quotes_that_cannot_be_told_are_refused_with_their_line(tmp_path: Path) -> None:
    both = write(tmp_path / "t.tsv", HEADER, '"a ""b"""\th\ta\t0\t1', 'x\t"Hello.\ta\t1\t1')
    with pytest.raises(InputError, match=r"line 2 has a quoted cell .* in line 3 a cell starts(.|\n)*\.jsonl"):
        read_table(both)
    # One row is short, so that only quoting could make a table of it; but that would swallow two rows.
    swallowed = write(
        tmp_path / "t.tsv", HEADER, "x\th\ta\t0\t1", '"Hello.\th\ta\t1\t1', 'Bye."\th\ta\t2\t1', "y\th\ta"
    )
    with pytest.raises(InputError, match=r"line 3: a cell starts with a double quote that is closed only in line 4"):
        read_table(swallowed)


def test_long_documents_are_read(tmp_path: Path) -> None:
    usual = csv.field_size_limit()
    path = write(tmp_path / "t.tsv", HEADER, f's\t"{"x" * 200_000}\n."\ta\t0\t1')
    assert len(read_table(path).rows[0].hyp) == 200_002
    assert csv.field_size_limit() == usual


# Files


def test_errors_name_file_line_and_columns(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"r\.tsv, line 3: 2 cells, but the header has 3"):
        load_table(write(tmp_path / "r.tsv", "a\tb\tc", "1\t2\t3", "1\t2"))
    with pytest.raises(InputError, match=r"a column name occurs twice"):
        load_table(write(tmp_path / "r.tsv", "a\ta", "1\t2"))
    with pytest.raises(InputError, match=r"r\.jsonl, line 3: not valid JSON: [^0-9]*\(column 2\)\.$"):
        load_table(write(tmp_path / "r.jsonl", '{"a": 1}', "", "{"))
    with pytest.raises(InputError, match=r"line 2: not a JSON object"):
        load_table(write(tmp_path / "r.jsonl", '{"a": 1}', "3"))
    with pytest.raises(InputError, match="no such file"):
        load_table(tmp_path / "nothing.tsv")
    (tmp_path / "d.tsv").mkdir()
    with pytest.raises(InputError, match="is a folder, not a file"):
        load_table(tmp_path / "d.tsv")
    with pytest.raises(InputError, match="is empty"):
        load_table(write(tmp_path / "e.tsv"))
    with pytest.raises(InputError, match="not a table"):
        load_table(write(tmp_path / "e.doc", "x"))
    (tmp_path / "latin.tsv").write_bytes(b"a\tb\n1\t2\n\xff\t3\n")
    with pytest.raises(InputError, match=r"latin\.tsv, line 3: not UTF-8"):
        load_table(tmp_path / "latin.tsv")
    (tmp_path / "x.parquet").write_bytes(b"no")
    with pytest.raises(InputError, match="not a parquet file"):
        load_table(tmp_path / "x.parquet")
    (tmp_path / "x.tsv.gz").write_bytes(b"no")
    with pytest.raises(InputError, match="cannot be read"):
        load_table(tmp_path / "x.tsv.gz")


@pytest.mark.parametrize("value", ["x", "1_0", True, [1], "1,5"])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"here: .* is not a number"):
        number(value, "here")


@pytest.mark.parametrize("value", ["inf", "-Infinity", "1e999", math.inf])
def test_infinite_scores_are_said_to_be_so(value: object) -> None:
    with pytest.raises(InputError, match=r"here: .* is not finite"):
        number(value, "here")


@pytest.mark.parametrize("value", [None, "", " None ", "nan", math.nan])
def test_what_is_no_score_is_nan(value: object) -> None:
    assert math.isnan(number(value, "here"))


# mt-metrics-eval


@pytest.fixture
def testset(tmp_path: Path) -> Path:
    folder = tmp_path / "wmt99"
    write(folder / "sources/en-de.txt", "one", "two", "three")
    write(folder / "references/en-de.refA.txt", "eins", "zwei", "drei")
    write(folder / "references/en-de.refB.txt", "EINS", "ZWEI", "DREI")
    write(folder / "system-outputs/en-de/Sys-1.x.txt", "ein", "zwo", "")
    write(folder / "system-outputs/en-de/refA.txt", "eins", "zwei", "drei")
    write(folder / "documents/en-de.docs", "news\tdoc 1", "news\tdoc 1", "chat\tdoc-2")
    mqm = ["Sys-1.x\t-1.5", "Sys-1.x\tNone", "Sys-1.x\t0", "refA\tNone", "refA\t-0.1", "refA\tNone"]
    write(folder / "human-scores/en-de.mqm.seg.score", *mqm)
    appraise = ["Sys-1.x\t80", "Sys-1.x\tNone", "Sys-1.x\tNone"]
    write(folder / "human-scores/en-de.appraise.seg.score", *appraise)
    write(folder / "human-scores/en-de.mqm.sys.score", "Sys-1.x\t-1")
    return folder


def test_mtme_keeps_judged_rows(testset: Path) -> None:
    evalset = read_mtme(testset, "en-de")
    assert evalset.name == "wmt99/en-de"
    assert evalset.lines == 3
    assert evalset.aspects == ("mqm", "appraise")
    assert [(row.system, row.segment) for row in evalset.rows] == [("Sys-1.x", "0"), ("Sys-1.x", "2"), ("refA", "1")]
    first, second, reference = evalset.rows
    assert first.scores == {"mqm": -1.5, "appraise": 80.0}
    assert (first.refs, first.doc, first.domain, first.human) == (("eins", "EINS"), "doc 1", "news", False)
    assert (second.hyp, second.scores) == ("", {"mqm": 0.0})
    assert (reference.refs, reference.human) == (("ZWEI",), True)


def test_mtme_by_path_with_its_pair(testset: Path) -> None:
    assert load_set(f"{testset}:en-de").langs == "en-de"
    with pytest.raises(InputError, match=r"Name its language pair.*en-de"):
        load_set(testset)
    with pytest.raises(InputError, match=r"de-en\.txt: no such file(.|\n)*en-de"):
        load_set(f"{testset}:de-en")


def test_mtme_refuses_what_does_not_fit(testset: Path) -> None:
    write(testset / "human-scores/en-de.mqm.seg.score", "Sys-1.x\t-1.5")
    with pytest.raises(InputError, match=r"Sys-1\.x has 1 scores, but there are 3 sources"):
        read_mtme(testset, "en-de")
    write(testset / "human-scores/en-de.mqm.seg.score", *["other\t-1.5"] * 3)
    with pytest.raises(InputError, match="judged, but not in system-outputs/en-de: other"):
        read_mtme(testset, "en-de")
    write(testset / "system-outputs/en-de/refA.txt", "eins")
    with pytest.raises(InputError, match=r"has 3 lines, but .*refA\.txt has 1"):
        read_mtme(testset, "en-de")


# MQM annotations

MQM_HEADER = "system\tdoc\tdoc_id\tseg_id\trater\tsource\ttarget\tcategory\tseverity"


def test_wmt_mqm_weights(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mqm.tsv",
        MQM_HEADER,
        "A\td\t1\t7\tr1\tIt <v>rains</v>.\tEs <v>schneit</v>.\tAccuracy/Mistranslation\tMajor",
        "A\td\t1\t7\tr1\tIt rains.\tEs schneit<v>.</v>\tFluency/Punctuation\tMinor",
        "A\td\t1\t7\tr2\tIt rains.\tEs schneit.\tNo-error\tNo-error",
        "A\td\t2\t8\tr2\tStop.\t<v>Blah</v>\tNon-translation!\tMajor",
        "A\td\t2\t8\tr2\tStop.\tBlah\tFluency/Punctuation\tMajor",
        "A\td\t2\t8\tr2\tStop.\tBlah\tStyle/Awkward\tneutral",
        "A\td\t2\t8\tr2\tStop.\tBlah!\tStyle/Awkward\tHOTW-test",
        "ref-A\td\t2\t8\tr1\tStop.\tHalt.\tStyle/Awkward\tMinor",
        "A\td\t3\t9\tr1\tPlanted.\tPlanted.\tStyle/Awkward\tHOTW-test",
    )
    evalset = read_wmt_mqm(path, langs="en-de")
    assert evalset.raters == ("r1", "r2")
    rows = {(row.system, row.segment): row for row in evalset.rows}
    assert rows.keys() == {("A", "7"), ("A", "8"), ("ref-A", "8")}, "nobody judged segment 9"
    assert rows["A", "7"].ratings == {"mqm": (-5.1, 0.0)}
    assert rows["A", "7"].scores == {"mqm": -2.55}
    assert (rows["A", "7"].src, rows["A", "7"].hyp, rows["A", "7"].doc) == ("It rains.", "Es schneit.", "d")
    assert rows["A", "8"].scores == {"mqm": -30.0}, "25 and 5: a major punctuation error is a major error"
    assert math.isnan(rows["A", "8"].ratings["mqm"][0])
    assert rows["ref-A", "8"].human
    assert not rows["A", "8"].human


def test_wmt_mqm_of_other_years_and_with_edits(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mqm.tsv",
        "severity\tcategory\ttarget\tsource\trater\tglobalSegId\tdocSegId\tdoc\tsystem",
        'Minor\tStyle\tHe was <v>allegedly </v>there.\t"He ""was"" there."\tr1\t1\t1\td\tA',
        'Minor\tStyle\tHe <v>was</v> there.\t"He ""was"" there."\tr2\t1\t1\td\tA',
        'Minor\tStyle\tHe was there.\t"He ""was"" there."\tr2\t1\t1\td\tA',
        'Minor\tStyle\t"Yes."\t"Yes."\tr2\t1\t1\te\tA',
    )
    evalset = read_wmt_mqm(path)
    assert [row.segment for row in evalset.rows] == ["d:1", "e:1"], "numbers start anew in each document"
    assert evalset.rows[0].hyp == "He was there.", "what most lines have"
    assert evalset.rows[0].src == 'He "was" there.'
    assert evalset.rows[1].hyp == '"Yes."', "quotes of the text itself stay"


def test_wmt_mqm_refuses_unknown_severities(tmp_path: Path) -> None:
    path = write(tmp_path / "mqm.tsv", MQM_HEADER, "A\td\t1\t7\tr1\ta\tb\tStyle\tAwful")
    with pytest.raises(InputError, match=r"mqm\.tsv, line 2: unknown severity 'Awful'"):
        read_wmt_mqm(path)


# SummEval and what looks like it


def test_summeval_gold_is_the_experts(tmp_path: Path) -> None:
    low, high = {"coherence": 1, "fluency": 2}, {"coherence": 2, "fluency": 5}
    path = jsonl(
        tmp_path / "a.jsonl",
        {
            "id": "x",
            "model_id": "M1",
            "decoded": "short",
            "expert_annotations": [low, low, high],
            "turker_annotations": [{"coherence": 5, "fluency": 5}],
            "references": ["r1", "r2"],
        },
    )
    evalset = read_summeval_annotations(path)
    assert evalset.aspects == ("overall", "coherence", "fluency")
    assert evalset.raters == ("expert 1", "expert 2", "expert 3")
    (row,) = evalset.rows
    assert row.scores == {"overall": 2.166667, "coherence": 1.333333, "fluency": 3.0}
    assert row.ratings["coherence"] == (1, 1, 2)
    assert row.ratings["overall"] == (1.5, 1.5, 3.5)
    assert (row.src, row.refs) == ("", ("r1", "r2"))
    alone = {"id": "x", "model_id": "M", "decoded": "d", "expert_annotations": [low], "references": "one text"}
    assert read_summeval_annotations(jsonl(tmp_path / "alone.jsonl", alone)).rows[0].refs == ("one text",)
    sources = jsonl(tmp_path / "s.jsonl", {"id": "x", "text": "long"})
    assert read_summeval_annotations(path, sources).rows[0].src == "long"
    with pytest.raises(InputError, match=r"s\.jsonl has no source for x"):
        read_summeval_annotations(path, jsonl(tmp_path / "s.jsonl", {"id": "y", "text": "long"}))


def test_paired_layouts(tmp_path: Path) -> None:
    noisy = {"coherence": 4.000000000012, "fluency": 3}
    rows = [
        {"source": "s", "system_id": "A", "system_output": "a", "scores": noisy, "context": "fact"},
        {"source": "s", "system_id": "B", "system_output": "", "scores": {**noisy, "overall": 1}, "context": "fact"},
        {"source": "t", "system_id": "A", "system_output": "c", "scores": {"coherence": 1}, "reference": "r"},
    ]
    path = tmp_path / "p.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    evalset = read_paired(path)
    assert [row.segment for row in evalset.rows] == ["0", "0", "1"]
    assert evalset.rows[0].scores == {"coherence": 4.0, "fluency": 3.0, "overall": 3.5}
    assert evalset.rows[1].scores["overall"] == 1.0, "the file's own"
    assert evalset.rows[0].src == "s\n\nfact"
    assert evalset.rows[2].refs == ("r",)
    assert evalset.aspects[0] == "overall"
    for texts, refs in (("one text", ("one text",)), (["a", "b"], ("a", "b")), (None, ())):
        assert read_paired(jsonl(tmp_path / "p.jsonl", {**rows[0], "references": texts})).rows[0].refs == refs
    with pytest.raises(InputError, match=r"line 1: references must be a text or a list of texts, not 3"):
        read_paired(jsonl(tmp_path / "p.jsonl", {**rows[0], "references": 3}))
    path.write_text('[{"source": "s"}]', encoding="utf-8")
    with pytest.raises(InputError, match=r"item 1: 'scores' is missing(.|\n)*It has: source"):
        read_paired(path)


def test_seahorse_scores(tmp_path: Path) -> None:
    header = "gem_id\tworker_lang\tsummary\tmodel\t" + "\t".join(f"question{n}" for n in range(1, 7))
    path = write(
        tmp_path / "s.tsv",
        header,
        'g1\ten-US\tA "quote.\tm\tYes\tYes\tNo\tUnsure\tYes\tYes',
        'g1\ten-US\tA "quote.\tm\tYes\tYes\tYes\tYes\tYes\tNo',
        "g2\tde\tKurz.\treference\tNo\t\t\t\t\t",
    )
    evalset = read_seahorse(path)
    assert evalset.rows[0].scores == {"score": 0.8}, "the mean of 0.6 and 1.0"
    assert evalset.rows[0].ratings["score"] == (0.6, 1.0)
    assert evalset.rows[1].scores == {"score": 0.0}
    assert math.isnan(evalset.rows[1].ratings["score"][1])
    assert evalset.rows[1].human
    assert len(read_seahorse(path, lang="de").rows) == 1
    sources = jsonl(tmp_path / "src.jsonl", {"gem_id": "g2", "source": "Lang."})
    assert read_seahorse(path, sources, lang="de").rows[0].src == "Lang."
    with pytest.raises(InputError, match="no source for g1"):
        read_seahorse(path, sources)
    with pytest.raises(InputError, match=r"line 2: question2 is 'Maybe'"):
        read_seahorse(write(tmp_path / "s.tsv", header, "g1\ten\ta\tm\tYes\tMaybe\tNo\tNo\tNo\tNo"))


def test_rose(tmp_path: Path) -> None:
    article = {
        "source": "long",
        "reference": "short",
        "system_outputs": {"a": "x", "b": "y", "c": "not judged"},
        "annotations": {"a": {"normalized_acu": 0.25, "acu": 0.5}, "b": {"normalized_acu": 0.0, "acu": 0.0}},
    }
    evalset = read_rose(jsonl(tmp_path / "r.jsonl", article))
    assert evalset.aspects == ("normalized_acu", "acu")
    assert evalset.human("acu").tolist() == [[0.5], [0.0]]
    assert evalset.rows[1].refs == ("short",)
    with pytest.raises(InputError, match="no summary of a"):
        read_rose(jsonl(tmp_path / "r.jsonl", {**article, "system_outputs": {"b": "y"}}))
    for broken in ({"annotations": {"a": 3}}, {"system_outputs": ["x"]}, {"annotations": ["a"]}):
        with pytest.raises(InputError, match=r"r\.jsonl, line 1, .*: must be an object, not"):
            read_rose(jsonl(tmp_path / "r.jsonl", {**article, **broken}))


# Tables


def test_table_joins_filters_and_maps(tmp_path: Path) -> None:
    outputs = polars.DataFrame(
        {
            "lp": ["en-de", "en-de", "zh-en"],
            "system": ["A", "refA", "A"],
            "seg_id": [0, 0, 0],
            "is_human": [False, True, False],
            "hyp": ["a", "", "c"],
            "mqm": [-1.0, None, -2.0],
            "da": [0.1, 0.2, 0.3],
        },
        schema_overrides={"da": polars.Float32},
    )
    segments = polars.DataFrame({"lp": ["en-de", "zh-en"], "seg_id": [0, 0], "src": ["s", "t"], "doc": ["d", "e"]})
    outputs.write_parquet(tmp_path / "o.parquet")
    segments.write_parquet(tmp_path / "s.parquet")
    evalset = read_table(
        tmp_path / "o.parquet", where={"lp": "en-de"}, join=tmp_path / "s.parquet", on=["lp", "seg_id"]
    )
    assert evalset.aspects == ("mqm", "da")
    assert [(row.src, row.hyp, row.human, row.doc) for row in evalset.rows] == [
        ("s", "a", False, "d"),
        ("s", "", True, "d"),
    ]
    assert evalset.rows[0].scores["da"] == 0.10000000149011612, "widened exactly"
    assert evalset.rows[1].scores == {"da": pytest.approx(0.2)}, "an aspect nobody judged is left out"
    with pytest.raises(InputError, match=r"no row has lp = 'de-en'(.|\n)*en-de, zh-en"):
        read_table(tmp_path / "o.parquet", where={"lp": "de-en"})
    segments.head(1).write_parquet(tmp_path / "s.parquet")
    with pytest.raises(InputError, match=r"o\.parquet, row 3: .*s\.parquet has no row with lp = zh-en, seg_id = 0"):
        read_table(tmp_path / "o.parquet", join=tmp_path / "s.parquet", on=["lp", "seg_id"])
    polars.concat([segments, segments]).write_parquet(tmp_path / "s.parquet")
    with pytest.raises(InputError, match=r"s\.parquet, row 3: .* occurs twice"):
        read_table(tmp_path / "o.parquet", join=tmp_path / "s.parquet", on=["lp", "seg_id"])


def test_table_of_ones_own(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "Quelle,Source,mt,rating,note", "a,x,b,3,", "a,y,,5,")
    evalset = read_table(path, columns={"src": "Quelle"}, aspects=["rating"])
    assert [(row.src, row.hyp, row.segment, row.system) for row in evalset.rows] == [
        ("a", "b", "0", "system"),
        ("a", "", "1", "system"),
    ]
    with pytest.raises(InputError, match=r"t\.csv: there is no column 'quality'\.(.|\n)*Quelle, Source, mt, rating"):
        read_table(path, aspects=["quality"])
    with pytest.raises(InputError, match="no column 'score' or 'human'"):
        read_table(path)
    with pytest.raises(InputError, match="no such column of a set: source"):
        read_table(path, columns={"source": "Quelle"})
    bad = write(tmp_path / "t.csv", "src,mt,score", "a,b,3", "a,c,high")
    with pytest.raises(InputError, match=r"t\.csv, line 3, score: 'high' is not a number"):
        read_table(bad)
    flags = write(tmp_path / "t.csv", "src,mt,score,is_human", "a,b,3,maybe")
    with pytest.raises(InputError, match="line 2: is_human must be true or false, not 'maybe'"):
        read_table(flags)


def test_table_without_segments_groups_by_source(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", "src\thyp\tsystem\tscore", "a\t1\tA\t1", "b\t2\tA\t2", "a\t3\tB\t3")
    assert read_table(path).human().tolist()[0] == [1.0, 2.0]
    assert [row.segment for row in read_table(path).rows] == ["0", "1", "0"]


def test_marked_rows_are_one_only_where_nothing_else_differs(tmp_path: Path) -> None:
    lines = ["src\thyp\tsystem\tseg_id\tmqm", "a <v>b</v>\tc\tA\t1\t-1", "<v>a</v> b\tc\tA\t1\t-1"]
    (row,) = read_table(write(tmp_path / "t.tsv", *lines), marked=True).rows
    assert row.src == "a b"
    with pytest.raises(InputError, match="twice"):
        read_table(write(tmp_path / "t.tsv", *lines, "a b\tc\tA\t1\t-2"), marked=True)


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.json"])
def test_tables_in_json(tmp_path: Path, name: str) -> None:
    rows = [{"src": "a", "hyp": "b", "score": 1}, {"src": "c", "hyp": "d", "score": None}]
    text = json.dumps(rows) if name.endswith(".json") else "\n".join(map(json.dumps, rows))
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert [row.scores for row in load_set(tmp_path / name).rows] == [{"score": 1.0}, {}]
    missing = jsonl(tmp_path / "m.jsonl", {"src": "a", "hyp": "b", "score": 1}, {"src": "a", "score": 1})
    with pytest.raises(InputError, match=r"m\.jsonl, line 2: 'hyp' is missing"):
        read_table(missing)


# Names


def test_catalogue_names_and_counts() -> None:
    specs = {spec.id: spec for spec in known_sets()}
    rows = [specs[f"eval4nlp/{part}"].rows for part in ("train/en-de", "train/zh-en", "train/summarization")]
    assert rows == [11046, 15750, 320], "PrExMe, table 8"
    assert [specs[f"eval4nlp/dev/{part}"].rows for part in ("en-de", "zh-en", "summarization")] == [7364, 10500, 1280]
    assert all(spec.address and spec.licence for spec in specs.values())
    assert all(spec.urls or spec.get for spec in specs.values())


def test_unknown_names_get_near_ones() -> None:
    with pytest.raises(InputError, match=r"no set and no file is named 'wmt23/en-dee'(.|\n)*wmt23/en-de"):
        load_set("wmt23/en-dee")
    with pytest.raises(InputError, match="no such file"):
        load_set("here/there.tsv")


def test_what_is_not_here_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTMETRIC_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"summeval: its files are not here(.|\n)*PROMPTMETRIC_DATA(.|\n)*data add"):
        load_set("summeval")
    report = verify_set("summeval")
    assert not report.ok
    assert not report.files


PAIRED = {"doc_id": "d", "system_id": "A", "source": "s", "system_output": "h", "scores": {"coherence": 1}}


def test_registered_sets(tmp_path: Path, testset: Path) -> None:
    path = jsonl(tmp_path / "mine.jsonl", PAIRED)
    assert add_set("mine", path).task == "summarization"
    assert load_set("mine").name == "mine"
    assert verify_set("mine").ok
    add_set("wmt99", testset, langs="en-de")
    assert load_set("wmt99").langs == "en-de"
    add_set("summeval", path)
    assert load_set("summeval").rows[0].hyp == "h", "the registered file of a known set"
    assert verify_set("summeval").problems == (
        "1 row, but 1600 are expected.",
        "1 system, but 16 are expected.",
        "1 segment, but 100 are expected.",
    )
    table = write(tmp_path / "t.tsv", "Q\tmt\tscore\tlp", "a\tb\t1\ten-de", "a\tc\t1\tzh-en")
    add_set("mapped", table, columns={"src": "Q"}, where={"lp": "en-de"}, langs="en-de")
    assert len(load_set("mapped").rows) == 1
    names = [spec.id for spec in known_sets()]
    assert names[-3:] == ["mine", "wmt99", "mapped"]
    assert names.count("summeval") == 1


def test_a_folder_of_one_pair_needs_no_pair(testset: Path) -> None:
    assert add_set("mine", testset).langs == "en-de"
    assert load_set("mine").langs == "en-de"


def test_a_known_set_may_be_in_the_folder_it_is_published_in(testset: Path) -> None:
    known = add_set("wmt23/en-de", testset)
    assert (known.name, known.langs, len(known.rows)) == ("wmt23/en-de", "en-de", 3)
    assert load_set("wmt23/en-de") == known


def test_registering_needs_what_can_be_read(tmp_path: Path, testset: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        add_set("mine", tmp_path / "nothing")
    write(testset / "sources/zh-en.txt", "x")
    with pytest.raises(InputError, match=r"but en-de, zh-en\.\n.*Name one with -l"):
        add_set("mine", testset)
    with pytest.raises(InputError, match="there is no summeval/summeval_1600"):
        add_set("summeval", tmp_path)
    with pytest.raises(InputError, match="made of 2 files"):
        add_set("wmt22/en-de", write(tmp_path / "x.parquet", "x"))
    with pytest.raises(InputError, match="no column 'src'"):
        add_set("mine", write(tmp_path / "x.tsv", "a\tb", "1\t2"))
    assert "mine" not in {spec.id for spec in known_sets()}


def test_a_torn_registry_is_named(tmp_path: Path) -> None:
    write(tmp_path / "cache/sets.json", "[{")
    with pytest.raises(InputError, match=r"sets\.json: not a list of sets"):
        known_sets()


def test_data_named_by_the_caller_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, hyp in (("one", "1"), ("two", "2"), ("three", "3")):
        path = tmp_path / name / "summeval/summeval_1600.jsonl.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(json.dumps({**PAIRED, "system_output": hyp}).encode()))
    monkeypatch.setenv("PROMPTMETRIC_DATA", str(tmp_path / "three"))
    assert load_set("summeval").rows[0].hyp == "3"
    add_set("summeval", tmp_path / "two")
    assert load_set("summeval").rows[0].hyp == "2"
    assert load_set("summeval", data=tmp_path / "one").rows[0].hyp == "1"


# Downloads

CONTENT = f"{MT_HEADER}\tmqm\na\tb\td\tA\t1\tnews\t-1\n".encode()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Address of a server on this machine, and what it serves."""
    served: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = served.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", served
        running.shutdown()
        thread.join()


def test_downloads_are_checked(tmp_path: Path, server: tuple[str, dict[str, bytes]]) -> None:
    address, served = server
    target = tmp_path / "cache/x.tsv"
    served["/x.tsv"] = CONTENT
    served["/x.zip"] = zipped(**{"folder/x.tsv": CONTENT, "folder/LICENSE": b"free", "__MACOSX/folder/._x.tsv": b""})
    served["/other.zip"] = zipped(**{"y.tsv": CONTENT, "LICENSE": b"free"})
    for name in ("x.tsv", "x.zip", "other.zip"):
        fetch(f"{address}/{name}", target, SHA256)
        assert target.read_bytes() == CONTENT
        target.unlink()
    served["/x.tsv"] = CONTENT + b"more"
    served["/torn.zip"] = served["/x.zip"][:50]
    served["/empty.zip"] = zipped(README=b"")
    served["/two.zip"] = zipped(**{"a.tsv": b"", "b.tsv": b""})
    served["/up.zip"] = zipped(**{"../x.tsv": CONTENT})
    served["/root.zip"] = zipped(**{"/etc/x.tsv": CONTENT})
    for name, message in {
        "x.tsv": r"x\.tsv has sha256 .* not .* it is not used",
        "gone.tsv": r"404(.|\n)*By hand",
        "torn.zip": "not a usable zip archive",
        "empty.zip": r"no x\.tsv in it, but README",
        "two.zip": r"no x\.tsv in it, but a\.tsv, b\.tsv",
        "up.zip": "refused.*outside its own folder",
        "root.zip": "refused.*outside its own folder",
    }.items():
        with pytest.raises(InputError, match=message):
            fetch(f"{address}/{name}", target, SHA256)
        assert list(target.parent.iterdir()) == [], "nothing is left behind"


def test_downloads_have_a_limit(
    tmp_path: Path, server: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, served = server
    monkeypatch.setattr("promptmetric.datasets.download.MOST_BYTES", 2**20)
    served["/x.tsv"] = b"0" * (2**20 + 1)
    served["/bomb.zip"] = b""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.tsv", b"0" * 2**22)
    served["/bomb.zip"] = out.getvalue()
    for name in ("x.tsv", "bomb.zip"):
        with pytest.raises(InputError, match="larger than 1 MB"):
            fetch(f"{address}/{name}", tmp_path / "x.tsv", SHA256)


def test_a_known_address_is_used_once(
    tmp_path: Path, server: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, served = server
    served["/train.zip"] = zipped(**{"t.tsv": CONTENT})
    spec = catalogue.SetSpec(
        id="tiny",
        format="eval4nlp",
        langs="en-de",
        files=("tiny/t.tsv",),
        urls=(f"{address}/train.zip",),
        sha256=(SHA256,),
        address=address,
    )
    monkeypatch.setattr(catalogue, "catalogue", lambda: {"tiny": spec})
    monkeypatch.delenv("PROMPTMETRIC_DATA", raising=False)
    assert load_set("tiny").langs == "en-de"
    served.clear()
    assert load_set("tiny").rows[0].hyp == "b"
    assert verify_set("tiny").checked == ("sha256",)
    (tmp_path / "cache/data/tiny/t.tsv").write_bytes(CONTENT + b"x")
    assert "its sha256 is" in verify_set("tiny").problems[0]


# The published files


@pytest.mark.data
@pytest.mark.parametrize("spec", HERE, ids=lambda spec: spec.id)
def test_every_set_is_as_the_catalogue_says(spec: catalogue.SetSpec, data_folder: Path) -> None:
    report = verify_set(spec.id, data=data_folder)
    assert report.problems == ()
    assert {"rows", "systems", "segments"} <= set(report.checked)
    evalset = load_set(spec.id, data=data_folder)
    assert all(evalset.aspects[0] in row.scores for row in evalset.rows), "no gap in what comes first"
    assert all(row.src for row in evalset.rows)
    assert not any(math.isnan(score) for row in evalset.rows for score in row.scores.values())


@pytest.mark.data
def test_prexme_counts_without_people(data_folder: Path) -> None:
    counts = []
    for langs in ("en-de", "he-en", "zh-en"):
        evalset = load_set(f"wmt23/{langs}", data=data_folder).where(lambda row: not row.human)
        counts.append((len(evalset.rows), len(evalset.systems), len(evalset.segments)))
    assert counts == [(5520, 12, 460), (9840, 12, 820), (17655, 15, 1177)]


@pytest.mark.data
@pytest.mark.parametrize("langs", ["en-de", "zh-en"])
def test_eval4nlp_is_wmt22_drawn_anew(langs: str, data_folder: Path) -> None:
    """Every quoted text and every score equals that of the set it was drawn from, read from another file."""
    wmt = {(row.system, row.segment): row for row in load_set(f"wmt22/{langs}", data=data_folder).rows}
    drawn = [row for part in ("train", "dev") for row in load_set(f"eval4nlp/{part}/{langs}", data=data_folder).rows]
    assert len(drawn) == sum(not row.human for row in wmt.values())
    for row in drawn:
        theirs = wmt[row.system, row.segment]
        assert (row.src, row.hyp, row.scores, row.doc) == (theirs.src, theirs.hyp, theirs.scores, theirs.doc)
    assert sum(row.hyp == "" for row in drawn) == (langs == "zh-en")


def tie_rate(evalset: EvalSet) -> float:
    counts = Counter(row.scores["overall"] for row in evalset.rows)
    n = len(evalset.rows)
    return sum(count * (count - 1) for count in counts.values()) / (n * (n - 1))


@pytest.mark.data
def test_rounding_restores_ties(data_folder: Path) -> None:
    assert tie_rate(load_set("eval4nlp/train/summarization", data=data_folder)) == pytest.approx(0.0477, abs=5e-5)


@pytest.mark.data
def test_summeval_files_agree(data_folder: Path) -> None:
    """The means that were published, and ours of the single experts."""
    means = {(row.segment, row.system): row for row in load_set("summeval", data=data_folder).rows}
    singles = load_set("summeval-raters", data=data_folder)
    assert singles.ratings().shape == (3, 12, 100)
    for row in singles.rows:
        assert row.scores == pytest.approx(means[row.segment, row.system].scores, abs=2e-6)


@pytest.mark.data
def test_spans_add_up_to_the_published_mqm(data_folder: Path, tmp_path: Path) -> None:
    """WMT23 errors one a row, in the layout of the annotations, give the scores of the other file."""
    spans = polars.read_parquet(data_folder / "wmt/wmt23_mqm_spans.parquet").filter(polars.col("lp") == "en-de")
    gold = {(row.system, row.segment): row for row in load_set("wmt23/en-de", data=data_folder).rows}
    lines = [
        "\t".join((s["system"], "d", "1", str(s["seg_id"]), s["rater"], "s", "t", s["category"], s["severity"]))
        for s in spans.iter_rows(named=True)
    ]
    rows = read_wmt_mqm(write(tmp_path / "mqm.tsv", MQM_HEADER, *lines)).rows
    assert len(rows) == len(gold)
    for row in rows:
        assert row.scores["mqm"] == pytest.approx(gold[row.system, row.segment].scores["mqm"], abs=1e-6)
