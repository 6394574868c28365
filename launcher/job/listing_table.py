"""The table of `paddle-launcher list`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone

from launcher.base.table import format_table
from launcher.job.listing import ListedJob
from launcher.live import words

_LEAST_CAUSE = 24  # characters


def table(
    jobs: Sequence[ListedJob], *, everywhere: bool, wide: bool, width: int | None = None, now: float | None = None
) -> str:
    """Return a table with one row per job.

    width: of the terminal, to which lines are cut unless the table is wide. None: they are not cut
    now: the present time, for tests
    """
    titles = ["NAME", "STATUS", "MODE", "READY", "PASS", "RESTARTS", "AGE"]
    titles = [*(["NAMESPACE"] if everywhere else []), *titles, *(["OBJECTS", "IMAGE", "FOLDER"] if wide else [])]
    rows = [_row(job, everywhere, wide, time.time() if now is None else now) for job in jobs]
    lines = format_table([[*titles, "FIRST CAUSE"], *rows]).splitlines()
    if width is None or wide:
        return "\n".join(lines)
    longest = max(width, lines[0].index("FIRST CAUSE") + _LEAST_CAUSE)
    return "\n".join(line if len(line) <= longest else f"{line[: longest - 4]} ..." for line in lines)


def _row(job: ListedJob, everywhere: bool, wide: bool, now: float) -> list[object]:
    cause = job.first_cause if job.exit_code is None else f"exit code {job.exit_code}: {job.first_cause}"
    cause = words.line(cause) if job.first_cause else ""
    ready = f"{job.ready}/{job.members}"
    row: list[object] = [job.name, job.phase, job.mode, ready, job.current_pass, job.restarts, _age(job.created, now)]
    more = [", ".join(job.objects), job.image, job.folder] if wide else []
    return [*([job.namespace] if everywhere else []), *row, *more, cause]


def _age(created: str, now: float) -> str:
    try:
        at = datetime.strptime(created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return ""
    return words.age(now - at)
