"""Established metrics to stand beside ours, each computed by the library made for it.

BLEU (Papineni et al., 2002) and chrF (Popović, 2015) by sacreBLEU, ROUGE (Lin, 2004) by rouge-score, BERTScore (Zhang
et al., 2020) by bert-score, BARTScore (Yuan et al., 2021) by transformers. Scores keep the range of their library.
"""

from __future__ import annotations

import difflib
import importlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from promptmetric.errors import BackendError, InputError, MissingExtraError, ModelUnavailableError
from promptmetric.types import Sample

BARTSCORE_MODEL = "facebook/bart-large-cnn"
_BLEU_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}  # those of sacreBLEU's own command line
_BERTSCORE_CHUNK = 1024  # samples: bert-score keeps the vectors of all the tokens it is given
_NO_LIMIT = 10**9  # tokens; tokenizers overflow at the 10**30 that transformers writes for "unknown"


@dataclass(frozen=True, slots=True)
class Baseline:
    """Scores of an established metric.

    Attributes:
        name: as in `baseline_names()`.
        scores: one per sample, in input order, higher is better; NaN where the metric is undefined.
        signature: one line that pins library, version, settings and model.
        notes: how many samples have no score or were treated in a way of their own, and why.
    """

    name: str
    scores: list[float]
    signature: str
    notes: tuple[str, ...] = ()


class _Scored(NamedTuple):
    scores: list[float]
    signature: str
    notes: Sequence[str] = ()


def baseline_names() -> tuple[str, ...]:
    """Names that `baseline_scores` takes."""
    return (*_LEXICAL, *_NEURAL)


def baseline_scores(
    name: str,
    samples: Sequence[Sample],
    *,
    model: str | None = None,
    batch_size: int = 16,
    device: str | None = None,
) -> Baseline:
    """Score samples with an established metric. All but `bartscore` compare with the reference.

    Args:
        name: `bleu` or `chrf` (0 … 100), `rouge1`, `rouge2` or `rougeL` (0 … 1; rouge-score reads only a–z and 0–9),
            `bertscore` (at most 1) or `bartscore` (at most 0: the mean log-probability of the hypothesis's tokens).
        samples: what to score.
        model: hub id or folder, for `bertscore` (by default bert-score's choice for the target language, English where
            a sample names none) and `bartscore` (by default `facebook/bart-large-cnn`, which knows only English).
        batch_size: how many texts go through the model at once.
        device: such as `cpu` or `cuda:0`; by default a GPU where there is one. Models compute in float32 on each.

    Raises:
        InputError: the name or device is unknown, the metric takes no such model, or no sample can be scored.
        MissingExtraError: the metric's library is not installed.
        ModelUnavailableError: the model cannot be loaded.
        BackendError: the GPU's memory is too small.
    """
    if name not in baseline_names():
        near = {known for known in baseline_names() if difflib.get_close_matches(name.lower(), [known.lower()])}
        offered = [known for known in baseline_names() if known in near or not near]
        raise InputError(f"there is no baseline {name!r}.", hint=f"There is: {', '.join(offered)}.")
    if name in _LEXICAL and model is not None:
        raise InputError(f"{name} takes no model.", hint=f"These do: {', '.join(_NEURAL)}.")
    if batch_size < 1:
        raise InputError(f"a batch needs at least one text, not {batch_size}.")
    needed = _SOURCE_AND_HYPOTHESIS if name == "bartscore" else _REFERENCE
    kept = [position for position, sample in enumerate(samples) if needed.present(sample)]
    if not kept:
        raise InputError(f"{name} needs {needed.what}, and none of the {len(samples)} samples has that.")
    subset = [samples[position] for position in kept]
    found = _LEXICAL[name](name, subset) if name in _LEXICAL else _NEURAL[name](subset, model, batch_size, device)
    scores = [math.nan] * len(samples)
    for position, score in zip(kept, found.scores, strict=True):
        scores[position] = score
    notes = (*_count(len(samples) - len(kept), f"undefined without {needed.what}"), *found.notes)
    return Baseline(name, scores, f"{name}|{found.signature}", notes)


class _Needed(NamedTuple):
    """What a sample must have to be scored."""

    what: str
    present: Callable[[Sample], bool]


