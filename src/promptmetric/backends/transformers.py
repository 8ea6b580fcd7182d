"""Hugging Face transformers: model folders, hub ids and GGUF files, on CPU or one CUDA device."""

from __future__ import annotations

import gc
import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from promptmetric.backends.base import Fingerprint, described
from promptmetric.backends.batches import Batch, deal, gathered
from promptmetric.backends.tokens import PromptTokenizer
from promptmetric.backends.tries import read
from promptmetric.errors import BackendError, MissingExtraError
from promptmetric.questions import (
    Answer,
    Completion,
    LabelLogprobs,
    LabelRequest,
    Likelihood,
    LikelihoodRequest,
    Request,
)

logger = logging.getLogger("promptmetric")

try:
    import torch
    import transformers
except ImportError as error:
    raise MissingExtraError("the transformers engine (torch and transformers)", "transformers") from error

from promptmetric.backends.loading import best_dtype, explained, progress_bars_on_terminals_only, revision_of  # noqa: E402 - needs torch
from promptmetric.backends.reading import PrefixReader, float32_head  # noqa: E402 - needs torch

_A = TypeVar("_A", bound=Answer)
_Decoding = tuple[int, float, int, tuple[str, ...]]
"""Most tokens, temperature, seed and stop texts of a request."""

_CALL_ON_CPU, _CALL_ON_GPU = 32, 1024
"""What one call of the model costs beside its tokens, in tokens."""

_STOP_TOKENS = 32
"""A stop text is looked for in this many tokens at the end of an answer."""


