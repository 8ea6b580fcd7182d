"""Progress on stderr for whatever takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

PATIENCE = 2.0
"""Seconds before anything is shown."""

LONGEST_SILENCE = 60.0
"""Seconds between two lines where stderr is no terminal; the first ones come sooner."""


class Progress:
    """Counts what is done: a bar on a terminal, now and then a line elsewhere, nothing where it is over quickly.

    Args:
        total: how many there are.
        what: what is counted, in the plural and the past: "segments scored".
        shown: False shows nothing.
    """

    def __init__(self, total: int, what: str = "segments scored", *, shown: bool = True) -> None:
        self._total = total
        self._what = what
        self._shown = shown
        self._done = 0
        self._printed = 0
        self._start = time.monotonic()
        self._pause = PATIENCE
        self._next = self._start + PATIENCE
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        return self

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done)
        elif self._shown and time.monotonic() >= self._next:
            self._show()

    def _show(self) -> None:
        if sys.stderr.isatty():
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task(self._what, total=self._total, completed=self._done)
            self._bar.start()
        else:
            self._print()
            self._pause = min(2 * self._pause, LONGEST_SILENCE)
            self._next = time.monotonic() + self._pause

    def _print(self) -> None:
        seconds = time.monotonic() - self._start
        print(f"{self._done} of {self._total} {self._what} in {seconds:.0f} s", file=sys.stderr)
        self._printed = self._done

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif 0 < self._printed < self._done:
            self._print()
