"""BERTScore and BARTScore, which need a model."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from promptmetric.bench.baselines import BARTSCORE_MODEL, Scored, count, language, library, pins
from promptmetric.errors import BackendError, InputError, ModelUnavailableError
from promptmetric.types import Sample

_BERTSCORE_CHUNK = 1024  # samples: bert-score keeps the vectors of all the tokens it is given
_NO_LIMIT = 10**9  # tokens; tokenizers overflow at the 10**30 that transformers writes for "unknown"


def bertscore(
    samples: Sequence[Sample], model: str | None, batch_size: int, device: str | None, offline: bool
) -> Scored:
    """F1 without idf weights and rescaling, of the layer tuned by bert-score's authors, otherwise of the last.

    The matching is bert-score's. The model is loaded here, because bert-score 0.3.13 would take pickled weights too,
    and with transformers 5 it fails on empty texts and on tokenizers that state no limit, and loses the leading space
    that its figures for RoBERTa are made with.
    """
    bert_score = library("bert_score.utils")
    model = model or _bertscore_model(samples, bert_score.lang2model)
    loaded = _load(model, "AutoModel", device, offline, _tuned_layer(model, bert_score.model2layers))
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
    signature = pins(
        "bert-score", **loaded.pins, layer=str(loaded.layers), idf="no", rescaled="no", measure="f1", dtype="float32"
    )
    return Scored(scores, signature, count(cut, f"cut to the model's {loaded.window} tokens"))


def _bertscore_model(samples: Sequence[Sample], lang2model: dict[str, str]) -> str:
    """bert-score's choice for the language of the hypotheses."""
    models = sorted({lang2model[language(sample) or "en"] for sample in samples})
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


def bartscore(
    samples: Sequence[Sample], model: str | None, batch_size: int, device: str | None, offline: bool
) -> Scored:
    """Mean log-probability of the hypothesis's tokens given the source, the published variant without a reference.

    As published, the special tokens around the hypothesis count as well.
    """
    model = model or BARTSCORE_MODEL
    loaded = _load(model, "AutoModelForSeq2SeqLM", device, offline)
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
    notes = count(sum(map(max, cut_sources, cut_hypotheses)), f"cut to the model's {loaded.window} tokens")
    return Scored(scores, pins("transformers", **loaded.pins, given="source", dtype="float32"), notes)


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


def _load(model: str, kind: str, device: str | None, offline: bool, tuned_layer: int | None = None) -> _Loaded:
    """Load tokenizer and model, from safetensors in float32, without the layers above the tuned one."""
    torch, transformers = library("torch"), library("transformers")
    from promptmetric.backends.loading import revision_of

    device = _usable(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    path = Path(model).expanduser()
    is_local = path.exists()
    name = str(path if is_local else model)
    source = {"local_files_only": is_local or offline, "trust_remote_code": False}
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
    pinned = {
        "model": path.resolve().name if is_local else model,
        "revision": revision_of(network, path if is_local else None, None),
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "device": device.partition(":")[0],
    }
    return _Loaded(
        network.to(device).eval(), tokenizer, device, _window(config, tokenizer), config.num_hidden_layers, pinned
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

    from promptmetric.backends.loading import progress_bars_on_terminals_only

    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        with progress_bars_on_terminals_only():
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
