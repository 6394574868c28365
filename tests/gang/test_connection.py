"""Connections that end, are cut, or are silent: members reconnect or are lost."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from dataclasses import replace

import pytest

from launcher.errors import Exit
from launcher.gang import Finish, HubLost, JoinFailed, Lead, Stop, Train, handshake, messages
from launcher.gang.connection import Connection, Heartbeat
from launcher.gang.protocol import ALIVE, Message
from tests.support.members import (
    BEGUN,
    Scene,
    cut_gang,
    died,
    in_loop,
    settings,
    stopped_once_by,
    until,
)
from tests.support.wire import Wire


@in_loop
async def test_a_member_reconnects_after_a_cut_and_no_message_is_lost() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene)
        relay.refusing = True
        relay.cut()
        nodes[1].gang.report_trained()
        await until(lambda: relay.connections >= 3)
        relay.refusing = False
        nodes[0].gang.report_trained()
        for node in nodes:
            await node.hears(Finish())
            assert node.events == [BEGUN, *([Lead()] if node is nodes[0] else []), Train(), Finish()]


@in_loop
async def test_a_member_that_reconnects_gets_the_messages_that_it_missed() -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, settings(3)) for rank in range(3)]
        relay = await scene.relay(nodes[0].place)
        await asyncio.gather(nodes[0].join(None), nodes[1].join(relay.place), nodes[2].join(nodes[0].place))
        for node in nodes[:2]:
            node.ready()
        await until(lambda: b"serving" in relay.passed)
        relay.swallowing = True
        nodes[2].ready()
        await nodes[0].hears(Train())
        relay.swallowing = False
        relay.cut()
        await nodes[1].hears(Train())
        relay.refusing = True
        relay.cut()
        cause = died("trainer", 2, 3)
        nodes[2].gang.report_failed(cause, time.monotonic() - 1)
        await nodes[0].told_to_stop()
        relay.refusing = False
        await stopped_once_by(nodes, cause)


@in_loop
async def test_a_first_cause_that_arrives_late_because_of_a_cut_is_still_the_first() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene)
        relay.refusing = True
        relay.cut()
        first = died("pserver", 1, 137)
        nodes[1].gang.report_failed(first, time.monotonic())
        await until(lambda: relay.connections >= 3)
        nodes[0].gang.report_failed(died("trainer", 0, 139), time.monotonic())
        await until(lambda: relay.connections >= 9)
        relay.refusing = False
        await stopped_once_by(nodes, first)


@in_loop
async def test_a_verdict_waits_until_a_member_has_reconnected_or_is_lost() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene)
        relay.refusing = True
        relay.cut()
        await until(lambda: relay.connections >= 3)
        cause = died("trainer", 0, 139)
        nodes[0].gang.report_failed(cause, time.monotonic())
        await until(lambda: relay.connections >= 9)
        assert not nodes[0].has(Stop)
        relay.refusing = False
        await stopped_once_by(nodes, cause)


@in_loop
async def test_a_member_that_does_not_return_is_lost() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene)
        relay.refusing = True
        relay.cut()
        cause = await nodes[0].told_to_stop()
        assert (cause.kind, cause.rank, cause.pod, cause.code) == ("lost", 1, "pod-1", Exit.PEER_LOST)
        assert "did not reconnect within 1 s" in cause.what
        cause = await nodes[1].told_to_stop()
        assert (cause.kind, cause.rank, cause.pod, cause.code) == ("lost", 0, "pod-0", Exit.PEER_LOST)
        for node in nodes:
            await node.hears(Finish())


@in_loop
async def test_a_hub_that_does_not_answer_the_join_of_a_member_that_returns_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake, "WAITING_AFTER", 60)
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene, reconnect_within=0.2)
        relay.hold_after = b'"word":"proof"'
        relay.cut()
        cause = await nodes[1].told_to_stop()
        assert (cause.kind, cause.rank) == ("lost", 0)
        assert relay.received.count(b'"word":"join"') > 1


@in_loop
async def test_a_replacement_cannot_enter_a_gang_that_runs() -> None:
    async with Scene() as scene:
        nodes = await scene.training(2)
        late = await scene.node(1, settings(2), pod="late")
        with pytest.raises(JoinFailed, match="runs without pod late"):
            await late.join(nodes[0].place)
        for node in nodes:
            node.gang.report_trained()
            await node.hears(Train())
        await nodes[1].hears(Finish())


@in_loop
async def test_a_killed_hub_stops_all_members() -> None:
    async with Scene() as scene:
        hub = scene.process(0, 3, None)
        place = ("127.0.0.1", await hub.line())
        members = [await scene.node(rank, settings(3)) for rank in (1, 2)]
        await asyncio.gather(*(member.join(place) for member in members))
        for member in members:
            member.ready()
            await member.hears(Train()) if member is members[1] else None
        members[1].gang.report_trained()
        hub.send(signal.SIGKILL)
        await hub.code()
        # After the hub, this member's trainer dies of the loss of the hub's pserver.
        members[0].gang.report_failed(died("trainer", 1, 139), time.monotonic())
        cause = await members[0].told_to_stop()
        assert (cause.kind, cause.rank, cause.pod, cause.code) == ("lost", 0, "pod-0", Exit.PEER_LOST)
        await members[0].hears(Finish())
        # This member has trained, so the mark of completion decides.
        await until(lambda: members[1].has(HubLost))
        assert not members[1].has(Stop)


@in_loop
async def test_a_member_that_failed_before_the_hub_was_lost_stops_by_its_own_cause() -> None:
    async with Scene() as scene:
        hub = scene.process(0, 2, None)
        member = await scene.node(1, settings(2))
        await member.join(("127.0.0.1", await hub.line()))
        own = died("trainer", 1, 3)
        member.gang.report_failed(own, time.monotonic() - 0.5)
        hub.send(signal.SIGKILL)
        await stopped_once_by([member], own)


@in_loop
async def test_without_a_verdict_a_member_stops_by_its_own_cause() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene, verdict_within=0.2)
        relay.swallowing = True
        own = died("trainer", 1, 3)
        nodes[1].gang.report_failed(own, time.monotonic())
        await stopped_once_by([nodes[1]], own)
        assert not nodes[0].has(Stop)


@in_loop
async def test_a_connection_without_heartbeats_is_dead_on_both_sides() -> None:
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene, heartbeat_every=0.2, silence=1.0, reconnect_within=0.2)
        relay.swallowing = True
        for node, other in ((nodes[0], 1), (nodes[1], 0)):
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank) == ("lost", other)
            assert "nothing was heard for 1 s" in cause.what


@in_loop
async def test_bytes_without_a_seal_do_not_hide_that_a_peer_is_silent() -> None:
    """A program between both sides passes nothing on, and sends a line that never ends."""
    async with Scene() as scene:
        nodes, relay = await cut_gang(scene, heartbeat_every=0.2, silence=1.0)
        relay.swallowing = True
        writers = relay._writers[:]

        async def trickle() -> None:
            while True:
                for writer in writers:
                    writer.write(b"x")
                await asyncio.sleep(0.05)

        trickling = asyncio.ensure_future(trickle())
        for node in nodes:
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank) == ("lost", 1 - node.rank)
            assert "nothing was heard for 1 s" in cause.what
        trickling.cancel()


@in_loop
async def test_a_stopped_member_is_lost_after_the_silence() -> None:
    async with Scene() as scene:
        hub = await scene.node(0, settings(2, heartbeat_every=0.2, silence=1.0))
        member = scene.process(1, 2, hub.place, heartbeat_every=0.2)
        await member.line()
        await hub.join(None)
        hub.ready()
        await hub.hears(Train())
        member.send(signal.SIGSTOP)
        cause = await hub.told_to_stop()
        assert (cause.kind, cause.rank) == ("lost", 1)


@in_loop
async def test_members_that_send_heartbeats_are_not_lost() -> None:
    async with Scene() as scene:
        nodes, _ = await cut_gang(scene, heartbeat_every=0.2, silence=0.8)
        deadline = time.monotonic() + 2.4
        await until(lambda: time.monotonic() > deadline)
        assert not any(node.has(Stop) for node in nodes)


@in_loop
async def test_a_process_that_was_stopped_itself_does_not_drop_its_peers_at_once() -> None:
    here, there = socket.socketpair()
    loop = asyncio.get_running_loop()
    _, quiet = await loop.create_connection(lambda: Connection(lambda _, said: None, lambda _: None), sock=here)
    heartbeat = Heartbeat(0.02, 0.1, lambda: [quiet])
    heartbeat.start()
    for _ in range(4):
        time.sleep(0.05)  # noqa: ASYNC251 - this loop does not run, as if it were stopped
    for _ in range(3):
        await asyncio.sleep(0)  # the timer is overdue and runs at once
    assert there.recv(100, socket.MSG_DONTWAIT) == ALIVE
    assert not quiet.closing
    await until(lambda: quiet.closing, "a silent peer is dropped later")
    assert quiet.timed_out
    heartbeat.stop()
    there.close()


@in_loop
async def test_joining_a_hub_that_is_silent_before_the_welcome_fails() -> None:
    async with Scene() as scene:
        config = settings(3, heartbeat_every=0.2, silence=0.8, reach_within=0.2)
        hub, member = await scene.node(0, config), await scene.node(1, config)
        relay = await scene.relay(hub.place)
        leading = asyncio.ensure_future(hub.join(None))
        joining = asyncio.ensure_future(member.join(relay.place))
        await until(member.gang.missing)
        relay.swallowing = True
        relay.refusing = True
        with pytest.raises(JoinFailed, match="cannot be reached"):
            await asyncio.wait_for(joining, 5)
        leading.cancel()


@in_loop
async def test_a_cancelled_join_reports_its_cause_since_the_welcome_may_be_on_its_way() -> None:
    async with Scene() as scene:
        member = await scene.node(1, settings(2))
        said: list[Message] = []

        async def hub(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            wire = Wire(reader, writer)
            await wire.accept()
            said.append(await wire.receive())
            said.append(await wire.receive())
            wire.close()

        server = await asyncio.start_server(hub, "127.0.0.1", 0)
        joining = asyncio.ensure_future(member.join(server.sockets[0].getsockname()))
        await until(lambda: said, "a join")
        member.gang.report_failed(replace(died("stopped", 1, 143), rank=None), time.monotonic())
        joining.cancel()
        await until(lambda: [message["word"] for message in said] == ["join", "failed"], "the cause")
        server.close()


def faults_in_this_loop() -> list[object]:
    """Return a list that gets the exceptions of all callbacks. Each would end a launcher."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    return faults


