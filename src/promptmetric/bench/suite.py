"""Suites: which sets, models, prompts and decodings to measure, as TOML."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import tomllib
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from promptmetric.arguments import recommend_for
from promptmetric.decoding import Decode
from promptmetric.errors import InputError
from promptmetric.prompts import LanguagePair, get_prompt
from promptmetric.prompts.registry import prompt_ids
from promptmetric.texts import read_text
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
        decodes: how to get a score; `auto` as each prompt says, which is by text for most.
        baselines: established metrics to run beside the prompts.
    """

    title: str = ""
    sets: tuple[SetUse, ...] = Field(min_length=1)
    models: tuple[str, ...] = ()
    prompts: tuple[str, ...] = Field(default=(DEFAULT_PROMPT,), min_length=1)
    except_prompts: tuple[str, ...] = ()
    decodes: tuple[Decode | Literal["auto"], ...] = Field(default=("auto",), min_length=1)
    baselines: tuple[BaselineName, ...] = ()


class Suite(_Part):
    """A named list of runs.

    Attributes:
        name: of the suite, and of its folder of results.
        about: what the suite is for, which opens its report.
        runs: what to measure.
    """

    name: str
    about: str = ""
    runs: tuple[Run, ...] = Field(min_length=1)


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
        raise InputError(f"{name_or_path}: {_what_is_wrong(error)}", hint=_HINT) from error


_HINT = "The README's section Benchmarks shows a suite file."
_PARTS: dict[str, type[_Part]] = {"runs": Run, "sets": SetUse}
_EXPECTED = {
    "missing": "is missing",
    "string_type": "must be a text",
    "tuple_type": 'must be a list, such as ["…"]',
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "greater_than": "must be greater than 0",
    "too_short": "must not be empty",
    "model_type": 'must be a table, such as { name = "…" }',
}
"""What each of pydantic's complaints means for whoever wrote the file."""


def _what_is_wrong(error: ValidationError) -> str:
    """The first thing that does not fit, by its place and key: `run 1, set 2: 'first' must be greater than 0.`"""
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # a typo makes a key missing, too
    *place, key = first["loc"]
    if isinstance(key, int):
        *place, key = *place[:-1], f"{place[-1]}, entry {key + 1}"
    part: type[_Part] = Suite
    where = []
    for name, number in zip(place[::2], place[1::2], strict=False):
        part = _PARTS.get(str(name), part)
        where.append(f"{str(name).removesuffix('s')} {int(number) + 1}")
    before = f"{', '.join(where)}: " if where else ""
    if first["type"] == "extra_forbidden":
        known = list(part.model_fields)
        near = difflib.get_close_matches(str(key), known, n=1) or known
        return f"{before}there is no key {key!r}; there is: {', '.join(near)}."
    if first["type"] == "literal_error":
        expected = first["ctx"]["expected"].replace(" or ", ", ")
        return f"{before}{key!r} is {first['input']!r}, which must be one of {expected}."
    return f"{before}{key!r} {_EXPECTED.get(first['type'], first['msg'])}."


def cells_of(
    run: Run, use: SetUse, task: Task, langs: str | None, known_as: Callable[[str], str] = str
) -> Iterator[Cell]:
    """The cells of one set, models outermost so that each is loaded once.

    Args:
        run: whose cells.
        use: the set.
        task: of the set.
        langs: its language pair, where it has one.
        known_as: the name by which a prompt is chosen for a model, such as that of a recording's.
    """
    pair = LanguagePair.parse(langs) if langs else None
    for model in run.models:
        for name, decode in itertools.product(names_of(run), run.decodes):
            prompt = (
                recommend_for(model, known_as(model), task, pair, decode).prompt if name == DEFAULT_PROMPT else name
            )
            spec = get_prompt(prompt)
            if task in spec.tasks and not any(fnmatch.fnmatchcase(prompt, left) for left in run.except_prompts):
                yield Cell(use, model, prompt, spec.decode if decode == "auto" else decode)


def names_of(run: Run) -> Iterator[str]:
    """A run's prompts in order, patterns resolved.

    Raises:
        InputError: a pattern matches nothing.
    """
    for pattern in run.prompts:
        if "*" not in pattern:
            yield pattern
            continue
        matching = [name for name in prompt_ids() if fnmatch.fnmatchcase(name, pattern)]
        if not matching:
            raise InputError(f"no prompt matches {pattern!r}.", hint="See `promptmetric prompts list`.")
        yield from matching
