"""How a member finds its peers and joins, and that the search ends after the join."""

from __future__ import annotations

import asyncio
from pathlib import Path

from launcher import config
from launcher.discovery.finder import Finder, FinderSettings, SingleFinder
from launcher.gang import Gang, Verdict
from launcher.gang import GangSettings as GangSettings
from launcher.model import FIRST, Cause, Peers, Start
from launcher.run.factories import Factories
from launcher.run.join import Joined, Joining
from launcher.run.node import Node
from launcher.run.session import Session
from launcher.run.signals import Signals
from tests.support.members import until


class Lingering(SingleFinder):
    """A finder that searches until it is closed, as after a refusal."""

    def __init__(self, settings: FinderSettings) -> None:
        super().__init__(settings)
        self.asks = True

    async def close(self) -> None:
        self.asks = False


def test_the_search_for_peers_ends_as_soon_as_the_gang_is_complete(tmp_path: Path) -> None:
    made: list[Lingering] = []

    def make(settings: FinderSettings) -> Finder:
        made.append(Lingering(settings))
        return made[0]

    async def test() -> None:
        job = config.read({"LAUNCHER_WORKDIR": str(tmp_path)}, {}, check_here=False)
        signals = Signals()
        session = Session(job, (), Node(job, (), ("true",)), signals, None, Factories(finder=make))
        running = asyncio.ensure_future(session.run())
        await until(lambda: session.joined, "it has joined")
        await until(lambda: not made[0].asks, "the search has ended")
        assert not running.done()
        running.cancel()
        await session.end_children(1)
        await session.gang.close()

    asyncio.run(test())


class OfARole(SingleFinder):
    """A finder of a member that knows the controller of its own role and the address of the hub."""

    def __init__(self, settings: FinderSettings) -> None:
        super().__init__(settings)
        self._settings = settings

    async def identity(self) -> str:
        return f"{self._settings.role}-uid"

    async def find(self) -> Peers:
        rank = self._settings.shape.rank(self._settings.role, 0)
        return Peers(self._own_member(rank, "127.0.0.1"), "127.0.0.1" if rank else None, "own-uid", rank)


def test_two_roles_agree_on_one_identity_and_each_finds_the_mark_of_completion_by_its_own(tmp_path: Path) -> None:
    async def start(role: str, hub_port: int) -> tuple[Joining, Gang, asyncio.Task[Joined | None]]:
        given = {
            "LAUNCHER_ROLE": role,
            "LAUNCHER_PSERVERS": "1",
            "LAUNCHER_SELECTOR": "app=x",
            "CONF_PADDLE_GRADIENT_NUM": "1",
            "LAUNCHER_WORKDIR": str(tmp_path),
            "LAUNCHER_GANG_PORT": str(hub_port or 7168),
        }
        settings = GangSettings(2, 0, ("127.0.0.1",), pservers=1)
        gang = Gang(settings, lambda event: None, complete=nothing, judge=as_it_is, prepare=at_once)
        told = config.read(given, {}, check_here=False)
        joining = Joining(told, gang, factories=Factories(finder=OfARole))
        result = asyncio.ensure_future(joining.join())
        await until(lambda: gang.port or result.done(), "it listens")
        return joining, gang, result

    async def both() -> list[Joined | None]:
        trainer = await start("trainer", 0)
        members = [trainer, await start("pserver", trainer[1].port)]
        found = [await asyncio.wait_for(result, 10) for _, _, result in members]
        for joining, gang, _ in members:
            await joining.end()
            await gang.close()
        return found

    async def test() -> None:
        records = [joined.record for joined in await both() if joined]
        folder = tmp_path / "output" / ".launcher" / "trainer-uid+pserver-uid"
        assert [record.attempts_file for record in records] == [str(folder / "attempts.json")] * 2
        records[0].mark_complete()
        assert await both() == [None, None], "the job is complete already"

    asyncio.run(test())


async def nothing() -> None:
    """There is no mark to write."""


def as_it_is(cause: Cause) -> tuple[Cause, Verdict]:
    return cause, Verdict.STOP


async def at_once(cause: Cause | None) -> Start:
    return FIRST
