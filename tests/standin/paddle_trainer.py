"""Stand-in for `paddle_trainer` of PaddlePaddle v0.9: it trains a bag of words, alone or with pservers."""

from __future__ import annotations

import os
import random
import select
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn, Protocol

from . import gflags, glog, knobs, model, stamps, store, wire

if TYPE_CHECKING:
    from .model import Config, Sample
    from .store import Parameters

GATE_LOOKED_AT_EVERY = 0.01
DELAY_WITHOUT_SMALL_MESSAGES = 0.09  # seconds per batch that Nagle's algorithm and delayed acknowledgements cost


class Updater(Protocol):
    """Update the parameters in this process. A subclass lets the pservers do it."""

    def begin(self, parameters: Parameters, rate: float) -> None: ...

    def update(self, parameters: Parameters, gradient: Parameters) -> None: ...

    def end_pass(self) -> None: ...

    def finish(self) -> None: ...

    def pause(self, seconds: float) -> None: ...


class LocalUpdater:
    def begin(self, parameters: Parameters, rate: float) -> None:
        self._rate = rate

    def update(self, parameters: Parameters, gradient: Parameters) -> None:
        for name, values in parameters.items():
            store.descend(values, [gradient[name]], self._rate)

    def end_pass(self) -> None:
        pass

    def finish(self) -> None:
        pass

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


