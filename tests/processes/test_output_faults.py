"""Output is not lost, and delays no other output, if the volume or standard output stalls or cannot be written."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from launcher.processes.sinks import Limits
from tests.support.outputs import MEBIBYTE, PIECE, SHORT_LIMITS, Case, body, numbered, reading_end
from tests.support.supervising import freezing_volume, grow, needs_root, run, silent_volume, small_volume, until


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
            assert re.match(
                r"a write to standard output has been blocked for \d+ s; \d+ bytes wait$", caplog.messages[0]
            )
            await until(lambda: read() == data)
            await until(lambda: "writes to standard output succeed again, after a stall" in caplog.messages)
            assert await case.finish() == 0

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


def test_up_to_16_mebibytes_of_output_are_kept_in_memory() -> None:
    assert Limits().memory == 16 * MEBIBYTE


def test_a_stalled_log_does_not_delay_standard_output_until_the_memory_is_full() -> None:
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
        lost = f"{len(data)} bytes of output are lost, because they could not be written to train.log"
        assert caplog.messages == [lost]
        case.writer.close()
        await case.output.detach(1)

    run(test())


@needs_root
def test_a_full_volume_is_named_once_and_no_output_is_lost_or_repeated_after_it_has_space(
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
            assert caplog.messages[0].startswith(f"cannot write to {log}: No space left on device; ")
            half = log.stat().st_size
            assert 0 < half < MEBIBYTE
            await asyncio.sleep(0.05)  # during several attempts
            assert len(caplog.messages) == 1
            ballast.unlink()
            await until(lambda: log.stat().st_size > half)
            grow(volume, "8m")
            await until(lambda: case.writer.written == len(data))
            assert await case.finish() == 0
            assert body(log) == data
            assert f"writes to {log} succeed again, after an error" in caplog.messages

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
            message = f"{lost} bytes of output are lost, because they could not be written to {log}"
            assert caplog.messages[-1] == message

    run(test())


def test_a_folder_that_cannot_be_made_is_named_and_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocking = tmp_path / "output"
    blocking.write_text("a file where a folder should be")

    async def test() -> None:
        case = Case(SHORT_LIMITS)
        log = case.set_folder(blocking / "node_0")
        case.writer.write(b"kept\n")
        await until(lambda: caplog.messages)
        assert caplog.messages[0].startswith(f"cannot write to {log}: Not a directory")
        blocking.unlink()
        assert await case.finish() == 0
        assert body(log) == b"kept\n"

    run(test())


@needs_root
def test_a_frozen_volume_is_named_while_the_child_continues_and_has_all_output_after_the_thaw(
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
                stalled = rf"a write to {log} has been blocked for \d+ s; \d+ bytes wait$"
                assert re.match(stalled, caplog.messages[0])
                volume.thaw()
                assert await case.finish() == 0
                assert body(log) == data

    run(test())


@needs_root
def test_closing_ends_in_time_although_the_volume_never_answers(tmp_path: Path) -> None:
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
