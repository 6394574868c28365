"""The way to a complete gang, and what is left running behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher import config, peers
from launcher.bootstrap import Joined, Way
from launcher.gang import Gang
from launcher.gang import Settings as GangSettings
from launcher.peers.alone import Alone


class Lingering(Alone):
    """Goes on asking until it is closed, as one does that had to look again."""

    def __init__(self, settings: peers.Settings) -> None:
        super().__init__(settings)
        self.asks = True

    async def close(self) -> None:
        self.asks = False


def test_nothing_looks_for_peers_any_more_once_the_gang_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Lingering] = []

    def finder(settings: peers.Settings, say: Callable[[str], None]) -> peers.Finder:
        made.append(Lingering(settings))
        return made[0]

    async def test() -> None:
        events: asyncio.Queue[object] = asyncio.Queue()
        job = config.read({"LAUNCHER_WORKDIR": str(tmp_path)}, {}, check_here=False)
        gang = Gang(GangSettings(1, 0), events.put_nowait, print, complete=nothing, judge=lambda cause: cause)
        way = Way(job, gang, print, events.put_nowait, {})
        way.begin()
        while not isinstance(await asyncio.wait_for(events.get(), 10), Joined):
            pass
        await asyncio.sleep(0.1)
        assert not made[0].asks
        await way.end()
        await gang.close()

    monkeypatch.setattr(peers, "finder", finder)
    asyncio.run(test())


async def nothing() -> None:
    """There is no mark to write."""
