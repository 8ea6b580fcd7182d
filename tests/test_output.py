"""Where results go: streams, and files that are replaced in one step."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from promptmetric.cli.output import check_output, deliver, is_stream, open_stream
from promptmetric.errors import InputError, PromptmetricError
from promptmetric.report.predictions import JsonLines, format_predictions
from promptmetric.types import Prediction, Segment

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


def failed(index: int) -> Segment:
    return Segment(index, math.nan, None, "failed", reason="no score")


def write_and_fail(output: Path, text: str, first: Callable[[], None] = lambda: None) -> None:
    with open_stream(str(output)) as write:
        write(text)
        first()
        raise KeyError("the run's own")


def places(lines: list[str]) -> list[tuple[str, int | None]]:
    found = [json.loads(line) for line in "".join(lines).splitlines()]
    return [(line["file"], line.get("segment")) for line in found]


# JSON lines


def test_segments_are_written_as_they_finish_and_say_where_they_belong() -> None:
    written: list[str] = []
    lines = JsonLines(written.append, puts_off=False)
    add = lines.begin({"a": 2, "b": 3})
    order = [4, 1, 2, 0, 3]
    expected = {0: ("a", 0), 1: ("a", 1), 2: ("b", 0), 3: ("b", 1), 4: ("b", 2)}
    for count, place in enumerate(order, 1):
        add(failed(place) if place == 2 else Segment(place, 0.5, 50.0, "ok"))
        assert places(written) == [expected[place] for place in order[:count]]


def test_imputed_segments_follow_in_input_order_and_then_systems() -> None:
    written: list[str] = []
    lines = JsonLines(written.append, puts_off=True)
    add = lines.begin({"a": 2, "b": 2})
    for segment in (failed(2), Segment(3, 0.6, 60.0, "ok"), failed(0), Segment(1, 0.4, 40.0, "ok")):
        add(segment)
    assert places(written) == [("b", 1), ("a", 1)]
    imputed = {
        "a": [Segment(0, 0.5, None, "imputed"), Segment(1, 0.4, 40.0, "ok")],
        "b": [Segment(0, 0.5, None, "imputed"), Segment(1, 0.6, 60.0, "ok")],
    }
    predictions = {name: Prediction.from_segments(segments, "signed") for name, segments in imputed.items()}
    lines.finish(predictions)
    assert places(written) == [("b", 1), ("a", 1), ("a", 0), ("b", 0), ("a", None), ("b", None)]
    whole = format_predictions(predictions, "jsonl")
    assert sorted("".join(written).splitlines()) == sorted(whole.splitlines())
    assert places([whole]) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", None), ("b", None)]


# Streams


@needs_pipes
def test_a_named_pipe_is_opened_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    assert is_stream(str(pipe))
    with open_stream(str(pipe)) as write:
        for line in ("", "one\n", "two\n", "three\n"):
            write(line)
    reader.join(10)
    assert got == ["one\ntwo\nthree\n"]
    assert pipe.is_fifo()


@needs_pipes
def test_a_pipe_whose_reader_left_is_no_failure_of_ours(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with open_stream(str(pipe)) as write:
        write("one\n")
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            write("two\n")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device that is always full")
def test_a_full_device_is_told_once() -> None:
    with pytest.raises(PromptmetricError, match="/dev/full: cannot be written: No space left"):  # noqa: SIM117
        with open_stream("/dev/full") as write:
            write("one\n")


# Files


def test_a_part_can_be_watched_and_goes_in_the_end(tmp_path: Path) -> None:
    part, target = tmp_path / "out.part", tmp_path / "out"
    part.write_text("of a run that was killed", encoding="utf-8")
    assert not is_stream(str(target))
    with open_stream(str(target)) as write:
        assert part.read_text(encoding="utf-8") == "of a run that was killed"
        write("")
        assert part.read_text(encoding="utf-8") == ""
        write("one\n")
        assert part.read_text(encoding="utf-8") == "one\n"
        deliver("all\n", str(target))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert target.read_text(encoding="utf-8") == "all\n"


def test_a_part_stays_after_an_error_where_something_is_in_it(tmp_path: Path) -> None:
    for text in ("", "one\n"):
        with pytest.raises(KeyError, match="the run's"):
            write_and_fail(tmp_path / "out", text)
        assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == [text][: len(text)]


def test_a_part_that_somebody_takes_away_hides_no_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="the run's"):
        write_and_fail(tmp_path / "out", "one\n", (tmp_path / "out.part").unlink)


def test_two_runs_do_not_share_a_part(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    target, part = str(tmp_path / "out"), tmp_path / "out.part"
    with open_stream(target) as first:
        first("one\n")
        with pytest.raises(InputError, match="out: another run is writing it"), open_stream(target) as second:
            second("")
        first("two\n")
        assert part.read_text(encoding="utf-8") == "one\ntwo\n"
    with open_stream(target) as third:
        third("three\n")


def test_a_part_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out.part").mkdir()
    with (
        pytest.raises(PromptmetricError, match=r"out\.part: cannot be written: Is a directory"),
        open_stream(str(tmp_path / "out")) as write,
    ):
        write("")


def test_neither_a_file_nor_its_part_may_be_an_input(tmp_path: Path) -> None:
    source = tmp_path / "data.jsonl.part"
    source.touch()
    with pytest.raises(InputError, match=r"data\.jsonl\.part: is also an input"):
        check_output(str(tmp_path / "data.jsonl"), [str(source), None])
    with pytest.raises(InputError, match=r"data\.jsonl\.part: is also an input"):
        check_output(str(source), [str(source)])
    check_output(str(tmp_path / "other.jsonl"), [str(source)])
    check_output(None, [str(source)])
