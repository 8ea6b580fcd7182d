"""What the documents say is true: examples load, commands exist, and CI does what the README says."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from promptmetric.bench.suite import load_suite
from promptmetric.cli import cli
from promptmetric.inputs import read_samples
from promptmetric.prompts import get_prompt

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_prompt_in_the_readme_loads(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(re.findall(r"```toml\n(.*?)```", README, re.DOTALL)[0], encoding="utf-8")
    assert get_prompt(path).id == "my-prompt"


def test_the_suite_in_the_readme_loads(tmp_path: Path) -> None:
    path = tmp_path / "my-suite.toml"
    path.write_text(re.findall(r"```toml\n(.*?)```", README, re.DOTALL)[1], encoding="utf-8")
    assert load_suite(str(path)).name == "my-suite"


def test_ci_installs_and_tests_as_the_readme_says() -> None:
    steps = re.findall(r"^(python3 -m venv .*pytest)$", README, re.MULTILINE)[0].split(" && ")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for step in steps[2:]:
        assert step.replace("pip install ", "") in script


def test_example_files_are_aligned() -> None:
    systems = read_samples(
        str(ROOT / "examples/source.en.txt"),
        [str(ROOT / f"examples/{name}.de.txt") for name in ("careful", "careless")],
    )
    assert [len(samples) for samples in systems.values()] == [7, 7]
    summaries = read_samples(str(ROOT / "examples/summaries.jsonl"), [])
    assert {name: len(samples) for name, samples in summaries.items()} == {"careful": 2, "careless": 2}


COMMANDS = re.findall(
    r"promptmetric (?:score|prompts|models|cache|data|bench|meta-eval|compare) .*",
    "".join(re.findall(r"```sh\n(.*?)```", README, re.S)),
)


@pytest.mark.parametrize("line", COMMANDS)
def test_documented_commands_and_options_exist(line: str) -> None:
    words = line.split("#")[0].split()
    command = cli.commands[words[1]]
    if isinstance(command, click.Group):
        assert words[2] in command.commands
        return
    known = {option for parameter in command.params for option in parameter.opts}
    for word in words:
        if re.fullmatch(r"--?[a-z][a-z-]*", word):
            assert word in known, word
