"""The launcher's messages have time and name, go to standard error, never block, and are shown only on request."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from launcher.base.log import StderrHandler, TextHandler, set_name, shown_by, write_output
from tests.support.paths import REPOSITORY
from tests.support.supervising import eventually

log = logging.getLogger("launcher.tests")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_messages_have_time_and_rank_and_never_block_the_caller(pipe: tuple[int, int]) -> None:
    handler = StderrHandler(pipe[1])
    with shown_by(handler):
        log.info("first\nin two lines")
        set_name("rank 3")
        log.info("second, 100 % \udcff")
        log.warning("third")
        handler.close(10)
    lines = os.read(pipe[0], 65536).decode().splitlines()
    pattern = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[rank (.)\] (.*)"
    matches = [re.fullmatch(pattern, line) for line in lines]
    assert [match and match.groups() for match in matches] == [
        ("?", "first"),
        ("?", "in two lines"),
        ("3", r"second, 100 % \udcff"),
        ("3", "warning: third"),
    ]


def test_a_message_after_a_line_of_a_process_that_has_no_end_begins_on_a_new_line(pipe: tuple[int, int]) -> None:
    handler = StderrHandler(pipe[1])
    with shown_by(handler):
        write_output(pipe[1], b"a line\n......")
        log.info("first")
        received = os.read(pipe[0], 65536)
        while b"first\n" not in received:
            received += os.read(pipe[0], 65536)
        write_output(pipe[1], memoryview(b"...\n"))
        log.info("second")
        handler.close(10)
    received += os.read(pipe[0], 65536)
    shown = [re.sub(r"^.*\] ", "", line) for line in received.decode().splitlines()]
    assert shown == ["a line", "......", "first", "...", "second"]


def test_if_standard_error_is_not_read_the_oldest_messages_are_dropped_and_counted(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(reading, False)
    handler = StderrHandler(writing)
    with shown_by(handler):
        for number in range(5000):
            log.info(f"message {number} {'x' * 100}")
    got = bytearray()

    def last_came() -> bool:
        with contextlib.suppress(BlockingIOError):
            got.extend(os.read(reading, 65536))
        return b"message 4999 " in got

    eventually(last_came)
    handler.close(10)
    missing = sum(int(number) for number in re.findall(rb"(\d+) messages are missing here", got))
    assert missing > 0
    assert missing + len(re.findall(rb"\] message \d+ x", got)) == 5000


def test_there_is_no_thread_before_the_first_message(pipe: tuple[int, int]) -> None:
    before = set(threading.enumerate())  # threads of earlier tests may end meanwhile
    handler = StderrHandler(pipe[1])
    with shown_by(handler):
        assert not set(threading.enumerate()) - before
        log.info("first")
        assert [thread.name for thread in set(threading.enumerate()) - before] == ["log"]
        handler.close(10)
    assert not set(threading.enumerate()) - before


def test_a_child_that_is_forked_while_another_thread_logs_can_log_itself() -> None:
    code = """if True:
        import logging, os, sys, threading
        from launcher.base.log import TextHandler, shown_by
        log = logging.getLogger("launcher.tests")
        inside = threading.Event()
        def write(text):
            if text == "held":
                inside.set()
                threading.Event().wait()
            os.write(1, text.encode())
        with shown_by(TextHandler(write)):
            threading.Thread(target=log.info, args=("held",), daemon=True).start()
            inside.wait()
            child = os.fork()
            if child == 0:
                log.info("from the child")
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "from the child", "")


def test_only_the_chosen_handler_shows_messages_and_only_while_it_is_chosen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shown: list[str] = []
    with shown_by(TextHandler(shown.append)):
        log.info("shown")
        log.warning("shown, too")
        log.debug("not shown")
    assert shown == ["shown", "warning: shown, too"]
    assert caplog.messages == []
    log.info("seen by whoever asks")
    assert caplog.messages == ["seen by whoever asks"]


def test_a_program_that_imports_the_job_module_shows_messages_only_on_request() -> None:
    code = "import logging, launcher.job; logging.getLogger('launcher.tests').warning('unasked')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
