"""The volume of one round: an ext4 file system in a file, which can be made full, read-only or frozen."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_SIZE = 48 << 20
_THAW = 'read -r _; fsfreeze --unfreeze "$1"'  # runs once the other end of its standard input is closed


class Disk:
    """A file system that is mounted at `volume` until `close`."""

    def __init__(self, folder: Path, content: Path) -> None:
        self.volume, self._forbidden = folder / "volume", folder / "read-only"
        self._full = self._read_only = False
        self._thawer: subprocess.Popen[bytes] | None = None
        image = folder / "disk"
        with image.open("wb") as file:
            file.truncate(_SIZE)
        _run("mkfs.ext4", "-q", "-m", "0", image)
        for place in (self.volume, self._forbidden):
            place.mkdir()
        _run("mount", "-o", "loop,noatime", image, self.volume)
        self._below = os.open(
            self.volume, os.O_RDONLY | os.O_DIRECTORY
        )  # stays valid if something is mounted over the volume later
        try:
            shutil.copytree(content, self.volume, dirs_exist_ok=True)
            _run("mount", "--bind", self.volume, self._forbidden)  # for `forbid`, before any file is open
            _run("mount", "-o", "remount,bind,ro", self._forbidden)
            _run("sync", "--file-system", self.volume)
        except BaseException:
            self.close()
            raise

    def fill(self) -> None:
        """Fill the volume until no block is free. Do nothing while it is frozen, since all writers are blocked then."""
        if self._thawer is None:
            filler = os.open("filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND, dir_fd=self._below)
            for size in (1 << 20, 4096):
                try:
                    while True:
                        os.write(filler, bytes(size))
                except OSError:
                    pass
            os.close(filler)
        self._full = True

    def clear(self) -> None:
        """Undo `fill`. While the volume is frozen, this waits for `thaw`."""
        self._full = False
        if self._thawer is None:
            try:
                os.unlink("filler", dir_fd=self._below)
            except FileNotFoundError:
                pass

    def forbid(self) -> None:
        """Make the volume read-only for files that are opened from now on.

        A remount is not possible: the kernel refuses it while a log is open for writing. So open files stay writable.
        """
        if not self._read_only:
            _run("mount", "--bind", self._forbidden, self.volume)
            self._read_only = True

    def allow(self) -> None:
        """Undo `forbid`."""
        if self._read_only:
            _run("umount", "-l", self.volume)
            self._read_only = False

    def freeze(self) -> None:
        """Block all writers in the kernel. The volume thaws when this process ends, even if it is killed."""
        if self._thawer is None:
            thaw = ["sh", "-c", _THAW, "thaw", str(self.volume)]
            self._thawer = subprocess.Popen(
                thaw, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
            _run("fsfreeze", "--freeze", self.volume)

    def thaw(self) -> None:
        """Undo `freeze`."""
        if self._thawer is not None:
            self._thawer.communicate()
            self._thawer = None
            if not self._full:
                self.clear()

    def mounts(self) -> list[str]:
        """Return the mount points that are still mounted."""
        mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
        return [mount for mount in mounts if mount in (str(self.volume), str(self._forbidden))]

    def close(self) -> None:
        """Thaw and unmount the volume. The kernel completes the unmount once no file is open."""
        self._full = True  # no need to remove the filler: the volume is removed
        self.thaw()
        self._read_only = False
        if self._below >= 0:
            os.close(self._below)
            self._below = -1
        for mount in reversed(self.mounts()):
            _run("umount", "-l", mount)


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
