"""Established metrics to stand beside ours, each computed by the library made for it.

BLEU (Papineni et al., 2002) and chrF (Popović, 2015) by sacreBLEU, ROUGE (Lin, 2004) by rouge-score, BERTScore (Zhang
et al., 2020) by bert-score, BARTScore (Yuan et al., 2021) by transformers. Scores keep the range of their library.
"""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from promptmetric.errors import InputError, MissingExtraError
from promptmetric.types import Sample

BARTSCORE_MODEL = "facebook/bart-large-cnn"
_BLEU_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}  # those of sacreBLEU's own command line


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


class Scored(NamedTuple):
    """What a library says of the samples it can score."""

    scores: list[float]
    signature: str
    notes: Sequence[str] = ()


def baseline_names() -> tuple[str, ...]:
    """Names that `baseline_scores` takes."""
    return (*_LEXICAL, *_NEURAL)


def library_versions(name: str) -> dict[str, str | None]:
    """Versions of the libraries a baseline's scores depend on; None for one that is not installed."""
    found: dict[str, str | None] = {}
    for library in _LIBRARIES[name]:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = None
    return found


def baseline_scores(
    name: str,
    samples: Sequence[Sample],
    *,
    model: str | None = None,
    batch_size: int = 16,
    device: str | None = None,
    offline: bool = False,
) -> Baseline:
    """Score samples with an established metric. All but `bartscore` compare with the reference.

    Args:
        name: `bleu` or `chrf` (0 … 100), `rouge1`, `rouge2` or `rougeL` (0 … 1; rouge-score reads only a–z and 0–9),
            `bertscore` (at most 1) or `bartscore` (at most 0: the mean log-probability of the hypothesis's tokens).
        samples: what to score.
        model: hub id or folder, for `bertscore` (by default bert-score's choice for the target language, English where
            a sample names none) and `bartscore` (by default `facebook/bart-large-cnn`, which knows only English).
        batch_size: how many texts go through the model at once.
        offline: fetch no model.
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
    found = (
        _LEXICAL[name](name, subset) if name in _LEXICAL else _neural(name)(subset, model, batch_size, device, offline)
    )
    scores = [math.nan] * len(samples)
    for position, score in zip(kept, found.scores, strict=True):
        scores[position] = score
    notes = (*count(len(samples) - len(kept), f"undefined without {needed.what}"), *found.notes)
    return Baseline(name, scores, f"{name}|{found.signature}", notes)


def _neural(name: str) -> Callable[..., Scored]:
    from promptmetric.bench import neural

    function: Callable[..., Scored] = getattr(neural, name)
    return function


class _Needed(NamedTuple):
    """What a sample must have to be scored."""

    what: str
    present: Callable[[Sample], bool]


_REFERENCE = _Needed("a reference", lambda sample: bool((sample.ref or "").strip()))
_SOURCE_AND_HYPOTHESIS = _Needed(
    "a source and a hypothesis", lambda sample: bool(sample.src.strip() and sample.hyp.strip())
)


def _bleu(_: str, samples: Sequence[Sample]) -> Scored:
    """Sentence BLEU with sacreBLEU's smoothing, of n-grams no longer than the hypothesis; cut as the language asks."""
    sacrebleu = library("sacrebleu")
    metrics: dict[str, Any] = {}
    scores, notes = [], []
    for sample in samples:
        target = language(sample)
        if target not in metrics:
            tokenizer = _BLEU_TOKENIZERS.get(target, "13a")
            try:
                metrics[target] = sacrebleu.BLEU(tokenize=tokenizer, effective_order=True)
            except RuntimeError:  # how sacreBLEU says that a segmenter is not installed
                metrics[target] = sacrebleu.BLEU(tokenize="char", effective_order=True)
                notes.append(f"{target}: n-grams of characters, for want of `pip install 'sacrebleu[{target}]'`")
        scores.append(metrics[target].sentence_score(sample.hyp, [sample.ref]).score)
    settings = sorted({str(metric.get_signature()) for metric in metrics.values()})
    return Scored(scores, f"library:sacrebleu|{' + '.join(settings)}", notes)


def _chrf(_: str, samples: Sequence[Sample]) -> Scored:
    """Sentence chrF2 with sacreBLEU's defaults: up to 6 characters, spaces and words left out."""
    metric = library("sacrebleu").CHRF()
    scores = [metric.sentence_score(sample.hyp, [sample.ref]).score for sample in samples]
    return Scored(scores, f"library:sacrebleu|{metric.get_signature()}")


def _rouge(name: str, samples: Sequence[Sample]) -> Scored:
    """F measure on Porter stems, as is usual in papers on summarization."""
    scorer = library("rouge_score.rouge_scorer").RougeScorer([name], use_stemmer=True)
    words = library("rouge_score.tokenize").tokenize
    scores = [
        float(scorer.score(sample.ref, sample.hyp)[name].fmeasure) if words(sample.ref, None) else math.nan
        for sample in samples
    ]
    notes = count(sum(map(math.isnan, scores)), "undefined where the reference has none of a–z and 0–9")
    return Scored(scores, pins("rouge-score", stemmer="porter", measure="f1"), notes)


def library(module: str) -> Any:
    """Import what an extra brings."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module.partition('.')[0]}, which this baseline needs,", "baselines") from error


def language(sample: Sample) -> str:
    """Language of the hypothesis without its region: `zh` for `zh_CN`; empty where it is not known."""
    return (sample.tgt_lang or "").replace("-", "_").partition("_")[0].lower()


def pins(name: str, **settings: str) -> str:
    """The signature of a library and its settings."""
    return "|".join([f"library:{name}", *(f"{key}:{value}" for key, value in settings.items())]) + (
        f"|version:{version(name)}"
    )


def count(number: int, what: str) -> tuple[str, ...]:
    """A note, where there is something to note."""
    return (f"{number} {'sample' if number == 1 else 'samples'} {what}",) if number else ()


_LEXICAL: dict[str, Callable[[str, Sequence[Sample]], Scored]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "rouge1": _rouge,
    "rouge2": _rouge,
    "rougeL": _rouge,
}
_NEURAL = ("bertscore", "bartscore")
_LIBRARIES = {
    "bleu": ("sacrebleu",),
    "chrf": ("sacrebleu",),
    "rouge1": ("rouge-score",),
    "rouge2": ("rouge-score",),
    "rougeL": ("rouge-score",),
    "bertscore": ("bert-score", "transformers", "torch"),
    "bartscore": ("transformers", "torch"),
}
