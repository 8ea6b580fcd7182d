"""`Scorer`: samples in, `Prediction` out. Joins prompts, execution and decoding, and computes nothing itself."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

from promptmetric import __version__
from promptmetric.backends import Backend, BackendName, is_recording, open_backend
from promptmetric.decoding import Decode
from promptmetric.decoding.fallback import RETRY_TEMPERATURES, Fallback, apply_fallback
from promptmetric.errors import InputError
from promptmetric.execution import Progress, ask
from promptmetric.prompts import LanguagePair, PromptSpec, find_model, get_prompt, recommend, wrap
from promptmetric.prompts.presets import models
from promptmetric.segments import (
    failed,
    from_completion,
    notes_on,
    settle_without_asking,
    shortened_length,
)
from promptmetric.signature import Signature
from promptmetric.types import (
    EMBEDDED_MODEL,
    Message,
    Prediction,
    Request,
    Sample,
    Segment,
    Task,
)

logger = logging.getLogger("promptmetric")

MOST_CUTS = 4
"""How often the source of an over-long prompt is shortened before the segment is given up."""


class Scorer:
    """A reference-free metric: a model, a prompt, and a way to read the answers.

    Args:
        model: `auto` (the embedded demonstration model), a preset's name, a hub id, a model folder, a GGUF file, or
            a `.jsonl` file of recorded answers.
        prompt: a prompt's id, a path to a TOML file, or a `PromptSpec`. None takes the prompt chosen for the
            model by its measurements, and warns where nothing was measured.
        task: `translation` or `summarization`.
        langs: the language pair, such as `en-de`; a sample's own `src_lang` and `tgt_lang` go before it.
        backend: `auto`, `transformers` or `replay`; or an open backend of `model`, which several scorers may share and
            which stays open.
        decode: `text` reads answers with our parser (`auto` means this), `as-published` as the PrExMe paper did.
        fallback: what to do with answers that hold no score: `mean`, `nan`, `error` or `retry`.
        revision: commit, branch or tag of the model on the hub.
        offline: fetch nothing.
        record: a file to which every answer is appended as it comes, and from which answers are reused.
        engine: further arguments of the engine, such as `dtype` or `device_map` for transformers.

    Raises:
        InputError: an argument is not usable. No model is loaded before the first `predict` or `stream`.
    """

    def __init__(
        self,
        model: str | Path = "auto",
        *,
        prompt: str | Path | PromptSpec | None = None,
        task: Task = "translation",
        langs: str | None = None,
        backend: BackendName | Backend = "auto",
        decode: Decode | str = "auto",
        fallback: Fallback = "mean",
        revision: str | None = None,
        offline: bool = False,
        record: str | Path | None = None,
        **engine: Any,
    ) -> None:
        _check("task", task, get_args(Task))
        if isinstance(backend, str):
            _check("backend", backend, get_args(BackendName))
        _check("decode", decode, ("auto", *get_args(Decode)))
        _check("fallback", fallback, get_args(Fallback))
        _check_engine_arguments(engine)
        name = str(model)
        preset = find_model(name)
        self.model = preset.hub_id if preset and name.lower() == preset.name != EMBEDDED_MODEL else name
        if preset is None and re.fullmatch(r"[\w.-]{1,60}", name) and not Path(name).exists():
            _suggest_preset(name)
        self.task: Task = task
        self.langs = LanguagePair.parse(langs) if langs is not None else None
        self.decode: Decode = "as-published" if decode == "as-published" else "text"
        self.fallback: Fallback = fallback
        self._backend_name: BackendName = backend if isinstance(backend, str) else "auto"
        self._lent = None if isinstance(backend, str) else backend
        self._loading: dict[str, Any] = {"revision": revision, "offline": offline, "record": record, **engine}
        self._backend: Backend | None = None
        self._gpus = 1
        self.prompt = self._choose_prompt(prompt)

    def predict(
        self,
        samples: Iterable[Sample | Mapping[str, Any]],
        batch_size: int = 16,
        gpus: int = 1,
        *,
        progress_bar: bool = True,
        accelerator: str = "auto",
        num_workers: int | None = None,  # noqa: ARG002
        length_batching: bool = True,  # noqa: ARG002
    ) -> Prediction:
        """Score samples. COMET's call: `predict(data, batch_size=8, gpus=1).scores`.

        Args:
            samples: `Sample`s, or dicts with `src` and `mt` (or `hyp`), and optionally `src_lang`, `tgt_lang`, `ref`,
                `examples`.
            batch_size: how many prompts the engine takes at once.
            gpus: 0 computes on the CPU.
            progress_bar: show progress on stderr when it takes longer than two seconds.
            accelerator: `cpu` means `gpus=0`, as with COMET; anything else leaves the choice to `gpus`.
            num_workers: taken from COMET callers; has no effect.
            length_batching: taken from COMET callers; batches are always of similar length.

        Returns:
            Scores from 0 (worst) to 1 (best) in the order of the input. With `fallback="mean"`, segments without
            a readable answer get the mean of the others; they are marked `imputed` and reported on stderr.

        Raises:
            InputError: a sample is not usable; nothing was loaded or asked.
            BackendError: the model cannot be loaded or stopped answering.
            UnreadAnswerError: an answer holds no score and `fallback` is `error`.
        """
        checked = self._checked(samples)
        gpus = 0 if accelerator == "cpu" else gpus
        segments: list[Segment] = []
        with Progress(len(checked), shown=progress_bar) as progress:
            for segment in self._stream(checked, batch_size, gpus):
                segments.append(segment)
                progress.advance()
        segments.sort(key=lambda segment: segment.index)
        prediction = Prediction.from_segments(
            apply_fallback(segments, self.fallback), str(self.signature(checked, gpus))
        )
        for note in notes_on(prediction):
            logger.warning(note)
        return prediction

    def predict_systems(
        self,
        systems: Mapping[str, Sequence[Sample]],
        batch_size: int = 16,
        gpus: int = 1,
        *,
        progress_bar: bool = True,
    ) -> dict[str, Prediction]:
        """Score several systems as one run: a question they share is asked once, and one mean imputes for all.

        Args:
            systems: samples by the system's name.
            batch_size: as for `predict`, and so are the others and the errors.
            gpus: 0 computes on the CPU.
            progress_bar: show progress on stderr when it takes longer than two seconds.
        """
        together = [sample for samples in systems.values() for sample in samples]
        whole = self.predict(together, batch_size, gpus, progress_bar=progress_bar)
        predictions, start = {}, 0
        for name, samples in systems.items():
            mine = whole.segments[start : start + len(samples)]
            start += len(samples)
            renumbered = [dataclasses.replace(segment, index=i) for i, segment in enumerate(mine)]
            predictions[name] = Prediction.from_segments(renumbered, whole.signature)
        return predictions

    def stream(
        self, samples: Iterable[Sample | Mapping[str, Any]], batch_size: int = 16, gpus: int = 1
    ) -> Iterator[Segment]:
        """Score samples one by one, as they finish (`Segment.index` is the place in the input).

        Answers without a score come as `failed`, even with `fallback="mean"`: the mean is not known before the end.
        Arguments and errors are those of `predict`.
        """
        for segment in self._stream(self._checked(samples), batch_size, gpus):
            if self.fallback == "error":
                apply_fallback([segment], "error")
            yield segment

    def signature(self, samples: Iterable[Sample] = (), gpus: int = 1) -> Signature:
        """What pins the scores of these samples. Loads the model where it is not loaded yet."""
        fingerprint = self._open(gpus).fingerprint()
        named = any(sample.src_lang or sample.tgt_lang for sample in samples)
        return Signature(
            prompt=self.prompt.id,
            content=self.prompt.content_hash,
            task=self.task,
            langs="mixed" if named else str(self.langs or "none"),
            model=fingerprint.model,
            revision=fingerprint.revision,
            engine=fingerprint.engine,
            decode=self.decode,
            fallback=self.fallback,
            version=__version__,
        )

    def close(self) -> None:
        """Free the model. A later `predict` loads it again."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None

    def __enter__(self) -> Scorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _choose_prompt(self, prompt: str | Path | PromptSpec | None) -> PromptSpec:
        if prompt is None:
            recorded = self._lent is not None or is_recording(self.model, self._backend_name)
            model = self._open(self._gpus).fingerprint().model if recorded else self.model
            recommendation = recommend(model, self.task, self.langs)
            say = logger.info if recommendation.measured else logger.warning
            say("prompt %s: %s", recommendation.prompt, recommendation.why)
            prompt = recommendation.prompt
        spec = get_prompt(prompt)
        if self.task not in spec.tasks:
            raise InputError(
                f"prompt {spec.id} is for {' and '.join(spec.tasks)}, not for {self.task}.", hint="Set the task."
            )
        if spec.defect:
            logger.warning("prompt %s has a known defect: %s", spec.id, spec.defect)
        return spec

    def _checked(self, samples: Iterable[Sample | Mapping[str, Any]]) -> list[Sample]:
        """Turn input into samples."""
        if isinstance(samples, str | bytes | Mapping) or not isinstance(samples, Iterable):
            raise InputError("samples must be a list of samples.", hint="Write [sample] for a single one.")
        checked = []
        for index, sample in enumerate(samples):
            if isinstance(sample, Mapping):
                sample = Sample.from_dict(sample, f"sample {index}")
            elif not isinstance(sample, Sample):
                raise InputError(f"sample {index} is a {type(sample).__name__}, neither a dict nor a Sample.")
            checked.append(sample)
        return checked

    def _open(self, gpus: int) -> Backend:
        if self._lent is not None:
            return self._lent
        if self._backend is not None and (self._gpus > 0) != (gpus > 0):
            self.close()
        if self._backend is None:
            self._backend = open_backend(self.model, self._backend_name, gpus=gpus, **self._loading)
            self._gpus = gpus
        return self._backend

    def _stream(self, samples: list[Sample], batch_size: int, gpus: int) -> Iterator[Segment]:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise InputError(f"batch_size must be a whole number from 1, not {batch_size!r}.")
        if not isinstance(gpus, int) or gpus < 0:
            raise InputError(f"gpus must be a whole number from 0, not {gpus!r}.")
        questions: dict[int, tuple[Message, ...]] = {}
        settled: list[Segment] = []
        for index, sample in enumerate(samples):
            segment = settle_without_asking(index, sample, self.prompt.scale)
            if segment is None:
                questions[index] = self._render(sample, index)
            else:
                settled.append(segment)
        yield from settled
        if not questions:
            return
        if self.task == "translation" and self.prompt.names_languages:
            unnamed = sum(not (self.langs or samples[index].tgt_lang) for index in questions)
            if unnamed:
                logger.warning("no language pair is given for %d segments: the prompt says just 'translation'", unnamed)
        backend = self._open(gpus)
        cuts: dict[int, int] = {}  # characters kept of shortened sources
        for attempt, temperature in enumerate((0.0, *RETRY_TEMPERATURES), 1):
            unread: dict[int, tuple[Message, ...]] = {}
            for segment in self._ask(backend, samples, questions, cuts, batch_size, temperature, attempt):
                may_retry = self.fallback == "retry" and attempt <= len(RETRY_TEMPERATURES)
                if segment.status == "failed" and segment.text is not None and may_retry:
                    unread[segment.index] = questions[segment.index]
                else:
                    yield segment
            if not unread:
                return
            questions = unread

    def _ask(
        self,
        backend: Backend,
        samples: list[Sample],
        questions: dict[int, tuple[Message, ...]],
        cuts: dict[int, int],
        batch_size: int,
        temperature: float,
        attempt: int,
    ) -> Iterator[Segment]:
        """Ask questions, over-long ones again with a shortened source, which `questions` and `cuts` then hold."""
        model = backend.fingerprint().model
        seed = attempt if temperature > 0 else 0
        pending = list(questions)
        for _ in range(MOST_CUTS + 1):
            requests = {
                index: Request(wrap(questions[index], model), self.prompt.max_tokens, temperature, seed)
                for index in pending
            }
            pending = []
            for index, completion in ask(backend, requests, batch_size):
                if completion.finish != "too_long":
                    full, kept = len(samples[index].src), cuts.get(index)
                    shortened = f"source shortened from {full} to {kept} characters to fit the window" if kept else None
                    yield from_completion(
                        index, completion, self.prompt.scale, self.decode, shortened=shortened, attempts=attempt
                    )
                    continue
                source_length = cuts.get(index, len(samples[index].src))
                prompt_length = sum(len(turn.content) for turn in questions[index])
                length = shortened_length(source_length, prompt_length, completion)
                if length <= 0:
                    yield failed(index, "even without its source, the prompt exceeds the model's window")
                    continue
                cuts[index] = length
                cut = dataclasses.replace(samples[index], src=samples[index].src[:length])
                questions[index] = self._render(cut, index)
                pending.append(index)
            if not pending:
                return
        for index in pending:
            yield failed(index, "the prompt exceeds the model's window")

    def _render(self, sample: Sample, index: int) -> tuple[Message, ...]:
        try:
            return self.prompt.render(sample, self.task, self.langs)
        except InputError as error:
            raise type(error)(f"sample {index}: {error.args[0]}", hint=error.hint) from error


def _check(name: str, value: object, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise InputError(f"{name}={value!r} is not known.", hint=f"Known: {', '.join(map(str, known))}.")


def _suggest_preset(name: str) -> None:
    """A name without a slash that nearly is a preset's would only be looked for on the hub in vain."""
    if near := difflib.get_close_matches(name, [model.name for model in models()], n=1, cutoff=0.75):
        raise InputError(f"no model is named {name!r}.", hint=f"Did you mean {near[0]}?")


def _check_engine_arguments(engine: Mapping[str, Any]) -> None:
    """Catch what was meant for the scorer itself."""
    if "gpus" in engine:
        raise InputError("gpus is an argument of predict, not of Scorer.")
    own = ("prompt", "task", "langs", "backend", "decode", "fallback", "revision", "offline", "record")
    for name in engine:
        if near := difflib.get_close_matches(name, own, n=1, cutoff=0.8):
            raise InputError(f"{name!r} is no argument of Scorer.", hint=f"Did you mean {near[0]!r}?")
