"""Models with measured prompts: which prompt to take for a model, and the correlations that speak for it.

`data/models.toml` is written by hand; `data/evidence.toml` is computed from the published correlations of PrExMe by
`benchmarks/presets.py`, which states the rule of choice. What is said of the embedded model rests on
`benchmarks/decodings.py`.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict

from promptmetric.errors import InputError
from promptmetric.prompts.languages import LanguagePair
from promptmetric.types import EMBEDDED_MODEL, Task

LIKELIHOOD_TRIED = ("zh-en", "en-de", "summaries")
"""Where the embedded model's likelihoods were held against human judgments (benchmarks/decodings.py)."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(_Data):
    """A model we have something to say about. `hub_ids` names it first, then its other releases."""

    name: str
    paper_name: str | None = None
    hub_ids: tuple[str, ...] = ()
    note: str = ""

    @property
    def hub_id(self) -> str:
        """What to load: the release that was measured."""
        return self.hub_ids[0]


class Correlation(_Data):
    """A prompt's published correlation with human judgment on one dataset (segment level, no grouping).

    `langs` is None for summarization. `data` names the split as PrExMe does: `train` is phase 1, the others phase 2.
    """

    data: Literal["train", "dev", "test", "test2"]
    task: Task
    langs: str | None = None
    n: int
    kendall: float
    pearson: float
    spearman: float


class Choice(_Data):
    """The prompt chosen for a model, with what was measured.

    Attributes:
        model: name of the model; `any` is the choice for models nobody measured.
        pattern: the preferred base and format.
        pattern_median: median Kendall of that pattern over descriptions and datasets.
        grid_median: median Kendall over all of the model's prompts and datasets.
        grid_max: the best single cell, for comparison: it overstates what to expect.
        prompt: the chosen prompt.
        correlations: what that prompt itself reached.
    """

    model: str
    pattern: str
    pattern_median: float
    grid_median: float
    grid_max: float
    prompt: str
    correlations: tuple[Correlation, ...]


class Evidence(_Data):
    """The shipped choices and the rule they follow."""

    source: str
    rule: str
    choices: tuple[Choice, ...]


class Recommendation(_Data):
    """An answer to "which prompt for this model, task and pair?"."""

    prompt: str
    why: str
    measured: bool
    choice: Choice | None = None


@cache
def models() -> tuple[Model, ...]:
    """Every model with a preset."""
    return tuple(Model.model_validate(entry) for entry in _read("models.toml")["models"])


@cache
def evidence() -> Evidence:
    """The shipped measurements."""
    return Evidence.model_validate(_read("evidence.toml"))


def find_model(name: str) -> Model | None:
    """The preset a model name (`auto` is the embedded model), hub id or local folder stands for, or None."""
    wanted = EMBEDDED_MODEL if name == "auto" else name.rstrip("/").lower()
    last = wanted.rsplit("/", 1)[-1]
    for model in models():
        full = {hub_id.lower() for hub_id in model.hub_ids}
        short = {hub_id.rsplit("/", 1)[-1] for hub_id in full}
        if wanted == model.name or wanted in full or last in short:
            return model
    return None


def recommend(
    name: str, task: Task = "translation", langs: LanguagePair | None = None, decode: str = "auto"
) -> Recommendation:
    """The prompt to use with a model, and whether that rests on a measurement of it.

    Args:
        name: preset name, hub id, or local folder.
        task: what is scored.
        langs: the language pair, where known.
        decode: how the score is to be got; `auto` leaves that to the prompt.
    """
    model = find_model(name)
    is_embedded = model is not None and model.name == EMBEDDED_MODEL
    suffix = "translation" if task == "translation" else "summary"
    if decode.startswith("likelihood") or (is_embedded and decode == "auto"):
        where = str(langs) if task == "translation" else "summaries"
        is_measured = is_embedded and decode != "likelihood-pmi" and where in LIKELIHOOD_TRIED
        tried = f"likelihood was tried with the demonstration model on {', '.join(LIKELIHOOD_TRIED)}"
        why = tried if is_embedded else f"likelihood was not measured for {name}"
        return Recommendation(prompt=f"likelihood-{suffix}", why=why, measured=is_measured)
    if is_embedded:
        why = "graded examples, which the demonstration model needs; its likelihoods agree better with humans"
        return Recommendation(prompt=f"demo-{suffix}", why=why, measured=False)
    choice = _choice(model.name) if model else None
    if model is None or choice is None:
        general = _choice("any")
        if general is None:  # pragma: no cover - the shipped file has it, and a test says so
            raise InputError("the shipped evidence has no general choice.")
        why = f"nothing was measured for {name}; this prompt has the highest median over the seven measured models"
        return Recommendation(prompt=general.prompt, why=why, measured=False, choice=general)
    pairs = sorted({c.langs for c in choice.correlations if c.task == task and c.langs})
    if task == "translation" and (langs is None or str(langs) not in pairs):
        pair = f"{langs} was not measured" if langs else "no language pair was given"
        why = f"{pair}; the prompt chosen for {model.name}, measured on {', '.join(pairs)}"
        return Recommendation(prompt=choice.prompt, why=why, measured=False, choice=choice)
    where = f"{task} {langs}" if langs and task == "translation" else task
    return Recommendation(
        prompt=choice.prompt, why=f"measured for {model.name} on {where}", measured=True, choice=choice
    )


def _choice(model: str) -> Choice | None:
    return next((choice for choice in evidence().choices if choice.model == model), None)


def _read(name: str) -> dict[str, list[object]]:
    return tomllib.loads((files(__package__) / "data" / name).read_text("utf-8"))
