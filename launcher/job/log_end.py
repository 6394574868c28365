"""The end of a pod's log: its last line, and the numbers that the trainer prints."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone

from launcher.base.kube import KubeClient
from launcher.model import Numbers
from launcher.paddle.numbers import NumberFinder

_LINES = 40
_SECONDS = 3.0  # timeout
_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\S*Z (.*)", re.DOTALL)


@dataclass(frozen=True)
class LogEnd:
    """line: the last line that is not empty. at: when it was printed, in seconds since 1970, by the clock of its node.

    numbers: the newest numbers that the log has shown so far
    """

    line: str = ""
    at: float | None = None
    numbers: Numbers = field(default_factory=Numbers)


def read_log_end(
    client: KubeClient, pod: str, container: str, before: LogEnd | None = None, *, namespace: str | None = None
) -> LogEnd:
    """Return the end of the log. `before`: its end at an earlier time, for numbers that are printed only once.

    Raises Failure if the pod is gone, or if the API server or the node does not answer.
    """
    query = {"tailLines": str(_LINES), "timestamps": "true"}
    lines: list[bytes] = []
    newest, at = "", None
    for stamped in client.log(pod, container, query, within=_SECONDS, namespace=namespace):
        match = _STAMPED.match(stamped)
        text = _message(match[2] if match else stamped)
        lines.append(text)
        if text.strip():
            newest, at = text.decode(errors="replace").strip(), _seconds(match[1]) if match else None
    data = bytearray(b"".join(line + b"\n" for line in lines))
    found = NumberFinder().newest_in(data, 0, len(data)) or Numbers()
    return LogEnd(newest, at, merged(before.numbers if before else Numbers(), found))


def merged(before: Numbers, found: Numbers) -> Numbers:
    """Return the new numbers, and the earlier ones in place of those that are missing."""
    known = {name: value for name, value in vars(found).items() if value is not None}
    return Numbers(**{**vars(before), **known})


def _message(line: bytes) -> bytes:
    """Return what the program has printed. With LAUNCHER_LOG_FORMAT=json-all, a line is a JSON object."""
    if not line.startswith(b'{"time"'):
        return line
    try:
        message = json.loads(line).get("message")
    except (ValueError, RecursionError):
        return line
    return message.encode("utf-8", "backslashreplace") if isinstance(message, str) else line


def _seconds(stamp: bytes) -> float | None:
    try:
        return datetime.strptime(stamp.decode(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
