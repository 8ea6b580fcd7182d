"""Several GPUs: one process with an engine of its own for each, and the questions dealt to them in pieces.

A worker lives as long as its pipe. Whatever ends the parent, be it `close`, Ctrl-C or kill -9, closes the pipe, and the
worker then frees its engine and ends. It leads a process group, so that what its engine started goes with it.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import queue
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise, takewhile
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from promptmetric.backends.base import AlikeForAllKinds, Backend, Fingerprint, answer
from promptmetric.errors import BackendError, InputError, PromptmetricError
from promptmetric.questions import Question

logger = logging.getLogger("promptmetric")

FULL_PIECE = 256  # questions that keep an engine full; pieces are only smaller where every worker gets fewer
PIECES_PER_WORKER = 4  # so that at the end no worker waits long for another
GRACE = 10.0  # seconds a worker has for freeing its engine before it is killed


@dataclass(eq=False, slots=True)
class _Piece:
    """Questions for one worker, by position; those answered are taken out. `lost_with` says who died on them."""

    questions: dict[int, Question]
    lost_with: str = ""


@dataclass(eq=False, slots=True)
class _Worker:
    """The parent's view of a worker."""

    name: str
    process: SpawnProcess
    connection: Connection
    fingerprint: Fingerprint | None = None
    piece: _Piece | None = None
    reason: str = ""


