"""Who answers: engines behind one protocol, each imported when it is first used."""

from __future__ import annotations

import logging
import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from promptmetric.backends.base import Backend, Fingerprint
from promptmetric.errors import InputError
from promptmetric.types import EMBEDDED_MODEL

__all__ = ["Backend", "BackendName", "Fingerprint", "is_recording", "open_backend"]

logger = logging.getLogger("promptmetric")

BackendName = Literal["auto", "transformers", "vllm", "openai", "replay"]


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
        model: `auto` (the embedded model), hub id, model folder, GGUF file, address of a server, or a file of recorded
            answers.
        backend: the engine; `auto` takes the one that fits the model and says which: vLLM where it is installed and a
            GPU is there, else transformers.
        gpus: 0 for the CPU; above 1, one process with an engine of its own for each, unless `tensor_parallel_size` or
            `device_map` spreads one engine over them.
        revision: of the model on the hub.
        offline: fetch nothing.
        record: a file to which every answer is appended as it comes, and from which answers are reused.
        engine: further arguments of the engine.

    Raises:
        BackendError: it cannot be loaded.
        InputError: model and backend do not fit.
    """
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
    if is_server(model) or backend == "openai":
        opened = _open_server(model, backend, **engine)
    else:
        opened = _open_local(model, backend, gpus, {"revision": revision, "offline": offline, **engine})
    logger.info("backend %s", opened.fingerprint().engine)
    if record is None:
        return opened
    from promptmetric.backends.replay import RecordingBackend

    return RecordingBackend(opened, record)


def is_server(model: str) -> bool:
    """Whether the model is the address of a server."""
    return model.startswith(("http://", "https://"))


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


def _open_server(model: str, backend: BackendName, **engine: Any) -> Backend:
    if not is_server(model) or backend not in ("auto", "openai"):
        raise InputError(
            f"model {model!r} and backend {backend!r} do not fit.",
            hint="The backend of a server's address, http://host:port/v1, is openai.",
        )
    from promptmetric.backends.openai import OpenAIBackend

    try:
        return OpenAIBackend(model, **engine)
    except TypeError as error:
        raise InputError(f"the openai backend does not know this argument: {error}.") from error


def _open_local(model: str, backend: BackendName, gpus: int, loading: dict[str, Any]) -> Backend:
    """Load a model here: in this process, or in one process a GPU."""
    is_path = model.startswith(("/", "./", "../", "~")) or model.endswith(".gguf")
    if is_path and not Path(model).expanduser().exists():
        raise InputError(f"{model}: no such model folder or file.")
    if Path(model).expanduser().is_dir() and not (Path(model).expanduser() / "config.json").exists():
        raise InputError(f"{model}: not a model folder: it has no config.json.")
    if model in ("auto", EMBEDDED_MODEL):
        from promptmetric.backends import embedded

        if model == "auto":
            logger.info("model %s, because none was named", EMBEDDED_MODEL)
        logger.warning(
            "%s is a demonstration: it runs anywhere, but is far too small to judge quality; "
            "name a real model with -m (see `promptmetric models list`)",
            EMBEDDED_MODEL,
        )
        folder = embedded.model_folder(offline=bool(loading["offline"]))
        loading |= {"name": EMBEDDED_MODEL, "revision": f"sha256:{embedded.SHA256[:16]}", "offline": True}
        model, backend = str(folder), "transformers" if backend == "auto" else backend
    found = _gpus() if gpus else 0
    if backend == "auto":
        backend = "vllm" if found and not model.endswith(".gguf") and find_spec("vllm") else "transformers"
    if gpus > 1 and not found:
        logger.warning("%d GPUs were asked for, and none is there: the CPU computes", gpus)
    if gpus and not found:
        logger.info("no CUDA GPU is there: the CPU computes")
    if found and gpus > found:
        raise InputError(f"{gpus} GPUs were asked for, and {found} are there.")
    workers = _workers(gpus, loading) if found else 1
    logger.info("loading %s in %s", model, backend)
    if workers <= 1:
        return _load(0, model, backend, gpus, loading)
    from promptmetric.backends.pool import PoolBackend

    return PoolBackend(partial(_load, model=model, backend=backend, gpus=1, loading=loading), workers)


def _workers(gpus: int, loading: dict[str, Any]) -> int:
    """How many engines the GPUs make, where an engine may take several."""
    if "device_map" in loading:
        return 1
    each = int(loading.get("tensor_parallel_size", 1)) * int(loading.get("pipeline_parallel_size", 1))
    if each == 1 or gpus in (1, each):  # the GPUs of a single engine need not be counted again
        return gpus if each == 1 else 1
    raise InputError(
        f"an engine over {each} GPUs does not go with {gpus}.", hint=f"Ask for --gpus {each}; for more, run a server."
    )


def _load(worker: int, model: str, backend: BackendName, gpus: int, loading: dict[str, Any]) -> Backend:  # noqa: ARG001
    """Open an engine; `worker` numbers the process it is in."""
    if backend == "vllm":
        from promptmetric.backends.vllm import VllmBackend

        return VllmBackend(model, gpus=gpus, **loading)
    from promptmetric.backends.transformers import TransformersBackend

    return TransformersBackend(model, gpus=gpus, **loading)


def _gpus() -> int:
    """How many CUDA GPUs this process sees."""
    try:
        import torch
    except ImportError:  # the engine's own import says what is missing
        return 0
    return int(torch.cuda.device_count())
