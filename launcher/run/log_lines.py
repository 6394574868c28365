"""The format of lines on standard error and standard output: LAUNCHER_LOG_FORMAT and LAUNCHER_LOG_PREFIX."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from launcher.base.clock import stamp
from launcher.base.log import AsLines, text_lines
from launcher.config.variables import MonitoringConfig

FormatLine = Callable[[str, bytes], bytes]  # from the role of a process and a line without its end, to a line with it


class LogLines:
    """The formats of all lines of one launcher.

    place: returns the current fields `job`, `role`, `rank`, `pod` and `generation`. Any thread may call it.
    """

    def __init__(self, monitoring: MonitoringConfig) -> None:
        self._format = monitoring.log_format
        self._prefix = monitoring.log_prefix
        self.place: Callable[[], Mapping[str, object]] = dict

    @property
    def of_launcher(self) -> AsLines:
        """The format of the launcher's own lines."""
        return text_lines if self._format == "text" else self._json_of_launcher

    @property
    def of_processes(self) -> FormatLine | None:
        """The format of the lines that processes print, or None if they are shown as they are."""
        if self._format == "json-all":
            return self._json_of_process
        return self._with_prefix if self._prefix else None

    def _json_of_launcher(self, level: str, text: str, name: str) -> list[bytes]:
        return [self._as_json("launcher", level, text)]

    def _json_of_process(self, role: str, line: bytes) -> bytes:
        return self._as_json(role, "info", line.decode(errors="replace"))

    def _as_json(self, stream: str, level: str, message: str) -> bytes:
        fields = {"time": stamp(), "level": level, "stream": stream, **self.place(), "message": message}
        return json.dumps(fields).encode() + b"\n"

    def _with_prefix(self, role: str, line: bytes) -> bytes:
        text = self._prefix
        for name, value in {**self.place(), "stream": role}.items():
            text = text.replace(f"{{{name}}}", "" if value is None else str(value))
        return text.encode(errors="backslashreplace") + line + b"\n"