class PoolBackend(AlikeForAllKinds):
    """The same model in several processes, each on its own device.

    Answers do not depend on how many workers there are, so the fingerprint is that of a single one. Where answering
    ends early (an error, Ctrl-C, answers not taken to their end) the workers end too; later questions start new ones.

    Args:
        open_worker: opens the backend of the worker with this number, in the worker's process. It must be picklable:
            a function of a module, or a `functools.partial` of one.
        workers: how many.
        devices: what each worker finds in CUDA_VISIBLE_DEVICES; None takes those of this process in turn.

    Raises:
        InputError: there are fewer devices than workers.
        BackendError: no worker could start, or they differ in model or engine. What `open_worker` raises comes through.
    """

    def __init__(
        self, open_worker: Callable[[int], Backend], workers: int, *, devices: Sequence[str] | None = None
    ) -> None:
        usable = _visible_devices(workers) if devices is None else devices
        if len(usable) < workers:
            raise InputError(
                f"{workers} GPUs were asked for, but only {len(usable)} may be used: {', '.join(usable) or 'none'}.",
                hint="Ask for fewer (--gpus), or name more in CUDA_VISIBLE_DEVICES.",
            )
        self._open_worker = open_worker
        self._devices = usable[:workers]
        self._workers: list[_Worker] = []
        self._deaths: list[str] = []
        self._told: set[str] = set()
        # At exit, multiprocessing waits for the workers, and these wait for their pipes to close: that comes first.
        self._finish = weakref.finalize(self, _end, self._workers)
        atexit.register(self._finish)
        self._fingerprint = self._open()

    def fingerprint(self) -> Fingerprint:
        """That of every worker."""
        return self._fingerprint

    def close(self) -> None:
        """End the workers."""
        self._finish()
        atexit.unregister(self._finish)

    def _open(self) -> Fingerprint:
        """Start the workers and wait until all are ready."""
        self._deaths.clear()
        try:
            for number, device in enumerate(self._devices):
                self._workers.append(_start(number, device))
                _send(self._workers[-1], self._open_worker)
            while not self._workers or any(worker.fingerprint is None for worker in self._workers):
                for worker, kind, content in self._messages():
                    if kind == "ready":
                        worker.fingerprint = content
            fingerprints = {worker.fingerprint: worker.name for worker in self._workers if worker.fingerprint}
            if len(fingerprints) > 1:
                engines = "; ".join(f"{name} runs {mark}" for mark, name in fingerprints.items())
                raise BackendError(f"the workers differ: {engines}.", hint="Is there a GPU of one kind for each?")
            return next(iter(fingerprints))
        except BaseException:
            _end(self._workers)
            raise

    def _answer(self, questions: Sequence[Question], batch_size: int) -> Iterator[tuple[int, Any]]:
        if not self._finish.alive:
            raise BackendError("the workers were closed.")
        if any(worker.piece for worker in self._workers):
            raise BackendError("the workers are answering already.", hint="Take or drop the earlier answers first.")
        if not questions:
            return
        try:
            if not self._workers:
                self._fingerprint = self._open()
            yield from self._deal(list(_cut(questions, len(self._workers))), batch_size)
        except BaseException:
            _end(self._workers)
            raise

    def _deal(self, pieces: list[_Piece], batch_size: int) -> Iterator[tuple[int, Any]]:
        """The next piece to whoever is free, until all are answered."""
        while pieces or any(worker.piece for worker in self._workers):
            for worker in self._workers:
                if pieces and worker.piece is None:
                    worker.piece = pieces.pop(0)
                    _send(worker, (worker.piece.questions, batch_size))
            for worker, kind, content in self._messages():
                piece = worker.piece
                if piece is None:
                    continue
                if kind == "answer" and piece.questions.pop(content[0], None) is not None:
                    yield content
                elif kind == "done":
                    worker.piece = None
                    if piece.questions:
                        raise BackendError(f"{worker.name} left {len(piece.questions)} questions unanswered.")
                elif kind == "died" and piece.questions:
                    if piece.lost_with:
                        deaths = f"{piece.lost_with}; {self._deaths[-1]}"
                        raise BackendError(
                            f"two workers died on the same questions ({len(piece.questions)}): {deaths}.",
                            hint="If memory ran out, a smaller batch size helps; else see what they wrote above.",
                        )
                    pieces.insert(0, _Piece(piece.questions, lost_with=self._deaths[-1]))

    def _messages(self) -> Iterator[tuple[_Worker, str, Any]]:
        """What the workers say next. Errors are raised, warnings logged, and the dead reported and dropped."""
        if not self._workers:
            raise BackendError(
                f"no worker is left: {'; '.join(self._deaths)}.",
                hint="What they wrote above may say why. A script must do its work under `if __name__ == '__main__':`.",
            )
        ready = wait([worker.connection for worker in self._workers])
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            try:
                kind, content = worker.connection.recv()
            except (EOFError, OSError):
                kind, content = "died", None
                self._report_death(worker)
            if kind == "error":
                raise _rebuilt(*content)
            if kind == "reason":
                worker.reason = f": {content}"
            elif kind == "log" and content not in self._told:
                self._told.add(content)
                logger.warning("%s", content)
            yield worker, kind, content

    def _report_death(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        code = _bury(worker.process, time.monotonic() + GRACE)
        by_signal = f" ({signal.Signals(-code).name})" if code < 0 else ""
        self._deaths.append(f"{worker.name} died with exit code {code}{by_signal}{worker.reason}")
        unanswered = len(worker.piece.questions) if worker.piece else 0
        logger.warning("%s; unanswered: %d, workers left: %d", self._deaths[-1], unanswered, len(self._workers))


def _visible_devices(workers: int) -> list[str]:
    """The devices this process may use: as for CUDA, those before the first invalid one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(workers))))
    return list(takewhile(lambda name: name not in ("", "-1"), map(str.strip, visible.split(","))))


def _cut(questions: Sequence[Question], workers: int) -> Iterator[_Piece]:
    """Cut questions into pieces near the even places, there where neighbours share least: between two sources."""
    total = len(questions)
    size = max(math.ceil(total / workers / PIECES_PER_WORKER), min(FULL_PIECE, math.ceil(total / workers)))
    reach = min(size, FULL_PIECE) // 4
    cuts = [0]
    for even in range(size, total, size):
        near = range(even - reach, min(even + reach + 1, total))
        cuts.append(min((_shared(*questions[cut - 1 : cut + 1]), abs(cut - even), cut) for cut in near)[-1])
    for start, end in pairwise([*cuts, total]):
        yield _Piece({position: questions[position] for position in range(start, end)})


def _shared(*neighbours: Question) -> int:
    """How many characters their prompts begin with alike."""
    prompts = [question.prompt for question in neighbours]
    texts = [text if isinstance(text, str) else "\n".join(turn.content for turn in text) for text in prompts]
    return len(os.path.commonprefix(texts))  # noqa: RUF071  (texts, not paths)


def _rebuilt(kind: type[PromptmetricError], message: str, hint: str | None) -> PromptmetricError:
    """A worker's error. Some kinds make up their message themselves, so it is put in from outside."""
    error = kind.__new__(kind)
    PromptmetricError.__init__(error, message, hint=hint)
    return error


def _start(number: int, device: str) -> _Worker:
    context = get_context("spawn")  # CUDA does not survive a fork
    ours, theirs = context.Pipe()
    # Not a daemon, as those may not start the processes that some engines need.
    process = context.Process(target=_work, args=(theirs, number, device), daemon=False)
    process.start()
    theirs.close()  # so that ours ends when the worker does
    return _Worker(f"worker {number} (GPU {device})", process, ours)


def _send(worker: _Worker, content: object) -> None:
    with suppress(OSError):  # it is dead: its pipe will say so in a moment
        worker.connection.send(content)


def _end(workers: list[_Worker]) -> None:
    ending = workers.copy()
    workers.clear()  # first: a second Ctrl-C may cut the rest short, and nobody shall ask them again
    for worker in ending:
        worker.connection.close()
    deadline = time.monotonic() + GRACE
    for worker in ending:
        _bury(worker.process, deadline)


def _bury(process: SpawnProcess, deadline: float) -> int:
    """Wait for a process to end, kill what is left of its group, and return its exit code."""
    while process.is_alive() and time.monotonic() < deadline:  # `join` would also wait for what the engine forked
        time.sleep(0.01)
    if process.pid:  # killpg(0) would be ourselves
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()
    code = process.exitcode or 0
    process.close()
    return code


def _work(connection: Connection, number: int, device: str) -> None:
    """What a worker does: open its backend, answer pieces, tell the parent."""
    os.setpgrp()
    os.environ["CUDA_VISIBLE_DEVICES"] = device  # before the backend's module is imported, which may import torch
    os.register_at_fork(after_in_child=connection.close)  # else an engine's process would keep it open
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that the engine is closed
    speaking = threading.Lock()

    def tell(kind: str, content: Any) -> None:
        with speaking, suppress(OSError):  # the parent is gone: that ends this process in a moment
            connection.send((kind, content))

    def forward(record: logging.LogRecord) -> bool:
        tell("log", record.getMessage())
        return False

    logger.setLevel(logging.WARNING)
    logger.addFilter(forward)
    try:
        open_worker = connection.recv()
        inbox: queue.SimpleQueue[tuple[dict[int, Question], int]] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
        with closing(open_worker(number)) as backend:
            tell("ready", backend.fingerprint())
            while True:
                questions, batch_size = inbox.get()
                positions = list(questions)
                for index, new in answer(backend, list(questions.values()), batch_size):
                    tell("answer", (positions[index], new))
                tell("done", None)
    except PromptmetricError as error:
        tell("error", (type(error), error.args[0], error.hint))
    except Exception as error:
        tell("reason", f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
        raise


def _listen(connection: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    """Pass on what the parent sends, even while the engine computes; when the parent is gone, end everything."""
    with suppress(EOFError, OSError):
        while True:
            inbox.put(connection.recv())
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)
