"""Find the place of a process in the user's program: read it from the Python stacks that faulthandler writes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_THREAD = re.compile(r"^(?:Current thread 0x|Thread 0x|Stack \(most recent)", re.MULTILINE)
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD = re.compile(r".*/lib(?:64)?/(?:python|pypy)\d[\d.]*/(?!(?:site|dist)-packages/)")
_STARTS_OTHERS = "paddle/distributed/launch/"  # a process in this package waits for the trainers that it has started


@dataclass(frozen=True)
class Frame:
    function: str
    file: str
    line: str

    @property
    def is_users(self) -> bool:
        """Whether the frame belongs to the user's program: its file is no library."""
        return not (self.file.startswith("<") or _PACKAGES.match(self.file) or _STANDARD.match(self.file))

    def short_file(self, folder: str) -> str:
        """Return the path below the folder of packages, below `folder`, or only the name of the file."""
        for packages in (_PACKAGES, _STANDARD):
            if packages.match(self.file):
                return packages.sub("", self.file)
        below = os.path.relpath(self.file, folder) if os.path.isabs(self.file) else self.file
        return os.path.basename(self.file) if below.startswith("..") else below


@dataclass(frozen=True)
class Place:
    """Where the main thread of a process is.

    where: the function and the line of the user's program; the function is the library's if the user's code calls one
    frame: the innermost frame
    starts_others: the process only waits for other processes of the job
    """

    where: str
    frame: str
    starts_others: bool


def place_of(dump: str, folder: str) -> Place | None:
    """Return the place of the main thread, or None if the dump has no stacks. `folder`: the folder of the process."""
    frames = _main_thread(dump)
    if not frames:
        return None
    innermost = frames[0]
    frame = f"{innermost.function}, {innermost.short_file(folder)}:{innermost.line}"
    starts_others = any(_STARTS_OTHERS in each.file for each in frames)
    for depth, each in enumerate(frames):
        if each.is_users:
            called = frames[max(depth - 1, 0)].function
            return Place(f"{called}, {each.short_file(folder)}:{each.line}", frame, starts_others)
    return Place(frame, frame, starts_others)


def _main_thread(dump: str) -> list[Frame]:
    """Return the frames of the main thread, the innermost first: faulthandler writes the oldest thread last."""
    starts = [match.start() for match in _THREAD.finditer(dump)]
    text = dump[starts[-1] :] if starts else ""
    return [
        Frame(_unescaped(match["function"]), _unescaped(match["file"]), match["line"])
        for match in _FRAME.finditer(text)
    ]


def _unescaped(text: str) -> str:
    """Return a name as it is in the program: faulthandler writes ASCII only."""

    def letter(match: re.Match[str]) -> str:
        code = int(match[1] or match[2] or match[3], 16)
        return chr(code) if code < 0x110000 else match[0]

    return _ESCAPED.sub(letter, text)
