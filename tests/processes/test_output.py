"""A process's output reaches its log and standard output completely and in order. Passes and last lines are found."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from launcher.model import Numbers
from launcher.paddle.numbers import PERIOD, NumberFinder
from launcher.processes.output import RECENT_BYTES, TAIL_BYTES, TAIL_LINES, PassFinder, Tail
from tests.support.outputs import MEBIBYTE, SHORT_LIMITS, Case, Writer, body, numbered, reading_end
from tests.support.supervising import run, until


def test_output_goes_to_the_log_and_to_standard_output_unchanged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = numbered(300_000) + b"\xff\0 no end of line"

    async def test() -> None:
        async with reading_end() as (stdout, read):
            case = Case(stdout=stdout)
            log = case.set_folder(tmp_path / "job" / "output" / "node_0")
            case.writer.write_in_thread(data)
            await until(lambda: len(read()) == len(data))
            assert await case.finish() == 0
            assert read() == data
            assert body(log) == data
            assert caplog.messages == []

    run(test())


def test_output_before_the_folder_is_known_is_in_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        case = Case()
        case.writer.write(b"early\n")
        log = case.set_folder(tmp_path / "node_3")
        await until(log.exists)
        case.writer.write(b"late\n")
        await case.finish()
        assert body(log) == b"early\nlate\n"

    run(test())


def test_logs_are_appended_and_each_attempt_begins_on_a_new_line(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(b"cut off")

    async def test() -> None:
        case = Case()
        log = case.set_folder(tmp_path)
        case.writer.write(b"again\n")
        await case.finish()
        assert body(log) == b"cut off\nagain\n"

    run(test())


@pytest.mark.parametrize(("folder", "made", "written"), [(0o777, 0o2777, 0o666), (0o750, 0o750, 0o640)])
def test_folders_and_logs_have_the_permissions_of_the_folder_above_them(
    tmp_path: Path, folder: int, made: int, written: int
) -> None:
    async def test() -> None:
        mask = os.umask(0o077)
        try:
            case = Case()
            log = case.set_folder(tmp_path / "output" / "node_0")
            await case.finish()
        finally:
            os.umask(mask)
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (log, log.parent, log.parent.parent)]
        assert modes == [written, made, made]

    tmp_path.chmod(folder)
    run(test())


def test_a_link_in_place_of_a_log_is_not_followed_and_no_output_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another user has replaced the log by a link to a program of the launcher's user."""
    program = tmp_path / "train.sh"
    program.write_text("echo")
    program.chmod(0o700)
    (tmp_path / "node_0").mkdir()
    (tmp_path / "node_0" / "train.log").symlink_to(program)

    async def test() -> None:
        case = Case()
        log = case.set_folder(tmp_path / "node_0")
        case.writer.write(b"line\n")
        assert await case.finish() == 0
        assert body(log) == b"line\n"

    run(test())
    assert (program.read_text(), stat.S_IMODE(program.stat().st_mode)) == ("echo", 0o700)
    assert "train.log is a symbolic link, not a file: renamed to" in caplog.messages[0]


def test_a_link_in_place_of_the_folder_is_not_followed_and_the_output_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "node_0").symlink_to("elsewhere")

    async def test() -> None:
        case = Case(SHORT_LIMITS)
        log = case.set_folder(tmp_path / "node_0")
        case.writer.write(b"line\n")
        await until(lambda: caplog.messages)
        assert f"{tmp_path}/node_0 is a symbolic link, not a folder" in caplog.messages[0]
        assert not list((tmp_path / "elsewhere").iterdir())
        (tmp_path / "node_0").unlink()
        assert await case.finish() == 0
        assert body(log) == b"line\n"

    run(test())


def test_a_second_process_continues_the_same_log(tmp_path: Path) -> None:
    async def test() -> None:
        case = Case()
        log = case.set_folder(tmp_path)
        case.writer.write(b"first try\n")
        case.writer.close()
        await case.output.detach(1)
        case.writer = Writer(case.output)
        case.writer.write(b"second try\n")
        await case.finish()
        assert body(log) == b"first try\nsecond try\n"

    run(test())


def test_a_non_blocking_standard_output_gets_the_same_bytes(tmp_path: Path) -> None:
    data = numbered(MEBIBYTE)

    async def test() -> None:
        async with reading_end() as (stdout, read):
            os.set_blocking(stdout, False)
            case = Case(stdout=stdout)
            case.set_folder(tmp_path)
            case.writer.write_in_thread(data)
            await until(lambda: read() == data)
            await case.finish()

    run(test())


