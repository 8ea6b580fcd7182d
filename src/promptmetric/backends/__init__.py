"""Who answers: engines behind one protocol, each imported when it is first used."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Literal

from promptmetric.backends.base import Backend, Fingerprint
from promptmetric.errors import BackendError, InputError
from promptmetric.types import EMBEDDED_MODEL

__all__ = ["Backend", "BackendName", "Fingerprint", "is_recording", "open_backend"]

logger = logging.getLogger("promptmetric")

BackendName = Literal["auto", "transformers", "replay"]


def open_backend(
    model: str,
    backend: BackendName = "auto",
    *,
    gpus: int = 1,
    revision: str | None = None,
    offline: bool = False,
    record: str | Path | None = None,
    **engine: Any,
) -> Backend:
    """Load a model in an engine.

    Args:
        model: `auto` (the embedded model), hub id, model folder, GGUF file, or a file of recorded answers.
        backend: the engine; `auto` takes the one that fits the model and says which.
        gpus: 0 for the CPU.
        revision: of the model on the hub.
        offline: fetch nothing.
        record: a file to which every answer is appended as it comes, and from which answers are reused.
        engine: further arguments of the engine.

    Raises:
        BackendError: it cannot be loaded.
        InputError: model and backend do not fit.
    """
    if model.startswith(("http://", "https://")):
        raise BackendError(
            "servers are not supported in this version.", hint="Name a hub id, a model folder or a .gguf file."
        )
    if is_recording(model, backend):
        if not Path(model).is_file():
            raise InputError(f"{model}: no such file of recorded answers.")
        if record is not None:
            raise InputError("answers that are replayed cannot be recorded again.", hint="Drop --record.")
        if engine:
            raise InputError(f"recorded answers take no engine arguments: {', '.join(engine)}.")
        from promptmetric.backends.replay import ReplayBackend

        logger.info("backend replay, because %s holds recorded answers", model)
        return ReplayBackend(model)
    if record is not None:
        _check_record(Path(record))
    opened = _open_transformers(model, gpus=gpus, revision=revision, offline=offline, **engine)
    engine_used = opened.fingerprint().engine
    device = (
        "a GPU" if "cuda" in engine_used else "the CPU as asked" if gpus == 0 else "the CPU, as no CUDA GPU is there"
    )
    logger.info("backend transformers on %s (%s)", device, engine_used)
    if record is None:
        return opened
    from promptmetric.backends.replay import RecordingBackend

    return RecordingBackend(opened, record)


def is_recording(model: str, backend: BackendName) -> bool:
    """Whether the model is a file of recorded answers."""
    return backend == "replay" or (backend == "auto" and model.endswith((".jsonl", ".jsonl.gz")))


def _check_record(path: Path) -> None:
    """Find out before a model loads whether answers can be kept there."""
    if path.suffix == ".gz":
        raise InputError(f"{path}: answers are recorded uncompressed.", hint="Name a .jsonl file.")
    writable = os.access(path, os.W_OK) if path.exists() else os.access(path.absolute().parent, os.W_OK)
    if path.is_dir() or not writable:
        raise InputError(f"{path}: cannot be written.")
    if path.exists():
        from promptmetric.backends.replay import read_records

        kept = sum(1 for _ in read_records(path, skip_torn_end=True))
        logger.info("%s holds %d answers: those of this model and prompt are not asked again", path, kept)


def _open_transformers(model: str, *, gpus: int, revision: str | None, offline: bool, **engine: Any) -> Backend:
    if gpus > 1:
        logger.warning("%d GPUs were asked for: this version uses one (device_map='auto' splits a model)", gpus)
    if model in ("auto", EMBEDDED_MODEL):
        from promptmetric.backends import embedded

        if model == "auto":
            logger.info("model %s, because none was named", EMBEDDED_MODEL)
        logger.warning(
            "%s is a demonstration: it runs anywhere, but is far too small to judge quality; "
            "name a real model with -m (see `promptmetric models list`)",
            EMBEDDED_MODEL,
        )
        folder = embedded.model_folder(offline=offline)
        from promptmetric.backends.transformers import TransformersBackend

        return TransformersBackend(
            folder, name=EMBEDDED_MODEL, revision=f"sha256:{embedded.SHA256[:16]}", gpus=gpus, offline=True, **engine
        )
    is_path = model.startswith(("/", "./", "../", "~")) or model.endswith(".gguf")
    if is_path and not Path(model).expanduser().exists():
        raise InputError(f"{model}: no such model folder or file.")
    if Path(model).expanduser().is_dir() and not (Path(model).expanduser() / "config.json").exists():
        raise InputError(f"{model}: not a model folder: it has no config.json.")
    from promptmetric.backends.transformers import TransformersBackend

    logger.info("loading %s", model)
    return TransformersBackend(model, revision=revision, gpus=gpus, offline=offline, **engine)
