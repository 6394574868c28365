"""Mounts of a folder that have the faults of NFS: lost answers, stale handles, old lists of names, stalls (nfs.c)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# The faults of `make chaos`, as the lines of nfs.c. A stale handle of a model would end a trainer, so it is left out.
LINES: Mapping[str, tuple[str, ...]] = {
    "nfs lost answers": ("lost 3",),
    "nfs stale handles": ("stale 20", "within .launcher"),
    "nfs old names": ("old 30",),
    "nfs node stalled": ("stall",),
}

_CODE = Path(__file__).with_name("nfs.c")
OPTIONS = "allow_other,attr_timeout=0,entry_timeout=0,negative_timeout=0,max_threads=16,max_idle_threads=16"
_MOUNTED_WITHIN = 10.0  # seconds


def why_not() -> str:
    """Return why nothing can be mounted here, or "" if it can."""
    if os.geteuid() != 0:
        return "mounts need root"
    missing = [program for program in ("gcc", "pkg-config", "fusermount3") if shutil.which(program) is None]
    if missing:
        return f"{missing[0]} is not installed"
    if subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode:
        return "libfuse3-dev is not installed"
    return "" if os.path.exists("/dev/fuse") else "there is no /dev/fuse"


def build(folder: Path) -> Path:
    """Compile the file system into this folder, unless this is done. Return the program."""
    program = folder / "nfs"
    if not program.exists():
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
        )
        new = folder / f"nfs-{os.getpid()}"
        subprocess.run(["gcc", "-O2", str(_CODE), *flags.stdout.split(), "-lpthread", "-o", new], check=True)
        new.rename(program)
    return program


class Mount:
    """The mount of one node. `point` shows the folder `behind`.

    squashes_root: the server takes root for the user 65534
    """

    def __init__(self, program: Path, behind: Path, point: Path, *, squashes_root: bool = False) -> None:
        self.point = point
        self._faults = point.with_name(f"{point.name}.faults")
        point.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "NFS_ROOT": str(behind),
            "NFS_FAULTS": str(self._faults),
            **({"NFS_SQUASH": "1"} if squashes_root else {}),
        }
        command: list[str | Path] = [program, "-f", point, "-o", OPTIONS]
        self._server = subprocess.Popen(command, env=environment, start_new_session=True)
        deadline = time.monotonic() + _MOUNTED_WITHIN
        while not os.path.ismount(point):
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{point} cannot be mounted")
            time.sleep(0.01)

    def set_faults(self, *lines: str) -> None:
        """Replace all faults by these lines, see nfs.c."""
        new = self._faults.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self._faults)

    def close(self) -> None:
        """Unmount. The caller must have ended all processes that use the mount."""
        self.set_faults()
        subprocess.run(["umount", "-l", self.point], check=False, capture_output=True)
        try:
            self._server.wait(5)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()


class Mounts:
    """The mounts of all nodes of one round. Each fault affects some nodes, or all of them."""

    def __init__(self, program: Path, behind: Path, folder: Path, nodes: int) -> None:
        self._mounts: list[Mount] = []
        self._lasting: dict[int, tuple[str, Sequence[int]]] = {}
        try:
            for node in range(nodes):
                self._mounts.append(Mount(program, behind, folder / f"node-{node}"))
        except BaseException:
            self.close()
            raise

    def point(self, node: int) -> Path:
        """Return where the volume is mounted on this node."""
        return self._mounts[node].point

    def begin(self, number: int, kind: str, nodes: Sequence[int]) -> None:
        """Begin a fault on these nodes, or on all nodes if none is given."""
        self._lasting[number] = kind, nodes or range(len(self._mounts))
        self._set()

    def end(self, number: int) -> None:
        self._lasting.pop(number, None)
        self._set()

    def close(self) -> None:
        for mount in self._mounts:
            mount.close()
        self._mounts = []

    def _set(self) -> None:
        for node, mount in enumerate(self._mounts):
            kinds = {kind for kind, nodes in self._lasting.values() if node in nodes}
            mount.set_faults(*(line for kind in sorted(kinds) for line in LINES[kind]))
