"""The certificate and the key of this pod, and the authority that all pods trust, as cert-manager writes them."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

from launcher.errors import Exit, Failure

CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
_VARIABLE = "LAUNCHER_TLS_DIR"
_SETTLES_WITHIN = 6  # messages between both sides of a TLS handshake; 3 are needed


@dataclass(frozen=True)
class Contexts:
    """How this pod accepts and makes TLS connections. Both sides verify the certificate of the other side."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def load(folder: str) -> Contexts:
    """Return the contexts made of the files in this folder. Raise Failure (CONFIG) that names the file at fault.

    The certificate must be valid now, and its authority must be the one in this folder: otherwise all other pods would
    refuse it. So this function does one handshake, in memory.
    """
    paths = {name: os.path.join(folder, name) for name in (CERTIFICATE, KEY, AUTHORITY)}
    for path in paths.values():
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise _unreadable(path, error) from None
    contexts = Contexts(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    for context in (contexts.server, contexts.client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # pods have no names of their own: the authority says who belongs to the job
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(paths[AUTHORITY])
        except ssl.SSLError as error:
            raise _wrong(paths[AUTHORITY], "expected certificates in PEM format", error) from None
        except OSError as error:  # the file is replaced just now
            raise _unreadable(paths[AUTHORITY], error) from None
        try:
            context.load_cert_chain(paths[CERTIFICATE], paths[KEY], password="")  # never ask a terminal for one
        except ssl.SSLError as error:
            raise _wrong(f"{paths[KEY]} or {CERTIFICATE}", "expected a key and its certificate", error) from None
        except OSError as error:
            raise _unreadable(f"{paths[KEY]} or {CERTIFICATE}", error) from None
    try:
        _handshake(contexts)
    except ssl.SSLError as error:
        expected = f"expected a valid certificate for server and client authentication, issued by {AUTHORITY}"
        raise _wrong(paths[CERTIFICATE], expected, error) from None
    return contexts


def stamps(folder: str) -> list[tuple[int, int, int] | None]:
    """Return stamps of the files: they change if a file changes. Blocks while the folder's file system blocks."""
    return [_stamp(os.path.join(folder, name)) for name in (CERTIFICATE, KEY, AUTHORITY)]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _handshake(contexts: Contexts) -> None:
    """Connect this pod with itself."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        contexts.client.wrap_bio(to_client, to_server),
        contexts.server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_SETTLES_WITHIN):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def _unreadable(path: str, error: OSError) -> Failure:
    return Failure(Exit.CONFIG, f"{_VARIABLE}: cannot read {path}: {error.strerror}")


def _wrong(path: str, expected: str, error: ssl.SSLError) -> Failure:
    reason = getattr(error, "verify_message", "") or error.reason or "not in PEM format"
    return Failure(Exit.CONFIG, f"{_VARIABLE}: {path}: {reason}: {expected}")
