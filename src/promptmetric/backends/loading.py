"""What loading a model needs besides the engine: its precision, what tells its weights from others, what went wrong."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from promptmetric.errors import InputError, MissingExtraError, ModelUnavailableError

_WRONG_ARGUMENT = re.compile(r"(?:unexpected keyword argument|module 'torch' has no attribute) '(\w+)'")
"""How transformers and torch say that they do not know an argument, or a dtype."""

_HASHED_WHOLE = 16 * 2**20
_PIECES, _PIECE = 1024, 2**16  # of larger files: no tensor of a layer is so small that all of them miss it


def best_dtype(device: str) -> torch.dtype:
    """bfloat16 where the device computes in it, else float32 (CPU) or float16 (CUDA)."""
    if device == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    native = torch.cpu.get_capabilities()
    return torch.bfloat16 if native.get("avx512_bf16") or native.get("amx_bf16") else torch.float32


def revision_of(model: Any, path: Path | None, revision: str | None) -> str:
    """What tells a model's weights from others: the hub's commit, or a hash of the files."""
    if path is None:
        return getattr(model.config, "_commit_hash", None) or revision or "unknown"
    if revision and revision.startswith("sha256:"):
        return revision
    return " ".join(part for part in (revision, f"sha256:{_digest(path)}") if part)


def _digest(path: Path) -> str:
    """Hash of a model's files, of very large ones by size and pieces all over them: seconds instead of minutes."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(item for item in path.iterdir() if item.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as content:
            if size <= _HASHED_WHOLE:
                digest.update(content.read())
                continue
            for place in range(_PIECES):
                content.seek((size - _PIECE) * place // (_PIECES - 1))
                digest.update(content.read(_PIECE))
    return digest.hexdigest()[:16]


@contextmanager
def explained(model: str) -> Iterator[None]:
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
        if isinstance(error, TypeError | AttributeError) and (wrong := _WRONG_ARGUMENT.search(str(error))):
            raise InputError(
                f"the engine knows no such argument or value: {wrong[1]!r}.",
                hint="Arguments it does not share with the scorer reach transformers' from_pretrained.",
            ) from error
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
