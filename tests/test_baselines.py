"""Established metrics: against their libraries' own entry points, by hand, and against published scores."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from promptmetric.bench import neural
from promptmetric.bench.baselines import baseline_names, baseline_scores
from promptmetric.errors import BackendError, InputError, MissingExtraError, ModelUnavailableError
from promptmetric.types import Sample


def sample(hyp: str, ref: str | None, lang: str | None = "en", src: str = "quelle") -> Sample:
    return Sample(src=src, hyp=hyp, ref=ref, tgt_lang=lang)


PAIRS = [
    ("The cat sat on a mat, didn't it?", "The cat sat on the mat, did it not?"),
    ("Rain falls.", "It was raining heavily in Köln yesterday."),
    ("", "Nothing was written."),
    ("word", "word"),
]
SAMPLES = [sample(hyp, ref) for hyp, ref in PAIRS]


# What is asked


def test_near_names_are_offered() -> None:
    with pytest.raises(InputError, match="There is: bertscore, bartscore"):
        baseline_scores("BERTScores", SAMPLES)
    with pytest.raises(InputError, match="rougeL"):
        baseline_scores("rougel", SAMPLES)
    with pytest.raises(InputError) as caught:
        baseline_scores("zzz", SAMPLES)
    assert all(name in str(caught.value) for name in baseline_names())


def test_wrong_settings_are_refused_before_anything_loads() -> None:
    with pytest.raises(InputError, match="chrf takes no model"):
        baseline_scores("chrf", SAMPLES, model="roberta-large")
    with pytest.raises(InputError, match="at least one text"):
        baseline_scores("bertscore", SAMPLES, batch_size=0)
    with pytest.raises(InputError, match="needs a reference, and none of the 1 samples"):
        baseline_scores("bleu", [sample("a", None)])
    with pytest.raises(InputError, match="needs a source and a hypothesis"):
        baseline_scores("bartscore", [sample("a", None, src=" "), sample("", None)])


@pytest.mark.parametrize(
    ("name", "module"),
    [("bleu", "sacrebleu"), ("rouge2", "rouge_score.rouge_scorer"), ("bertscore", "bert_score.utils")],
)
def test_a_missing_library_is_named_with_its_extra(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=module.partition(".")[0]) as caught:
        baseline_scores(name, SAMPLES)
    assert "promptmetric[baselines]" in str(caught.value)


# BLEU and chrF


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_sacrebleu_scores_equal_its_command_line(name: str, tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    for column, file in enumerate(("hyp", "ref")):
        lines = "".join(pair[column] + "\n" for pair in PAIRS)
        (tmp_path / file).write_text(lines, encoding="utf-8")
    files = [str(tmp_path / "ref"), "-i", str(tmp_path / "hyp")]
    command = [sys.executable, "-m", "sacrebleu", *files, "-m", name, "--sentence-level", "-w", "6"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = baseline_scores(name, SAMPLES)
    expected = [float(value) for value in re.findall(r"\S+ = ([\d.]+)", re.sub(r"\(.*\)", "", shown))]
    assert found.scores == pytest.approx(expected, abs=1e-6)
    assert len(expected) == len(PAIRS)
    assert found.scores[2] == 0
    assert found.scores[3] == pytest.approx(100)
    assert f"|version:{version('sacrebleu')}" in found.signature
    assert found.notes == ()


def test_bleu_by_hand() -> None:
    """Two of three words, one of two pairs, no triple (smoothed to half a match), three words against four."""
    pytest.importorskip("sacrebleu")
    found = baseline_scores("bleu", [sample("a b x", "a b c d")])
    precision = (2 / 3 * 1 / 2 * 0.5 / 1) ** (1 / 3)
    assert found.scores == pytest.approx([100 * math.exp(1 - 4 / 3) * precision])
    assert "eff:yes|tok:13a|smooth:exp" in found.signature


def test_samples_without_reference_are_undefined_and_counted() -> None:
    pytest.importorskip("sacrebleu")
    found = baseline_scores("chrf", [sample("a", None), sample("word", "word"), sample("a", "  ")])
    assert [math.isnan(score) for score in found.scores] == [True, False, True]
    assert found.notes == ("2 samples undefined without a reference",)


def test_bleu_cuts_chinese_into_characters() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    chinese = sample("今天下雨了。", "今天下大雨了。", "zh_CN")
    found = baseline_scores("bleu", [chinese, SAMPLES[0]])
    expected = sacrebleu.sentence_bleu(chinese.hyp, [chinese.ref], tokenize="zh").score
    assert found.scores == pytest.approx([expected, baseline_scores("bleu", SAMPLES[:1]).scores[0]])
    assert found.scores[0] > 20
    assert "tok:13a" in found.signature
    assert "tok:zh" in found.signature


def test_a_missing_segmenter_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sacrebleu")
    from sacrebleu.tokenizers import tokenizer_ja_mecab

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    found = baseline_scores("bleu", [sample("雨が降る", "雨が降った", "ja")])
    assert found.scores[0] > 20
    assert "tok:char" in found.signature
    assert found.notes == ("ja: n-grams of characters, for want of `pip install 'sacrebleu[ja]'`",)


@pytest.mark.data
@pytest.mark.parametrize(("name", "column"), [("chrf", "chrF-refA"), ("bleu", "sentBLEU-refA")])
def test_published_wmt22_scores_are_met(name: str, column: str, data_folder: Path) -> None:
    """The file has six decimals."""
    pytest.importorskip("sacrebleu")
    polars = pytest.importorskip("polars")
    tables = {
        part: polars.read_parquet(data_folder / "wmt" / f"wmt22_{part}.parquet").with_columns(
            polars.col("seg_id").cast(polars.Int64)
        )
        for part in ("segments", "outputs", "en-de_metric_scores")
    }
    english_german = polars.col("lp") == "en-de"
    rows = (
        tables["en-de_metric_scores"]
        .select("system", "seg_id", column)
        .join(tables["outputs"].filter(english_german), on=["system", "seg_id"])
        .join(tables["segments"].filter(english_german).select("seg_id", "ref"), on="seg_id")
        .sort("seg_id", "system")
        .gather_every(92)
    )
    assert len(rows) > 200
    found = baseline_scores(name, [sample(row["hyp"], row["ref"], "de") for row in rows.to_dicts()])
    assert found.scores == pytest.approx(rows[column].to_list(), abs=1e-6)


# ROUGE


@pytest.mark.parametrize(
    ("name", "shared", "in_hyp", "in_ref"),
    [("rouge1", 5, 6, 7), ("rouge2", 2, 5, 6), ("rougeL", 3, 6, 7)],
)
def test_rouge_by_hand(name: str, shared: int, in_hyp: int, in_ref: int) -> None:
    """Stems: `in the park the dog ran` and `the dog run in the big park`.

    They share five words (the twice, in, dog, park), two pairs (in the, the dog), and in order `in the park`.
    """
    pytest.importorskip("rouge_score")
    hyp, ref = "In the park, the dogs ran", "the dog running in the big park"
    precision, recall = shared / in_hyp, shared / in_ref
    found = baseline_scores(name, [sample(hyp, ref)])
    assert found.scores == pytest.approx([2 * precision * recall / (precision + recall)])
    assert found.signature == f"{name}|library:rouge-score|stemmer:porter|measure:f1|version:{version('rouge-score')}"


def test_rouge_cannot_read_other_scripts() -> None:
    pytest.importorskip("rouge_score")
    found = baseline_scores("rougeL", [sample("מזג האוויר נאה", "מזג האוויר נאה", "he"), sample("", "rain")])
    assert math.isnan(found.scores[0])
    assert found.scores[1] == 0
    assert found.notes == ("1 sample undefined where the reference has none of a–z and 0–9",)


# Metrics with a model: tiny ones of random weights

SENTENCE = "the a cat dog sat ran on mat log big small quick brown fox jumps over lazy it is rain"
WORDS = SENTENCE.split()
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def save_tokenizer(folder: Path, limit: int | None) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    names |= {"pad_token": "<pad>", "unk_token": "<unk>"}
    stated = {} if limit is None else {"model_max_length": limit}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, **stated).save_pretrained(folder)


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models") / "tiny-bart"
    config = transformers.BartConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=12,
        init_std=0.5,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=2,
    )
    torch.manual_seed(0)
    transformers.BartForConditionalGeneration(config).save_pretrained(folder)
    save_tokenizer(folder, limit=None)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, under a name for which bert-score prefers the first."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models") / "bert_uncased_L-2_H-128_A-2"
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
        initializer_range=0.5,
        pad_token_id=1,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    save_tokenizer(folder, limit=12)
    return folder


GENERATED = [
    sample("the big dog ran", None, src="a dog is quick"),
    sample("it is rain", None, src="the quick brown fox jumps over the lazy dog"),
    sample("the cat sat on the mat", None, src="cat"),
    sample("", None, src="cat"),
    sample("cat", None, src=""),
    sample("the unheard", None, src="a a a"),
]


def one_token_after_the_other(folder: Path, source: str, hypothesis: str) -> float:
    """The mean log-probability from its definition: a forward pass for each token, nothing padded."""
    import torch
    import transformers

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(source, return_tensors="pt")
    written = [model.config.decoder_start_token_id]
    total = 0.0
    tokens = tokenizer(hypothesis)["input_ids"]
    for token in tokens:
        with torch.inference_mode():
            logits = model(**inputs, decoder_input_ids=torch.tensor([written])).logits
        total += float(torch.log_softmax(logits[0, -1].double(), dim=-1)[token])
        written.append(token)
    return total / len(tokens)


@pytest.mark.engine
@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_bartscore_equals_a_loop_over_tokens(bart: Path, batch_size: int) -> None:
    found = baseline_scores("bartscore", GENERATED, model=str(bart), batch_size=batch_size, device="cpu")
    for position in (0, 1, 2, 5):
        expected = one_token_after_the_other(bart, GENERATED[position].src, GENERATED[position].hyp)
        assert found.scores[position] == pytest.approx(expected, abs=1e-5)
    assert [math.isnan(score) for score in found.scores] == [False, False, False, True, True, False]
    assert len({round(found.scores[position], 3) for position in (0, 1, 2, 5)}) == 4
    assert found.notes == ("2 samples undefined without a source and a hypothesis",)
    for pin in ("bartscore|library:transformers", "model:tiny-bart", "revision:sha256:", "device:cpu", "dtype:float32"):
        assert f"{pin}" in found.signature


@pytest.mark.engine
def test_bartscore_cuts_and_counts(bart: Path) -> None:
    """Twelve positions: ten words between the special tokens."""
    words = ["cat"] * 11
    cut, whole = (sample("dog ran", None, src=" ".join(words[:n])) for n in (11, 10))
    both = sample(" ".join(words), None, src=" ".join(words))
    found = baseline_scores("bartscore", [cut, whole, both], model=str(bart), device="cpu")
    assert found.notes == ("2 samples cut to the model's 12 tokens",)
    assert found.scores[0] == pytest.approx(found.scores[1], abs=1e-5)
    assert math.isfinite(found.scores[2])


@pytest.mark.engine
def test_a_model_with_language_codes_is_refused(bart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = SimpleNamespace(tokenizer=SimpleNamespace(src_lang="en_XX"))
    monkeypatch.setattr(neural, "_load", lambda *arguments: loaded)
    with pytest.raises(InputError, match="which languages it reads and writes"):
        baseline_scores("bartscore", GENERATED, model=str(bart))


@pytest.mark.engine
def test_memory_trouble_has_a_way_out(bart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def too_much(*arguments: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(neural, "_mean_log_probabilities", too_much)
    with pytest.raises(BackendError, match="smaller batch size"):
        baseline_scores("bartscore", GENERATED, model=str(bart), device="cpu")


COMPARED = [
    sample("the big dog ran", "a dog ran"),
    sample("", "it is rain"),
    sample("the cat sat on the mat", "the quick brown fox jumps over the lazy dog"),
    sample("cat", None),
    sample("the lazy cat", "the lazy cat"),
]
WITH_TEXT = [COMPARED[i] for i in (0, 2, 4)]


def greedy_f1(folder: Path, layer: int, hypothesis: str, reference: str) -> float:
    """BERTScore from its definition: the best match of each word, over all tokens of the other side."""
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def vectors(text: str) -> Any:
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        return torch.nn.functional.normalize(states[layer][0].double(), dim=-1)

    similarity = vectors(hypothesis) @ vectors(reference).T
    precision = float(similarity.max(dim=1).values[1:-1].mean())
    recall = float(similarity.max(dim=0).values[1:-1].mean())
    return 2 * precision * recall / (precision + recall)


@pytest.mark.engine
@pytest.mark.parametrize("batch_size", [1, 16])
def test_bertscore_equals_its_definition_and_its_library(bert: Path, batch_size: int) -> None:
    bert_score = pytest.importorskip("bert_score")
    found = baseline_scores("bertscore", COMPARED, model=str(bert), batch_size=batch_size, device="cpu")
    assert "|layer:1|" in found.signature
    assert f"|version:{version('bert-score')}" in found.signature
    assert found.scores[1] == 0
    assert math.isnan(found.scores[3])
    assert found.notes == ("1 sample undefined without a reference",)
    scores = [found.scores[i] for i in (0, 2, 4)]
    hyps, refs = [pair.hyp for pair in WITH_TEXT], [str(pair.ref) for pair in WITH_TEXT]
    by_hand = [greedy_f1(bert, 1, hyp, ref) for hyp, ref in zip(hyps, refs, strict=True)]
    assert scores == pytest.approx(by_hand, abs=1e-5)
    assert scores[2] == pytest.approx(1)
    _, _, by_library = bert_score.score(hyps, refs, model_type=str(bert.resolve()), num_layers=1, device="cpu")
    assert scores == pytest.approx(by_library.tolist(), abs=1e-5)


@pytest.mark.engine
def test_bertscore_takes_the_last_layer_of_unknown_models(bert: Path, tmp_path: Path) -> None:
    """Chunks change nothing, and a tokenizer that states no limit is no trouble."""
    pytest.importorskip("bert_score")
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((bert / name).read_bytes())
    save_tokenizer(folder, limit=None)
    long = sample("cat " * 10, "dog " * 11)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neural, "_BERTSCORE_CHUNK", 2)
        found = baseline_scores("bertscore", [*WITH_TEXT, long], model=str(folder), device="cpu")
    assert "model:mine|" in found.signature
    assert "|layer:2|" in found.signature
    assert found.notes == ("1 sample cut to the model's 12 tokens",)
    expected = [greedy_f1(folder, 2, pair.hyp, str(pair.ref)) for pair in WITH_TEXT]
    assert found.scores[:3] == pytest.approx(expected, abs=1e-5)
    assert found.scores[3] == pytest.approx(greedy_f1(folder, 2, "cat " * 10, "dog " * 10), abs=1e-5)


@pytest.mark.engine
def test_roberta_reads_texts_with_the_space_it_was_measured_with(tmp_path: Path) -> None:
    """Positions begin after the padding token's, so that 14 of them hold 12 tokens: five times a space and a word."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    pytest.importorskip("bert_score")
    folder = tmp_path / "tiny-roberta"
    pieces = tokenizers.ByteLevelBPETokenizer()
    pieces.train_from_iterator([SENTENCE], vocab_size=400, min_frequency=1, special_tokens=[*SPECIAL, "<mask>"])
    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    pieces.save_model(str(vocabulary))
    tokenizer = transformers.RobertaTokenizer.from_pretrained(vocabulary)
    tokenizer.save_pretrained(folder)
    config = transformers.RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=14,
        initializer_range=0.5,
        pad_token_id=1,
    )
    torch.manual_seed(0)
    transformers.RobertaModel(config).save_pretrained(folder)
    pairs = [sample("cat sat", "dog ran"), sample("the " * 6, "a cat")]
    assert tokenizer("cat sat")["input_ids"] != tokenizer(" cat sat")["input_ids"]
    found = baseline_scores("bertscore", pairs, model=str(folder), device="cpu")
    assert found.scores[0] == pytest.approx(greedy_f1(folder, 1, " cat sat", " dog ran"), abs=1e-5)
    assert found.notes == ("1 sample cut to the model's 12 tokens",)
    assert found.scores[1] == pytest.approx(greedy_f1(folder, 1, " the" * 5, " a cat"), abs=1e-5)


