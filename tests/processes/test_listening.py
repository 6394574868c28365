"""The kernel tells which TCP sockets listen, in each of two ways."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from launcher.processes import listening


@pytest.fixture
def servers() -> Iterator[list[socket.socket]]:
    """Two sockets that listen, one for IPv4 and one for IPv6, with a connection to each."""
    with ExitStack() as stack:
        made = []
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            server = stack.enter_context(socket.create_server((host, 0), family=family))
            stack.enter_context(socket.create_connection(server.getsockname()[:2]))
            made.append(server)
        yield made


def expected(servers: list[socket.socket]) -> dict[int, set[bytes]]:
    return {each.getsockname()[1]: {str(os.fstat(each.fileno()).st_ino).encode()} for each in servers}


def test_sockets_that_listen_are_found_by_port_and_connections_are_not(servers: list[socket.socket]) -> None:
    found = listening.listening_sockets()
    assert {port: found.get(port) for port in expected(servers)} == expected(servers)
    with socket.create_connection(servers[0].getsockname()) as connection:
        assert connection.getsockname()[1] not in listening.listening_sockets()


def test_without_sock_diag_the_tables_in_proc_tell_the_same(
    servers: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(family: int, inodes: listening.Inodes) -> None:
        raise PermissionError(errno.EPERM, "a sandbox")

    monkeypatch.setattr(listening, "_ask_kernel", denied)
    found = listening.listening_sockets()
    assert {port: found.get(port) for port in expected(servers)} == expected(servers)


def test_an_answer_with_an_error_is_not_an_empty_list() -> None:
    error = listening._HEADER.pack(20, listening._ERROR, 0, 1, 0) + bytes(4)
    with pytest.raises(OSError, match="does not list"):
        listening._read_answer(error, {})
