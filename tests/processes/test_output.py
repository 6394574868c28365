"""A child's output reaches its log and standard output completely and in order, even if the volume stalls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from launcher.model import Process
from launcher.processes.output import RECENT_BYTES, TAIL_BYTES, TAIL_LINES, Output, PassFinder, Tail
from launcher.processes.sinks import Limits
from tests.support.supervising import (
    freezing_volume,
    grow,
    needs_root,
    program,
    run,
    silent_volume,
    small_volume,
    until,
)

MEBIBYTE = 1024 * 1024
PIECE = 65536
MARK = re.compile(rb"==== \d{4}-\d\d-\d\d \d\d:\d\d:\d\d attempt 1, pod p-0 ====\n")
SHORT_LIMITS = Limits(stall=0.1, retry=0.02)


class Writer:
    """Takes the place of the process: writes to the pipe."""

    def __init__(self, output: Output) -> None:
        self.pipe = output.attach()
        self.written = 0

    def write(self, data: bytes) -> None:
        """Write as a process does: wait while the pipe is full."""
        for begin in range(0, len(data), PIECE):
            self.written += os.write(self.pipe, data[begin : begin + PIECE])

    def write_in_thread(self, data: bytes) -> None:
        threading.Thread(target=self.write, args=(data,), daemon=True).start()

    def close(self) -> None:
        os.close(self.pipe)


class Case:
    """An output with the passes that it has found."""

    def __init__(self, limits: Limits | None = None, stdout: int = 1, process: Process | None = None) -> None:
        self.passes: list[int] = []
        process = process or program("true", echo=stdout != 1, pass_mark=b"Pass=")
        self.output = Output(process, on_pass=self.passes.append, stdout=stdout, limits=limits)
        self.writer = Writer(self.output)

    def set_folder(self, folder: Path) -> Path:
        self.output.set_folder(str(folder), "attempt 1, pod p-0")
        return folder / "train.log"

    async def finish(self, timeout: float = 10) -> int:
        self.writer.close()
        await self.output.detach(1)
        return await self.output.close(timeout)


@contextlib.asynccontextmanager
async def reading_end() -> AsyncIterator[tuple[int, Callable[[], bytes]]]:
    """Yield a pipe for standard output, and a function that reads it and returns all that it has read."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reading, False)
    received = bytearray()

    def read() -> bytes:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(reading, MEBIBYTE):
                received.extend(data)
        return bytes(received)

    try:
        yield writing, read
    finally:
        for fd in (reading, writing):
            with contextlib.suppress(OSError):
                os.close(fd)