def test_each_new_pass_is_reported_once_even_if_reads_cut_its_number(tmp_path: Path) -> None:
    async def test() -> None:
        case = Case()
        case.set_folder(tmp_path)
        for piece in (b"x] Pa", b"ss=", b"1", b"0 Batch=60\n", b"Pass=10 again\n", b"Pass=11 Pass=12 ", b"Pass=1"):
            before = len(case.passes)
            case.writer.write(piece)
            await case.output.read_rest(5)
            if piece.startswith(b"0 ") or b"12" in piece:
                await until(lambda before=before: len(case.passes) > before)  # type: ignore[misc]
        case.writer.write(b"3\n")
        await until(lambda: case.passes[-1:] == [13])
        assert case.passes == [10, 12, 13]
        await case.finish()

    run(test())


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_pass_number_is_found_wherever_reads_are_cut(cut: int) -> None:
    line = bytearray(b"0123456789 Pass=1234567 Batch=60 samples=3000")
    passes = PassFinder(b"Pass=")
    found = [passes.last_in(line, 0, cut), passes.last_in(line, cut, len(line))]
    assert [number for number in found if number is not None] == [1234567]
    assert passes.at == 11, "where the mark is"


@pytest.mark.parametrize("text", [b"Pass=", b"Pass=x ", b"Pass= 3 ", b"Pass=" + b"9" * 5000 + b" ", b"Pas=3 "])
def test_similar_text_is_no_pass(text: bytes) -> None:
    passes = PassFinder(b"Pass=")
    assert passes.last_in(bytearray(text), 0, len(text)) is None


def test_the_newest_numbers_are_reported_a_few_times_per_second_and_at_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        case = Case()
        case.set_folder(tmp_path)
        begun = time.monotonic()
        for step in range(300):
            case.writer.write(b"global_step: %d, loss: 0.5\n" % step)
            await asyncio.sleep(0.001)
        took = time.monotonic() - begun
        await until(lambda: case.numbers[-1:] == [Numbers(step=299, loss=0.5)])
        assert len(case.numbers) <= 2 + took / PERIOD
        case.writer.write(b"loss: 0.25")
        await case.output.read_rest(5)
        await until(lambda: case.numbers[-1].loss == 0.25)
        await case.finish()

    run(test())


def test_the_numbers_of_a_pass_are_reported_before_much_other_output(tmp_path: Path) -> None:
    async def test() -> None:
        case = Case()
        case.set_folder(tmp_path)
        case.writer.write(b"loss: 0.5\n")
        await until(lambda: case.numbers)
        case.writer.write_in_thread(b"Pass=3 Batch=60 loss=0.125\n" + numbered(4 * MEBIBYTE) + b"the end\n")
        await until(lambda: case.output.tail()[-1:] == ("the end",))
        await until(lambda: case.passes == [3])
        assert case.numbers[-1] == Numbers(pass_number=3, step=60, loss=0.125)
        await case.finish()

    run(test())


def test_an_output_without_numbers_does_not_wake_up_while_it_is_silent(tmp_path: Path) -> None:
    finder = NumberFinder()
    data = bytearray(b"a line\nthe beginning of a line")
    finder.newest_in(data, 0, len(data))
    assert finder.due_in() is None


def tail_of(*pieces: bytes) -> tuple[str, ...]:
    tail = Tail()
    for piece in pieces:
        tail.add(bytearray(piece), 0, len(piece))
    return tail.lines()


def test_the_tail_is_the_last_lines() -> None:
    assert tail_of() == ()
    assert tail_of(b"one\ntw", b"o\nthree") == ("one", "two", "three")
    assert tail_of(*(b"%d\n" % number for number in range(100))) == tuple(str(n) for n in range(80, 100))
    assert len(tail_of(b"x\n" * 100)) == TAIL_LINES


@pytest.mark.parametrize(
    "data",
    [b"x" * 10000, b"\xff" * 10000, "ü".encode() * 5000 + b"\n", b"short\n" + b"y" * 2040 + b"\nend\n"],
    ids=["one line", "no text", "wide", "a long line before the last"],
)
def test_the_tail_is_bounded_for_any_bytes(data: bytes) -> None:
    lines = tail_of(data)
    assert lines
    assert sum(len(line.encode()) + 1 for line in lines) <= TAIL_BYTES + 1