@in_loop
async def test_no_heartbeat_follows_the_last_line_of_a_cancelled_join() -> None:
    async with Scene() as scene:
        faults = faults_in_this_loop()
        member = await scene.node(1, settings(2, heartbeat_every=0.02))
        joined = asyncio.Event()

        async def stopped_hub(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            wire = Wire(reader, writer)
            await wire.accept()
            await wire.receive()
            joined.set()

        server = await asyncio.start_server(stopped_hub, "127.0.0.1", 0)
        joining = asyncio.ensure_future(member.join(server.sockets[0].getsockname()))
        await joined.wait()
        joining.cancel()
        await asyncio.wait([joining])
        assert not faults
        server.close()


@in_loop
async def test_a_hub_that_closes_does_not_tell_members_that_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "WAITING_AFTER", 0.1)
    async with Scene() as scene:
        faults = faults_in_this_loop()
        hub = await scene.node(0, settings(3))
        leading = asyncio.ensure_future(hub.join(None))
        await asyncio.sleep(0)
        member = await Wire.connect(hub.place)
        await member.join(1, 3)
        await until(lambda: hub.gang.connected_peers() == 1)
        await hub.gang.close()
        assert not faults
        leading.cancel()


@in_loop
async def test_a_member_that_left_before_its_welcome_arrived_is_not_reported_as_lost() -> None:
    async with Scene() as scene:
        hub = await scene.node(0, settings(2))
        joining = asyncio.ensure_future(hub.join(None))
        wire = await Wire.connect(hub.place)
        await wire.join(1, 2)
        wire.send(messages.failed(0, replace(died("stopped", 1, 143), rank=None), 0.0))
        wire.writer.write_eof()
        await joining
        await wire.until_dropped()
        cause = await hub.told_to_stop()
        assert (cause.kind, cause.rank) == ("stopped", 1)
        await hub.hears(Finish())


