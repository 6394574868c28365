"""The command `doctor`."""

from __future__ import annotations

import shutil
import sys

from launcher.doctor import doctor, report
from launcher.doctor import subject as subjects
from launcher.errors import Exit
from launcher.job.access import connect
from launcher.job.from_yaml import RenderOptions
from launcher.live.signals import Interrupted, ending_signals


def run(
    given: str, options: RenderOptions, namespace: str | None, *, pod: bool, within: float | None, as_json: bool
) -> int:
    """Print what is good and what is wrong with a job, from a file or in the cluster. Return the exit code."""
    examined = subjects.from_file(given, options) if subjects.is_file(given) else None
    client = connect(subjects.namespace_of(examined, namespace) if examined else namespace)
    examined = examined or subjects.from_cluster(client, given)
    try:
        with ending_signals():
            wanted = doctor.Options(pod, doctor.WITHIN if within is None else within)
            checks = doctor.examine(client, examined, wanted)
    except Interrupted as interrupted:
        sys.stderr.write("doctor: interrupted\n")
        return interrupted.exit_code
    title = f"{examined.name} in namespace {client.namespace}"
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(report.as_json(title, checks) if as_json else report.as_text(title, checks, width), flush=True)
    return Exit.COMPLETE if report.is_good(checks) else Exit.CONFIG
