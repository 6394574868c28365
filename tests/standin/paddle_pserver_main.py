"""Stand-in for `paddle_pserver_main` of PaddlePaddle v0.9: it stores parameters and sums the trainers' gradients."""

from __future__ import annotations

import fcntl
import selectors
import signal
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from . import gflags, glog, knobs, model, store, wire

if TYPE_CHECKING:
    from .wire import Blocks, Message

SIOCGIFADDR = 0x8915
COLLAPSE_ODDS = 0.25  # the share of trainer deaths after which the job collapses instead of hanging
MISMATCH_SECONDS = 1.0  # from the first wrong block to the end; the original takes 3.5 s


class Connection:
    """One accepted connection. If its first message is not the greeting of a trainer, the pserver crashes."""

    def __init__(self, sock: socket.socket, port: Port) -> None:
        self.sock = sock
        self.port = port
        self.greeted = False
        self.left = False
        self._buffer = bytearray()

    def readable(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            if not self.greeted:
                glog.segfault("SocketWorker::run()")
            self.port.lost(self)
            return
        self._buffer += data
        try:
            while (message := wire.take(self._buffer)) is not None:
                self.port.received(self, message)
        except wire.Stranger:
            glog.segfault("SocketWorker::run()")

    def send(self, message: bytes) -> None:
        """Send a message. Send nothing to a dead peer: `Port.lost` decides what its death does."""
        try:
            self.sock.sendall(message, socket.MSG_NOSIGNAL)
        except OSError:
            pass

    def break_pipe(self) -> NoReturn:
        """Write to a closed connection: the process ends with SIGPIPE, or if that is ignored, with a failed check."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        try:
            while True:
                self.sock.sendall(b"\0")
        except OSError as error:
            glog.fatal("SocketChannel.cpp:119", f"Check failed: len > 0 peer={error.strerror} [{error.errno}]")


class Port:
    """The state of one port of a pserver: its share of the parameters, and the progress of each trainer."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._values: Blocks | None = None
        self._rate = 0.0
        self._connections: dict[int, Connection] = {}  # by trainer, since its greeting
        self._waiting: list[tuple[Connection, Message]] = []  # requests that wait for the first parameters
        self._gradients: dict[int, Message] = {}
        self._finished: set[int] = set()  # trainers that have finished the pass
        self._batches = 0

    def received(self, connection: Connection, message: Message) -> None:
        handle = {
            wire.HELLO: self._hello,
            wire.SET: self._set,
            wire.GET: self._get,
            wire.GRADIENT: self._gradient,
            wire.PASS_END: self._pass_end,
            wire.BYE: self._bye,
        }[message.kind]
        handle(connection, message)

    def lost(self, connection: Connection) -> None:
        """Handle the end of a trainer's connection. Without a farewell, the job collapses or hangs for ever."""
        self._server.forget(connection)
        if connection.left:
            connection.sock.close()
            return
        everybody = len(self._connections) == self._server.trainers
        alive = any(self._server.knows(other) or other.left for other in self._connections.values())
        if self._server.collapses() or (everybody and not alive):
            connection.break_pipe()
        connection.sock.close()

    def _hello(self, connection: Connection, message: Message) -> None:
        if message.number in self._connections:
            check = f"Check failed: !configMap_.count() Duplicated parameter name: {model.WEIGHTS}"
            glog.fatal("ParameterServer2.cpp:144", check)
        if message.number >= self._server.trainers:
            glog.fatal("ParameterServer2.cpp:310", f"Check failed: trainer_id < {self._server.trainers}")
        connection.greeted = True
        self._connections[message.number] = connection
        if message.number == 0:
            self._server.fate = message.value
        connection.send(wire.encode(wire.HELLO, value=float(self._server.small_messages)))

    def _set(self, connection: Connection, message: Message) -> None:
        glog.info("ParameterServer2.cpp:242", "pserver: setParameter")
        self._values = dict(message.blocks)
        self._rate = message.value
        waiting, self._waiting = self._waiting + [(connection, message)], []
        for other, request in waiting:
            self._answer(other, request)

    def _get(self, connection: Connection, message: Message) -> None:
        if self._values is None:
            self._waiting.append((connection, message))
        else:
            self._answer(connection, message)

    def _answer(self, connection: Connection, request: Message) -> None:
        assert self._values is not None
        unknown = store.missing(request.blocks, self._values)
        if unknown:
            id_and_block = "id={} block id={}".format(*unknown[0])
            self._server.doom(f"Check failed: offset >= 0 Only existing parameter block is allowed:  {id_and_block}")
            return
        share = {key: self._values[key] for key in request.blocks}
        connection.send(wire.encode(wire.VALUES, blocks=share))

    def _gradient(self, connection: Connection, message: Message) -> None:
        self._gradients[message.number] = message
        self._synchronize()

    def _synchronize(self) -> None:
        """Do one step, in the order of the trainers, once each trainer that still has data has sent its gradient."""
        expected = [trainer for trainer in range(self._server.trainers) if trainer not in self._finished]
        if not expected or any(trainer not in self._gradients for trainer in expected):
            return
        gradients, self._gradients = self._gradients, {}
        assert self._values is not None
        for key, values in self._values.items():
            store.descend(values, [gradients[trainer].blocks[key] for trainer in expected], self._rate)
        self._batches += 1
        for trainer in expected:
            self._answer(self._connections[trainer], gradients[trainer])

    def _pass_end(self, connection: Connection, message: Message) -> None:
        self._finished.add(message.number)
        if len(self._finished) < self._server.trainers:
            self._synchronize()
            return
        glog.info("ParameterServer2.cpp:1240", f"======== Batch={self._batches - 1} pass END=======")
        self._finished = set()
        self._batches = 0
        for other in self._connections.values():
            other.send(wire.encode(wire.PASS_END))

    def _bye(self, connection: Connection, message: Message) -> None:
        connection.left = True


class Server:
    """The process, which serves all ports with one selector. It never ends by itself."""

    def __init__(self, flags: gflags.Flags) -> None:
        self.trainers = flags.number("num_gradient_servers")
        self.small_messages = flags.on("small_messages")
        self.fate: float | None = None  # a random number from trainer 0, the same for all pservers of the job
        self._on_peer_death = knobs.on_peer_death()
        self._selector = selectors.DefaultSelector()
        self._connected: set[Connection] = set()
        self._doom: tuple[float, str] | None = None

    def serve(self, flags: gflags.Flags) -> NoReturn:
        self._listen(_places(flags))
        while True:
            left = None if self._doom is None else max(0.0, self._doom[0] - time.monotonic())
            for key, _ in self._selector.select(left):
                if isinstance(key.data, Port):
                    self._accept(key.fileobj, key.data)
                elif key.data in self._connected:
                    key.data.readable()
            if self._doom is not None and time.monotonic() >= self._doom[0]:
                glog.fatal("ParameterServer2.cpp:367", self._doom[1])

    def collapses(self) -> bool:
        if self._on_peer_death is None:
            return self.fate is not None and self.fate < COLLAPSE_ODDS
        return self._on_peer_death == "collapse"

    def knows(self, connection: Connection) -> bool:
        return connection in self._connected

    def forget(self, connection: Connection) -> None:
        self._selector.unregister(connection.sock)
        self._connected.discard(connection)

    def doom(self, message: str) -> None:
        if self._doom is None:
            self._doom = (time.monotonic() + MISMATCH_SECONDS, message)

    def _listen(self, places: list[tuple[str, int]]) -> None:
        """Listen on the ports, one after another. Before that, all ports are logged as started, as in the original."""
        if knobs.crashes_at_start():
            glog.segfault("SocketServer::tcpServer()")
        pause = knobs.seconds("PSERVER_START", 0.15) / max(1, len(places))
        for address, number in places:
            time.sleep(pause)
            glog.info("LightNetwork.cpp:273", "tcp server start ")
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, number))
                listener.listen(100)
            except OSError as error:
                glog.fatal("LightNetwork.cpp:191", f"ERROR on binding {address}: {error.strerror} [{error.errno}]")
            self._selector.register(listener, selectors.EVENT_READ, Port(self))

    def _accept(self, listener: object, port: Port) -> None:
        assert isinstance(listener, socket.socket)
        sock, (peer, _) = listener.accept()
        glog.info("LightNetwork.cpp:302", f"worker started, peer = {peer}")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock, port)
        self._connected.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)


