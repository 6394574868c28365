"""With LAUNCHER_TLS_DIR members talk to each other by TLS only, and new connections use new certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launcher.base import tls
from launcher.gang import Finish, GangSettings, JoinFailed, Stop, certificates
from launcher.gang.certificates import Certificates
from launcher.gang.listener import NO_TLS
from launcher.gang.protocol import VERSION
from tests.support.certificates import CertificateAuthority
from tests.support.members import Node, Scene, died, in_loop, settings, stopped_once_by, until


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "authority")


@pytest.fixture
def folder(tmp_path: Path, authority: CertificateAuthority) -> Path:
    return authority.issue(tmp_path / "tls")


def with_tls(size: int, folder: Path, **changes: Any) -> GangSettings:
    return settings(size, tls_folder=str(folder), **changes)


async def train_to_the_end(nodes: list[Node]) -> None:
    for node in nodes:
        node.ready()
        node.trained()
    for node in nodes:
        await node.hears(Finish())
        assert not node.has(Stop)


@in_loop
async def test_a_gang_with_certificates_sends_nothing_in_plain_text(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, with_tls(3, authority.issue(tmp_path / f"tls-{rank}"))) for rank in range(3)]
        relay = await scene.relay(nodes[0].place)
        await scene.joined(nodes, hub=relay.place)
        await train_to_the_end(nodes)
        assert relay.passed
        assert b"word" not in relay.passed
        assert b"job" not in relay.passed


@in_loop
async def test_a_failure_reaches_all_members_by_tls(folder: Path) -> None:
    """Each launcher ends its connections right after its last message."""
    cause = died("trainer", 1, 3, tail=("x" * 8000,))
    async with Scene() as scene:
        nodes = await scene.training(3, with_tls(3, folder))
        nodes[1].failed(cause)
        await nodes[0].told_to_stop()
        await nodes[0].gang.close()
        await stopped_once_by(nodes, cause)


@in_loop
async def test_a_member_that_is_cut_reconnects_by_tls(folder: Path) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, with_tls(2, folder)) for rank in range(2)]
        relay = await scene.relay(nodes[0].place)
        await scene.joined(nodes, hub=relay.place)
        relay.cut()
        await until(lambda: relay.connections == 2)
        await train_to_the_end(nodes)


@in_loop
async def test_a_member_without_tls_is_refused(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Scene() as scene:
        hub = await scene.node(0, with_tls(2, folder, hello_within=0.2))
        member = await scene.node(1, settings(2, reach_within=0.5))
        leading = asyncio.ensure_future(hub.join(None))
        with pytest.raises(JoinFailed, match="cannot be reached"):
            await member.join(hub.place)
        assert set(hub.gang.refusals.counts) == {NO_TLS}
        assert f"refused 127.0.0.1: {NO_TLS}" in caplog.text
        leading.cancel()


@in_loop
async def test_a_hub_without_tls_is_named(folder: Path) -> None:
    async with Scene() as scene:
        hub = await scene.node(0, settings(2, hello_within=0.5))
        member = await scene.node(1, with_tls(2, folder, reach_within=1))
        leading = asyncio.ensure_future(hub.join(None))
        with pytest.raises(JoinFailed, match=r"TLS fails \(.*\): do all pods have LAUNCHER_TLS_DIR\?"):
            await member.join(hub.place)
        leading.cancel()


@in_loop
async def test_a_hub_that_ends_the_connection_instead_of_tls_is_named(folder: Path) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1")
    async with server, Scene() as scene:
        member = await scene.node(1, with_tls(2, folder, reach_within=0.3))
        with pytest.raises(JoinFailed, match=r"TLS fails \(.*\): do all pods have LAUNCHER_TLS_DIR\?"):
            await member.join(server.sockets[0].getsockname())


@in_loop
async def test_certificates_of_another_authority_are_refused_on_both_sides(tmp_path: Path, folder: Path) -> None:
    other = CertificateAuthority(tmp_path / "another").issue(tmp_path / "other")
    async with Scene() as scene:
        hub = await scene.node(0, with_tls(2, folder))
        member = await scene.node(1, with_tls(2, other, reach_within=0.3))
        leading = asyncio.ensure_future(hub.join(None))
        with pytest.raises(JoinFailed, match=r"TLS fails \(.*(certificate|issuer).*\)"):
            await member.join(hub.place)
        assert set(hub.gang.refusals.counts) == {NO_TLS}
        leading.cancel()


@in_loop
async def test_a_member_whose_certificate_expires_later_is_refused(
    tmp_path: Path, folder: Path, authority: CertificateAuthority
) -> None:
    """The hub refuses the certificate only after the member's side of the handshake is complete."""
    member_folder = authority.issue(tmp_path / "member")
    async with Scene() as scene:
        hub = await scene.node(0, with_tls(2, folder))
        member = await scene.node(1, with_tls(2, member_folder, reach_within=0.3))
        expired = authority.issue(tmp_path / "expired", days=-1)
        own = member.gang._port.certificates
        assert own is not None
        assert own._contexts is not None
        own._contexts.client.load_cert_chain(expired / "tls.crt", expired / "tls.key")
        leading = asyncio.ensure_future(hub.join(None))
        with pytest.raises(JoinFailed, match="ended the connection: does it accept this pod's certificate"):
            await member.join(hub.place)
        assert set(hub.gang.refusals.counts) == {NO_TLS}
        leading.cancel()


