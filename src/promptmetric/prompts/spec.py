"""`PromptSpec`: what is asked, on which scale, and where the wording comes from."""

from __future__ import annotations

import hashlib
import tomllib
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from promptmetric.errors import PromptError
from promptmetric.prompts.languages import LanguagePair, language_name
from promptmetric.prompts.templates import fill, placeholders
from promptmetric.questions import Message
from promptmetric.scale import LikelihoodScale, Scale
from promptmetric.types import Sample, Task

PLACEHOLDERS = {
    "src": "the source text",
    "hyp": "the hypothesis",
    "ref": "the reference, where samples have one",
    "src_lang": "English name of the source language",
    "tgt_lang": "English name of the target language",
    "result_type": '"Translation" or "Summary"',
    "task_insert": '"translation from English to German", or "summary of a given source text"',
    "examples": "the sample's demonstrations, each with src, hyp and score",
}
RESULT_TYPES: dict[Task, str] = {"translation": "Translation", "summarization": "Summary"}


class Turn(BaseModel):
    """One chat turn; `content` is a Jinja template over `PLACEHOLDERS`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str

    @field_validator("content")
    @classmethod
    def _asks_for_known_values(cls, content: str) -> str:
        unknown = placeholders(content) - PLACEHOLDERS.keys()
        if unknown:
            raise ValueError(f"unknown placeholder {', '.join(sorted(unknown))} (known: {', '.join(PLACEHOLDERS)})")
        return content


class Provenance(BaseModel):
    """Where a wording comes from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    table: str | None = None
    row: str | None = None


class PromptSpec(BaseModel):
    """A prompt. A last turn of the assistant is the beginning of the answer, which the model continues.

    Attributes:
        id: its name.
        description: one line about it.
        tasks: what it can be used for.
        messages: the chat turns.
        scale: what the model is asked to answer with.
        max_tokens: the most tokens an answer needs.
        marker: what stands right before the judgment in an answer that begins with an explanation.
        decode: how answers are read where the caller leaves it open.
        provenance: the paper, table and row it comes from.
        defect: what is wrong with it as published.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1)
    description: str = ""
    tasks: tuple[Task, ...] = ("translation", "summarization")
    messages: tuple[Turn, ...] = Field(min_length=1)
    scale: Scale
    max_tokens: int = Field(default=180, ge=1)
    marker: str | None = Field(default=None, min_length=1)
    decode: Literal["text", "expected", "likelihood", "likelihood-pmi"] = "text"
    provenance: Provenance | None = None
    defect: str | None = None

    @field_validator("messages")
    @classmethod
    def _shows_the_hypothesis(cls, messages: tuple[Turn, ...]) -> tuple[Turn, ...]:
        if not any("hyp" in placeholders(turn.content) for turn in messages):
            raise ValueError("no message shows {{ hyp }}: every hypothesis would get the same score")
        return messages

    @model_validator(mode="after")
    def _ends_with_the_text_to_be_scored(self) -> PromptSpec:
        ends = self.messages[-1].role == "assistant" and self.messages[-1].content in ("{{ hyp }}", "{{ src }}")
        if isinstance(self.scale, LikelihoodScale) != ends:
            raise ValueError(
                "a prompt with a likelihood scale, and no other, ends with an assistant's turn that is just "
                "{{ hyp }} or {{ src }}"
            )
        return self

    @classmethod
    def load(cls, path: Path | Traversable) -> PromptSpec:
        """Read a prompt from a TOML file.

        Raises:
            PromptError: the file cannot be read, or is not a prompt; the message names the field.
        """
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"{path}: cannot be read: {error}.") from error
        except tomllib.TOMLDecodeError as error:
            raise PromptError(f"{path}: not valid TOML: {error}.") from error
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc'])) or 'file'}: {problem['msg']}" for problem in error.errors()
            )
            raise PromptError(
                f"{path}: not a valid prompt: {problems}.",
                hint="README.md, section Prompts, has one to start from.",
            ) from error

    @property
    def content_hash(self) -> str:
        """Eight hex digits over everything that can change a score: messages, scale, max_tokens and marker."""
        content = self.model_dump_json(include={"messages", "scale", "max_tokens"}) + (self.marker or "")
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    @property
    def wants_examples(self) -> bool:
        """Whether each sample has to bring a demonstration."""
        return self.uses("examples")

    @property
    def names_languages(self) -> bool:
        """Whether the prompt says which languages it is about, where they are known."""
        return self.uses("task_insert")

    def uses(self, *names: str) -> bool:
        """Whether one of these placeholders stands in the prompt."""
        return any(placeholders(turn.content) & set(names) for turn in self.messages)

    def render(self, sample: Sample, task: Task, langs: LanguagePair | None = None) -> tuple[Message, ...]:
        """Fill in a sample; its own `src_lang` and `tgt_lang` go before `langs`.

        Raises:
            PromptError: the prompt asks for something this sample lacks.
        """
        if self.wants_examples and not sample.examples:
            raise PromptError(
                f"prompt {self.id} shows a demonstration, and the sample has none.",
                hint='Give each sample "examples": [{"src": …, "hyp": …, "score": …}], or take a zero-shot prompt.',
            )
        values = _values(sample, task, langs)
        return tuple(Message(turn.role, fill(turn.content, values)) for turn in self.messages)


def _values(sample: Sample, task: Task, langs: LanguagePair | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "src": sample.src,
        "hyp": sample.hyp,
        "result_type": RESULT_TYPES[task],
        "examples": sample.examples,
    }
    src_lang = sample.src_lang or (langs.src if langs else None)
    tgt_lang = sample.tgt_lang or (langs.tgt if langs else None)
    if src_lang:
        values["src_lang"] = language_name(src_lang)
    if tgt_lang:
        values["tgt_lang"] = language_name(tgt_lang)
    if sample.ref is not None:
        values["ref"] = sample.ref
    values["task_insert"] = _task_insert(task, values.get("src_lang"), values.get("tgt_lang"))
    return values


def _task_insert(task: Task, src_lang: str | None, tgt_lang: str | None) -> str:
    """The object of PrExMe's task descriptions. Unknown languages are left out rather than guessed."""
    if task == "summarization":
        return "summary of a given source text"
    source = f" from {src_lang}" if src_lang else ""
    target = f" to {tgt_lang}" if tgt_lang else ""
    return f"translation{source}{target}"
