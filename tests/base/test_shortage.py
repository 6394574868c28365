"""A limit that is used up is named, with its value."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from launcher.base import shortage

ADVICE = "raise the limit, or start fewer processes and threads"


def groups(folder: Path, line: str, **files: str) -> tuple[str, str]:
    """Make control groups with these files: `a__b` is the file b in the group a. Return the arguments to read them."""
    own = folder / "cgroup"
    own.write_text(line + "\n")
    for name, content in files.items():
        path = folder / "groups" / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return str(folder / "groups"), str(own)


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("0::/", {"pids_max": "40", "pids_current": "40"}),
        ("0::/pod/main", {"pod__pids_max": "40", "pod__pids_current": "41", "pod__main__pids_max": "max"}),
        ("0::/\n8:pids:/", {"pids__pids_max": "40", "pids__pids_current": "40"}),
        ("8:pids:/pod", {"pids__pod__pids_max": "40", "pids__pod__pids_current": "40"}),
        ("8:pids:/not/visible/here", {"pids__pids_max": "40", "pids__pids_current": "40"}),
    ],
    ids=["version 2", "a group above", "version 1", "version 1 with a path", "a container without its own namespace"],
)
def test_a_full_pid_limit_is_named_with_its_value(tmp_path: Path, line: str, files: dict[str, str]) -> None:
    said = shortage.of_processes(*groups(tmp_path, line, **files))
    assert said == f"the pid limit of this pod is used up (pids.max = 40): {ADVICE}"


def test_if_no_limit_of_the_pod_is_used_up_all_limits_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 200))
    said = shortage.of_processes(*groups(tmp_path, "0::/", pids_max="40", pids_current="7"))
    limits = "pids.max = 40, RLIMIT_NPROC = 100, RLIMIT_AS = 100"
    assert said == f"a limit of this pod, its user or its node is used up ({limits}): {ADVICE}"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said = shortage.of_processes(str(tmp_path / "none"), str(tmp_path / "none"))
    assert "(pids.max = none, RLIMIT_NPROC = none)" in said


def test_errors_are_explained_by_the_limit_that_caused_them() -> None:
    def error(number: int) -> OSError:
        return OSError(number, os.strerror(number))

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert f"no file descriptor is left (RLIMIT_NOFILE = {limit})" in shortage.explain(error(errno.EMFILE))
    assert "file descriptor" in shortage.explain(error(errno.ENFILE))
    assert "memory" in shortage.explain(error(errno.ENOMEM))
    assert "memory" in shortage.explain(MemoryError())
    assert "pids.max" in shortage.explain(RuntimeError("can't start new thread"))
    assert "pids.max" in shortage.explain(error(errno.EAGAIN), starting=True)


@pytest.mark.parametrize("other", [OSError(errno.EAGAIN, "again"), OSError(errno.EIO, "io"), RuntimeError("a bug")])
def test_other_errors_are_not_explained(other: Exception) -> None:
    assert shortage.explain(other) == ""
