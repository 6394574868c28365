"""Find loss, speed and progress in the output of a trainer. docs/numbers.md lists the formats and their sources.

The finder sees all output of a trainer, so it must cost almost nothing. It looks only at the newest lines, a few times
per second. The line of a finished pass is the exception: it is read even if much output follows.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from launcher.model import Numbers
from launcher.train import MARK

PERIOD: Final = 0.5  # seconds between two looks
PASS_PERIOD: Final = 0.1  # seconds between two looks at finished passes, even if much output follows

_KEPT = 16 * 1024  # bytes of the newest output that a look may read
_MAX_LINE = 4096  # bytes; longer lines are cut
_MAX_LINES, _MAX_PARSED = 16, 8192  # how many lines with a mark, and bytes of them, one look parses

_NUMBER = rb"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?|[-+]?(?:[nN][aA][nN]|[iI][nN][fF])"
# After a number there is no `,` with a digit: `0,25` and `12,000` would be read as 0 and 12.
_PAIR = re.compile(
    rb"\b([A-Za-z][\w/]{1,40})(?:['\"]?\s{0,4}(?:is\s?)?[:=]\s{0,8}|\s)[\['\"(]{0,2}\s{0,8}("
    + _NUMBER
    + rb")(?:\s?/\s?(\d{1,18}))?(?!\w|[.,]\d)"
)
_EPOCH_OF_HAPI = re.compile(rb"\s*Epoch (\d{1,9})/(\d{1,9})\s*$")
_STEP_OF_DETECTION = re.compile(rb"Epoch: \[\d{1,9}\] \[ {0,9}(\d{1,9})/(\d{1,9})\]")
_ALL_STEPS = re.compile(rb"Total optimization steps = (\d[\d,]{0,17})(?![\d,])")  # 12,000 in newer versions
_GLOG_TIME = re.compile(rb"[IWEF]\d{4} (\d\d):(\d\d):(\d\d\.\d{1,6}) ")
_OF_TEST = re.compile(
    rb"\bTest (?:samples=|with )|\[(?:Eval|EVAL|eval|Test|TEST)\]|\b(?:cur|best) metric\b|\bvalid step\b|held-out"
)
_EVAL_BEGINS = b"Eval begin..."
_CONTEXT = (b"Epoch ", _EVAL_BEGINS)
_SUMMARY = b"train_runtime"  # of a finished training: averages over all of it
_MARK_OF_HELPER = MARK.encode()

# The names of each number in lower case. If a line has several of them, the first one counts.
_STEP = (b"global_step", b"step", b"iter", b"batch", b"batch_id")
_PASS = (b"pass_number", b"pass", b"epoch")
_LOSS = (b"currentcost", b"loss", b"train_loss", b"avg_loss", b"total_loss", b"mean_loss", b"avgcost", b"cost")
_ACCURACY = (b"accuracy", b"acc", b"train_acc", b"acc_top1", b"top1")
_ERROR = (b"classification_error_evaluator",)
_TEST_LOSS = (b"test_loss", b"eval_loss", b"val_loss", b"valid_loss")
_TEST_ACCURACY = (b"test_accuracy", b"eval_accuracy", b"val_accuracy", b"test_acc", b"eval_acc", b"val_acc")
_SPEED = (b"ips", b"interval_samples_per_second", b"samples_per_second", b"examples_per_second", b"examples/s")
_ALL_NAMES: Final = frozenset(
    (*_STEP, *_PASS, *_LOSS, *_ACCURACY, *_ERROR, *_TEST_LOSS, *_TEST_ACCURACY, *_SPEED)
    + (b"samples", b"steps", b"pass_steps", b"passes")
)

_Pairs = Mapping[bytes, tuple[bytes, bytes]]  # name -> the number, and the total after a slash


class NumberFinder:
    """Find the newest numbers in an output that arrives in parts. A line may be divided between two parts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pending = bytearray()  # output that no look has read, with the beginning of an unfinished line
        self._is_cut = False  # `_pending` begins within a line
        self._has_gap = False  # output before `_pending` was dropped
        self._ends_pass = False  # `_pending` ends within the line of a finished pass
        self._wants_rest = False  # a call of `rest` may find more
        self._next_look = self._next_pass = -math.inf
        self._lines = _Lines()
        self._returned = Numbers()

    def newest_in(self, data: bytearray, begin: int, end: int, pass_at: int | None = None) -> Numbers | None:
        """Return the newest numbers. Return None if they are unchanged, or if the last look was just now.

        pass_at: where in `data` the mark of a finished pass is. May be before `begin`, in an earlier part.
        """
        now = self._clock()
        if self._ends_pass or (pass_at is not None and now >= self._next_pass):
            self._next_pass = now + PASS_PERIOD
            at = begin if pass_at is None else max(begin, pass_at)
            line_end = data.find(b"\n", at, min(end, at + _MAX_LINE)) + 1
            rest = line_end or min(end, at + _MAX_LINE)
            self._ends_pass = not line_end and rest == end
            self._add_line(data, begin, at, rest)
            numbers = self._look()
            self._add(data, rest, end)
            return numbers
        self._add(data, begin, end)
        return self._look() if now >= self._next_look else None

    def rest(self, is_end: bool = False) -> Numbers | None:
        """Return the newest numbers of the output so far, if a look is due or this is the end of the output."""
        if not is_end and not (self._wants_rest and self._clock() >= self._next_look):
            return None
        return self._look(pauses=True, is_end=is_end)

    def due_in(self) -> float | None:
        """Return the seconds until the next call of `rest`. None: no call is needed before more output."""
        return max(0.0, self._next_look - self._clock()) if self._wants_rest else None

    def _add_line(self, data: bytearray, begin: int, at: int, end: int) -> None:
        """Add the line around `at`. Drop the output before this line, unless it is short."""
        if at - begin <= _MAX_LINE:
            self._keep(_MAX_LINE)
            self._add(data, begin, end)
            return
        first = data.rfind(b"\n", at - _MAX_LINE, at) + 1
        self._pending[:] = memoryview(data)[first or at : end]
        self._is_cut, self._has_gap, self._wants_rest = False, True, True

    def _add(self, data: bytearray, begin: int, end: int) -> None:
        if begin == end:
            return
        first = max(begin, end - _KEPT)
        if first > begin:
            self._pending.clear()
            self._is_cut = self._has_gap = True
        self._pending += memoryview(data)[first:end]
        self._keep(_KEPT)
        self._wants_rest = True

    def _keep(self, size: int) -> None:
        """Drop all pending output except the newest. Keep up to twice the size, so that data is seldom moved."""
        if len(self._pending) > 2 * size:
            del self._pending[:-size]
            self._is_cut = self._has_gap = True

    def _look(self, *, pauses: bool = False, is_end: bool = False) -> Numbers | None:
        """Read all lines of the pending output. Keep an unfinished line.

        A progress bar has its line end at its beginning. So if the output pauses, the bar is complete.
        """
        text = self._pending
        cut = 1 + max(text.rfind(b"\n"), text.rfind(b"\r"))
        is_bar = 0 < cut < len(text) and text[cut - 1 : cut] == b"\r"
        self._wants_rest = is_bar and not pauses
        if not cut and not is_end:
            return None
        self._next_look = self._clock() + PERIOD
        lines = bytes(memoryview(text)[: len(text) if is_end or (is_bar and pauses) else cut]).splitlines()
        if self._has_gap:
            self._lines.skip()
        if self._is_cut:
            del lines[:1]
        self._is_cut = self._has_gap = False
        del text[: len(text) if is_end else cut]
        if is_bar and not is_end:
            text[:0] = b"\r"  # the next look must know that the line is a bar
        for line in _newest_with_marks(lines):
            self._lines.read(line)
        newest = self._lines.numbers
        if repr(newest) == repr(self._returned):  # unlike ==, this is true for two NaN
            return None
        self._returned = newest
        return newest