def numbered(size: int) -> bytes:
    """Return lines that are all different, so that a lost, repeated or moved line is noticed."""
    return b"".join(b"line %07d\n" % number for number in range(size // 13))


def body(log: Path) -> bytes:
    """Return the log without the line that marks the attempt, which must be there once."""
    content = log.read_bytes()
    assert len(MARK.findall(content)) == 1
    return MARK.sub(b"", content)


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


def test_another_user_can_write_the_same_files_next_time(tmp_path: Path) -> None:
    async def test() -> None:
        mask = os.umask(0o077)
        try:
            case = Case()
            log = case.set_folder(tmp_path / "output" / "node_0")
            await case.finish()
        finally:
            os.umask(mask)
        assert stat.S_IMODE(log.stat().st_mode) == 0o666
        assert stat.S_IMODE(log.parent.stat().st_mode) == 0o777
        assert stat.S_IMODE(log.parent.parent.stat().st_mode) == 0o777

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


def test_a_stalled_standard_output_does_not_delay_the_log_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = numbered(4 * MEBIBYTE)

    async def test() -> None:
        async with reading_end() as (stdout, read):
            case = Case(SHORT_LIMITS, stdout=stdout)
            log = case.set_folder(tmp_path)
            case.writer.write_in_thread(data)
            await until(lambda: log.exists() and log.read_bytes().endswith(data))
            await until(lambda: caplog.messages)
            assert re.match(r"standard output has not taken a write for \d+ s; \d+ bytes wait$", caplog.messages[0])
            await until(lambda: read() == data)
            await until(lambda: "standard output takes writes again" in caplog.messages)
            assert await case.finish() == 0

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


def test_a_closed_standard_output_is_dropped_with_one_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        case = Case(stdout=writing)
        log = case.set_folder(tmp_path)
        case.writer.write(b"one\n")
        await until(lambda: caplog.messages)
        case.writer.write(b"two\n")
        assert await case.finish() == 0
        assert body(log) == b"one\ntwo\n"
        assert caplog.messages == ["standard output is closed: lines go to the log file only"]
        os.close(writing)

    run(test())


def test_16_mebibytes_of_a_childs_output_may_wait() -> None:
    assert Limits().memory == 16 * MEBIBYTE


def test_a_stalled_log_does_not_delay_standard_output_until_the_memory_is_full_and_then_the_child_waits() -> None:
    data = numbered(6 * MEBIBYTE)

    async def test() -> None:
        async with reading_end() as (stdout, read):
            case = Case(Limits(memory=4 * MEBIBYTE), stdout=stdout)  # its folder is unknown: the log takes nothing
            case.writer.write_in_thread(data)
            await until(lambda: case.writer.written >= 4 * MEBIBYTE - PIECE)  # 3 in memory, 1 in the pipe
            await until(lambda: len(read()) == 3 * MEBIBYTE)
            await asyncio.sleep(0.05)
            assert len(read()) == 3 * MEBIBYTE, "the rest of the memory is for the last output of a dead child"
            assert case.writer.written <= 4 * MEBIBYTE
            case.output.set_folder(None, "")  # no log is wanted after all
            await until(lambda: len(read()) == len(data))
            assert read() == data
            assert await case.finish() == 0

    run(test())


def test_the_last_lines_of_a_dead_child_are_read_though_nothing_is_written(caplog: pytest.LogCaptureFixture) -> None:
    data = numbered(3 * MEBIBYTE + MEBIBYTE // 2)

    async def test() -> None:
        case = Case(Limits(memory=4 * MEBIBYTE))
        case.writer.write_in_thread(data)
        await until(lambda: case.writer.written == len(data))  # the last of it is still in the pipe
        await case.output.read_rest(5)
        assert case.output.tail()[-1] == data.splitlines()[-1].decode()
        assert await case.output.close(0) == len(data)
        assert caplog.messages == [f"{len(data)} bytes of output are lost, they could not be written: train.log"]
        case.writer.close()
        await case.output.detach(1)

    run(test())


@needs_root
def test_a_full_volume_is_named_once_and_nothing_is_lost_or_repeated_when_there_is_space_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = numbered(3 * MEBIBYTE)

    async def test() -> None:
        with small_volume(tmp_path / "volume", "1m") as volume:
            ballast = volume / "ballast"
            ballast.write_bytes(bytes(MEBIBYTE // 2))
            case = Case(SHORT_LIMITS)
            log = case.set_folder(volume / "node_0")
            case.writer.write_in_thread(data)
            await until(lambda: caplog.messages)
            assert caplog.messages[0].startswith(f"{log} cannot be written: No space left on device; ")
            half = log.stat().st_size
            assert 0 < half < MEBIBYTE
            await asyncio.sleep(0.05)  # during several attempts
            assert len(caplog.messages) == 1
            ballast.unlink()
            await until(lambda: log.stat().st_size > half)
            grow(volume, "8m")
            assert await case.finish() == 0
            assert body(log) == data
            assert f"{log} is written again" in caplog.messages

    run(test())


@needs_root
def test_output_that_a_full_volume_has_not_taken_is_counted_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = numbered(2 * MEBIBYTE)

    async def test() -> None:
        with small_volume(tmp_path / "volume", "1m") as volume:
            case = Case(SHORT_LIMITS)
            log = case.set_folder(volume)
            case.writer.write_in_thread(data)
            await until(lambda: caplog.messages)
            await until(lambda: case.writer.written == len(data))
            lost = await case.finish(timeout=0.1)
            assert lost == len(data) - len(body(log))
            assert caplog.messages[-1] == f"{lost} bytes of output are lost, they could not be written: {log}"

    run(test())


def test_a_folder_that_cannot_be_made_is_named_and_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocking = tmp_path / "output"
    blocking.write_text("a file where a folder should be")

    async def test() -> None:
        case = Case(SHORT_LIMITS)
        log = case.set_folder(blocking / "node_0")
        case.writer.write(b"kept\n")
        await until(lambda: caplog.messages)
        assert caplog.messages[0].startswith(f"{log} cannot be written: Not a directory")
        blocking.unlink()
        assert await case.finish() == 0
        assert body(log) == b"kept\n"

    run(test())


@needs_root
def test_a_frozen_volume_is_named_while_the_child_continues_and_gets_all_output_when_it_thaws(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = numbered(2 * MEBIBYTE)

    async def test() -> None:
        async with reading_end() as (stdout, read):
            with freezing_volume(tmp_path / "volume") as volume:
                case = Case(SHORT_LIMITS, stdout=stdout)
                log = case.set_folder(volume.folder)
                await until(lambda: log.exists() and log.stat().st_size)
                volume.freeze()
                case.writer.write_in_thread(data)
                await until(lambda: read() == data)
                await until(lambda: caplog.messages)
                assert re.match(rf"{log} has not taken a write for \d+ s; {len(data)} bytes wait$", caplog.messages[0])
                volume.thaw()
                assert await case.finish() == 0
                assert body(log) == data

    run(test())


@needs_root
def test_closing_ends_in_time_when_a_volume_never_answers(tmp_path: Path) -> None:
    async def test() -> None:
        with silent_volume(tmp_path / "volume") as volume:
            case = Case(SHORT_LIMITS)
            case.set_folder(volume / "node_0")
            case.writer.write(b"lost\n")
            assert await case.finish(timeout=0.2) == 5

    run(test())


def test_a_process_that_keeps_the_pipe_open_does_not_delay_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        case = Case()
        log = case.set_folder(tmp_path)
        case.writer.write(b"early\n")
        await case.output.detach(0.1)
        assert await case.output.close(10) == 0
        assert body(log) == b"early\n"
        with pytest.raises(BrokenPipeError):
            case.writer.write(b"too late\n")
        case.writer.close()

    run(test())


def test_a_process_that_writes_without_end_does_not_delay_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = os.open("/dev/zero", os.O_RDWR), os.open("/dev/null", os.O_RDWR)

    async def test() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pipe2", lambda _: endless)
            case = Case()
        case.output.set_folder(None, "")
        await case.output.detach(0.05)
        await case.output.close(10)
        case.writer.close()

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


@pytest.mark.parametrize("text", [b"Pass=", b"Pass=x ", b"Pass= 3 ", b"Pass=" + b"9" * 5000 + b" ", b"Pas=3 "])
def test_similar_text_is_no_pass(text: bytes) -> None:
    passes = PassFinder(b"Pass=")
    assert passes.last_in(bytearray(text), 0, len(text)) is None


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