@pytest.mark.engine
def test_bertscore_refuses_what_it_cannot_compare(bart: Path) -> None:
    pytest.importorskip("bert_score")
    with pytest.raises(InputError, match=r"bert-base-chinese, roberta-large"):
        baseline_scores("bertscore", [sample("a", "a", None), sample("b", "b", "zh-CN")])
    with pytest.raises(InputError, match="an encoder and a decoder"):
        baseline_scores("bertscore", COMPARED, model=str(bart), device="cpu")


# Models that do not load


@pytest.mark.engine
def test_models_that_cannot_be_had(bart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in ("nobody/nothing", str(tmp_path)):
        with pytest.raises(ModelUnavailableError, match="cannot be loaded") as caught:
            baseline_scores("bartscore", GENERATED, model=name, device="cpu")
        assert "hf download" in str(caught.value)
    with pytest.raises(InputError, match="device 'gpu' cannot be used"):
        baseline_scores("bartscore", GENERATED, model=str(bart), device="gpu")


@pytest.mark.engine
def test_weights_are_never_unpickled_or_made_up(bart: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    for file in bart.iterdir():
        if file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(bart / "model.safetensors")
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelUnavailableError):
        baseline_scores("bartscore", GENERATED, model=str(tmp_path), device="cpu")
    del weights["model.encoder.layers.0.fc1.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelUnavailableError, match=r"lack weights such as model\.encoder\.layers\.0\.fc1\.weight"):
        baseline_scores("bartscore", GENERATED, model=str(tmp_path), device="cpu")
    assert "BartForConditionalGeneration" in json.loads((tmp_path / "config.json").read_text())["architectures"]