def _newest_with_marks(lines: list[bytes]) -> list[bytes]:
    """Return the newest lines that may have numbers, the newest last. Lines on which others depend count extra."""
    found: list[bytes] = []
    size = context = 0
    for line in reversed(lines):
        if line.startswith(_CONTEXT):
            if context < _MAX_LINES:
                context += 1
                found.append(line[:_MAX_LINE])
        elif len(found) - context < _MAX_LINES and size < _MAX_PARSED and _has_mark(line):
            found.append(line[:_MAX_LINE])
            size += len(found[-1])
    found.reverse()
    return found


def _has_mark(line: bytes) -> bool:
    """Return whether the line may have numbers: each format has one of these. As fast as possible."""
    return len(line) > 5 and (
        b"oss" in line
        or b"ost" in line
        or b"tep" in line
        or b"ips" in line
        or b"second" in line
        or b"examples/s" in line
        or b"cc" in line
        or b"Pass=" in line
        or _MARK_OF_HELPER in line
    )


class _Lines:
    """The numbers in the lines so far. An earlier line may have the pass, or say that an evaluation runs."""

    def __init__(self) -> None:
        self.numbers = Numbers()
        self._tests = False  # an evaluation of hapi runs; its lines look like the lines of the training
        self._v0_speed = _SpeedOfV0()

    def skip(self) -> None:
        """Handle missing lines: an evaluation may have ended in them."""
        self._tests = False

    def read(self, line: bytes) -> None:
        """Update the numbers, if this line has any."""
        if match := _EPOCH_OF_HAPI.match(line):
            self._tests = False
            number, passes = map(int, match.groups())
            self.numbers = replace(self.numbers, pass_number=number, passes=passes)
            return
        if line.startswith(_EVAL_BEGINS):
            self._tests = True
            return
        if match := _ALL_STEPS.search(line):
            self.numbers = replace(self.numbers, steps=int(match.group(1).replace(b",", b"")))
            return
        if _SUMMARY in line:
            return
        pairs = {
            name if name == b"Iter" else name.lower(): (number, total)
            for name, number, total in _PAIR.findall(line)
            if name.lower() in _ALL_NAMES
        }
        if pairs:
            self._read_pairs(line, pairs)

    def _read_pairs(self, line: bytes, pairs: _Pairs) -> None:
        found: dict[str, Any] = {
            "test_loss": _float(pairs, _TEST_LOSS),
            "test_accuracy": _finite(pairs, _TEST_ACCURACY),
        }
        loss, accuracy = _float(pairs, _LOSS), _finite(pairs, _ACCURACY)
        error = _finite(pairs, _ERROR)
        if accuracy is None and error is not None:
            accuracy = 1 - error
        if self._tests or _OF_TEST.search(line):
            found |= {"test_loss": loss, "test_accuracy": accuracy}
        else:
            speed = _finite(pairs, _SPEED)
            says_place = b"global_step" in pairs or b"Pass=" in line or _MARK_OF_HELPER in line
            if says_place or any(value is not None for value in (loss, accuracy, speed)):
                found |= {"loss": loss, "accuracy": accuracy, "examples_per_second": speed}
                found |= self._place(line, pairs)
        if known := {name: value for name, value in found.items() if value is not None}:
            self.numbers = replace(self.numbers, **known)

    def _place(self, line: bytes, pairs: _Pairs) -> dict[str, Any]:
        """Return which pass and step the line is about, and how many there are."""
        number, passes = _count(pairs, _PASS)
        if number is not None and b"Pass=" in line and (passes or self.numbers.passes):
            number += 1  # the line that ends a pass names the folder of the pass, and the first folder is 0
        step, total = _count(pairs, (b"Iter", *_STEP))
        is_total = b"global_step" in pairs or b"iter" in pairs
        found: dict[str, Any] = {
            "pass_number": number,
            "passes": passes or _count(pairs, (b"passes",))[0],
            "step": step,
            "steps": (total if is_total else None) or _count(pairs, (b"steps",))[0],
            "pass_steps": (None if is_total else total) or _count(pairs, (b"pass_steps",))[0],
        }
        if match := _STEP_OF_DETECTION.search(line):
            found |= {"step": int(match.group(1)), "pass_steps": int(match.group(2))}
        if b"avgcost" in pairs:
            found |= {"examples_per_second": self._v0_speed.after(line, pairs)}
            if number is None and self._v0_speed.pass_number is not None:
                found["pass_number"] = self._v0_speed.pass_number
        return {name: value for name, value in found.items() if value is not None}


