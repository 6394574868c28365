"""Whether a process works, by its processor time and by the bytes that it reads."""

from __future__ import annotations

import os

from launcher.processes.activity import Work, work_of


def test_a_process_that_uses_or_reads_enough_works() -> None:
    before = Work({1: (10.0, 1000)})
    assert Work({1: (10.6, 1000)}).continues(before, 10)
    assert Work({1: (10.0, 1000 + 64 * 1024)}).continues(before, 10)
    assert not Work({1: (10.4, 1000 + 64 * 1024 - 1)}).continues(before, 10)


def test_a_new_process_works_and_a_process_that_has_ended_does_not() -> None:
    before = Work({1: (10.0, 0), 2: (10.0, 0)})
    assert Work({1: (10.0, 0), 3: (0.0, 0)}).continues(before, 10)
    assert not Work({1: (10.0, 0)}).continues(before, 10)


def test_the_work_of_a_process_is_read_from_the_kernel() -> None:
    pid = os.getpid()
    before = work_of([pid]).by_pid[pid]
    with open("/dev/zero", "rb", buffering=0) as zero:
        zero.read(1 << 20)
    used = os.times()
    while os.times().user + os.times().system < used.user + used.system + 0.05:
        pass
    after = work_of([pid]).by_pid[pid]
    assert after[0] > before[0]
    assert after[1] - before[1] >= 1 << 20


def test_a_process_that_does_not_exist_has_done_no_work() -> None:
    assert work_of([1 << 22]).by_pid == {}
