"""The house: what is public, what an import costs, and that imports point down only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import promptmetric

ROOT = Path(promptmetric.__file__).parent
FLOORS = {
    "cli": 7,
    "__main__": 8,
    "report": 6,
    "bench": 5,
    "scorer": 4,
    "segments": 2,
    "judging": 3,
    "arguments": 3,
    "execution": 2,
    "inputs": 2,
    "datasets": 2,
    "prompts": 1,
    "decoding": 1,
    "backends": 1,
    "stats": 1,
    "texts": 0,
    "types": 0,
    "questions": 0,
    "errors": 0,
    "scale": 0,
    "signature": 0,
}


def test_import_loads_no_engine_and_little_else() -> None:
    code = "import sys, promptmetric; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "numpy", "pydantic", "jinja2", "babel", "rich", "click"} & set(loaded)


def test_command_line_loads_no_engine_before_it_is_needed() -> None:
    code = "import sys, promptmetric.cli, promptmetric.scorer; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "gguf"} & set(loaded)


def test_public_names_are_sorted_and_load() -> None:
    assert sorted(promptmetric.__all__) == promptmetric.__all__
    for name in promptmetric.__all__:
        assert getattr(promptmetric, name).__name__ == name
        assert name in dir(promptmetric)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = promptmetric.nonsense


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down_only(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if room == "__init__":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("promptmetric"):
            names = (
                [node.module or ""] if node.module != "promptmetric" else [f"promptmetric.{a.name}" for a in node.names]
            )
            for name in names:
                other = name.split(".")[1]
                if other == room or other not in FLOORS:
                    continue
                ground = FLOORS[other] == FLOORS[room] == 0
                assert ground or FLOORS[other] < FLOORS[room], f"{path.name} ({room}) imports {name}"