_REFERENCE = _Needed("a reference", lambda sample: bool((sample.ref or "").strip()))
_SOURCE_AND_HYPOTHESIS = _Needed(
    "a source and a hypothesis", lambda sample: bool(sample.src.strip() and sample.hyp.strip())
)


def _bleu(_: str, samples: Sequence[Sample]) -> _Scored:
    """Sentence BLEU with sacreBLEU's smoothing, of n-grams no longer than the hypothesis; cut as the language asks."""
    sacrebleu = _library("sacrebleu")
    metrics: dict[str, Any] = {}
    scores, notes = [], []
    for sample in samples:
        language = _language(sample)
        if language not in metrics:
            tokenizer = _BLEU_TOKENIZERS.get(language, "13a")
            try:
                metrics[language] = sacrebleu.BLEU(tokenize=tokenizer, effective_order=True)
            except RuntimeError:  # how sacreBLEU says that a segmenter is not installed
                metrics[language] = sacrebleu.BLEU(tokenize="char", effective_order=True)
                notes.append(f"{language}: n-grams of characters, for want of `pip install 'sacrebleu[{language}]'`")
        scores.append(metrics[language].sentence_score(sample.hyp, [sample.ref]).score)
    settings = sorted({str(metric.get_signature()) for metric in metrics.values()})
    return _Scored(scores, f"library:sacrebleu|{' + '.join(settings)}", notes)


def _chrf(_: str, samples: Sequence[Sample]) -> _Scored:
    """Sentence chrF2 with sacreBLEU's defaults: up to 6 characters, spaces and words left out."""
    metric = _library("sacrebleu").CHRF()
    scores = [metric.sentence_score(sample.hyp, [sample.ref]).score for sample in samples]
    return _Scored(scores, f"library:sacrebleu|{metric.get_signature()}")


def _rouge(name: str, samples: Sequence[Sample]) -> _Scored:
    """F measure on Porter stems, as is usual in papers on summarization."""
    scorer = _library("rouge_score.rouge_scorer").RougeScorer([name], use_stemmer=True)
    words = _library("rouge_score.tokenize").tokenize
    scores = [
        float(scorer.score(sample.ref, sample.hyp)[name].fmeasure) if words(sample.ref, None) else math.nan
        for sample in samples
    ]
    notes = _count(sum(map(math.isnan, scores)), "undefined where the reference has none of a–z and 0–9")
    return _Scored(scores, _pins("rouge-score", stemmer="porter", measure="f1"), notes)


def _bertscore(samples: Sequence[Sample], model: str | None, batch_size: int, device: str | None) -> _Scored:
    """F1 without idf weights and rescaling, of the layer tuned by bert-score's authors, otherwise of the last.

    The matching is bert-score's. The model is loaded here, because bert-score 0.3.13 would take pickled weights too,
    and with transformers 5 it fails on empty texts and on tokenizers that state no limit, and loses the leading space
    that its figures for RoBERTa are made with.
    """
    bert_score = _library("bert_score.utils")
    model = model or _bertscore_model(samples, bert_score.lang2model)
    loaded = _load(model, "AutoModel", device, _tuned_layer(model, bert_score.model2layers))
    if loaded.network.config.is_encoder_decoder:
        raise InputError(f"{model} has an encoder and a decoder.", hint="BERTScore takes encoders, like roberta-large.")
    tokenizer = loaded.tokenizer
    tokenizer.model_max_length = loaded.window
    idf = defaultdict(lambda: 1.0, {tokenizer.cls_token_id: 0.0, tokenizer.sep_token_id: 0.0})
    scores = [0.0] * len(samples)  # bert-score's value for empty hypotheses
    asked = [position for position, sample in enumerate(samples) if sample.hyp.strip()]
    cut = 0
    for start in range(0, len(asked), _BERTSCORE_CHUNK):
        chunk = asked[start : start + _BERTSCORE_CHUNK]
        refs = [samples[position].ref or "" for position in chunk]
        hyps = [samples[position].hyp for position in chunk]
        cut += sum(map(max, loaded.tokens(refs)[1], loaded.tokens(hyps)[1]))
        with _memory_explained():
            found = bert_score.bert_cos_score_idf(
                loaded.network, refs, hyps, tokenizer, idf, batch_size=batch_size, device=loaded.device
            )
        for position, (_, _, f1) in zip(chunk, found.tolist(), strict=True):
            scores[position] = f1
    signature = _pins(
        "bert-score", **loaded.pins, layer=str(loaded.layers), idf="no", rescaled="no", measure="f1", dtype="float32"
    )
    return _Scored(scores, signature, _count(cut, f"cut to the model's {loaded.window} tokens"))