@in_loop
async def test_a_failure_while_a_slow_mark_is_written_does_not_undo_completion() -> None:
    marked = asyncio.Event()
    async with Scene() as scene:
        config = settings(2, verdict_within=0.05, complete_within=8.0)
        hub, member = await scene.training(2, config, complete=lambda: wait_for_event(marked))
        for node in (hub, member):
            node.gang.report_trained()
        await until(lambda: hub.completions, "the mark")
        member.gang.report_failed(died("pserver", 1, 139), time.monotonic())
        await asyncio.sleep(0.2)
        marked.set()
        for node in (hub, member):
            await node.hears(Finish())
            assert not node.has(Stop)


async def wait_for_event(event: asyncio.Event) -> None:
    await event.wait()


class StillReading(asyncio.Transport):
    """A transport of TLS before Python 3.11: after `close`, it does not say that it is closing."""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def close(self) -> None:
        pass


@in_loop
async def test_a_connection_that_this_side_has_closed_reads_no_further_line() -> None:
    got: list[Message] = []

    def refuse(connection: Connection, message: Message) -> None:
        got.append(message)
        connection.close()

    connection = Connection(refuse, lambda _: None)
    connection.connection_made(StillReading())
    for _ in range(2):
        connection.data_received(b'{"word":"hello"}\n' * 2)
    assert got == [{"word": "hello"}]
