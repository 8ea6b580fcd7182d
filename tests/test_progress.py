"""Progress: nothing when quick, a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from promptmetric.execution import Progress, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(total: int, *, shown: bool = True) -> None:
    with Progress(total, shown=shown) as counter:
        for _ in range(total):
            counter.advance()


def test_quick_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    run(100)
    assert capsys.readouterr() == ("", "")


def test_slow_work_prints_lines_ever_more_rarely(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    run(100)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("2 of 100 segments scored in ")
    assert 3 <= len(lines) <= 8
    assert lines[-1].startswith("100 of 100 segments scored in ")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    run(3)
    assert "segments scored" in terminal.getvalue()


def test_hidden_progress_stays_hidden(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    run(3, shown=False)
    assert capsys.readouterr() == ("", "")
