"""Signals that end a view."""

from __future__ import annotations

import os
import signal

import pytest

from launcher.live.signals import Interrupted, drawing, ending_signals


def draw(*numbers: int) -> list[int]:
    """Send these signals to this process while it draws. Return those after which the drawing continued."""
    drawn: list[int] = []
    with pytest.raises(Interrupted) as caught:
        _send(numbers, drawn)
    assert caught.value.exit_code == 128 + numbers[-1]
    return drawn


def _send(numbers: tuple[int, ...], drawn: list[int]) -> None:
    with ending_signals(), drawing():
        for number in numbers:
            os.kill(os.getpid(), number)
            drawn.append(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_view_after_what_is_being_drawn(number: int) -> None:
    assert draw(number) == [number]


def test_a_second_signal_ends_even_a_drawing_that_does_not_end() -> None:
    assert draw(signal.SIGINT, signal.SIGTERM) == [signal.SIGINT]


def test_while_the_terminal_is_restored_no_further_signal_interrupts() -> None:
    with ending_signals():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except Interrupted:
            os.kill(os.getpid(), signal.SIGINT)


def test_the_handlers_of_the_caller_are_back_at_the_end() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ending_signals():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
