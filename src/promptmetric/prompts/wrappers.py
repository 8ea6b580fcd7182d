"""Prompt wrappers of models that were tuned on a fixed instruction format rather than a chat template."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from promptmetric.prompts.templates import fill
from promptmetric.questions import Message


class Wrapper(BaseModel):
    """A frame around a prompt, for models whose name contains one of `match`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    match: tuple[str, ...]
    text: str


def wrap(messages: tuple[Message, ...], model: str) -> str | tuple[Message, ...]:
    """The finished prompt text where the model has a wrapper, else the messages for its own chat template.

    Several turns are joined by blank lines, since a wrapper knows one instruction only; a last turn of the assistant
    follows the frame.
    """
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    wrapper = next((w for w in _wrappers() if any(part in name for part in w.match)), None)
    if wrapper is None:
        return messages
    begun = messages[-1].content if messages[-1].role == "assistant" else ""
    asked = messages[:-1] if begun else messages
    return fill(wrapper.text, {"prompt": "\n\n".join(message.content for message in asked)}) + begun


@cache
def _wrappers() -> tuple[Wrapper, ...]:
    data = tomllib.loads((files(__package__) / "data/wrappers.toml").read_text("utf-8"))
    return tuple(Wrapper.model_validate(entry) for entry in data["wrappers"])
