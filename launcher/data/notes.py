"""Small files that say what was done. Run by workers, since all of it may block."""

from __future__ import annotations

import os

from launcher.base.files import cannot_read, cannot_write, create_once, make_folder


def write_file(path: str, data: bytes) -> None:
    """Write a small file, all of it or none. Not synced: that would wait for the disk to take all that was copied."""
    temporary = f"{path}.new"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, path)
    except OSError as error:
        raise cannot_write(path, error) from error


def read_file(path: str) -> bytes:
    """A small file's content; nothing if there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise cannot_read(os.fsencode(path), error) from error


def claim(path: str, token: bytes) -> tuple[bytes, int]:
    """Create a file with the token unless there is one: whose token is in it, and when it was last touched."""
    make_folder(os.path.dirname(path))
    there = create_once(path, token)
    try:
        with open(path, "rb") as file:  # opening makes NFS ask the server, where a plain stat may be an old answer
            return there, os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return b"", 0
    except OSError as error:
        raise cannot_read(os.fsencode(path), error) from error


def touch(path: str) -> None:
    """Make a file's time now, by the clock of whoever keeps it."""
    try:
        os.utime(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def take_away(path: str, token: bytes) -> bool:
    """Remove a file left behind by the holder of this token; not if it is somebody else's by now."""
    aside = f"{path}.{os.urandom(8).hex()}"
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise cannot_write(path, error) from error
    ours = read_file(aside) == token
    if not ours:
        create_once(path, read_file(aside))  # taken from somebody who came first: given back
    os.unlink(aside)
    return ours


def list_folder(path: str) -> list[str]:
    """The names in a folder; none if there is no folder."""
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise cannot_read(path, error) from error
