"""What a process writes to standard error stays standard error, and the log has both streams, in order."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from launcher.processes.buffer import CHUNK, Buffer
from tests.support.outputs import MEBIBYTE, Case, body, numbered, reading_end
from tests.support.supervising import run, until


def ends_with(received: Callable[[], bytes], line: bytes) -> bool:
    return received().endswith(line)


def test_standard_output_and_standard_error_stay_apart_and_both_are_in_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with reading_end() as (stdout, read), reading_end() as (stderr, read_errors):
            case = Case(stdout=stdout, stderr=stderr)
            log = case.set_folder(tmp_path)
            for number in range(200):  # one line after the other, each only when the one before it has arrived
                stream, pipe, received = (
                    ("out", case.writer.pipe, read) if number % 3 else ("err", case.writer.errors, read_errors)
                )
                line = f"{stream} {number}\n".encode()
                os.write(pipe, line)
                await until(partial(ends_with, received, line))
            assert await case.finish() == 0
            lines = [b"%s %d" % (b"out" if number % 3 else b"err", number) for number in range(200)]
            assert body(log).splitlines() == lines
            assert read().splitlines() == [line for line in lines if line.startswith(b"out")]
            assert read_errors().splitlines() == [line for line in lines if line.startswith(b"err")]
            assert "\n".join(case.output.tail()).encode().splitlines() == lines[-20:]

    run(test())


def test_no_line_is_cut_or_lost_while_both_streams_are_written_as_fast_as_possible(tmp_path: Path) -> None:
    lines = [b"o" + line for line in numbered(3 * MEBIBYTE).splitlines(keepends=True)]
    errors = [b"e" + line for line in numbered(2 * MEBIBYTE).splitlines(keepends=True)]

    def write(pipe: int, data: bytes) -> None:
        size = 250 * len(lines[0])  # whole lines that a pipe takes at once, below PIPE_BUF
        for begin in range(0, len(data), size):
            os.write(pipe, data[begin : begin + size])

    async def test() -> None:
        async with reading_end() as (stdout, read), reading_end() as (stderr, read_errors):
            case = Case(stdout=stdout, stderr=stderr)
            log = case.set_folder(tmp_path)
            pairs = ((case.writer.pipe, b"".join(lines)), (case.writer.errors, b"".join(errors)))
            for pair in pairs:
                threading.Thread(target=write, args=pair, daemon=True).start()
            sizes = [len(data) for _, data in pairs]
            await until(lambda: [len(read()), len(read_errors())] == sizes)
            assert await case.finish() == 0
            assert (read(), read_errors()) == tuple(data for _, data in pairs)
            assert (
                b"".join(line for line in body(log).splitlines(keepends=True) if line.startswith(b"o")) == pairs[0][1]
            )
            assert (
                b"".join(line for line in body(log).splitlines(keepends=True) if line.startswith(b"e")) == pairs[1][1]
            )

    run(test())


def test_the_last_lines_have_the_error_although_older_lines_of_standard_output_are_read_after_it(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with reading_end() as (stdout, read), reading_end() as (stderr, read_errors):
            case = Case(stdout=stdout, stderr=stderr)
            case.set_folder(tmp_path)
            os.write(case.writer.errors, b"Traceback\nValueError: why\n")
            await until(lambda: read_errors().endswith(b"why\n"))
            for batch in range(40):  # more than all lines that are kept
                os.write(case.writer.pipe, b"".join(b"out %06d\n" % (1000 * batch + at) for at in range(1000)))
            await until(lambda: read().endswith(b"out 039999\n"))
            assert case.output.tail()[-3:] == ("out 039999", "Traceback", "ValueError: why")
            assert len(case.output.tail()) == 20
            assert case.output.recent_lines()[-1] == "ValueError: why"
            await asyncio.sleep(1.1)  # the age of a line that does not belong to a death
            os.write(case.writer.pipe, b"later\n")
            await until(lambda: read().endswith(b"later\n"))
            assert case.output.tail()[-2:] == ("out 039999", "later")
            assert await case.finish() == 0

    run(test())


def test_streams_that_lead_to_the_same_file_share_a_pipe_so_that_their_order_is_exact(tmp_path: Path) -> None:
    async def test() -> None:
        async with reading_end() as (stdout, read):
            case = Case(stdout=stdout, stderr=os.dup(stdout))
            log = case.set_folder(tmp_path)
            for number in range(1000):
                os.write((case.writer.pipe, case.writer.errors)[number % 2], b"%d\n" % number)
            await until(lambda: read().endswith(b"999\n"))
            assert await case.finish() == 0
            assert read() == body(log) == b"".join(b"%d\n" % number for number in range(1000))

    run(test())


@pytest.mark.parametrize("closed", ["standard output", "standard error"])
def test_a_closed_stream_does_not_stop_the_other_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, closed: str
) -> None:
    async def test() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        async with reading_end() as (other, read):
            fds = (writing, other) if closed == "standard output" else (other, writing)
            case = Case(stdout=fds[0], stderr=fds[1], format_line=lambda line: b"> " + line + b"\n")
            log = case.set_folder(tmp_path)
            pipes = [case.writer.pipe, case.writer.errors]
            to_closed, to_other = pipes if closed == "standard output" else reversed(pipes)
            os.write(to_closed, b"one\n")
            await until(lambda: caplog.messages)
            for line in (b"two\n", b"three\n"):
                os.write(to_closed, b"lost\n")
                os.write(to_other, line)
            await until(lambda: read() == b"> two\n> three\n")
            assert await case.finish() == 0
            assert sorted(body(log).splitlines()) == [b"lost", b"lost", b"one", b"three", b"two"]
            assert caplog.messages == [f"{closed} is closed: lines go to the log file only"]
        os.close(writing)

    run(test())


def test_lines_of_both_streams_are_formatted(tmp_path: Path) -> None:
    async def test() -> None:
        async with reading_end() as (stdout, read), reading_end() as (stderr, read_errors):
            case = Case(stdout=stdout, stderr=stderr, format_line=lambda line: b"> " + line + b"\n")
            case.set_folder(tmp_path)
            os.write(case.writer.pipe, b"half of")
            os.write(case.writer.errors, b"an error\nno end")
            await until(lambda: read_errors() == b"> an error\n")
            os.write(case.writer.pipe, b" a line\n")
            await until(lambda: read() == b"> half of a line\n")
            assert await case.finish() == 0
            assert read_errors() == b"> an error\n> no end\n"

    run(test())


def test_many_changes_between_the_streams_take_bounded_memory() -> None:
    buffer = Buffer(16 * MEBIBYTE, spare=0)
    everything, apart = buffer.cursor(), buffer.cursor()
    sent = 0
    stop, dead = threading.Event(), threading.Event()
    dead.set()
    while (memory := buffer.reserve(stop, dead)) is not None:
        memory[:1] = b"x"
        buffer.commit(1, sent % 2)
        sent += 1
    assert sent < 16 * MEBIBYTE / CHUNK * 1100
    buffer.close(everything)
    for number in range(sent):
        part = buffer.next_part(apart, CHUNK)
        assert part is not None
        assert (bytes(part[0]), part[1]) == (b"x", number % 2)
        buffer.advance(apart, 1)


def of_program(text: str) -> list[str]:
    return re.findall(r"^(?:out|error) \d$", text, re.MULTILINE)


@pytest.mark.parametrize("redirect", [True, False])
def test_a_program_that_run_starts_has_two_streams(tmp_path: Path, redirect: bool) -> None:
    script = "for n in 1 2 3; do echo out $n; echo error $n >&2; done"
    command = [sys.executable, "-m", "launcher", "run", "--", "sh", "-c", script]
    given = {"PATH": os.environ["PATH"], "LAUNCHER_WORKDIR": str(tmp_path), "HOME": str(tmp_path)}
    into = subprocess.PIPE if redirect else subprocess.STDOUT
    ended = subprocess.run(command, env=given, stdout=subprocess.PIPE, stderr=into, text=True, timeout=60, check=True)
    in_order = [f"{stream} {number}" for number in (1, 2, 3) for stream in ("out", "error")]
    if redirect:
        assert of_program(ended.stdout) == ["out 1", "out 2", "out 3"]
        assert of_program(ended.stderr) == ["error 1", "error 2", "error 3"]
        (log,) = tmp_path.glob("output/*/train.log")
        assert sorted(of_program(log.read_text())) == sorted(in_order)
    else:
        assert of_program(ended.stdout) == in_order
