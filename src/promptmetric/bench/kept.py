"""The files in which a suite keeps finished cells, and what tells the state of things from an older one."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from promptmetric import __version__
from promptmetric.datasets import EvalSet


def state_of(model: str) -> list[list[int]]:
    """Size and time of a local model's or recording's files, so that scores of an older state are not taken for its."""
    path = Path(model).expanduser()
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path] if path.is_file() else []
    return [[file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def texts_of(evalset: EvalSet) -> str:
    return digest([[row.src, row.hyp, row.refs[:1]] for row in evalset.rows])


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps([__version__, content], ensure_ascii=True).encode()).hexdigest()[:24]


def file_name(model: str) -> str:
    """A readable name that differs where the models do."""
    return f"{re.sub(r'[^A-Za-z0-9.-]+', '-', model).strip('-')[-60:]}-{digest(model)[:8]}"


def read_kept(path: Path, fields: Mapping[str, type], rows: int) -> dict[str, Any] | None:
    """What was kept of a finished cell. A file that does not hold what it should counts as not there."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not all(isinstance(found.get(name), kind) for name, kind in fields.items()):
        return None
    scores = found.get("scores")
    if not isinstance(scores, list) or len(scores) != rows:
        return None
    return found if all(score is None or isinstance(score, int | float) for score in scores) else None


def write_kept(path: Path, content: dict[str, Any]) -> None:
    """In one step, so that a crash leaves the whole file or none."""
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    scratch.replace(path)


def floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