class _SpeedOfV0:
    """The speed of Paddle v0, which prints how many samples of the pass are done, but no speed."""

    def __init__(self) -> None:
        self.pass_number: int | None = None  # of the next line, if a pass has ended
        self._samples = 0
        self._at: float | None = None  # the time of day of `_samples`, in seconds

    def after(self, line: bytes, pairs: _Pairs) -> float | None:
        """Return the examples per second since an earlier line of the same pass."""
        samples, _ = _count(pairs, (b"samples",))
        number, _ = _count(pairs, (b"pass",))
        if number is not None:
            self.pass_number = number + 1
        match = _GLOG_TIME.search(line)
        if match is None or samples is None:
            return None
        hours, minutes, seconds = match.groups()
        now = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        seen, before = samples - self._samples, self._at
        if before is None or seen < 0 or now < before:
            self._samples, self._at = samples, now
            return None
        if seen == 0 or now - before < 1:
            return None
        self._samples, self._at = samples, now
        return seen / (now - before)


def _float(pairs: _Pairs, names: tuple[bytes, ...]) -> float | None:
    return next((float(pairs[name][0]) for name in names if name in pairs), None)


def _finite(pairs: _Pairs, names: tuple[bytes, ...]) -> float | None:
    value = _float(pairs, names)
    return value if value is not None and math.isfinite(value) else None


def _count(pairs: _Pairs, names: tuple[bytes, ...]) -> tuple[int | None, int | None]:
    """Return a number and its total, if the line has one of the names. None: not from 0 to 10**18."""
    value = _finite(pairs, names)
    total = next((pairs[name][1] for name in names if name in pairs), b"")
    return (int(value) if value is not None and 0 <= value < 10**18 else None), (int(total) if total else None)
