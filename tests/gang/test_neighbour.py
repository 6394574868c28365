"""Members check whether they can reach the next one. The hub names the pairs that cannot reach each other."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from dataclasses import replace
from typing import Any

import pytest

from launcher.gang import Finish, Stop, dialler
from tests.support.members import Node, Scene, died, in_loop, settings, until

NOWHERE = "127.0.0.99"  # nothing listens there


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def host(rank: int) -> str:
    return f"127.0.0.{rank + 1}"


async def gang(scene: Scene, size: int, unreachable: int | None = None, **changes: float) -> list[Node]:
    """Return a gang that trains. All members listen on one port. No other member reaches the unreachable one."""
    port, timing = free_port(), {"heartbeat_every": 0.1, "silence": 0.6, **changes}
    nodes = []
    for rank in range(size):
        config = settings(size, host(rank), port=port, **timing)
        address = NOWHERE if rank == unreachable else host(rank)
        nodes.append(await scene.node(rank, config, address=address))
    await scene.joined(nodes)
    for node in nodes:
        node.ready()
    return nodes


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


@in_loop
async def test_the_hub_names_two_members_that_cannot_reach_each_other(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        nodes = await gang(scene, 3, unreachable=2)
        await until(lambda: named(caplog), "a warning")
        place = f"{NOWHERE}:{nodes[0].gang.port}"
        (warning,) = named(caplog)
        assert warning.startswith(f"rank 1 cannot reach rank 2 at {place}: Connection refused for ")
        assert "but both reach the hub: check network policies between these pods (pod-1, pod-2)" in warning
        cause = died("trainer", 0, 3)
        nodes[0].failed(cause)
        for node in nodes:
            stopped_by = await node.told_to_stop()
            assert stopped_by == replace(cause, what=stopped_by.what)
            assert stopped_by.what == (
                f"it died; rank 1 cannot reach rank 2 at {place} (Connection refused): check network policies between "
                "these nodes"
            )


@in_loop
async def test_a_pair_that_cannot_reach_each_other_changes_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        nodes = await gang(scene, 4, unreachable=2)
        await until(lambda: named(caplog), "a warning")
        await asyncio.sleep(0.5)
        assert len(named(caplog)) == 1, "a pair is named once"
        for node in nodes:
            node.trained()
        for node in nodes:
            await node.hears(Finish())
            assert not node.has(Stop)


@in_loop
async def test_members_that_reach_each_other_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        nodes = await gang(scene, 3)
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 1.2)
        assert named(caplog) == []
        assert [node.gang.refusals.counts for node in nodes] == [{}, {}, {}]
        cause = died("trainer", 0, 3)
        nodes[0].failed(cause)
        assert await nodes[2].told_to_stop() == cause


@in_loop
async def test_the_hub_checks_the_first_member(caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        await gang(scene, 2, unreachable=1)
        await until(lambda: named(caplog), "a warning")
        assert named(caplog)[0].startswith("rank 0 cannot reach rank 1")


@in_loop
async def test_a_program_that_answers_on_the_port_of_a_member_is_not_this_member(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Scene() as scene:
        port = free_port()
        server = await asyncio.start_server(lambda _, writer: writer.write(b"HTTP/1.1 400\r\n"), NOWHERE, port)
        scene.others.append(server)
        nodes = []
        for rank in range(3):
            config = settings(3, host(rank), port=port, heartbeat_every=0.1, silence=0.6)
            nodes.append(await scene.node(rank, config, address=NOWHERE if rank == 2 else host(rank)))
        await scene.joined(nodes)
        await until(lambda: named(caplog), "a warning")
        assert "another program, or a launcher of another version, answers there" in named(caplog)[0]


@in_loop
async def test_a_pod_without_file_descriptors_does_not_blame_the_network(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Scene() as scene:
        await gang(scene, 3)
        monkeypatch.setattr(dialler, "socket", NoSockets())
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 1.2)
        assert named(caplog) == []


class NoSockets:
    """The module `socket` of a process without file descriptors."""

    def socket(self, *_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)
