"""Runs a suite: scores every cell once, keeps every answer, and holds the scores against the judgments."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from promptmetric.backends import Backend, is_recording, is_server, open_backend
from promptmetric.bench.baselines import baseline_scores, library_versions
from promptmetric.bench.controls import CONTROLS
from promptmetric.bench.kept import digest, file_name, floats, read_kept, state_of, texts_of, write_kept
from promptmetric.bench.metaeval import affordable, meta_evaluate, read_metrics, usual_tested
from promptmetric.bench.results import NotRun, Scored, SetResult, SuiteResult
from promptmetric.bench.suite import Cell, Run, SetUse, Suite, cells_of
from promptmetric.datasets import EvalSet, MetricScores, load_set
from promptmetric.errors import BackendError, InputError, PromptmetricError
from promptmetric.prompts import find_model, get_prompt
from promptmetric.scorer import Scorer
from promptmetric.stats.base import scipy_stats
from promptmetric.types import EMBEDDED_MODEL, Prediction

logger = logging.getLogger("promptmetric")

MOST_TESTED = 24
"""Metrics that are tested against each other; of a larger grid only the best so many."""


@dataclass(frozen=True)
class _Job:
    """A set of a run, cut to size, with what to measure on it: cells, baselines, and scores from files."""

    run: Run
    use: SetUse
    whole: EvalSet
    evalset: EvalSet
    cells: tuple[Cell, ...]
    baselines: tuple[str, ...]
    imported: tuple[Scored, ...]


def run_suite(
    suite: Suite,
    folder: Path,
    *,
    models: Sequence[str] = (),
    data: Path | None = None,
    batch_size: int = 16,
    gpus: int = 1,
    offline: bool = False,
    draws: int = 1000,
    progress_bar: bool = True,
) -> SuiteResult:
    """Measure what a suite names. Cells that the folder holds already are not asked again, and neither are answers.

    Args:
        suite: what to measure.
        folder: keeps answers (`answers/`) and finished scores (`scores/`).
        models: take these instead of the suite's.
        data: a data folder, looked into before all others.
        batch_size: prompts the engine takes at once.
        gpus: 0 computes on the CPU.
        offline: fetch nothing.
        draws: permutations and bootstrap draws.
        progress_bar: show progress on stderr.

    Raises:
        InputError: nothing of the suite could be run, with the reasons; two metrics would have one name; or the folder
            cannot be written.
        MissingExtraError: scipy is not installed.
    """
    scipy_stats()  # what is needed in the end is asked for before anything is scored
    not_run: list[NotRun] = []
    jobs = list(_jobs(suite, models, data, not_run))
    if not jobs:
        raise _nothing_could_be_run(suite, not_run)
    for one in not_run:
        logger.warning("%s is left out: %s", one.what, one.reason)
    try:
        for part in ("answers", "scores"):
            (folder / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: no folder can be written there: {error.strerror}.") from error
    scored = _score_cells(jobs, folder, not_run, batch_size, gpus, offline=offline, progress_bar=progress_bar)
    results: list[SetResult] = []
    for job, cells in zip(jobs, scored, strict=True):
        baselines = _baselines(job, folder, batch_size, not_run, offline=offline)
        columns = [*cells, *baselines, *job.imported]
        results += _evaluate(job, columns, draws, not_run, progress_bar=progress_bar)
    if not results:
        raise _nothing_could_be_run(suite, not_run)
    return SuiteResult(suite, tuple(results), tuple(not_run))


def _nothing_could_be_run(suite: Suite, not_run: Sequence[NotRun]) -> InputError:
    reasons = "\n  ".join(f"{one.what}: {' '.join(one.reason.split())}" for one in not_run[:10])
    return InputError(f"nothing of the suite {suite.name} could be run.", hint=reasons or None)


def _score_cells(
    jobs: Sequence[_Job],
    folder: Path,
    not_run: list[NotRun],
    batch_size: int,
    gpus: int,
    *,
    offline: bool,
    progress_bar: bool,
) -> list[list[Scored]]:
    """What models say of each set. A model is opened once, for all sets."""
    scored: list[list[Scored]] = [[] for _ in jobs]
    for model in dict.fromkeys(cell.model for job in jobs for cell in job.cells):
        with _Engine(model, folder, gpus=gpus, offline=offline) as engine:
            for job, columns in zip(jobs, scored, strict=True):
                for cell in (cell for cell in job.cells if cell.model == model):
                    try:
                        done = _score_cell(job, cell, engine, folder, batch_size, gpus, progress_bar=progress_bar)
                    except (BackendError, InputError) as error:
                        not_run.append(NotRun(f"{_label(cell)} on {job.use.name}", str(error)))
                    else:
                        columns.append(done)
    return scored


def planned_cells(
    suite: Suite, models: Sequence[str] = (), data: Path | None = None
) -> tuple[list[tuple[Cell, int]], list[NotRun]]:
    """What would be measured, each with its number of hypotheses, and what could not be for want of a set."""
    not_run: list[NotRun] = []
    jobs = list(_jobs(suite, models, data, not_run))
    return [(cell, len(job.evalset.rows)) for job in jobs for cell in job.cells], not_run


def _jobs(suite: Suite, models: Sequence[str], data: Path | None, not_run: list[NotRun]) -> Iterator[_Job]:
    known_as = _names_of_models()
    for number, run in enumerate(suite.runs, 1):
        named = tuple(EMBEDDED_MODEL if model == "auto" else model for model in models or run.models)
        chosen = run.model_copy(update={"models": named})
        if not (named or run.baselines or any(use.scores for use in run.sets)):
            raise InputError(
                f"{suite.name}, run {number}: there is nothing to measure.",
                hint="Give it models, baselines, or sets with scores; or name a model with -m.",
            )
        for use in dict.fromkeys(run.sets):
            try:
                published = load_set(use.name, data=data)
                whole = published.without_humans()
                for aspect in use.aspects:
                    whole.human(aspect)
            except PromptmetricError as error:
                not_run.append(NotRun(use.name, str(error).removeprefix(f"{use.name}: ")))
                continue
            cut = _cut(whole, use)
            cells = tuple(dict.fromkeys(cells_of(chosen, use, cut.task, cut.langs, known_as)))
            if named and not cells:
                not_run.append(NotRun(f"every model on {use.name}", f"none of the prompts is for {cut.task}"))
            imported = tuple(_imported(use, cut, whole, published, not_run))
            job = _Job(chosen, use, whole, cut, cells, tuple(dict.fromkeys(chosen.baselines)), imported)
            _check_labels(job)
            yield job


def _names_of_models() -> Callable[[str], str]:
    """The name by which a prompt is chosen for a model: for a recording or a server, that of the model behind it."""

    @functools.cache
    def known_as(model: str) -> str:
        if not is_recording(model, "auto") and not is_server(model):
            return model
        try:
            with contextlib.closing(open_backend(model)) as backend:
                return backend.fingerprint().model
        except PromptmetricError:  # which is said when the model is to be asked
            return model

    return known_as


def _check_labels(job: _Job) -> None:
    """Refuse two metrics of one name while nothing has been scored yet."""
    named = [(label, "a control") for label in CONTROLS]
    named += [(_label(cell), "a cell") for cell in job.cells]
    named += [(label, "a baseline") for label in job.baselines]
    named += [(one.label, f"a metric of {one.signature.removeprefix('file:')}") for one in job.imported]
    taken: dict[str, str] = {}
    for label, what in named:
        if label in taken:
            raise InputError(
                f"{job.use.name}: {what} is called {label!r}, and so is {taken[label]}.",
                hint="Metrics of a file are called by the file or its column; rename one.",
            )
        taken[label] = what


def _cut(whole: EvalSet, use: SetUse) -> EvalSet:
    if use.first is not None:
        kept = {(row.system, row.segment) for row in whole.rows[: use.first]}
        whole = whole.where(lambda row: (row.system, row.segment) in kept)
    return whole.draw(use.segments, use.seed) if use.segments is not None else whole


class _Engine:
    """Opens a model when it is first needed, and once."""

    def __init__(self, model: str, folder: Path, *, gpus: int, offline: bool) -> None:
        preset = find_model(model)
        self._model = preset.hub_id if preset and model == preset.name != EMBEDDED_MODEL else model
        self._record = None if is_recording(self._model, "auto") else folder / "answers" / f"{file_name(model)}.jsonl"
        self._options = {"gpus": gpus, "offline": offline}
        self._backend: Backend | None = None
        self._refused: BackendError | None = None

    def __enter__(self) -> _Engine:
        return self

    def backend(self) -> Backend:
        """The open backend. A model that could not be opened is not tried again."""
        if self._refused is not None:
            raise self._refused
        if self._backend is None:
            try:
                self._backend = open_backend(self._model, "auto", record=self._record, **self._options)  # type: ignore[arg-type]
            except BackendError as error:
                self._refused = error
                raise
        return self._backend

    def __exit__(self, *_: object) -> None:
        if self._backend is not None:
            self._backend.close()


def _label(cell: Cell) -> str:
    return f"{cell.model} {cell.prompt}" + (f" [{cell.decode}]" if cell.decode != "text" else "")


def _score_cell(
    job: _Job, cell: Cell, engine: _Engine, folder: Path, batch_size: int, gpus: int, *, progress_bar: bool
) -> Scored:
    content = get_prompt(cell.prompt).content_hash
    evalset = job.evalset
    asked = [cell.model, state_of(cell.model), cell.prompt, content, cell.decode]
    identity = [*asked, evalset.task, evalset.langs, texts_of(evalset)]
    path = folder / "scores" / f"{digest(identity)}.json"
    kept = read_kept(path, {"signature": str, "statuses": dict}, len(evalset.rows))
    if kept is None:
        logger.info("%s: %s, %d hypotheses", job.use.name, _label(cell), len(evalset.rows))
        scorer = Scorer(
            cell.model,
            prompt=cell.prompt,
            task=evalset.task,
            langs=evalset.langs,
            backend=engine.backend(),
            decode=cell.decode,
        )
        # All rows are of the scorer's pair, which its signature then names.
        samples = [replace(sample, src_lang=None, tgt_lang=None) for sample in evalset.samples()]
        prediction = scorer.predict(samples, batch_size, gpus, progress_bar=progress_bar)
        kept = {
            "scores": [None if math.isnan(score) else score for score in prediction.scores],
            "statuses": _statuses(prediction),
            "signature": prediction.signature,
        }
        write_kept(path, kept)
    return Scored(_label(cell), floats(kept["scores"]), kept["statuses"], kept["signature"], cell)


def _statuses(prediction: Prediction) -> dict[str, int]:
    found: dict[str, int] = {}
    for segment in prediction.segments:
        found[segment.status] = found.get(segment.status, 0) + 1
    return found


def _baselines(job: _Job, folder: Path, batch_size: int, not_run: list[NotRun], *, offline: bool) -> Iterator[Scored]:
    for name in job.baselines:
        identity = ["baseline", name, library_versions(name), job.evalset.langs, texts_of(job.evalset)]
        path = folder / "scores" / f"{digest(identity)}.json"
        kept = read_kept(path, {"signature": str, "notes": list}, len(job.evalset.rows))
        if kept is None:
            try:
                found = baseline_scores(name, job.evalset.samples(), batch_size=batch_size, offline=offline)
            except PromptmetricError as error:
                logger.warning("%s on %s is left out: %s", name, job.use.name, error)
                not_run.append(NotRun(f"{name} on {job.use.name}", str(error)))
                continue
            scores = [None if math.isnan(score) else score for score in found.scores]
            kept = {"scores": scores, "signature": found.signature, "notes": list(found.notes)}
            write_kept(path, kept)
        yield Scored(name, floats(kept["scores"]), {}, kept["signature"], notes=tuple(kept["notes"]))


def _imported(
    use: SetUse, evalset: EvalSet, whole: EvalSet, published: EvalSet, not_run: list[NotRun]
) -> Iterator[Scored]:
    """Scores from files, which are for the whole set."""
    wanted = {(row.system, row.segment) for row in evalset.rows}
    rows = [at for at, row in enumerate(whole.rows) if (row.system, row.segment) in wanted]
    for file in dict.fromkeys(use.scores):
        try:
            metrics = read_metrics([file], whole, whole=published)
        except PromptmetricError as error:
            not_run.append(NotRun(f"{file} for {use.name}", str(error)))
            continue
        for metric in metrics:
            values = [metric.values[at] for at in rows]
            yield Scored(metric.name, values, {}, f"file:{metric.path.name}", notes=metric.notes)


def _evaluate(
    job: _Job, columns: Sequence[Scored], draws: int, not_run: list[NotRun], *, progress_bar: bool
) -> Iterator[SetResult]:
    defined = []
    for column in columns:
        if all(map(math.isnan, column.scores)):
            not_run.append(NotRun(f"{column.label} on {job.use.name}", "no score could be read from any answer"))
        else:
            defined.append(MetricScores(column.label, column.scores, Path(job.use.name), column.notes))
    if not defined:
        return
    whole = (len(job.whole.segments), len(job.whole.rows))
    for aspect in job.use.aspects or (job.evalset.aspects[0],):
        human = job.evalset.human(aspect)
        try:
            found = meta_evaluate(
                job.evalset,
                defined,
                aspect=aspect,
                draws=draws,
                missing="drop",
                most_tested=min(MOST_TESTED, affordable(human, usual_tested(human))),
                progress_bar=progress_bar,
            )
        except PromptmetricError as error:
            not_run.append(NotRun(f"the evaluation on {job.use.name} by {aspect}", str(error)))
        else:
            yield SetResult(job.run.title, job.use, job.evalset, whole, tuple(columns), found)
