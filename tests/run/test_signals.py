"""The first signal asks a launcher to stop, each further one to kill its processes. Others are for the processes."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace

import pytest

from launcher.run.signals import Signals
from tests.support.members import in_loop, until

EACH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])


def watched(*received: int) -> tuple[Signals, list[str]]:
    """Return watched signals, and the list of the calls that they cause."""
    calls: list[str] = []
    signals = Signals()
    signals.on_stop = lambda: calls.append("stop")
    signals.on_kill = lambda: calls.append("kill")
    signals.watch(received)
    return signals, calls


@EACH
@in_loop
async def test_the_first_signal_asks_to_stop_and_each_further_one_to_kill(number: signal.Signals) -> None:
    signals, calls = watched()
    assert not signals.stop_requested.done()
    signal.raise_signal(number)
    await until(lambda: calls)
    assert calls == ["stop"]
    assert signals.stop_requested.done()
    assert not signals.kill_requested.done()
    for expected in (["stop", "kill"], ["stop", "kill", "kill"]):
        signal.raise_signal(number)
        await until(lambda expected=expected: len(calls) == len(expected))  # type: ignore[misc]
        assert calls == expected
        assert signals.kill_requested.done()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH])
@in_loop
async def test_a_signal_for_the_processes_is_handed_on_and_stops_nothing(number: signal.Signals) -> None:
    signals, calls = watched()
    signal.raise_signal(number)  # there is no process yet
    handed_on: list[int] = []
    signals.on_forwarded = handed_on.append
    signal.raise_signal(number)
    await until(lambda: handed_on)
    assert set(handed_on) == {number}
    assert calls == []
    assert not signals.stop_requested.done()


@in_loop
async def test_a_stop_is_already_requested_when_on_stop_is_called() -> None:
    signals = Signals()
    seen: list[bool] = []
    signals.on_stop = lambda: seen.append(signals.stop_requested.done())
    signals.watch([signal.SIGTERM])
    assert seen == [True]


@in_loop
async def test_signals_received_before_the_watch_count() -> None:
    signals, calls = watched(signal.SIGTERM, signal.SIGINT)
    assert calls == ["stop", "kill"]
    assert signals.stop_requested.done()
    assert signals.kill_requested.done()


@in_loop
async def test_the_grace_period_counts_from_the_first_signal_and_is_never_negative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr("launcher.run.signals.time", SimpleNamespace(monotonic=lambda: now[0]))
    signals, _ = watched(signal.SIGTERM)
    now[0] += 10
    signals.watch([signal.SIGTERM])
    assert signals.grace_left(30) == 20
    now[0] += 25
    assert signals.grace_left(30) == 0


@in_loop
async def test_work_that_ends_before_a_signal_has_its_result() -> None:
    signals, _ = watched()

    async def work() -> str:
        return "done"

    assert await signals.unless_stopped(work()) == "done"


@in_loop
async def test_the_first_signal_cancels_the_work() -> None:
    signals, _ = watched()
    work: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    result = asyncio.ensure_future(signals.unless_stopped(work))
    signal.raise_signal(signal.SIGTERM)
    assert await asyncio.wait_for(result, 8) is None
    assert work.cancelled()
