"""Docker Hub, the registry of images whose name has none: Docker and container runtimes pull them from there."""

from __future__ import annotations

HOST = "registry-1.docker.io"  # answers requests
LOGIN = "https://index.docker.io/v1/"  # `docker login` keeps the credentials under this name
_NAMES = ("docker.io", "index.docker.io", HOST)


def host_of(name: str) -> str:
    """Return the host to ask for the registry `name`: another one for names of Docker Hub."""
    return HOST if name in _NAMES else name


def login_names(host: str) -> tuple[str, ...]:
    """Return the names under which credential programs and their settings know a registry."""
    return (LOGIN, *_NAMES) if host == HOST else (host,)


def login_command(host: str) -> str:
    """Return the command that keeps credentials for a registry."""
    return "docker login" if host == HOST else f"docker login {host}"
