"""Which pods count, which is the hub, and how missing ones are described. No processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.base import kube_pods
from launcher.base.kube_pods import ENDED, LEAVING, LIVE
from launcher.discovery.finder import FinderSettings
from launcher.discovery.missing import describe_missing
from launcher.discovery.selection import (
    all_run,
    choose_peers,
    other_role_failure,
    other_role_job,
    present_members,
)
from launcher.discovery.view import View
from launcher.errors import Exit, Failure
from launcher.model import Shape
from tests.support import finders
from tests.support.pods import Json, ended, evicted, leaving, member_of_set, pod, waiting


def settings(**more: Any) -> FinderSettings:
    return finders.settings(**({"discovery": "kubernetes", "selector": "job-name=x"} | more))


def view(me: str, *pods: Json, job_id: str | None = None) -> View:
    seen = [kube_pods.read_pod(each, job_id) for each in pods]
    return View({each.uid: each for each in seen}, f"uid-{me}", is_listed=True)


A, B, C = pod("x-a", "10.0.0.9"), pod("x-b", "10.0.0.10"), pod("x-c", "10.0.0.11")


@pytest.mark.parametrize(
    ("other", "state", "said"),
    [
        (leaving(pod("x-d", "10.0.0.1")), LEAVING, "x-d is being deleted"),
        (ended(pod("x-d", "10.0.0.1"), 3, phase="Failed"), ENDED, "x-d has ended: Error, exit code 3"),
        (ended(pod("x-d", "10.0.0.1"), 0, "Completed", phase="Succeeded"), ENDED, "x-d has ended: Completed"),
        (ended(pod("x-d", "10.0.0.1"), 6), ENDED, "x-d has ended: Error, exit code 6"),  # a sidecar still runs
        (evicted(pod("x-d", "10.0.0.1")), ENDED, "x-d has ended: Evicted: low on memory"),
        (pod("x-d"), LIVE, "x-d is Pending: container trainer: ContainerCreating"),
    ],
)
def test_a_pod_that_leaves_has_ended_or_has_no_address_does_not_count(other: Json, state: str, said: str) -> None:
    assert kube_pods.read_pod(other, None).state == state
    assert choose_peers(view("x-a", A, B, other), settings()) is None
    assert said in describe_missing(view("x-a", A, B, other), settings())
    if state != LIVE:
        assert choose_peers(view("x-a", A, B, C, other), settings()) is not None


def test_with_more_live_pods_than_members_the_search_waits_until_the_replaced_pod_leaves() -> None:
    extra = pod("x-d", "10.0.0.1")
    assert choose_peers(view("x-a", A, B, C, extra), settings()) is None
    assert "4 live pods for N=3" in describe_missing(view("x-a", A, B, C, extra), settings())
    assert all_run(view("x-a", A, B, C), settings())
    assert not all_run(view("x-a", A, B, C, extra), settings())


def test_addresses_are_compared_as_numbers() -> None:
    peers = choose_peers(view("x-c", C, B, A), settings())
    assert peers is not None
    assert (peers.hub, peers.rank) == ("10.0.0.9", None)
    six = [pod(name, address) for name, address in (("x-a", "fd00::10"), ("x-b", "fd00::9"), ("x-c", "fd00::a"))]
    peers = choose_peers(view("x-a", *six), settings())
    assert peers is not None
    assert peers.hub == "fd00::9"


def test_all_twelve_of_a_stateful_set_have_their_ordinal() -> None:
    pods = [member_of_set(f"x-{i}", f"10.0.0.{50 - i}") for i in range(12)]
    for i in range(12):
        peers = choose_peers(view(f"x-{i}", *pods), settings(size=12))
        assert peers is not None
        assert (peers.rank, peers.hub, peers.identity) == (i, None if i == 0 else "10.0.0.50", "set-uid-r1")


def test_pods_of_an_older_job_of_the_same_name_and_of_another_revision_do_not_count() -> None:
    old = pod("x-old", "10.0.0.1", owner="old-uid")
    peers = choose_peers(view("x-a", A, B, C, old), settings())
    assert peers is not None
    assert (peers.hub, peers.identity) == (None, "job-uid")
    zero = member_of_set("x-0", "10.0.0.1", revision="r1")
    two = member_of_set("x-2", "10.0.0.2", revision="r2")
    assert choose_peers(view("x-2", zero, two), settings()) is None


def test_a_given_identity_makes_pods_of_several_owners_one_job() -> None:
    other = pod("x-d", "10.0.0.1", owner="other-uid")
    peers = choose_peers(view("x-a", A, B, other, job_id="mine"), settings(job_id="mine"))
    assert peers is not None
    assert (peers.hub, peers.identity) == ("10.0.0.1", "mine")


def test_of_two_live_pods_with_one_number_the_newest_is_the_hub() -> None:
    old = pod("x-0-old", "10.0.0.1", index=0, created="2026-01-01T00:00:00Z")
    new = pod("x-0-new", "10.0.0.2", index=0, created="2026-01-01T00:00:30Z")
    one = pod("x-1", "10.0.0.3", index=1)
    peers = choose_peers(view("x-1", old, new, one), settings())
    assert peers is not None
    assert peers.hub == "10.0.0.2"
    assert choose_peers(view("x-0-old", old, new, one), settings()) is None
    assert "x-0-new is newer and has this pod's number 0" in describe_missing(
        view("x-0-old", old, new, one), settings()
    )
    replaced = choose_peers(view("x-1", leaving(old), new, one), settings())
    assert replaced is not None
    assert replaced.hub == "10.0.0.2"


def test_the_own_pod_counts_as_live_before_the_api_server_knows_it() -> None:
    mine = pod("x-a", index=1)
    hub = pod("x-b", "10.0.0.1", index=0)
    assert choose_peers(view("x-a", mine, hub), settings()) is None
    for known in ({"pod_ip": "10.0.0.7"}, {"training_address": "10.0.0.7"}):
        peers = choose_peers(view("x-a", mine, hub), settings(**known))
        assert peers is not None
        assert (peers.me.address, peers.me.training_address) == ("10.0.0.7", "10.0.0.7")
    unnumbered = view("x-a", pod("x-a"), B, C)
    assert choose_peers(unnumbered, settings(training_address="192.168.0.1")) is None  # the other pods do not see it
    assert choose_peers(unnumbered, settings(pod_ip="10.0.0.9")) is not None


def test_the_training_address_is_kept_beside_the_pods_address() -> None:
    peers = choose_peers(view("x-a", A, B, C), settings(training_address="192.168.0.1"))
    assert peers is not None
    assert (peers.me.address, peers.me.training_address) == ("10.0.0.9", "192.168.0.1")


def test_present_members_have_live_pods_with_addresses() -> None:
    ended_pod, pending = ended(pod("x-d", "10.0.0.1"), 1), pod("x-e")
    members = present_members(view("x-a", A, B, ended_pod, pending), settings(training_address="192.168.0.1"))
    assert sorted((m.pod, m.address, m.training_address) for m in members) == [
        ("x-a", "10.0.0.9", "192.168.0.1"),
        ("x-b", "10.0.0.10", "10.0.0.10"),
    ]


@pytest.mark.parametrize(
    ("me", "others", "more", "said"),
    [
        (pod("x-a", "10.0.0.1", index=3), (), {}, r"has number 3, but the job has only 3 members, numbered from 0"),
        (
            pod("x-a", "10.0.0.1", index=1),
            (),
            {"rank": 2},
            "LAUNCHER_RANK is 2, but Kubernetes gave pod x-a the number 1, ",
        ),
        (pod("x-a", "10.0.0.1"), (pod("x-b", "10.0.0.2", index=0),), {}, "some pods of this job have a number"),
    ],
)
def test_pods_that_can_never_become_the_gang_are_an_error(
    me: Json, others: tuple[Json, ...], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(Failure, match=said) as caught:
        choose_peers(view("x-a", me, *others), settings(**more))
    assert caught.value.code is Exit.CONFIG


def test_a_pod_that_cannot_run_is_missing_although_it_has_an_address() -> None:
    stuck = waiting(pod("x-c", "10.0.0.11"), "ImagePullBackOff", "Back-off")
    stuck["status"]["phase"] = "Pending"
    for hub in (A, pod("x-a", "10.0.0.99")):
        seen = view("x-a", hub, B, stuck)
        assert choose_peers(seen, settings()) is not None  # its address gives it a place
        assert not all_run(seen, settings())
        assert (
            describe_missing(seen, settings())
            == "2 of 3; x-c is Pending: container trainer: ImagePullBackOff: Back-off"
        )


def test_a_member_that_lists_two_pods_describes_the_hub_alone() -> None:
    seen = view("x-1", pod("x-0", "10.0.0.1", index=0), pod("x-1", "10.0.0.2", index=1))
    seen.has_all = False
    assert describe_missing(seen, settings()) == "the hub's pod x-0 (10.0.0.1) exists"
    seen = view("x-1", pod("x-0", index=0), pod("x-1", "10.0.0.2", index=1))
    seen.has_all = False
    assert describe_missing(seen, settings()) == "x-0 is Pending: container trainer: ContainerCreating"


def test_missing_names_a_few_and_counts_the_rest() -> None:
    hub = pod("x-0", "10.0.0.1", index=0)
    text = describe_missing(view("x-0", hub), settings(size=20))
    assert text.startswith("1 of 20; there is no pod with number 1; ")
    assert text.endswith("; and 14 more")


TRAINERS = [pod(f"t-{i}", f"10.0.0.{20 + i}", index=i, owner="t-uid", role="trainer") for i in range(3)]
SERVERS = [pod(f"s-{i}", f"10.0.0.{10 + i}", index=i, owner="s-uid", role="pserver") for i in range(2)]


def of_role(role: str, **more: Any) -> FinderSettings:
    return settings(role=role, pservers=2, **more)


def test_the_pods_of_two_jobs_are_one_gang_whose_hub_is_trainer_0() -> None:
    for me, role, rank in (("t-0", "trainer", 0), ("t-2", "trainer", 2), ("s-0", "pserver", 3), ("s-1", "pserver", 4)):
        whole = view(me, *SERVERS, *TRAINERS)
        peers = choose_peers(whole, of_role(role))
        assert peers is not None
        assert (peers.rank, peers.me.rank, peers.hub) == (rank, rank, None if rank == 0 else "10.0.0.20")
        assert (peers.me.role, peers.identity) == (role, f"{me[0]}-uid")
        assert all_run(whole, of_role(role))
        assert sorted(member.rank or 0 for member in present_members(whole, of_role(role))) == [0, 1, 2, 3, 4]


WORKERS = [pod(f"h-{i}", f"10.0.0.{i}", index=i, owner="h-uid", role="heter") for i in (1, 2)]


def of_three(role: str) -> FinderSettings:
    return replace(of_role(role), shape=Shape(3, 2, 3))


def test_the_pods_of_three_jobs_are_one_gang() -> None:
    whole = view("h-2", *WORKERS, *SERVERS, *TRAINERS)
    peers = choose_peers(whole, of_three("heter"))
    assert peers is not None
    assert (peers.rank, peers.me.role, peers.hub, peers.identity) == (7, "heter", "10.0.0.20", "h-uid")
    assert "no pod with number 0 of the heter workers" in describe_missing(whole, of_three("heter"))
    assert other_role_job(whole, "pserver") == "s-uid"
    over = ended(pod("h-0", "10.0.0.30", index=0, owner="h-uid", role="heter"), 78, phase="Failed")
    seen = view("t-0", over, *WORKERS, *SERVERS, *TRAINERS)
    assert other_role_failure(seen, of_three("trainer"), "heter") == "pod h-0 has ended: Error, exit code 78"
    assert other_role_failure(seen, of_three("trainer"), "pserver") == ""


def test_a_server_needs_the_first_trainer_only() -> None:
    assert choose_peers(view("s-1", SERVERS[1], TRAINERS[0]), of_role("pserver")) is not None
    assert choose_peers(view("s-1", *SERVERS, *TRAINERS[1:]), of_role("pserver")) is None
    assert "no pod with number 0 of the trainers" in describe_missing(
        view("s-1", *SERVERS, *TRAINERS[1:]), of_role("pserver")
    )
    assert "no pod with number 1 of the pservers" in describe_missing(
        view("t-0", SERVERS[0], *TRAINERS), of_role("trainer")
    )


def test_without_numbers_all_of_both_roles_must_be_there_and_a_trainer_leads() -> None:
    trainers = [pod(f"t-{i}", f"10.0.0.{20 + i}", owner="t-uid", role="trainer") for i in range(3)]
    servers = [pod(f"s-{i}", f"10.0.0.{10 + i}", owner="s-uid", role="pserver") for i in range(2)]
    peers = choose_peers(view("s-0", *trainers, *servers), of_role("pserver"))
    assert peers is not None
    assert (peers.hub, peers.rank) == ("10.0.0.20", None)
    assert choose_peers(view("s-0", *trainers, servers[0]), of_role("pserver")) is None
    assert "1 more pserver must still be created" in describe_missing(
        view("s-0", *trainers, servers[0]), of_role("pserver")
    )
    third = pod("s-2", "10.0.0.12", owner="s-uid", role="pserver")
    two = [*trainers[:2], *servers, third]
    assert choose_peers(view("s-0", *two), of_role("pserver")) is None  # five pods, but not of the right roles
    assert "3 live pods for 2 pservers" in describe_missing(view("s-0", *two), of_role("pserver"))


def test_of_the_other_role_only_the_newest_live_job_counts() -> None:
    old = [pod(f"o-{i}", f"10.0.1.{i}", index=i, owner="old-uid", role="trainer") for i in range(3)]
    new = [
        pod(f"t-{i}", f"10.0.0.{20 + i}", index=i, owner="t-uid", role="trainer", created="2026-01-02T00:00:00Z")
        for i in range(3)
    ]
    for found in ([*old, *new], [*new, *map(leaving, old)]):
        peers = choose_peers(view("s-1", *SERVERS, *found), of_role("pserver"))
        assert peers is not None
        assert peers.hub == "10.0.0.20"
    newer_but_ended = [ended(pod("n-0", "10.0.2.0", index=0, owner="n", role="trainer", created="2027"), 0)]
    assert other_role_job(view("s-1", *SERVERS, *TRAINERS, *newer_but_ended), "trainer") == "t-uid"


@pytest.mark.parametrize(("code", "final"), [(66, True), (71, True), (78, True), (69, False), (3, False), (0, False)])
def test_a_pod_of_the_other_role_that_failed_for_good_is_reported(code: int, final: bool) -> None:
    over = ended(pod("s-1", "10.0.0.11", index=1, owner="s-uid", role="pserver"), code, phase="Failed")
    said = other_role_failure(view("t-0", *TRAINERS, SERVERS[0], over), of_role("trainer"), "pserver")
    assert said == (f"pod s-1 has ended: Error, exit code {code}" if final else "")
    assert other_role_failure(view("s-0", *TRAINERS, SERVERS[0], over), of_role("pserver"), "trainer") == ""
    again = pod("s-1-again", "10.0.0.12", index=1, owner="s-uid", role="pserver", created="2026-01-02T00:00:00Z")
    assert other_role_failure(view("t-0", *TRAINERS, SERVERS[0], over, again), of_role("trainer"), "pserver") == ""


def test_a_number_that_its_role_does_not_have_is_an_error() -> None:
    with pytest.raises(
        Failure, match=r"has number 2, but the job has only 2 pservers, numbered from 0: set LAUNCHER_PSERVERS"
    ):
        choose_peers(view("s-2", pod("s-2", "10.0.0.1", index=2, role="pserver")), of_role("pserver"))


def lower(me: str, *pods: Json, **more: Any) -> tuple[str, ...] | None:
    found = choose_peers(view(me, *pods), settings(any_leads=True, size=5, **more))
    return None if found is None else found.lower


def test_in_an_elastic_job_the_live_pods_before_a_member_may_lead() -> None:
    zero, two, three = (member_of_set(f"x-{number}", f"10.0.0.{9 - number}") for number in (0, 2, 3))
    names = [each["metadata"]["name"] for each in (zero, two, three)]
    assert [lower(name, zero, two, three) for name in names] == [(), ("10.0.0.9",), ("10.0.0.9", "10.0.0.7")]
    assert lower(names[2], leaving(zero), two, three) == ("10.0.0.7",)


def test_in_an_elastic_job_without_numbers_the_lowest_address_comes_first() -> None:
    assert lower("x-c", A, B, C) == ("10.0.0.9", "10.0.0.10")
    assert lower("x-a", A) == ()


def test_an_elastic_job_without_a_volume_needs_numbers() -> None:
    with pytest.raises(Failure, match="an elastic job without a volume needs numbers"):
        choose_peers(view("x-a", A, B), settings(needs_numbers=True))
