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
from launcher.run.join import JobComplete, Joined, Joining
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
        events: asyncio.Queue[object] = asyncio.Queue()
        job = config.read({"LAUNCHER_WORKDIR": str(tmp_path)}, {}, check_here=False)
        gang = Gang(GangSettings(1, 0), events.put_nowait, complete=nothing, judge=as_it_is, prepare=at_once)
        joining = Joining(job, gang, events.put_nowait, factories=Factories(finder=make))
        joining.begin()
        while not isinstance(await asyncio.wait_for(events.get(), 10), Joined):
            pass
        await asyncio.sleep(0.1)
        assert not made[0].asks
        await joining.end()
        await gang.close()

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
    async def start(role: str, hub_port: int) -> tuple[Joining, Gang, asyncio.Queue[object]]:
        given = {
            "LAUNCHER_ROLE": role,
            "LAUNCHER_PSERVERS": "1",
            "LAUNCHER_SELECTOR": "app=x",
            "CONF_PADDLE_GRADIENT_NUM": "1",
            "LAUNCHER_WORKDIR": str(tmp_path),
            "LAUNCHER_GANG_PORT": str(hub_port or 7168),
        }
        events: asyncio.Queue[object] = asyncio.Queue()
        settings = GangSettings(2, 0, ("127.0.0.1",), pservers=1)
        gang = Gang(settings, events.put_nowait, complete=nothing, judge=as_it_is, prepare=at_once)
        told = config.read(given, {}, check_here=False)
        joining = Joining(told, gang, events.put_nowait, factories=Factories(finder=OfARole))
        joining.begin()
        await until(lambda: gang.port, "it listens")
        return joining, gang, events

    async def both(kind: type) -> list[object]:
        trainer = await start("trainer", 0)
        members = [trainer, await start("pserver", trainer[1].port)]
        found = [await until_event(events, kind) for _, _, events in members]
        for joining, gang, _ in members:
            await joining.end()
            await gang.close()
        return found

    async def test() -> None:
        records = [joined.record for joined in await both(Joined) if isinstance(joined, Joined)]
        folder = tmp_path / "output" / ".launcher" / "trainer-uid+pserver-uid"
        assert [record.attempts_file for record in records] == [str(folder / "attempts.json")] * 2
        records[0].mark_complete()
        await both(JobComplete)

    asyncio.run(test())


async def until_event(events: asyncio.Queue[object], kind: type) -> object:
    while not isinstance(event := await asyncio.wait_for(events.get(), 10), kind):
        pass
    return event


async def nothing() -> None:
    """There is no mark to write."""


def as_it_is(cause: Cause) -> tuple[Cause, Verdict]:
    return cause, Verdict.STOP


async def at_once(cause: Cause | None) -> Start:
    return FIRST
