"""Several questions at once, each in a thread that is left behind when the run ends before its answer comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_Q = TypeVar("_Q")
_A = TypeVar("_A")

_thread = threading.local()
"""`stop` of the run that a thread works for."""


def at_once(answer: Callable[[_Q], _A], questions: Sequence[_Q], threads: int) -> Iterator[tuple[int, _A]]:
    """Answer questions, several at once.

    Threads die with the process: Ctrl-C must not wait minutes for an answer that nobody will read, as it would with
    a ThreadPoolExecutor. Questions are handed out as answers are taken, at most `2 * threads` ahead of them.

    Args:
        answer: answers one question.
        questions: what to ask.
        threads: how many to ask at once.

    Yields:
        A question's position and its answer, as they come.

    Raises:
        Exception: whatever `answer` first raises. From then on no more is asked, but what is under way still counts.
    """
    todo: SimpleQueue[tuple[int, _Q] | None] = SimpleQueue()
    done: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
    stop = threading.Event()

    def work() -> None:
        _thread.stop = stop
        while (item := todo.get()) is not None:
            position, question = item
            try:
                done.put((position, answer(question), None))
            except BaseException as error:  # noqa: BLE001 (raised again where the answers are taken)
                done.put((position, None, error))

    workers = min(threads, len(questions))
    for _ in range(workers):
        threading.Thread(target=work, name="promptmetric", daemon=True).start()
    waiting = iter(enumerate(questions))
    under_way = 0
    failure: BaseException | None = None
    try:
        while True:
            if failure is None:  # twice as many as are asked at once, so that no thread waits for our reader
                for item in islice(waiting, 2 * threads - under_way):
                    todo.put(item)
                    under_way += 1
            if not under_way:
                break
            position, given, error = done.get()
            under_way -= 1
            if error is None:
                yield position, given
            elif failure is None:
                failure = error
                stop.set()
                under_way -= _emptied(todo)
        if failure is not None:
            raise failure
    finally:
        stop.set()
        _emptied(todo)
        for _ in range(workers):
            todo.put(None)


def run_is_over() -> bool:
    """Whether the run that this thread works for has ended."""
    stop: threading.Event | None = getattr(_thread, "stop", None)
    return stop is not None and stop.is_set()


def rest_of_run(seconds: float) -> bool:
    """Wait, but not beyond the end of the run that this thread works for. Whether it has ended."""
    stop: threading.Event | None = getattr(_thread, "stop", None)
    if stop is not None:
        return stop.wait(seconds)
    time.sleep(seconds)
    return False


def _emptied(queue: SimpleQueue[Any]) -> int:
    """Take everything out of a queue, and count it."""
    count = 0
    with suppress(Empty):
        while True:
            queue.get_nowait()
            count += 1
    return count