class TransformersBackend:
    """A causal language model and its tokenizer.

    Args:
        model: hub id, model folder, or GGUF file (its weights are unpacked on loading).
        name: what to call it in signatures; by default the hub id, or the last part of the path.
        revision: commit, branch or tag on the hub; for local files it only names them in signatures.
        gpus: 0 keeps it on the CPU; otherwise a CUDA device is used where there is one.
        offline: never reach for the hub.
        load: further arguments of `from_pretrained`, such as `dtype`, `device_map`, `attn_implementation`,
            `quantization_config`, `trust_remote_code` (off unless given) or `use_safetensors` (on unless given, so
            that nothing is unpickled).

    Raises:
        ModelUnavailableError: the files are not there, or of an unknown kind.
        MissingExtraError: a package is not installed.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        name: str | None = None,
        revision: str | None = None,
        gpus: int = 1,
        offline: bool = False,
        **load: Any,
    ) -> None:
        path = Path(model).expanduser()
        self._is_local = path.exists()
        source: dict[str, Any] = {"local_files_only": offline or self._is_local}
        if self._is_local and path.is_file():
            source |= {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        else:
            source |= {"pretrained_model_name_or_path": str(path if self._is_local else model)}
            if revision and not self._is_local:
                source["revision"] = revision
        source["trust_remote_code"] = load.pop("trust_remote_code", False)
        device = "cuda" if gpus > 0 and torch.cuda.is_available() else "cpu"
        load.setdefault("dtype", best_dtype(device))
        if "gguf_file" in source:
            if hasattr(transformers, "GgufConfig"):  # older versions always unpack
                load.setdefault("quantization_config", transformers.GgufConfig(dequantize=True))
        else:
            load.setdefault("use_safetensors", True)
        with explained(str(model)), progress_bars_on_terminals_only():
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(**source, padding_side="left")
            self._model = transformers.AutoModelForCausalLM.from_pretrained(**source, **load)
        if "device_map" not in load:
            self._model.to(device)
        self._model.eval()
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._tokens = PromptTokenizer(self._tokenizer)
        self._reader: Any = PrefixReader(self._model)
        self._lock = threading.Lock()  # what is kept of the last prefix serves one batch at a time
        self._eos = _eos_ids(self._model, self._tokenizer)
        # A model's own sampling defaults must not colour our decoding.
        self._model.generation_config = transformers.GenerationConfig(
            eos_token_id=self._eos, pad_token_id=self._tokenizer.pad_token_id
        )
        self._window = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        self._fingerprint = Fingerprint(
            name or (path.name if self._is_local else str(model)),
            revision_of(self._model, path if self._is_local else None, revision),
            f"transformers-{transformers.__version__} torch-{torch.__version__} "
            f"{self._model.device.type} {str(self._model.dtype).removeprefix('torch.')}"
            f"{described(load, ('dtype', 'device_map', 'trust_remote_code', 'use_safetensors', 'offload_folder'))}",
        )

    def fingerprint(self) -> Fingerprint:
        """Model, revision, and versions, device and precision of the engine."""
        return self._fingerprint

    def save(self, folder: Path) -> None:
        """Write the model and its tokenizer as an ordinary model folder."""
        with progress_bars_on_terminals_only():
            self._model.save_pretrained(folder)
            self._tokenizer.save_pretrained(folder)

    def close(self) -> None:
        """Free the model."""
        self._model = None
        self._reader = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:
        """Answer requests; a prefix that several prompts share is computed once.

        Models with alibi or recurrence answer through transformers' own `generate`, as do those whose window we cannot
        mask where prompt and answer exceed it; there, what is sampled depends on the batch as well as on the seed.
        """
        if self._model is None:
            raise BackendError("the model was closed.")
        if any(request.choices for request in requests):
            raise BackendError(
                "the transformers engine cannot hold a model to a list of answers.",
                hint="Take decode='expected', which needs no structure, or the vllm backend.",
            )
        alike: dict[_Decoding, dict[int, list[int]]] = defaultdict(dict)
        for position, request in enumerate(requests):
            tokens = self._tokens.encode(request.prompt)
            overflow = len(tokens) + request.max_tokens - self._window if self._window else 0
            if overflow > 0:
                yield position, Completion("", "too_long", len(tokens), overflow)
            else:
                decoding = (request.max_tokens, request.temperature, request.seed, request.stop)
                alike[decoding][position] = tokens
        for decoding, prompts in alike.items():
            longest = max(map(len, prompts.values())) + decoding[0]
            if self._reader.can_write(longest):
                write = partial(self._write, prompts, decoding)
                yield from self._in_batches(prompts, dict.fromkeys(prompts, 1), batch_size, write, gather=True)
            else:
                group = sorted(prompts.items(), key=lambda item: len(item[1]), reverse=True)
                yield from self._answer_group(group, batch_size, decoding)

    def _write(
        self, prompts: Mapping[int, list[int]], decoding: _Decoding, batches: Sequence[Batch]
    ) -> list[Completion]:
        max_tokens, temperature, seed, stop = decoding

        def is_over(answer: list[int]) -> bool:
            if answer[-1] in self._eos:
                return True
            if not stop:
                return False
            end = self._tokenizer.decode(answer[-_STOP_TOKENS:])
            return any(part in end for part in stop)

        members = [i for batch in batches for i in batch.members]
        begun = [([prompts[i] for i in batch.members], batch.shared) for batch in batches]
        answers = self._reader.write(begun, max_tokens, is_over, temperature, seed)
        return [self._completion(answer, len(prompts[i]), stop) for i, answer in zip(members, answers, strict=True)]

    def read_labels(
        self, requests: Sequence[LabelRequest], batch_size: int = 16
    ) -> Iterator[tuple[int, LabelLogprobs]]:
        """Log-probabilities of labels; a prefix that several prompts share is computed once."""
        sequences: dict[int, list[int]] = {}
        for position, request in enumerate(requests):
            tokens = self._tokens.encode(request.prompt)
            _, longest = self._tokens.tree(request.labels)
            overflow = len(tokens) + longest - 1 - self._window if self._window else 0
            if overflow > 0:
                yield position, LabelLogprobs((-math.inf,) * len(request.labels), 0.0, len(tokens), overflow)
            else:
                sequences[position] = tokens

        def read_batch(batches: Sequence[Batch]) -> list[LabelLogprobs]:
            (batch,) = batches
            visits = self._reader.labels([sequences[i] for i in batch.members], batch.shared)
            counts = [len(requests[i].labels) for i in batch.members]
            answers = read([self._tokens.tree(requests[i].labels)[0] for i in batch.members], counts, visits.look)
            return [
                replace(answer, prompt_tokens=len(sequences[i]))
                for i, answer in zip(batch.members, answers, strict=True)
            ]

        yield from self._in_batches(sequences, dict.fromkeys(sequences, 1), batch_size, read_batch)

    def score_texts(
        self, requests: Sequence[LikelihoodRequest], batch_size: int = 16
    ) -> Iterator[tuple[int, Likelihood]]:
        """Log-probabilities of texts; a prompt that several texts follow is computed once."""
        sequences: dict[int, list[int]] = {}
        starts: dict[int, int] = {}
        for position, request in enumerate(requests):
            tokens, start = self._tokens.encode_answered(request.prompt, request.text)
            overflow = len(tokens) - self._window if self._window else 0
            if overflow > 0:
                yield position, Likelihood(-math.inf, len(tokens) - start, start, overflow)
            else:
                sequences[position], starts[position] = tokens, start
        own = {i: len(sequences[i]) - starts[i] + 1 for i in sequences}

        def score_batch(batches: Sequence[Batch]) -> list[Likelihood]:
            (batch,) = batches
            members = batch.members
            logprobs = self._reader.texts([sequences[i] for i in members], [starts[i] for i in members], batch.shared)
            return [Likelihood(logprob, own[i] - 1, starts[i]) for i, logprob in zip(members, logprobs, strict=True)]

        yield from self._in_batches(sequences, own, batch_size, score_batch)

    def _in_batches(
        self,
        sequences: Mapping[int, list[int]],
        own: Mapping[int, int],
        batch_size: int,
        compute: Callable[[Sequence[Batch]], list[_A]],
        *,
        gather: bool = False,
    ) -> Iterator[tuple[int, _A]]:
        """Compute sequences in batches that share prefixes, smaller ones where the GPU's memory asks for them.

        With `gather`, small batches are computed several at a time; together they have at most `batch_size` members.
        """
        if self._model is None:
            raise BackendError("the model was closed.")
        todo = list(sequences)
        while todo:
            overhead = _CALL_ON_GPU if self._model.device.type == "cuda" else _CALL_ON_CPU
            dealt = deal([sequences[i] for i in todo], [own[i] for i in todo], batch_size, overhead)
            batches = [Batch(tuple(todo[i] for i in batch.members), batch.shared) for batch in dealt]
            done: set[int] = set()
            for group in gathered(batches, batch_size if gather else 1):
                members = [i for batch in group for i in batch.members]
                try:
                    with self._lock, torch.inference_mode(), float32_head(self._model):
                        answers = compute(group)
                except torch.OutOfMemoryError as error:
                    batch_size = self._smaller(batch_size, error)
                    break
                done.update(members)
                yield from zip(members, answers, strict=True)
            todo = [i for i in todo if i not in done]

    def _smaller(self, batch_size: int, error: Exception) -> int:
        if batch_size == 1:
            raise BackendError("out of GPU memory with a single segment.") from error
        logger.warning("out of GPU memory: going on with batches of %d", batch_size // 2)
        self._reader.forget()
        torch.cuda.empty_cache()
        return batch_size // 2

    def _answer_group(
        self, group: list[tuple[int, list[int]]], batch_size: int, decoding: _Decoding
    ) -> Iterator[tuple[int, Completion]]:
        start = 0
        while start < len(group):
            batch = group[start : start + batch_size]
            try:
                answers = self._answer_batch([tokens for _, tokens in batch], decoding)
            except torch.OutOfMemoryError as error:
                batch_size = self._smaller(batch_size, error)
                continue
            start += len(batch)
            yield from zip((position for position, _ in batch), answers, strict=True)

    def _answer_batch(self, prompts: list[list[int]], decoding: _Decoding) -> list[Completion]:
        max_tokens, temperature, seed, stop = decoding
        padded = self._tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt")
        inputs = {name: tensor.to(self._model.device) for name, tensor in padded.items()}
        sampling: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        if stop:
            sampling |= {"stop_strings": list(stop), "tokenizer": self._tokenizer}
        with torch.inference_mode(), torch.random.fork_rng(enabled=temperature > 0):
            if temperature > 0:
                torch.manual_seed(seed)
            output = self._model.generate(**inputs, max_new_tokens=max_tokens, **sampling)
        width = inputs["input_ids"].shape[1]
        return [
            self._completion(answer.tolist(), len(prompt), stop)
            for prompt, answer in zip(prompts, output[:, width:], strict=True)
        ]

    def _completion(self, answer: list[int], prompt_tokens: int, stop: tuple[str, ...]) -> Completion:
        end = next((i for i, token in enumerate(answer) if token in self._eos), None)
        text = self._tokenizer.decode(answer[:end], skip_special_tokens=True)
        stops = [text.index(part) + len(part) for part in stop if part in text]
        if stops:
            return Completion(text[: min(stops)], "stop", prompt_tokens)
        return Completion(text, "length" if end is None else "stop", prompt_tokens)


def _eos_ids(model: Any, tokenizer: Any) -> list[int]:
    configured = model.generation_config.eos_token_id if model.generation_config else None
    ids = configured if isinstance(configured, list) else [configured]
    return sorted({token for token in (*ids, tokenizer.eos_token_id) if token is not None})
