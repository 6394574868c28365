"""A gang whose members have one role each: their ranks, and the refusal of members that do not fit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from launcher.gang import GangSettings, JoinFailed
from tests.support.members import Node, Scene, in_loop, settings, until

CONFIG = settings(3, pservers=1)  # two trainers


async def member(scene: Scene, rank: int | None, role: str, config: GangSettings = CONFIG, **more: Any) -> Node:
    controller = more.pop("controller", f"{role}s")
    node = await scene.node(rank, config, **more)
    node.me = replace(node.me, role=role, controller=controller)
    return node


@in_loop
async def test_trainers_have_the_first_ranks_though_a_server_has_the_lowest_address() -> None:
    async with Scene() as scene:
        nodes = [
            await member(scene, None, role, address=f"10.0.0.{end}", pod=f"{role}-{end}")
            for role, end in (("trainer", 8), ("pserver", 7), ("trainer", 9))
        ]
        await scene.joined(nodes)
        for node in nodes:
            assert node.roster is not None
            found = [(each.pod, each.controller) for each in node.roster.members]
            assert found == [("trainer-8", "trainers"), ("trainer-9", "trainers"), ("pserver-7", "pservers")]
        assert [node.rank for node in nodes] == [0, 2, 1]


@in_loop
async def test_heter_workers_have_the_last_ranks_and_all_members_learn_their_stages() -> None:
    async with Scene() as scene:
        config = settings(4, pservers=1, heters=2)
        nodes = [
            await member(scene, None, role, config, address=f"10.0.0.{end}", pod=f"{role}-{end}")
            for role, end in (("trainer", 9), ("heter", 6), ("pserver", 8), ("heter", 7))
        ]
        nodes[3].me = replace(nodes[3].me, stage=3)
        await scene.joined(nodes)
        for node in nodes:
            assert node.roster is not None
            assert node.roster.shape == config.shape
            found = [(each.pod, each.stage) for each in node.roster.members]
            assert found == [("trainer-9", 0), ("pserver-8", 0), ("heter-6", 0), ("heter-7", 3)]


@pytest.mark.parametrize(
    ("rank", "role", "more", "reason"),
    [
        (
            1,
            "trainer",
            {"controller": "older"},
            "pod-0, which has joined, is controlled by trainers, but pod pod-1 is controlled by older",
        ),
        (2, "pserver", {"controller": ""}, "pod pod-2 is controlled by an unknown object"),
        (2, "trainer", {}, "rank 2 must be a pserver, but pod pod-2 is not"),
        (1, "pserver", {}, "rank 1 must be a trainer, but pod pod-1 is not"),
        (1, "trainer", {"config": settings(3)}, "2 trainers and 1 pservers, pod pod-1 expects 3 members"),
        (1, "trainer", {"config": settings(3, pservers=2)}, "LAUNCHER_PSERVERS must be the same"),
        (
            1,
            "trainer",
            {"config": settings(3, pservers=1, heters=1)},
            "1 trainers, 1 pservers and 1 heter workers: CONF_PADDLE_GRADIENT_NUM, LAUNCHER_PSERVERS and "
            "LAUNCHER_HETERS must be the same",
        ),
        (2, "heter", {}, "rank 2 must be a pserver, but pod pod-2 is not"),
    ],
)
@in_loop
async def test_a_member_that_does_not_fit_is_refused(rank: int, role: str, more: dict[str, Any], reason: str) -> None:
    async with Scene() as scene:
        hub, other = await member(scene, 0, "trainer"), await member(scene, rank, role, **more)
        leading = asyncio.ensure_future(hub.join(None))
        await asyncio.sleep(0)
        with pytest.raises(JoinFailed, match=reason):
            await asyncio.wait_for(other.join(hub.place), 8)
        leading.cancel()


@in_loop
async def test_the_rank_of_an_older_server_is_free_as_soon_as_it_has_left() -> None:
    async with Scene() as scene:
        config = settings(4, pservers=2)
        hub, trainer = [await member(scene, rank, "trainer", config) for rank in (0, 1)]
        old = await member(scene, 2, "pserver", config, controller="older")
        new = [await member(scene, rank, "pserver", config) for rank in (2, 3)]
        joining = [asyncio.ensure_future(hub.join(None)), asyncio.ensure_future(old.join(hub.place))]
        await until(old.gang.missing)
        with pytest.raises(JoinFailed, match="controlled by older"):
            await asyncio.wait_for(new[1].join(hub.place), 8)
        joining.pop().cancel()
        await until(lambda: hub.gang.joined_pods() == ["pod-0"])
        joining += [asyncio.ensure_future(node.join(hub.place)) for node in (trainer, *new)]
        await asyncio.wait_for(asyncio.gather(*joining), 8)
        assert hub.roster is not None
        assert {each.controller for each in hub.roster.members} == {"trainers", "pservers"}


@in_loop
async def test_without_numbers_a_role_that_is_full_admits_no_member() -> None:
    async with Scene() as scene:
        hub = await member(scene, None, "trainer", address="10.0.0.1", pod="t-0")
        servers = [await member(scene, None, "pserver", address=f"10.0.0.{end}", pod=f"s-{end}") for end in (2, 3)]
        leading = asyncio.ensure_future(hub.join(None))
        waiting = asyncio.ensure_future(servers[0].join(hub.place))
        await until(servers[0].gang.missing)
        with pytest.raises(JoinFailed, match="1 pservers have joined already, so pod s-3 is one too many"):
            await asyncio.wait_for(servers[1].join(hub.place), 8)
        waiting.cancel()
        leading.cancel()
