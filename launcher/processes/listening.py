"""Find the listening TCP sockets of this network namespace."""

from __future__ import annotations

import socket
import struct

from launcher.base import shortage

Inodes = dict[int, set[bytes]]

_LISTEN = b"0A"

# See sock_diag(7).
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_TCP_LISTEN = 10
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBBI48x")  # inet_diag_req_v2: family, protocol, extensions, padding, states, id
_SOCKET = struct.Struct("=4xH")  # inet_diag_msg begins with 4 bytes and the port
_INODE = struct.Struct("=I")
_INODE_AT = 68  # in inet_diag_msg
_ANSWER_BYTES = 65536
_ANSWER_WITHIN = 1.0  # seconds


def listening_sockets() -> Inodes:
    """Return the inodes of all listening TCP sockets by port, for IPv4 and IPv6.

    Raises OSError if this process has no file descriptor left.
    """
    inodes: Inodes = {}
    for family, path in ((socket.AF_INET, "/proc/net/tcp"), (socket.AF_INET6, "/proc/net/tcp6")):
        try:
            _ask_kernel(family, inodes)
        except OSError as error:
            if shortage.is_of_descriptors(error):
                raise
            _read_table(path, inodes)  # a sandbox, or a kernel without sock_diag
    return inodes


def _ask_kernel(family: int, inodes: Inodes) -> None:
    """Ask only for listening sockets: /proc/net/tcp walks through the table of all connections, which takes 10 ms."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(_ANSWER_WITHIN)
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << _TCP_LISTEN)
        head = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        asking.send(head + request)
        while _read_answer(asking.recv(_ANSWER_BYTES), inodes):
            pass


def _read_answer(answer: bytes, inodes: Inodes) -> bool:
    """Add the sockets in one answer of the kernel. Return whether there are more answers. Raises OSError."""
    start = 0
    while start + _HEADER.size <= len(answer):
        length, kind, *_ = _HEADER.unpack_from(answer, start)
        if kind == _DONE:
            return False
        if kind == _ERROR or length < _HEADER.size:
            raise OSError("the kernel does not list sockets")
        body = start + _HEADER.size
        if body + _INODE_AT + _INODE.size > len(answer):
            raise OSError("the kernel's answer is cut")
        port = socket.ntohs(_SOCKET.unpack_from(answer, body)[0])
        inode = _INODE.unpack_from(answer, body + _INODE_AT)[0]
        inodes.setdefault(port, set()).add(b"%d" % inode)
        start += (length + 3) & ~3
    return True


def _read_table(path: str, inodes: Inodes) -> None:
    try:
        with open(path, "rb") as file:
            lines = file.readlines()[1:]
    except OSError as error:
        if shortage.is_of_descriptors(error):
            raise
        return  # no IPv6 here
    for fields in map(bytes.split, lines):
        if fields[3] == _LISTEN:
            inodes.setdefault(int(fields[1].rpartition(b":")[2], 16), set()).add(fields[9])
