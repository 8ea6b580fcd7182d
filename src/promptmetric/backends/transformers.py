"""Hugging Face transformers: model folders, hub ids and GGUF files, on CPU or one CUDA device."""

from __future__ import annotations

import gc
import hashlib
import logging
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from promptmetric.backends.base import Fingerprint
from promptmetric.errors import BackendError, MissingExtraError, ModelUnavailableError
from promptmetric.types import Completion, Request

logger = logging.getLogger("promptmetric")

try:
    import torch
    import transformers
except ImportError as error:
    raise MissingExtraError("the transformers engine (torch and transformers)", "transformers") from error

_HASHED_WHOLE = 16 * 2**20  # larger files are fingerprinted by size, first and last MiB


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
        with _explained(str(model)), progress_bars_on_terminals_only():
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(**source, padding_side="left")
            self._model = transformers.AutoModelForCausalLM.from_pretrained(**source, **load)
        if "device_map" not in load:
            self._model.to(device)
        self._model.eval()
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._special = _special_tokens(self._tokenizer)
        self._eos = _eos_ids(self._model, self._tokenizer)
        # A model's own sampling defaults must not colour our decoding.
        self._model.generation_config = transformers.GenerationConfig(
            eos_token_id=self._eos, pad_token_id=self._tokenizer.pad_token_id
        )
        self._window = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        if self._tokenizer.chat_template is None:
            logger.info("the model has no chat template: prompts with chat turns are sent as plain text")
        self._fingerprint = Fingerprint(
            name or (path.name if self._is_local else str(model)),
            revision_of(self._model, path if self._is_local else None, revision),
            f"transformers-{transformers.__version__} torch-{torch.__version__} "
            f"{self._model.device.type} {str(self._model.dtype).removeprefix('torch.')}",
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
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:
        """Answer requests in batches of similar length, the longest first, so that memory trouble shows at once."""
        if self._model is None:
            raise BackendError("the model was closed.")
        alike: dict[tuple[int, float, int], list[tuple[int, list[int]]]] = defaultdict(list)
        for position, request in enumerate(requests):
            tokens = self._tokenise(request)
            overflow = len(tokens) + request.max_tokens - self._window if self._window else 0
            if overflow > 0:
                yield position, Completion("", "too_long", len(tokens), overflow)
            else:
                alike[request.max_tokens, request.temperature, request.seed].append((position, tokens))
        for (max_tokens, temperature, seed), group in alike.items():
            group.sort(key=lambda item: len(item[1]), reverse=True)
            yield from self._answer_group(group, batch_size, max_tokens, temperature, seed)

    def _answer_group(
        self,
        group: list[tuple[int, list[int]]],
        batch_size: int,
        max_tokens: int,
        temperature: float,
        seed: int,
    ) -> Iterator[tuple[int, Completion]]:
        start = 0
        while start < len(group):
            batch = group[start : start + batch_size]
            try:
                answers = self._answer_batch([tokens for _, tokens in batch], max_tokens, temperature, seed)
            except torch.OutOfMemoryError as error:
                if batch_size == 1:
                    raise BackendError("out of GPU memory with a single segment.") from error
                batch_size = max(1, batch_size // 2)
                logger.warning("out of GPU memory: going on with batches of %d", batch_size)
                torch.cuda.empty_cache()
                continue
            start += len(batch)
            yield from zip((position for position, _ in batch), answers, strict=True)

    def _answer_batch(
        self, prompts: list[list[int]], max_tokens: int, temperature: float, seed: int
    ) -> list[Completion]:
        padded = self._tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt")
        inputs = {name: tensor.to(self._model.device) for name, tensor in padded.items()}
        sampling = {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
        with torch.inference_mode(), torch.random.fork_rng(enabled=temperature > 0):
            if temperature > 0:
                torch.manual_seed(seed)
            output = self._model.generate(**inputs, max_new_tokens=max_tokens, **sampling)
        width = inputs["input_ids"].shape[1]
        return [
            self._completion(answer.tolist(), len(prompt))
            for prompt, answer in zip(prompts, output[:, width:], strict=True)
        ]

    def _defused(self, text: str) -> str:
        """Break up control tokens in a text with a zero-width space: a hypothesis must not end its own turn."""
        return self._special.sub(lambda m: f"{m[0][0]}\u200b{m[0][1:]}", text) if self._special else text

    def _completion(self, answer: list[int], prompt_tokens: int) -> Completion:
        end = next((i for i, token in enumerate(answer) if token in self._eos), None)
        text = self._tokenizer.decode(answer[:end], skip_special_tokens=True)
        return Completion(text, "length" if end is None else "stop", prompt_tokens)

    def _tokenise(self, request: Request) -> list[int]:
        """Token ids of a prompt. The chat template brings its own special tokens, so none are added to it."""
        if isinstance(request.prompt, str):
            return list(self._tokenizer(self._defused(request.prompt))["input_ids"])
        if self._tokenizer.chat_template is None:
            text = "\n\n".join(turn.content for turn in request.prompt)
            return list(self._tokenizer(self._defused(text))["input_ids"])
        begun = request.prompt[-1].role == "assistant"
        try:
            encoded = self._tokenizer.apply_chat_template(
                [{"role": turn.role, "content": self._defused(turn.content)} for turn in request.prompt],
                add_generation_prompt=not begun,
                continue_final_message=begun,
                return_dict=True,
            )
        except Exception as error:  # a template may raise anything, and most raise to refuse a role
            raise BackendError(
                f"the model's chat template refuses the prompt: {error}",
                hint="Some models know no system turn: take a prompt with user turns only.",
            ) from error
        return list(encoded["input_ids"])


def _special_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """The texts that the tokenizer turns into control tokens."""
    added = [
        str(token)
        for token in tokenizer.added_tokens_decoder.values()
        if token.special or re.fullmatch(r"<.+>|\[.+\]", str(token))
    ]
    tokens = sorted({*added, *tokenizer.all_special_tokens}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, tokens))) if tokens else None


def best_dtype(device: str) -> torch.dtype:
    """bfloat16 where the device computes in it, else float32 (CPU) or float16 (CUDA)."""
    if device == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    native = torch.cpu.get_capabilities()
    return torch.bfloat16 if native.get("avx512_bf16") or native.get("amx_bf16") else torch.float32


def _eos_ids(model: Any, tokenizer: Any) -> list[int]:
    configured = model.generation_config.eos_token_id if model.generation_config else None
    ids = configured if isinstance(configured, list) else [configured]
    return sorted({token for token in (*ids, tokenizer.eos_token_id) if token is not None})


def revision_of(model: Any, path: Path | None, revision: str | None) -> str:
    if path is None:
        return getattr(model.config, "_commit_hash", None) or revision or "unknown"
    return revision or f"sha256:{_digest(path)}"


def _digest(path: Path) -> str:
    """Hash of a model's files, of very large ones by size, beginning and end: seconds instead of minutes."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(item for item in path.iterdir() if item.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as content:
            if size <= _HASHED_WHOLE:
                digest.update(content.read())
            else:
                digest.update(content.read(2**20))
                content.seek(-(2**20), 2)
                digest.update(content.read())
    return digest.hexdigest()[:16]


@contextmanager
def _explained(model: str) -> Iterator[None]:
    """Turn the many ways a model can fail to load into one error with a way out."""
    try:
        yield
    except ImportError as error:
        if "gguf" in str(error).lower():
            raise MissingExtraError("the GGUF reader", "cpu") from error
        raise ModelUnavailableError(
            f"{model}: loading it needs another package: {error}", hint="Install what the message names."
        ) from error
    except Exception as error:  # the readers of foreign files raise whatever they stumble over
        first_line = (str(error).strip() or type(error).__name__).split("\n")[0]
        raise ModelUnavailableError(
            f"{model}: cannot be loaded: {first_line}",
            hint="Name a hub id this machine can fetch, a folder with config.json, tokenizer and safetensors files "
            "(fetched elsewhere with `hf download`), or a .gguf file; `promptmetric models list` prints presets. "
            "Pickled weights are read only in Python, with Scorer(…, use_safetensors=False).",
        ) from error


@contextmanager
def progress_bars_on_terminals_only() -> Iterator[None]:
    from transformers.utils import logging as hf_logging

    enabled = hf_logging.is_progress_bar_enabled()
    if not sys.stderr.isatty():
        hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            hf_logging.enable_progress_bar()
