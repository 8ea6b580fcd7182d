"""What a `Scorer` is told, checked against the prompt and one another before a model loads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from promptmetric.backends import is_server
from promptmetric.decoding import Decode
from promptmetric.decoding.expected import label_values
from promptmetric.errors import InputError
from promptmetric.prompts import LanguagePair, PromptSpec, find_model, recommend
from promptmetric.prompts.presets import Recommendation, models
from promptmetric.scale import LabelScale, LikelihoodScale, NumericScale
from promptmetric.types import Task


def decode_for(prompt: PromptSpec, decode: str, samples: int) -> Decode:
    """The way of decoding, checked against the prompt before a model loads."""
    chosen: Any = prompt.decode if decode == "auto" else decode
    is_likelihood = chosen.startswith("likelihood")
    if is_likelihood and not isinstance(prompt.scale, LikelihoodScale):
        raise InputError(
            f"decoding {chosen!r} scores a text, and prompt {prompt.id} asks for a judgment.",
            hint="Name no prompt, or one like likelihood-translation or likelihood-summary.",
        )
    if not is_likelihood and isinstance(prompt.scale, LikelihoodScale):
        raise InputError(f"prompt {prompt.id} asks for no judgment.", hint="Decode by likelihood.")
    if chosen == "expected":
        label_values(prompt.scale)
    if samples > 1 and chosen not in ("text", "as-published"):
        raise InputError(f"decoding {chosen!r} draws no answers.", hint="Leave samples at 1, or decode by text.")
    return chosen  # type: ignore[no-any-return]


def recommend_for(model: str, known_as: str, task: Task, langs: LanguagePair | None, decode: str) -> Recommendation:
    """The prompt for a model. Servers are asked for text where `decode` is `auto`: few tell how likely a text is.

    Args:
        model: as the user names it.
        known_as: the name that prompts are measured by, such as that of the model behind a server.
        task: what is scored.
        langs: the language pair, where known.
        decode: how the score is to be got.
    """
    return recommend(known_as, task, langs, "text" if decode == "auto" and is_server(model) else decode)


def choices_for(prompt: PromptSpec, decode: Decode) -> tuple[str, ...]:
    """The only answers allowed where they are structured, checked before a model loads."""
    if decode != "text":
        raise InputError(f"structured answers are text, which decoding {decode!r} does not read.", hint="Drop one.")
    if prompt.marker is not None:
        raise InputError(
            f"prompt {prompt.id} asks for an explanation first, which structured answers leave no room for.",
            hint="Name a prompt that asks for the judgment alone, or decode by expected.",
        )
    is_json = isinstance(prompt.scale, NumericScale) and prompt.scale.json_field
    if is_json or not isinstance(prompt.scale, NumericScale | LabelScale):
        raise InputError(
            f"prompt {prompt.id} asks for no plain label ({prompt.scale}), as structured answers are.",
            hint="Name a prompt that asks for a number or a word.",
        )
    return tuple(label_values(prompt.scale))


def check_iterable(samples: Any) -> None:
    if isinstance(samples, str | bytes | Mapping) or not isinstance(samples, Iterable):
        raise InputError("samples must be a list of samples.", hint="Write [sample] for a single one.")


def check_known(name: str, value: object, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise InputError(f"{name}={value!r} is not known.", hint=f"Known: {', '.join(map(str, known))}.")


def check_preset(name: str) -> None:
    """Refuse a name that nearly is a preset's: it would only be looked for on the hub in vain."""
    if find_model(name) or not re.fullmatch(r"[\w.-]{1,60}", name) or Path(name).exists():
        return
    if near := difflib.get_close_matches(name, [model.name for model in models()], n=1, cutoff=0.75):
        raise InputError(f"no model is named {name!r}.", hint=f"Did you mean {near[0]}?")


def check_engine_arguments(engine: Mapping[str, Any]) -> None:
    """Catch what was meant for the scorer itself."""
    if "gpus" in engine:
        raise InputError("gpus is an argument of predict, not of Scorer.")
    own = (
        "prompt",
        "task",
        "langs",
        "backend",
        "decode",
        "fallback",
        "samples",
        "structured",
        "cache",
        "revision",
        "offline",
        "record",
    )
    for name in engine:
        if near := difflib.get_close_matches(name, own, n=1, cutoff=0.8):
            raise InputError(f"{name!r} is no argument of Scorer.", hint=f"Did you mean {near[0]!r}?")