class RemoteUpdater:
    """Update the parameters on the pservers: one connection per port and pserver, over which all blocks are divided."""

    def __init__(self, flags: gflags.Flags) -> None:
        self._trainer = flags.number("trainer_id")
        self._sockets: list[socket.socket] = []
        self._buffers: list[bytearray] = []
        number = 0
        for host in flags.text("pservers").split(","):
            for port in range(flags.number("port"), flags.number("port") + flags.number("ports_num")):
                glog.info("ParameterClient2.cpp:122", f"pserver {number} {host}:{port}")
                self._sockets.append(_connect(host, port))
                self._buffers.append(bytearray())
                number += 1
        fate = random.random()  # one random number for the whole job: trainer 0 sends it to all pservers
        self._send_all([wire.encode(wire.HELLO, self._trainer, fate)] * number)
        both = all(reply.value == 1 for reply in self._receive_all()) and flags.on("small_messages")
        self._delay = 0.0 if both else knobs.seconds("WITHOUT_SMALL_MESSAGES", DELAY_WITHOUT_SMALL_MESSAGES)

    def begin(self, parameters: Parameters, rate: float) -> None:
        """Send the first parameters to the pservers (trainer 0), or receive them (all other trainers)."""
        shares = store.split(parameters, len(self._sockets))
        kind = wire.SET if self._trainer == 0 else wire.GET
        self._send_all([wire.encode(kind, self._trainer, rate, share) for share in shares])
        self._fetch(parameters)

    def update(self, parameters: Parameters, gradient: Parameters) -> None:
        shares = store.split(gradient, len(self._sockets))
        self._send_all([wire.encode(wire.GRADIENT, self._trainer, 0, share) for share in shares])
        self._fetch(parameters)
        self.pause(self._delay)

    def end_pass(self) -> None:
        self._send_all([wire.encode(wire.PASS_END, self._trainer)] * len(self._sockets))
        self._receive_all()

    def finish(self) -> None:
        self._send_all([wire.encode(wire.BYE, self._trainer)] * len(self._sockets))

    def pause(self, seconds: float) -> None:
        """Sleep, and die if a pserver dies."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for ready in select.select(self._sockets, [], [], left)[0]:
                self._read(self._sockets.index(ready))

    def _fetch(self, parameters: Parameters) -> None:
        for reply in self._receive_all():
            store.merge(parameters, reply.blocks)

    def _send_all(self, messages: list[bytes]) -> None:
        for number, message in enumerate(messages):
            try:
                self._sockets[number].sendall(message)
            except OSError as error:
                _lost("SocketChannel.cpp:119", error)

    def _receive_all(self) -> list[wire.Message]:
        """Return the next message of each server."""
        replies = []
        for number in range(len(self._sockets)):
            while (message := wire.take(self._buffers[number])) is None:
                self._read(number)
            replies.append(message)
        return replies

    def _read(self, number: int) -> None:
        try:
            data = self._sockets[number].recv(1 << 16)
        except OSError as error:
            _lost("SocketChannel.cpp:53", error)
        if not data:
            glog.segfault("SocketChannel::readMessage()")
        self._buffers[number] += data


def _connect(host: str, port: int) -> socket.socket:
    try:
        if not host:
            raise socket.gaierror("empty")
        address = socket.gethostbyname(host)
    except OSError as error:
        glog.fatal("LightNetwork.cpp:345", f"ERROR, no such host: {host} ({error})")
    try:
        server = socket.create_connection((address, port))
    except OSError as error:
        glog.fatal("LightNetwork.cpp:361", f"ERROR connecting to {host}: {error.strerror} [{error.errno}]")
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server


def _lost(where: str, error: OSError) -> NoReturn:
    glog.fatal(where, f"Check failed: len > 0 peer={error.strerror} [{error.errno}]")


class Trainer:
    """One run of `paddle train`."""

    def __init__(self, flags: gflags.Flags) -> None:
        self._flags = flags
        self._id = flags.number("trainer_id")
        if flags.text("job") != "train":
            glog.fatal("TrainerMain.cpp:106", f"Unknown job type: {flags.text('job')} (the stand-in only trains)")
        self._config = self._read_config()
        self._save_dir = flags.text("save_dir") or "./output/model"
        if "/" not in self._save_dir:
            self._save_dir = "./" + self._save_dir
        self._files = model.read_list(self._config.train_list)
        self._test_files = model.read_list(self._config.test_list) if self._config.test_list else []
        self._batches: list[list[Sample]] = []  # of the first pass, kept for later passes
        self._parameters = self._first_parameters()
        self._updater: Updater = LocalUpdater() if flags.on("local") else RemoteUpdater(flags)
        self._exit_at = knobs.exit_at()
        self._takes_memory_at = knobs.takes_memory_at()

    def run(self) -> None:
        for _ in range(2):
            self._updater.pause(knobs.seconds("TRAINER_START", 0.1))
        self._updater.begin(self._parameters, self._config.learning_rate)
        first = self._flags.number("start_pass")
        stamps.leave(self._id, "begins", first)
        for number in range(first, first + self._flags.number("num_passes")):
            self._train_pass(number)
        self._updater.finish()

    def _read_config(self) -> Config:
        config = model.read_config(self._flags.text("config"), self._flags.text("config_args"))
        glog.info("Trainer.cpp:170", "trainer mode: Normal")
        glog.info("PyDataProvider2.cpp:257", f"loading dataprovider {config.provider}")
        return config

    def _first_parameters(self) -> Parameters:
        glog.info("GradientMachine.cpp:134", "Initing parameters..")
        parameters = model.new_parameters(self._config, self._flags.number("seed"))
        glog.info("GradientMachine.cpp:141", "Init parameters done.")
        start = self._flags.number("start_pass")
        if self._flags.text("init_model_path"):
            store.load(self._flags.text("init_model_path"), parameters)
        elif start > 0:
            folder = self._folder(start - 1)
            if not os.path.exists(os.path.join(folder, "done")):
                glog.fatal("Trainer.cpp:203", f"Check failed: paramUtil_->loadParameters({start - 1}) no {folder}/done")
            store.load(folder, parameters)
        return parameters

    def _train_pass(self, number: int) -> None:
        self._wait_at(f"pass-{number}")
        total, current, count, saved = model.Stats(), model.Stats(), 0, 0
        period, save_period = self._flags.number("log_period"), self._flags.number("saving_period_by_batches")
        for batch in self._all_batches():
            self._wait_at(f"pass-{number}-batch-{count}")
            if self._exit_at and self._exit_at[0] == count:
                os._exit(self._exit_at[1])
            if self._takes_memory_at and self._takes_memory_at[:2] == (self._id, count):
                self._taken = b"x" * (self._takes_memory_at[2] << 20)
            if count % period == 0:
                current = model.Stats()
            before = model.Stats()
            gradient = model.gradient(self._parameters, batch, before)
            for stats in (total, current):
                stats.add(before.samples, before.cost, before.errors)
            self._updater.pause(knobs.seconds("BATCH", 0))
            self._updater.update(self._parameters, gradient)
            count += 1
            stamps.leave(self._id, "batch", number)
            self._report_batch(count, total, current)
            if save_period > 0 and count > save_period * (saved + 1) and self._id == 0:
                saved += 1
                self._save(f"{self._folder(number)}-{saved:03d}", number)
        while count == 0:
            self._updater.pause(
                60
            )  # as in the original: a trainer without samples waits for ever, and so do the others
        self._updater.end_pass()
        stamps.leave(self._id, "pass", number)
        line = f" Pass={number} Batch={count} samples={total.samples} AvgCost={total.average_cost()}"
        glog.info("TrainerInternal.cpp:182", f"{line} Eval: {total.evaluation()} ")
        self._test()
        if number % self._flags.number("saving_period") == 0 and self._id == 0:
            stamps.leave(self._id, "saves", number)
            if self._save(self._folder(number), number):
                stamps.leave(self._id, "saved", number)
            self._delete_older(number)

    def _all_batches(self) -> Iterator[list[Sample]]:
        if self._batches:
            yield from self._batches
            return
        for batch in model.batches(self._config, self._files):
            self._batches.append(batch)
            yield batch

    def _report_batch(self, count: int, total: model.Stats, current: model.Stats) -> None:
        dots = self._flags.number("dot_period")
        if count % self._flags.number("log_period") == 0:
            if dots > 0:
                glog.raw("\n")
            line = f" Batch={count} samples={total.samples} AvgCost={total.average_cost()}"
            line += f" CurrentCost={current.average_cost()} Eval: {total.evaluation()} "
            glog.info("TrainerInternal.cpp:165", f"{line} CurrentEval: {current.evaluation()} ")
        elif dots > 0 and count % dots == 0:
            glog.raw(".")

    def _test(self) -> None:
        if not self._test_files:
            return
        stats = model.Stats()
        for batch in model.batches(self._config, self._test_files):
            model.gradient(self._parameters, batch, stats)
        line = f" Test samples={stats.samples} cost={stats.average_cost()} Eval: {stats.evaluation()} "
        glog.info("Tester.cpp:115", line)

    def _save(self, folder: str, number: int) -> bool:
        def after_each_file() -> None:
            self._wait_at(f"pass-{number}-save")

        return store.save(folder, self._parameters, self._flags.text("config"), after_each_file)

    def _wait_at(self, gate: str) -> None:
        while knobs.is_closed(gate):
            self._updater.pause(GATE_LOOKED_AT_EVERY)

    def _delete_older(self, number: int) -> None:
        older = number - self._flags.number("saving_period")
        if self._flags.on("save_only_one") and older >= 0:
            glog.info("ParamUtil.cpp:139", f"delete dir {self._folder(older)}")
            shutil.rmtree(self._folder(older), ignore_errors=True)

    def _folder(self, number: int) -> str:
        return f"{self._save_dir}/pass-{number:05d}"


def main() -> None:
    glog.start("paddle_trainer")
    flags = gflags.parse("paddle_trainer", sys.argv[1:], gflags.TRAINER)
    glog.info("Util.cpp:155", "commandline:  " + glog.command_line())
    glog.info("Util.cpp:130", "Calling runInitFunctions")
    glog.info("Util.cpp:143", "Call runInitFunctions done.")
    Trainer(flags).run()


if __name__ == "__main__":
    main()
