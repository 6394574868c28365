"""Why an image cannot be read."""

from __future__ import annotations


class Unreadable(Exception):
    """An image cannot be read. The text names the registry and the reason, and never a password."""


class Denied(Unreadable):
    """The registry, or its server that makes tokens, does not accept these credentials, or wants some."""


class NoTls(Unreadable):
    """A server does not speak TLS, or ends the connection during the handshake."""
