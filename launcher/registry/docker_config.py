"""The user's credentials for a registry, where `docker login` keeps them: a file, or credential programs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from typing import Any

from launcher.registry.errors import Unreadable
from launcher.registry.keyring import Credentials, credentials_for
from launcher.registry.reference import Reference

_LIMIT = 1 << 20  # bytes of the file, and of the output of a credential program
_HELPER_SECONDS = 20.0
_HELPER_NAME = re.compile(r"[A-Za-z0-9._-]+")
_TOKEN_USER = "<token>"  # a credential program answers with this name if the secret is an identity token
_NOT_FOUND = "credentials not found"  # what credential programs print for a registry that they do not know


def read_credentials(image: Reference) -> Credentials | None:
    """Return the credentials for an image, or None if there are none. Raises Unreadable."""
    path = os.path.join(os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker"), "config.json")
    config = _read(path)
    helpers = config.get("credHelpers")
    program = (helpers.get(image.host) if isinstance(helpers, dict) else None) or config.get("credsStore")
    if program:
        found = _from_program(str(program), image.host, path)
        if found:
            return found
    return next(iter(credentials_for(image, config.get("auths"), f"{path}: auths")), None)


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(_LIMIT + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read: {error.strerror}") from None
    try:
        config = json.loads(data) if len(data) <= _LIMIT else None
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise Unreadable(f"{path}: expected a JSON object of at most {_LIMIT} bytes")
    return config


def _from_program(name: str, host: str, path: str) -> Credentials | None:
    """Ask the program docker-credential-NAME. Return None if it knows no credentials for this host."""
    program = f"docker-credential-{name}"
    if not _HELPER_NAME.fullmatch(name):
        raise Unreadable(f"{path}: {name!r:.100}: expected the end of a program's name, docker-credential-NAME")
    code, output = _run(program, host)
    if code and _NOT_FOUND in output:
        return None
    try:
        said = json.loads(output) if not code else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("Secret"), str):
        first = output.strip().splitlines()[0][:200] if code and output.strip() else "no credentials in JSON"
        raise Unreadable(f"{program}, which {path} names, failed for {host}: {first}")
    user = str(said.get("Username") or "")
    return Credentials("", "", said["Secret"]) if user == _TOKEN_USER else Credentials(user, said["Secret"])


def _run(program: str, host: str) -> tuple[int, str]:
    """Return the exit code and the output of a credential program, which gets the host on its standard input."""
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                [program, "get"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise Unreadable(f"{program}: cannot be run: {error.strerror}") from None
        try:
            child.communicate(host.encode(), _HELPER_SECONDS)
        except subprocess.TimeoutExpired:
            raise Unreadable(f"{program}: did not answer for {host} within {_HELPER_SECONDS:.0f} s") from None
        finally:
            if child.poll() is None:
                _kill_group(child)
        output.seek(0)
        return child.returncode, output.read(_LIMIT).decode(errors="replace")


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill a program that still runs, and all that it has started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()