def test_recent_lines_are_more_than_the_tail() -> None:
    tail = Tail()
    for number in range(20000):
        line = b"a line of some length, number %d\n" % number
        tail.add(bytearray(line), 0, len(line))
    tail.add(bytearray(b"x" * 1000 + b"\n" + b"y\n" * 100), 0, 1201)
    recent = tail.recent_lines()
    assert recent[-101] == "x" * 1000
    assert "a line of some length, number 19000" in recent
    assert sum(len(line) + 1 for line in recent) <= 2 * RECENT_BYTES
    assert tail.lines() == ("y",) * TAIL_LINES


def test_the_tail_has_whole_lines() -> None:
    lines = tail_of(*(b"a line of some length, number %d\n" % number for number in range(1000)))
    assert all(line.startswith("a line of some length, number 9") for line in lines)


# ---- lines for another reader ----------------------------------------------------------------------------------------


def test_each_line_on_standard_output_is_formatted_and_the_log_stays_as_it_is(tmp_path: Path) -> None:
    data = numbered(2_000_000) + b"\xff no end of line"

    async def test() -> None:
        async with reading_end() as (stdout, read):
            case = Case(stdout=stdout, format_line=lambda line: b"> " + line + b"\n")
            log = case.set_folder(tmp_path)
            case.writer.write_in_thread(data)
            expected = b"".join(b"> " + line + b"\n" for line in data.split(b"\n"))
            await until(lambda: bool(read()) and case.writer.written == len(data))
            finished = asyncio.ensure_future(case.finish())
            await until(lambda: len(read()) == len(expected))
            assert await finished == 0
            assert read() == expected
            assert body(log) == data

    run(test())


def test_a_formatted_line_is_shown_before_the_next_output_comes(tmp_path: Path) -> None:
    async def test() -> None:
        async with reading_end() as (stdout, read):
            case = Case(stdout=stdout, format_line=lambda line: b"> " + line + b"\n")
            case.set_folder(tmp_path)
            case.writer.write(b"a trainer that hangs\nwithout an end")
            await until(lambda: read() == b"> a trainer that hangs\n")
            assert await case.finish() == 0
            assert read() == b"> a trainer that hangs\n> without an end\n"

    run(test())


def test_a_line_without_an_end_is_shown_in_parts(tmp_path: Path) -> None:
    async def test() -> None:
        async with reading_end() as (stdout, read):
            case = Case(stdout=stdout, format_line=lambda line: b"> " + line + b"\n")
            case.set_folder(tmp_path)
            case.writer.write_in_thread(b"x" * 500_000)
            await until(lambda: bool(read()) and case.writer.written == 500_000)
            finished = asyncio.ensure_future(case.finish())
            await until(lambda: read().count(b"x") == 500_000)
            assert await finished == 0
            assert max(map(len, read().split(b"\n"))) < 100_000

    run(test())


def test_a_line_that_is_too_long_is_divided_between_two_characters(tmp_path: Path) -> None:
    text = "x" + "\N{GRINNING FACE}" * 100_000

    async def test() -> None:
        async with reading_end() as (stdout, read):
            case = Case(stdout=stdout, format_line=lambda line: line + b"\n")
            case.set_folder(tmp_path)
            case.writer.write_in_thread(text.encode() + b"\n")
            await until(lambda: read().count(b"\xf0") == 100_000)
            assert await case.finish() == 0
            lines = read().split(b"\n")
            assert len(lines) > 3
            assert "".join(line.decode() for line in lines) == text

    run(test())


def test_formatted_lines_of_two_processes_are_never_mixed(tmp_path: Path) -> None:
    """A full pipe takes a part of a line. Then the other process must not write the next part."""

    async def test() -> None:
        turn = threading.Lock()
        async with reading_end() as (stdout, read):
            cases = [Case(stdout=stdout, format_line=lambda line: line + b"\n", turns=[turn]) for _ in range(2)]
            lines = [letter * 10_000 for letter in (b"a", b"b")]
            for number, case in enumerate(cases):
                case.set_folder(tmp_path / str(number))
                case.writer.write_in_thread((lines[number] + b"\n") * 100)
            await until(lambda: len(read()) == 2 * 100 * 10_001)
            assert [await case.finish() for case in cases] == [0, 0]
            assert set(read().split(b"\n")) == {*lines, b""}

    run(test())