def _bertscore_model(samples: Sequence[Sample], lang2model: dict[str, str]) -> str:
    """bert-score's choice for the language of the hypotheses."""
    models = sorted({lang2model[_language(sample) or "en"] for sample in samples})
    if len(models) > 1:
        raise InputError(
            f"the target languages call for different BERTScore models: {', '.join(models)}.",
            hint="Scores of different models cannot be compared: name one, or score each language by itself.",
        )
    return models[0]


def _tuned_layer(model: str, model2layers: dict[str, int]) -> int | None:
    """The layer that bert-score's authors chose for a hub id, also where a folder bears the model's name."""
    path = Path(model).expanduser()
    if not path.exists():
        return model2layers.get(model)
    return {name.rpartition("/")[2]: layer for name, layer in model2layers.items()}.get(path.resolve().name)


def _bartscore(samples: Sequence[Sample], model: str | None, batch_size: int, device: str | None) -> _Scored:
    """Mean log-probability of the hypothesis's tokens given the source, the published variant without a reference.

    As published, the special tokens around the hypothesis count as well.
    """
    model = model or BARTSCORE_MODEL
    loaded = _load(model, "AutoModelForSeq2SeqLM", device)
    if getattr(loaded.tokenizer, "src_lang", None) is not None:
        raise InputError(
            f"{model} must be told which languages it reads and writes, which bartscore cannot do.",
            hint=f"Take a model without language codes, such as {BARTSCORE_MODEL}.",
        )
    sources, cut_sources = loaded.tokens([sample.src for sample in samples])
    hypotheses, cut_hypotheses = loaded.tokens([sample.hyp for sample in samples], as_target=True)
    # The longest first, so that memory trouble shows at once.
    order = sorted(range(len(samples)), key=lambda i: len(sources[i]) + len(hypotheses[i]), reverse=True)
    scores = [math.nan] * len(samples)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        with _memory_explained():
            found = _mean_log_probabilities(loaded, [sources[i] for i in batch], [hypotheses[i] for i in batch])
        for i, score in zip(batch, found, strict=True):
            scores[i] = score
    notes = _count(sum(map(max, cut_sources, cut_hypotheses)), f"cut to the model's {loaded.window} tokens")
    return _Scored(scores, _pins("transformers", **loaded.pins, given="source", dtype="float32"), notes)


def _mean_log_probabilities(
    loaded: _Loaded, sources: Sequence[list[int]], hypotheses: Sequence[list[int]]
) -> list[float]:
    import torch
    from torch.nn.functional import cross_entropy

    ignored = -100  # transformers' label for padding
    inputs = loaded.tokenizer.pad({"input_ids": sources}, padding_side="right", return_tensors="pt")
    width = max(map(len, hypotheses))
    labels = torch.tensor([ids + [ignored] * (width - len(ids)) for ids in hypotheses], device=loaded.device)
    with torch.inference_mode():
        output = loaded.network(**inputs.to(loaded.device), labels=labels)
        losses = cross_entropy(output.logits.transpose(1, 2), labels, reduction="none", ignore_index=ignored)
        means: list[float] = (-losses.sum(dim=1) / (labels != ignored).sum(dim=1)).tolist()
    return means


class _Loaded(NamedTuple):
    """A model and what belongs to it."""

    network: Any
    tokenizer: Any
    device: str
    window: int
    layers: int
    pins: dict[str, str]

    def tokens(self, texts: Sequence[str], as_target: bool = False) -> tuple[list[list[int]], list[bool]]:
        """Token ids with the special ones, cut to the window, and which texts were cut."""
        field = {"text_target" if as_target else "text": list(texts)}
        whole = self.tokenizer(**field, verbose=False)["input_ids"]
        ids = self.tokenizer(**field, truncation=True, max_length=self.window)["input_ids"]
        return ids, [len(before) > len(after) for before, after in zip(whole, ids, strict=True)]