@in_loop
async def test_idle_connections_without_tls_cannot_keep_members_out(folder: Path) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, with_tls(2, folder, hello_within=60)) for rank in range(2)]
        idle = [await asyncio.open_connection(*nodes[0].place) for _ in range(200)]
        await scene.joined(nodes)
        assert nodes[0].gang.refusals.counts["too many connections without a join"] >= 200 - 64 - 2
        await train_to_the_end(nodes)
        for _, writer in idle:
            writer.close()


def refused_peer(place: tuple[str, int], folder: Path) -> socket.socket:
    """Return the connection of a peer that has a certificate and no secret, and does not answer the end of TLS."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    context.check_hostname = False
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    connected = context.wrap_socket(socket.create_connection(place, 8))
    connected.sendall(b'{"word":"hello","version":%d,"nonce":""}\n' % (VERSION + 1) * 2)
    assert b"version" in connected.recv(1000)
    return socket.socket(fileno=connected.detach())


def read_to_the_end(connected: socket.socket) -> None:
    connected.settimeout(8)
    with suppress(ConnectionResetError):
        while connected.recv(1000):
            pass


@pytest.mark.parametrize(("hello_within", "peers"), [(0.3, 1), (60, 64 + 2 + 1)])
@in_loop
async def test_refused_peers_cannot_keep_their_connections(folder: Path, hello_within: float, peers: int) -> None:
    async with Scene() as scene:
        nodes = [await scene.node(rank, with_tls(2, folder, hello_within=hello_within)) for rank in range(2)]
        leading = asyncio.ensure_future(nodes[0].join(None))
        await asyncio.sleep(0)
        refused = [await asyncio.to_thread(refused_peer, nodes[0].place, folder) for _ in range(peers)]
        await asyncio.to_thread(read_to_the_end, refused[0])
        assert nodes[0].gang.refusals.counts == {"another version": peers}
        await asyncio.gather(leading, nodes[1].join(nodes[0].place))
        for connected in refused:
            connected.close()


# ---- new files -------------------------------------------------------------------------------------------------------


async def serial(place: tuple[str, int], folder: Path) -> str:
    """Return the certificate that the launcher at this place shows now."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    context.check_hostname = False
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    _, writer = await asyncio.open_connection(*place, ssl=context, server_hostname="")
    shown = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    writer.close()
    return str(shown)


@in_loop
async def test_new_connections_use_new_files(
    folder: Path, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificates, "_LOOK_EVERY", 0.05)
    async with Scene() as scene:
        nodes = await scene.gang(2, with_tls(2, folder))
        before = await serial(nodes[0].place, folder)
        (folder / "tls.crt").write_text("not ready yet")
        await until(lambda: caplog.text.count("new connections still use the earlier files") == len(nodes))
        assert "tls.crt" in caplog.text
        authority.issue(folder)
        await until(lambda: caplog.text.count("new connections use the new certificate") == len(nodes))
        assert await serial(nodes[0].place, folder) != before
        assert caplog.text.count("still use the earlier files") == len(nodes), "said once by each"
        await train_to_the_end(nodes)


@pytest.mark.parametrize("name", [tls.AUTHORITY, tls.KEY])
@in_loop
async def test_files_that_disappear_while_they_are_read_are_read_again(
    name: str, folder: Path, authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "_LOOK_EVERY", 0.05)
    watched = Certificates(str(folder))
    await watched.open()
    before = watched._contexts
    tries: list[str] = []

    really_load = ssl.SSLContext.load_verify_locations

    def load(context: ssl.SSLContext, path: str) -> None:
        tries.append(path)
        if len(tries) == 1:
            (folder / name).unlink()
        really_load(context, path)

    with monkeypatch.context() as patched:
        patched.setattr(ssl.SSLContext, "load_verify_locations", load)
        (folder / "tls.crt").touch()
        await until(lambda: tries)
        await asyncio.sleep(0.2)
    authority.issue(folder)
    await until(lambda: watched._contexts is not before)
    watched.close()


@in_loop
async def test_files_that_do_not_change_are_not_loaded_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_LOOK_EVERY", 0.01)
    watched = Certificates(str(folder))
    await watched.open()
    before = watched._contexts
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > 0.2)
    assert watched._contexts is before
    watched.close()
