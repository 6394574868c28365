"""Removes files and folders. Run by workers, since all of it may block."""

from __future__ import annotations

import errno
import os

from launcher.base.files import cannot_write
from launcher.data.creation import PART


def remove_files(root: bytes, paths: list[bytes]) -> None:
    """Remove files and links; those that are gone already are fine."""
    for path in paths:
        whole = os.path.join(root, path)
        try:
            os.unlink(whole)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise cannot_write(whole, error) from error


def remove_folders(root: bytes, paths: list[bytes]) -> None:
    """Remove folders that are empty; others stay."""
    for path in paths:
        whole = os.path.join(root, path)
        try:
            os.rmdir(whole)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                raise cannot_write(whole, error) from error


def remove_leftovers(root: bytes, folders: list[bytes]) -> None:
    """Remove what a run that was killed left half made in these folders."""
    for path in folders:
        whole = os.path.join(root, path)
        try:
            names = [name for name in os.listdir(whole) if name.startswith(PART)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise cannot_write(whole, error) from error
        remove_files(whole, names)
