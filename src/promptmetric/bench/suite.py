"""Suites: which sets, models, prompts and decodings to measure, as TOML."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from promptmetric.datasets.files import read_text
from promptmetric.decoding import Decode
from promptmetric.errors import InputError
from promptmetric.prompts import LanguagePair, get_prompt, recommend
from promptmetric.prompts.registry import prompt_ids
from promptmetric.types import Task

DEFAULT_PROMPT = "default"
"""Stands in a suite for the prompt chosen for each model."""

BaselineName = Literal["bleu", "chrf", "rouge1", "rouge2", "rougeL", "bertscore", "bartscore"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SetUse(_Part):
    """A set of human judgments and how much of it.

    Attributes:
        name: as `promptmetric data list` has it, or a path.
        first: only the first so many rows, as PrExMe's phase 1 takes them.
        segments: a random draw of so many segments with the hypotheses of all systems.
        seed: of the draw.
        aspects: which judgments to evaluate against; none means the set's first.
        scores: files with scores of other metrics for the whole set, such as COMET's.
    """

    name: str
    first: int | None = Field(default=None, gt=0)
    segments: int | None = Field(default=None, gt=0)
    seed: int = 0
    aspects: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()


class Run(_Part):
    """Every combination of its lists is measured.

    Attributes:
        title: what it is for.
        sets: where.
        models: names that `Scorer` takes.
        prompts: ids, patterns of ids (`prexme:zs/*`), TOML files, or `default` for the one chosen for the model.
        except_prompts: patterns of ids to leave out.
        decodes: how to read answers.
        baselines: established metrics to run beside the prompts.
    """

    title: str = ""
    sets: tuple[SetUse, ...]
    models: tuple[str, ...] = ()
    prompts: tuple[str, ...] = (DEFAULT_PROMPT,)
    except_prompts: tuple[str, ...] = ()
    decodes: tuple[Decode, ...] = ("text",)
    baselines: tuple[BaselineName, ...] = ()


class Suite(_Part):
    """A named list of runs."""

    name: str
    about: str
    runs: tuple[Run, ...]


class Cell(NamedTuple):
    """One combination to be measured."""

    use: SetUse
    model: str
    prompt: str
    decode: Decode


def shipped_suites() -> tuple[str, ...]:
    """Names of the suites that come with the package."""
    folder = files(__package__) / "suites"
    return tuple(sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")))


def load_suite(name_or_path: str) -> Suite:
    """A shipped suite by name, or one from a TOML file.

    Raises:
        InputError: there is none of this name, or the file is not a suite, with what is wrong in it.
    """
    if name_or_path in shipped_suites():
        text = (files(__package__) / "suites" / f"{name_or_path}.toml").read_text("utf-8")
    else:
        path = Path(name_or_path)
        if not path.is_file():
            near = difflib.get_close_matches(name_or_path, shipped_suites(), n=2) or shipped_suites()
            raise InputError(
                f"there is no suite {name_or_path!r}.", hint=f"There is: {', '.join(near)}; or a .toml file."
            )
        text = read_text(path)
    try:
        return Suite.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name_or_path}: not valid TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{name_or_path}: {where}: {first['msg']}.") from error


def cells_of(run: Run, use: SetUse, task: Task, langs: str | None) -> Iterator[Cell]:
    """The cells of one set, models outermost so that each is loaded once."""
    for model in run.models:
        for prompt, decode in itertools.product(prompts_of(run, model, task, langs), run.decodes):
            yield Cell(use, model, prompt, decode)


def prompts_of(run: Run, model: str, task: Task, langs: str | None) -> list[str]:
    """Ids and files of a run's prompts that suit a task, patterns resolved, in order and without repetitions.

    Raises:
        InputError: a pattern matches nothing.
    """
    found: dict[str, None] = {}
    for pattern in run.prompts:
        if pattern == DEFAULT_PROMPT:
            pair = LanguagePair.parse(langs) if langs else None
            found[recommend(model, task, pair).prompt] = None
        elif "*" in pattern:
            matching = [name for name in prompt_ids() if fnmatch.fnmatchcase(name, pattern)]
            if not matching:
                raise InputError(f"no prompt matches {pattern!r}.", hint="See `promptmetric prompts list`.")
            found |= dict.fromkeys(matching)
        else:
            found[pattern] = None
    kept = [name for name in found if not any(fnmatch.fnmatchcase(name, left) for left in run.except_prompts)]
    return [name for name in kept if task in get_prompt(name).tasks]
