"""`Scorer`: samples in, `Prediction` out. Joins prompts, execution and decoding, and computes nothing itself."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, get_args

from promptmetric import __version__
from promptmetric.arguments import (
    check_engine_arguments,
    check_iterable,
    check_known,
    check_preset,
    choices_for,
    decode_for,
    recommend_for,
)
from promptmetric.backends import Backend, BackendName, is_recording, is_server, open_backend
from promptmetric.backends.replay import RecordingBackend, ReplayBackend
from promptmetric.decoding import Decode
from promptmetric.decoding.fallback import Fallback, apply_fallback
from promptmetric.errors import InputError
from promptmetric.execution import AnswerCache, Progress, asker, open_cache
from promptmetric.judging import Judge
from promptmetric.prompts import LanguagePair, PromptSpec, find_model, get_prompt
from promptmetric.segments import notes_on, settle_without_asking
from promptmetric.signature import Signature
from promptmetric.types import EMBEDDED_MODEL, Prediction, Sample, Segment, Task

logger = logging.getLogger("promptmetric")

_T = TypeVar("_T")

STREAMED_AT_ONCE = 4096
"""Samples that `stream` takes in at once: enough to share prefixes and fill an engine, and all it ever holds."""


class Scorer:
    """A reference-free metric: a model, a prompt, and a way to read the answers.

    Args:
        model: `auto` (the embedded demonstration model), a preset's name, a hub id, a model folder, a GGUF file, the
            address of a server (`http://localhost:8000/v1`), or a `.jsonl` file of recorded answers.
        prompt: a prompt's id, a path to a TOML file, or a `PromptSpec`. None takes the prompt chosen for the
            model by its measurements, and warns where nothing was measured.
        task: `translation` or `summarization`.
        langs: the language pair, such as `en-de`; a sample's own `src_lang` and `tgt_lang` go before it.
        backend: `auto`, `transformers`, `vllm`, `openai` or `replay`; or an open backend of `model`, which several
            scorers may share and which stays open.
        decode: `text` reads answers with our parser, `as-published` as the PrExMe paper did; `expected` takes the mean
            of the scale's labels by their probability, without waiting for text; `likelihood` and `likelihood-pmi`
            take the probability of the hypothesis itself. `auto` is the prompt's own choice, `text` for most.
        fallback: what to do with answers that hold no score: `mean`, `nan`, `error` or `retry` (which asks for text
            again; elsewhere it is as `nan`).
        samples: how many answers to draw for each segment, whose mean is the score (`text` and `as-published`).
        structured: hold the model to answers that are labels of the prompt's scale, with `decode="text"` and engines
            that can: vLLM, and servers that are vLLM or SGLang. Not for prompts that ask for more than a label.
        cache: keep answers in the user's cache folder (`PROMPTMETRIC_CACHE`) and reuse those of the same model,
            engine and question. Recordings, played or made, go without.
        revision: commit, branch or tag of the model on the hub.
        offline: fetch nothing.
        record: a file to which every answer is appended as it comes, and from which answers are reused.
        engine: further arguments of the engine, such as `dtype` for transformers, `max_model_len` for vLLM or
            `concurrency` for a server.

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
        samples: int = 1,
        structured: bool = False,
        cache: bool = True,
        revision: str | None = None,
        offline: bool = False,
        record: str | Path | None = None,
        **engine: Any,
    ) -> None:
        check_known("task", task, get_args(Task))
        if isinstance(backend, str):
            check_known("backend", backend, get_args(BackendName))
        check_known("decode", decode, ("auto", *get_args(Decode)))
        check_known("fallback", fallback, get_args(Fallback))
        check_engine_arguments(engine)
        name = str(model)
        preset = find_model(name)
        self.model = preset.hub_id if preset and name.lower() == preset.name != EMBEDDED_MODEL else name
        check_preset(name)
        self.task: Task = task
        self.langs = LanguagePair.parse(langs) if langs is not None else None
        if not isinstance(samples, int) or samples < 1:
            raise InputError(f"samples must be a whole number from 1, not {samples!r}.")
        self.samples = samples
        self.fallback: Fallback = fallback
        self._backend_name: BackendName = backend if isinstance(backend, str) else "auto"
        self._lent = None if isinstance(backend, str) else backend
        self._loading: dict[str, Any] = {"revision": revision, "offline": offline, "record": record, **engine}
        self._backend: Backend | None = None
        self._gpus = 1
        has_answers = is_recording(self.model, self._backend_name) or isinstance(
            self._lent, ReplayBackend | RecordingBackend
        )
        can_structure = self._backend_name != "transformers" and not self.model.endswith(".gguf")
        if structured and (not can_structure or self.model in ("auto", EMBEDDED_MODEL)):
            raise InputError(
                "the transformers engine cannot hold a model to a list of answers.",
                hint="Decode by expected, which needs none; or take vLLM.",
            )
        self._wants_cache = cache and record is None and not has_answers
        self._opened_cache: AnswerCache | None = None
        is_written = samples > 1 or structured  # which no other way of decoding is
        self.prompt = self._choose_prompt(prompt, "text" if is_written and decode == "auto" else decode)
        self.decode = decode_for(self.prompt, decode, samples)
        self._choices = choices_for(self.prompt, self.decode) if structured else ()

    def predict(
        self,
        samples: Iterable[Sample | Mapping[str, Any]],
        batch_size: int = 16,
        gpus: int = 1,
        *,
        progress_bar: bool = True,
        each: Callable[[Segment], None] | None = None,
        accelerator: str = "auto",
        num_workers: int | None = None,  # noqa: ARG002
        length_batching: bool = True,  # noqa: ARG002
    ) -> Prediction:
        """Score samples. COMET's call: `predict(data, batch_size=8, gpus=1).scores`.

        Args:
            samples: `Sample`s, or dicts with `src` and `mt` (or `hyp`), and optionally `src_lang`, `tgt_lang`, `ref`,
                `examples`.
            batch_size: how many prompts the engine takes at once.
            gpus: 0 computes on the CPU; above 1, each gets a process and an engine of its own.
            progress_bar: show progress on stderr when it takes longer than two seconds.
            each: is given every segment as soon as it is there, before the fallback is applied.
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
                if each:
                    each(segment)
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
        each: Callable[[Segment], None] | None = None,
    ) -> dict[str, Prediction]:
        """Score several systems as one run: a question they share is asked once, and one mean imputes for all.

        Args:
            systems: samples by the system's name.
            batch_size: as for `predict`, and so are the others and the errors.
            gpus: 0 computes on the CPU.
            progress_bar: show progress on stderr when it takes longer than two seconds.
            each: is given every segment as soon as it is there, numbered through all systems.
        """
        if not isinstance(systems, Mapping):
            raise InputError("systems must be a dict of samples by the system's name.")
        together = [sample for samples in systems.values() for sample in samples]
        whole = self.predict(together, batch_size, gpus, progress_bar=progress_bar, each=each)
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

        Samples are taken in and forgotten by the thousand, so that an endless iterator will do. Answers without a
        score come as `failed`, even with `fallback="mean"`: the mean is not known before the end.
        Arguments and errors are those of `predict`.
        """
        check_iterable(samples)
        first = 0
        for some in _batched(samples, STREAMED_AT_ONCE):
            for segment in self._stream(self._checked(some, first), batch_size, gpus, first):
                if self.fallback == "error":
                    apply_fallback([segment], "error")
                yield segment
            first += len(some)

    def signature(self, samples: Iterable[Sample] = (), gpus: int = 1) -> Signature:
        """What pins the scores of these samples. Loads the model where it is not loaded yet."""
        fingerprint = self._open(gpus).fingerprint()
        pairs = {self._pair(sample.src_lang, sample.tgt_lang) for sample in samples} or {self._pair()}
        return Signature(
            prompt=self.prompt.id,
            content=self.prompt.content_hash,
            task=self.task,
            langs=pairs.pop() if len(pairs) == 1 else "mixed",
            model=fingerprint.model,
            revision=fingerprint.revision,
            engine=fingerprint.engine,
            decode=self.decode
            + (" structured" if self._choices else "")
            + (f" x {self.samples}" if self.samples > 1 else ""),
            fallback=self.fallback,
            version=__version__,
        )

    def _pair(self, src: str | None = None, tgt: str | None = None) -> str:
        """The languages a sample is asked about: its own or the scorer's; `none` where the prompt tells none."""
        if self.task != "translation" and not self.prompt.uses("src_lang", "tgt_lang"):
            return "none"
        src = src or (self.langs.src if self.langs else None)
        tgt = tgt or (self.langs.tgt if self.langs else None)
        return f"{src or 'any'}-{tgt or 'any'}" if src or tgt else "none"

    def close(self) -> None:
        """Free the model. A later `predict` loads it again."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None
        if self._opened_cache is not None:
            self._opened_cache.close()
            self._opened_cache = None

    def __enter__(self) -> Scorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _choose_prompt(self, prompt: str | Path | PromptSpec | None, decode: str) -> PromptSpec:
        if prompt is None:
            knows = self._lent is not None or is_recording(self.model, self._backend_name) or is_server(self.model)
            model = self._open(self._gpus).fingerprint().model if knows else self.model
            recommendation = recommend_for(self.model, model, self.task, self.langs, decode)
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

    def _checked(self, samples: Iterable[Sample | Mapping[str, Any]], first: int = 0) -> list[Sample]:
        """Turn input into samples."""
        check_iterable(samples)
        checked = []
        for index, sample in enumerate(samples, first):
            if isinstance(sample, Mapping):
                sample = Sample.from_dict(sample, f"sample {index}")
            elif not isinstance(sample, Sample):
                raise InputError(f"sample {index} is a {type(sample).__name__}, neither a dict nor a Sample.")
            checked.append(sample)
        return checked

    def _open(self, gpus: int) -> Backend:
        if self._lent is not None:
            return self._lent
        if self._backend is not None and self._gpus != gpus:
            self.close()
        if self._backend is None:
            self._backend = open_backend(self.model, self._backend_name, gpus=gpus, **self._loading)
            self._gpus = gpus
        return self._backend

    def _stream(self, samples: list[Sample], batch_size: int, gpus: int, first: int = 0) -> Iterator[Segment]:
        """Score samples that are numbered from `first`."""
        if not isinstance(batch_size, int) or batch_size < 1:
            raise InputError(f"batch_size must be a whole number from 1, not {batch_size!r}.")
        if not isinstance(gpus, int) or gpus < 0:
            raise InputError(f"gpus must be a whole number from 0, not {gpus!r}.")
        asked: dict[int, Sample] = {}
        for index, sample in enumerate(samples, first):
            segment = settle_without_asking(index, sample, self.prompt.scale)
            if segment is None:
                asked[index] = sample
            else:
                yield segment
        if not asked:
            return
        if self._lent is None and self._backend is None:
            unloaded = self._judge()
            for index, sample in asked.items():
                unloaded.render(sample, index)  # before a model is loaded in vain
        if self.task == "translation" and self.prompt.names_languages and first == 0:
            unnamed = sum(not (self.langs or sample.tgt_lang) for sample in asked.values())
            if unnamed:
                logger.warning("no language pair is given for %d segments: the prompt says just 'translation'", unnamed)
        backend = self._open(gpus)
        judge = self._judge(backend.fingerprint().model)
        yield from judge.segments(asked, asker(backend, batch_size, self._cache()))

    def _judge(self, model: str = "") -> Judge:
        retries = self.fallback == "retry"
        return Judge(self.prompt, self.task, self.langs, model, self.decode, self.samples, retries, self._choices)

    def _cache(self) -> AnswerCache | None:
        if self._wants_cache and self._opened_cache is None:
            self._opened_cache = open_cache()
            self._wants_cache = self._opened_cache is not None
        return self._opened_cache


def _batched(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Lists of `size` items, the last one shorter."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
