"""Peers given in rank order, and a job of one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from launcher.discovery.finder import FinderSettings, make_finder
from launcher.errors import Exit, Failure
from launcher.model import Peers
from tests.support import finders


def settings(**more: Any) -> FinderSettings:
    return finders.settings(
        **(
            {"discovery": "static", "peers": ("10.0.0.5", "127.0.0.1", "10.0.0.7"), "host_name": "host", "timeout": 5.0}
            | more
        )
    )


def find(**more: Any) -> Peers:
    return asyncio.run(make_finder(settings(**more)).find())


def refused(**more: Any) -> str:
    with pytest.raises(Failure) as caught:
        find(**more)
    assert caught.value.code is Exit.CONFIG
    return caught.value.message


def test_the_own_rank_is_the_place_of_an_address_of_this_host() -> None:
    peers = find(training_address="192.168.0.1", job_id="j")
    assert (peers.rank, peers.hub, peers.identity) == (1, "10.0.0.5", "j")
    assert (peers.me.rank, peers.me.address, peers.me.training_address) == (1, "127.0.0.1", "192.168.0.1")
    assert find(peers=("2001:db8::1", "0:0:0:0:0:0:0:1", "2001:db8::2")).rank == 1


def test_the_pod_ip_comes_before_other_addresses_of_this_host() -> None:
    assert find(peers=("127.0.0.1", "10.0.0.6", "10.0.0.7"), pod_ip="10.0.0.7").rank == 2


def test_the_own_host_name_is_recognized() -> None:
    peers = find(peers=("a.example", "host.example", "c.example"), training_address="192.168.0.1")
    assert (peers.rank, peers.hub, peers.me.address) == (1, "a.example", "192.168.0.1")


def test_all_members_are_known() -> None:
    members = make_finder(settings(training_address="192.168.0.1")).members()
    assert [(m.rank, m.address) for m in members] == [(0, "10.0.0.5"), (1, "127.0.0.1"), (2, "10.0.0.7")]
    assert members[1].training_address == "192.168.0.1"


def test_a_given_rank_is_used_and_the_first_peer_is_the_hub() -> None:
    assert find(rank=2).hub == "10.0.0.5"
    assert find(rank=0).hub is None


def test_without_one_match_the_variable_that_helps_is_named() -> None:
    assert "none of the peers" in refused(peers=("10.0.0.5", "10.0.0.6", "10.0.0.7"))
    twice = refused(peers=("127.0.0.1", "127.0.0.1", "10.0.0.7"))
    assert "2 (numbers 0, 1) of the peers" in twice
    assert "LAUNCHER_RANK" in twice


def test_the_number_of_peers_must_be_n() -> None:
    assert "LAUNCHER_PEERS has 3 peers, but the job has 4 members: " in refused(size=4)


@pytest.mark.parametrize("discovery", ["kubernetes", "dns", "static"])
def test_a_job_of_one_needs_no_peers(discovery: str) -> None:
    peers = find(discovery=discovery, size=1, peers=(), training_address="192.168.0.1")
    assert (peers.rank, peers.hub, peers.me.address) == (0, None, "192.168.0.1")


def test_in_an_elastic_job_all_that_come_before_a_member_may_lead() -> None:
    assert find(rank=0, any_leads=True).lower == ()
    assert find(rank=2, any_leads=True).lower == ("10.0.0.5", "127.0.0.1")
    assert find(rank=2).lower == ()