def _load(model: str, kind: str, device: str | None, tuned_layer: int | None = None) -> _Loaded:
    """Load tokenizer and model, from safetensors in float32, without the layers above the tuned one."""
    torch, transformers = _library("torch"), _library("transformers")
    from promptmetric.backends.transformers import _revision

    device = _usable(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    path = Path(model).expanduser()
    is_local = path.exists()
    name = str(path if is_local else model)
    source = {"local_files_only": is_local, "trust_remote_code": False}
    with _loading_explained(model):
        config = transformers.AutoConfig.from_pretrained(name, **source)
        if tuned_layer is not None and tuned_layer < config.num_hidden_layers:
            config.num_hidden_layers = tuned_layer
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **source)
        if kind == "AutoModel" and isinstance(tokenizer, transformers.RobertaTokenizer):
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, add_prefix_space=True, **source)
        network, report = getattr(transformers, kind).from_pretrained(
            name, config=config, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **source
        )
        absent = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))  # poolers go unused
        if absent:
            raise ValueError(f"its files lack weights such as {absent[0]}")
    pins = {
        "model": path.resolve().name if is_local else model,
        "revision": _revision(network, path if is_local else None, None),
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "device": device.partition(":")[0],
    }
    return _Loaded(
        network.to(device).eval(), tokenizer, device, _window(config, tokenizer), config.num_hidden_layers, pins
    )


def _window(config: Any, tokenizer: Any) -> int:
    """How many tokens the model reads."""
    positions = getattr(config, "max_position_embeddings", None) or _NO_LIMIT
    if "roberta" in config.model_type:  # counts its positions from the padding token's number + 1
        positions -= config.pad_token_id + 1
    return int(min(positions, tokenizer.model_max_length, _NO_LIMIT))


def _usable(device: str) -> str:
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"device {device!r} cannot be used: {reason}", hint="Take cpu, or cuda on a GPU.") from error
    return device


@contextmanager
def _loading_explained(model: str) -> Iterator[None]:
    """One error with a way out, and no report of weights that are left out on purpose."""
    from transformers.utils import logging as hf_logging

    from promptmetric.backends.transformers import _progress_bars_on_terminals_only

    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        with _progress_bars_on_terminals_only():
            yield
    except Exception as error:  # the readers of foreign files raise whatever they stumble over
        first_line = (str(error).strip() or type(error).__name__).split("\n")[0]
        raise ModelUnavailableError(
            f"{model}: cannot be loaded: {first_line}",
            hint="Name a hub id this machine can fetch, or a folder with config.json, tokenizer and safetensors files "
            "(fetched elsewhere with `hf download`). Pickled weights are not read.",
        ) from error
    finally:
        hf_logging.set_verbosity(verbosity)


@contextmanager
def _memory_explained() -> Iterator[None]:
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise BackendError("out of GPU memory.", hint="Take a smaller batch size, or device='cpu'.") from error


def _library(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module.partition('.')[0]}, which this baseline needs,", "baselines") from error


def _language(sample: Sample) -> str:
    """Language of the hypothesis without its region: `zh` for `zh_CN`; empty where it is not known."""
    return (sample.tgt_lang or "").replace("-", "_").partition("_")[0].lower()


def _pins(library: str, **settings: str) -> str:
    return "|".join([f"library:{library}", *(f"{key}:{value}" for key, value in settings.items())]) + (
        f"|version:{version(library)}"
    )


def _count(number: int, what: str) -> tuple[str, ...]:
    """A note, where there is something to note."""
    return (f"{number} {'sample' if number == 1 else 'samples'} {what}",) if number else ()


_LEXICAL: dict[str, Callable[[str, Sequence[Sample]], _Scored]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "rouge1": _rouge,
    "rouge2": _rouge,
    "rougeL": _rouge,
}
_NEURAL: dict[str, Callable[[Sequence[Sample], str | None, int, str | None], _Scored]] = {
    "bertscore": _bertscore,
    "bartscore": _bartscore,
}