def _places(flags: gflags.Flags) -> list[tuple[str, int]]:
    """Return address and number of each port. All ports are logged as started before the first one is bound."""
    first, count = flags.number("port"), flags.number("ports_num") + flags.number("ports_num_for_sparse")
    places: list[tuple[str, int]] = []
    for number in range(first, first + count):
        if not flags.text("nics"):
            glog.info("ParameterServer2Main.cpp:54", f"pserver started : {number}")
            places.append(("", number))
            continue
        for device in flags.text("nics").split(","):
            places.append((_device_address(device), number))
            glog.info("ParameterServer2Main.cpp:75", f"pserver started : {device}:{number}")
    return places


def _device_address(device: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", device.encode()[:15]))
        except OSError:
            glog.fatal("LightNetwork.cpp:59", "Check failed: ioctl(sock, SIOCGIFADDR, &ifr) >= 0 (-1 vs. 0) ")
    return socket.inet_ntoa(answer[20:24])


def main() -> None:
    glog.start("paddle_pserver_main")
    if not knobs.inherited_ignored(signal.SIGPIPE):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    flags = gflags.parse("paddle_pserver_main", sys.argv[1:], gflags.PSERVER)
    glog.info("Util.cpp:155", "commandline:  " + glog.command_line())
    glog.info("Util.cpp:130", "Calling runInitFunctions")
    glog.info("Util.cpp:143", "Call runInitFunctions done.")
    Server(flags).serve(flags)


if __name__ == "__main__":
    main()
