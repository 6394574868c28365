"""Finding peers through the API server: the real child process against a small real HTTPS server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher.discovery.finder import Finder, FinderSettings, make_finder
from launcher.errors import Exit, Failure
from launcher.model import Peers
from tests.support import finders
from tests.support.fake_api import Authority, FakeApi
from tests.support.logs import logged
from tests.support.paths import REPOSITORY
from tests.support.pods import ended, member_of_set, pod


@pytest.fixture
def api(authority: Authority) -> Iterator[FakeApi]:
    server = FakeApi(authority)
    yield server
    server.stop()


@pytest.fixture
def settings(api: FakeApi, authority: Authority, tmp_path: Path) -> Callable[..., FinderSettings]:
    """Make settings of the pod `host_name`, with its own service account."""

    def make(host_name: str, **more: Any) -> FinderSettings:
        account = tmp_path / host_name
        account.mkdir(exist_ok=True)
        (account / "token").write_text(api.token)
        (account / "ca.crt").write_bytes(authority.ca.read_bytes())
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(api.port),
            "HTTPS_PROXY": "http://127.0.0.1:1",  # must not matter
        }
        return finders.settings(
            **(
                {
                    "discovery": "kubernetes",
                    "selector": "job-name=x",
                    "host_name": host_name,
                    "timeout": 100.0,
                    "env": env,
                    "service_account": str(account),
                }
                | more
            ),
        )

    return make


class Searching:
    """A finder that searches, and the lines that it logged."""

    def __init__(self, settings: FinderSettings, said: Sequence[str] = ()) -> None:
        self.said = said
        self.finder: Finder = make_finder(settings)
        self.task = asyncio.create_task(self.finder.find())

    async def said_with(self, *parts: str) -> None:
        await until(lambda: any(all(part in line for part in parts) for line in self.said), self.said)


@asynccontextmanager
async def searching(settings: FinderSettings) -> AsyncIterator[Searching]:
    with logged() as said:
        search = Searching(settings, said)
        try:
            yield search
        finally:
            search.task.cancel()
            await asyncio.wait([search.task])
            await search.finder.close()


async def until(holds: Callable[[], object], shown: object = "") -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, shown
        await asyncio.sleep(0.02)


async def found(settings: FinderSettings) -> Peers:
    finder = make_finder(settings)
    try:
        return await finder.find()
    finally:
        await finder.close()


async def timed_out(settings: FinderSettings, *said: str) -> str:
    """Return the message at the deadline, which passes once the finder knows all of these parts."""
    finder = make_finder(replace(settings, timeout=0.2))
    try:
        await finder.start()
        await until(lambda: all(part in finder.describe_missing(()) for part in said), said)
        with pytest.raises(Failure) as caught:
            await finder.find()
    finally:
        await finder.close()
    assert caught.value.code is Exit.TIMED_OUT
    return caught.value.message


async def failure(settings: FinderSettings) -> Failure:
    with pytest.raises(Failure) as caught:
        await found(settings)
    return caught.value


def children() -> list[psutil.Process]:
    """Return the child processes of the finders in this process."""
    mine = psutil.Process().children()
    return [
        p for p in mine if p.status() != psutil.STATUS_ZOMBIE and "launcher.discovery.kubernetes_child" in p.cmdline()
    ]


def run(test: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, 100)

    asyncio.run(bounded())


async def check_hub(settings: FinderSettings, address: str) -> None:
    assert (await found(settings)).hub == address


Make = Callable[..., FinderSettings]


def test_pods_of_a_plain_job_agree_on_the_lowest_address_with_one_list_and_one_watch_each(
    api: FakeApi, settings: Make
) -> None:
    api.put(pod("x-b", "10.0.0.10"), pod("x-a", "10.0.0.11"), pod("x-c", "10.0.0.9"))

    async def test() -> None:
        by_a, by_b, by_c = await asyncio.gather(*(found(settings(name)) for name in ("x-a", "x-b", "x-c")))
        assert (by_a.hub, by_b.hub, by_c.hub) == ("10.0.0.9", "10.0.0.9", None)
        assert [peers.rank for peers in (by_a, by_b, by_c)] == [None] * 3
        assert {peers.identity for peers in (by_a, by_b, by_c)} == {"job-uid"}
        assert (by_a.me.pod, by_a.me.uid, by_a.me.address) == ("x-a", "uid-x-a", "10.0.0.11")
        assert (api.count("list"), api.count("watch") <= 3, len(api.asked) <= 9) == (3, True, True)
        assert children() == []

    run(test())


def test_a_late_pod_is_waited_for_and_its_reason_is_reported(api: FakeApi, settings: Make) -> None:
    late = pod("x-c")
    late["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/2 nodes are available: 2 Insufficient cpu.",
        }
    ]
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"), late)

    async def test() -> None:
        async with searching(settings("x-a")) as search:
            await search.said_with("2 of 3; x-c is Pending: Unschedulable: 0/2 nodes", "Insufficient cpu")
            assert not search.task.done()
            api.put(pod("x-c", "10.0.0.3"))
            assert (await search.task).hub is None
            assert (api.count("list"), api.count("watch")) == (1, 1)

    run(test())


def test_the_deadline_of_all_calls_together_ends_the_search_and_names_what_is_missing(
    api: FakeApi, settings: Make
) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"))

    async def test() -> None:
        late = pod("x-c")
        late["status"]["containerStatuses"][0]["state"]["waiting"] = {
            "reason": "ImagePullBackOff",
            "message": "Back-off pulling image",
        }
        api.put(late)
        said = await timed_out(settings("x-a"), "x-c")
        assert "waited 0.2 s" in said
        assert "2 of 3; x-c is Pending: container trainer: ImagePullBackOff: Back-off pulling image" in said
        assert "kubectl -n ns get pods -l job-name=x" in said

    run(test())


def test_a_403_ends_at_once_and_names_the_missing_right(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.1"))
    api.forbidden = {"get", "watch"}

    async def test() -> None:
        said = await failure(settings("x-a"))
        assert said.code is Exit.DENIED
        assert "service account default of namespace ns watch pods in namespace ns (HTTP 403" in said.message
        assert "verbs: [get, list, watch]" in said.message
        assert "- {kind: ServiceAccount, name: default, namespace: ns}" in said.message
        assert len(api.asked) == 3  # no second try; the right to `get` is not needed

    run(test())


def test_a_403_in_another_namespace_than_the_pods_names_job_namespace_first(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.1"))
    api.forbidden, api.user = {"get", "watch"}, "system:serviceaccount:team:default"

    async def test() -> None:
        said = await failure(settings("x-a"))
        assert said.code is Exit.DENIED
        assert said.message.startswith("JOB_NAMESPACE is ns, but this pod's namespace is team: remove JOB_NAMESPACE")
        assert "metadata: {name: paddle-launcher, namespace: ns}" in said.message

    run(test())


def test_a_new_token_is_read_after_a_401(api: FakeApi, settings: Make, tmp_path: Path) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"), pod("x-c", "10.0.0.3"))

    async def test() -> None:
        mine = settings("x-b")
        api.token = "second"
        async with searching(mine) as search:
            await until(lambda: len(api.asked) > 0)
            (tmp_path / "x-b" / "token").write_text("second")
            assert (await search.task).hub == "10.0.0.1"

    run(test())


def test_credentials_and_certificates_that_stay_wrong_end_with_a_clear_message(
    api: FakeApi, settings: Make, tmp_path: Path
) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"), pod("x-c", "10.0.0.3"))

    async def test() -> None:
        wrong_token, wrong_ca, nothing = settings("x-a"), settings("x-b"), settings("x-c")
        (tmp_path / "x-a" / "token").write_text("stale")
        stranger = Authority(tmp_path / "stranger", "stranger")
        (tmp_path / "x-b" / "ca.crt").write_bytes(stranger.ca.read_bytes())
        (tmp_path / "x-c" / "token").unlink()
        by_token, by_ca, by_nothing = await asyncio.gather(*map(failure, (wrong_token, wrong_ca, nothing)))
        assert by_token.code is Exit.DENIED
        assert "x-a/token" in by_token.message
        assert "HTTP 401: Unauthorized" in by_token.message
        assert by_ca.code is Exit.CONFIG
        assert "cannot be trusted with the CA of" in by_ca.message
        assert "CERTIFICATE_VERIFY_FAILED" in by_ca.message
        assert by_nothing.code is Exit.CONFIG
        assert "token" in by_nothing.message
        assert "automountServiceAccountToken" in by_nothing.message

    run(test())


def test_a_selector_that_the_server_refuses_ends_at_once_and_names_the_variable(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.1"))
    api.next_answers = [(404, {}), (400, {})]  # for the own pod, and for the list

    async def test() -> None:
        said = await failure(settings("x-a"))
        assert said.code is Exit.CONFIG
        assert "job-name=x: the API server refuses this request (HTTP 400" in said.message
        assert "LAUNCHER_SELECTOR" in said.message

    run(test())


def test_a_proxy_that_knows_no_pods_while_the_api_server_starts_is_asked_again(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"), pod("x-c", "10.0.0.3"))
    api.next_answers = [(404, {}), (404, {}), (405, {})]
    run(check_hub(settings("x-b"), "10.0.0.1"))


def test_after_an_expired_watch_the_pods_are_listed_again(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"))

    async def test() -> None:
        async with searching(settings("x-a")) as search:
            await until(lambda: api.watching == 1)
            api.expire()
            await until(lambda: api.watching == 1 and api.count("list") == 2)
            assert api.count("watch") == 2
            api.next_answers = [(410, {})]
            api.cut()
            await until(lambda: api.watching == 1 and api.count("list") == 3)
            api.put(pod("x-c", "10.0.0.3"))
            assert (await search.task).hub is None

    run(test())


def test_discovery_continues_after_429_500_cut_watches_and_a_server_restart(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"))
    api.next_answers = [(500, {}), (429, {"Retry-After": "1"}), (503, {})]

    async def test() -> None:
        async with searching(settings("x-a")) as search:
            await until(lambda: api.watching == 1, api.asked)
            asked = [when for _, _, when in api.asked]
            assert asked[2] - asked[1] >= 1  # as the server asked
            api.cut()
            await until(lambda: api.watching == 1 and api.count("watch") == 2)
            api.stop()
            await search.said_with(
                "2 of 3", f"the API server https://127.0.0.1:{api.port} cannot be reached:", "refused"
            )
            api.put(pod("x-c", "10.0.0.3"))
            api.next_answers = [(403, {})]  # as a real server answers until it has read the roles
            api.serve()
            assert (await search.task).hub is None
            assert api.count("list") == 1  # the watch continued from its version

    run(test())


def test_the_deadline_names_the_last_error_of_the_api_server(api: FakeApi, settings: Make) -> None:
    api.next_answers = [(500, {})] * 100

    async def test() -> None:
        error = f"the API server https://127.0.0.1:{api.port}: HTTP 500: told to answer 500"
        assert error in await timed_out(settings("x-a"), "HTTP 500")

    run(test())


def test_a_numbered_member_reads_two_pods_and_needs_only_the_hub(api: FakeApi, settings: Make) -> None:
    api.put(member_of_set("x-10", "10.0.0.2"), *(pod(f"other-{i}", f"10.1.0.{i}") for i in range(1, 9)))

    async def test() -> None:
        async with searching(settings("x-10", size=12)) as search:
            await search.said_with("there is no pod with number 0")
            api.put(member_of_set("x-0", "10.0.0.77"))
            peers = await search.task
            assert (peers.rank, peers.hub, peers.identity) == (10, "10.0.0.77", "set-uid-r1")
            (selector,) = [selector for verb, selector, _ in api.asked if verb == "list"]
            assert selector == "job-name=x,apps.kubernetes.io/pod-index in (0,10)"

    run(test())


def test_a_member_of_an_elastic_job_reads_all_pods_that_may_lead(api: FakeApi, settings: Make) -> None:
    api.put(member_of_set("x-20", "10.0.0.2"), member_of_set("x-3", "10.0.0.78"))

    async def test() -> None:
        async with searching(settings("x-20", size=30, any_leads=True)) as search:
            peers = await search.task
            assert (peers.rank, peers.lower) == (20, ("10.0.0.78",))
            (selector,) = [selector for verb, selector, _ in api.asked if verb == "list"]
            leading = ",".join(map(str, range(16)))
            assert selector == f"job-name=x,apps.kubernetes.io/pod-index in ({leading},20)"

    run(test())


def of_role(role: str, name: str, index: int, address: str = "10.0.0.1", code: int | None = None) -> dict[str, Any]:
    made = pod(name, address, job=role, owner=f"{role}-uid", index=index, role=role)
    made["metadata"]["labels"]["app"] = "x"
    return made if code is None else ended(made, code, phase="Failed")


def test_members_of_two_jobs_find_trainer_0_and_see_the_other_job_fail_until_they_have_joined(
    api: FakeApi, settings: Make
) -> None:
    api.put(*(of_role("trainer", f"t-{i}", i, f"10.0.0.{20 + i}") for i in range(3)))
    api.put(*(of_role("pserver", f"s-{i}", i, f"10.0.0.{10 + i}") for i in range(2)))
    roles: dict[str, Any] = {"selector": "app=x", "pservers": 2}

    async def test() -> None:
        async with (
            searching(settings("t-0", role="trainer", **roles)) as hub,
            searching(settings("s-1", role="pserver", **roles)) as server,
        ):
            peers = await server.task
            assert (peers.rank, peers.hub, peers.identity) == (4, "10.0.0.20", "pserver-uid")
            known = {member.pod for member in server.finder.members()}
            assert known == {"t-0", "s-0", "t-1", "s-1"}  # by the numbers 0 and its own, of both roles
            assert (await hub.task).hub is None
            assert (hub.finder.other_role("pserver"), server.finder.other_role("trainer")) == (
                ("pserver-uid", ""),
                ("trainer-uid", ""),
            )
            api.put(of_role("pserver", "s-1", 1, code=66))
            await until(lambda: hub.finder.other_role("pserver")[1] == "pod s-1 has ended: Error, exit code 66")
        assert children() == []

    run(test())


def test_a_member_of_a_stateful_set_that_has_only_names_for_numbers_finds_the_other_sets_first(
    api: FakeApi, settings: Make
) -> None:
    for name, role in (("t-0", "trainer"), ("s-0", "pserver"), ("s-1", "pserver")):
        made = of_role(role, name, 0)
        made["metadata"]["labels"] = {"app": "x", "statefulset.kubernetes.io/pod-name": name}
        api.put(made)

    async def test() -> None:
        peers = await found(settings("s-1", role="pserver", selector="app=x", pservers=2))
        assert (peers.rank, peers.hub) == (4, "10.0.0.1")

    run(test())


def test_the_hub_watches_until_all_pods_run_and_knows_which_have_not_joined(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.7", index=0), pod("x-b", index=1))

    async def test() -> None:
        async with searching(settings("x-a")) as search:
            assert (await search.task).hub is None
            missing = search.finder.describe_missing
            assert (
                missing({"x-a"}) == "x-b is Pending: container trainer: ContainerCreating; "
                "there is no pod with number 2"
            )
            api.put(pod("x-b", "10.0.0.8", index=1))
            await until(lambda: "x-b (10.0.0.8) has not joined yet" in missing({"uid-x-a"}))
            assert children() != []
            api.put(pod("x-c", "10.0.0.9", index=2))
            await until(lambda: children() == [])
            assert missing({"x-a", "x-b"}) == "x-c (10.0.0.9) has not joined yet"

    run(test())


@pytest.mark.parametrize("me", ["x-a", "x-b"])
def test_a_member_that_sees_all_pods_watches_until_they_run_and_knows_why_one_does_not(
    api: FakeApi, settings: Make, me: str
) -> None:
    def third(**state: Any) -> Any:
        made = pod("x-c", "10.0.0.9")
        made["status"]["containerStatuses"][0]["state"] = state
        return made

    api.put(pod("x-a", "10.0.0.7"), pod("x-b", "10.0.0.8"), third(waiting={"reason": "ContainerCreating"}))

    async def test() -> None:
        async with searching(settings(me)) as search:
            await search.task
            api.put(third(waiting={"reason": "ImagePullBackOff"}))
            await until(lambda: "container trainer: ImagePullBackOff" in search.finder.describe_missing(()))
            assert children() != []
            api.put(third(running={}))
            await until(lambda: children() == [])

    run(test())


def test_a_repeated_search_after_the_deadline_reports_the_last_view(
    api: FakeApi, settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put(pod("x-a", "10.0.0.7"), pod("x-b", "10.0.0.8"), pod("x-c", "10.0.0.9"))

    async def test() -> None:
        async with searching(settings("x-b")) as search:
            await search.task
            monkeypatch.setattr("launcher.discovery.deadline.monotonic", lambda: time.monotonic() + 1000)
            with pytest.raises(Failure, match=r"waited 100 s .*: 3 of 3\. Look at"):
                await search.finder.find()

    run(test())


def test_a_repeated_search_sees_changes(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.7", index=0), pod("x-b", "10.0.0.8", index=1))

    async def test() -> None:
        async with searching(settings("x-b")) as search:
            assert (await search.task).hub == "10.0.0.7"
            assert children() == []
            api.delete("x-a")
            api.put(pod("x-a2", "10.0.0.6", index=0))
            assert (await search.finder.find()).hub == "10.0.0.6"
            api.put(pod("x-a3", "10.0.0.5", index=0, created="2026-02-01T00:00:00Z"))
            await until(lambda: "x-a3 replaces x-a2" in search.finder.describe_missing(()))
            assert (await search.finder.find()).hub == "10.0.0.5"
            assert api.count("list") == 2
        assert children() == []

    run(test())


def test_a_member_that_saw_all_pods_run_can_look_again(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.7"), pod("x-b", "10.0.0.8"), pod("x-c", "10.0.0.9"))

    async def test() -> None:
        async with searching(settings("x-b")) as search:
            assert (await search.task).hub == "10.0.0.7"
            assert children() == []
            assert (await search.finder.find()).hub == "10.0.0.7"
            api.delete("x-a")
            api.put(pod("x-a2", "10.0.0.6"))
            await until(lambda: search.finder.members()[0].address == "10.0.0.6")
            assert (await search.finder.find()).hub == "10.0.0.6"
            assert api.count("list") == 2

    run(test())


def test_until_a_new_list_is_complete_the_earlier_list_is_described(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.7", index=0), pod("x-b", "10.0.0.8", index=1))

    async def test() -> None:
        async with searching(settings("x-b")) as search:
            await search.task
            before = search.finder.describe_missing(["x-b"])
            assert before == "x-a (10.0.0.7) has not joined yet"
            await search.finder.start()
            assert search.finder.describe_missing(["x-b"]) == before

    run(test())


def test_a_killed_child_is_started_again(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"))

    async def test() -> None:
        async with searching(settings("x-a")) as search:
            await until(lambda: api.watching == 1)
            for child in children():
                os.kill(child.pid, signal.SIGKILL)
            await search.said_with("exited with code 137")
            api.put(pod("x-c", "10.0.0.3"))
            assert (await search.task).hub is None

    run(test())


def test_a_cancelled_and_closed_search_leaves_no_process_behind(api: FakeApi, settings: Make) -> None:
    async def test() -> None:
        for wait_for_watch in (False, True):
            async with searching(settings("x-a")) as search:
                await until(lambda: not wait_for_watch or api.watching)  # noqa: B023
                search.task.cancel()
            assert children() == []

    run(test())


def test_the_own_pod_is_found_by_uid_by_name_by_host_name_and_by_address(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"), pod("x-c", "127.0.0.1"))

    async def test() -> None:
        wanted: dict[str, list[dict[str, str]]] = {
            "x-b": [{"pod_uid": "uid-x-b"}, {"pod_name": "x-b"}, {"pod_ip": "10.0.0.2"}],
            "x-c": [{}],  # its address is held here
        }
        for name, hints in wanted.items():
            for peers in await asyncio.gather(*(found(settings("node-7", **hint)) for hint in hints)):
                assert peers.me.pod == name
        assert (await found(settings("x-a.sub.ns.svc.example"))).me.pod == "x-a"

    run(test())


def test_a_selector_that_does_not_match_the_own_pod_is_reported(api: FakeApi, settings: Make) -> None:
    api.put(pod("y-a", "10.0.0.1", job="y"), pod("x-a", "10.0.0.2"))

    async def test() -> None:
        other, unknown, empty, bad = await asyncio.gather(
            failure(settings("y-a")),
            timed_out(settings("somewhere"), "as this pod"),
            timed_out(settings("nobody", selector="job-name=z"), "no pod matches"),
            failure(settings("y-a", selector="job-name=y", rank=1)),
        )
        assert other.code is Exit.CONFIG
        assert "1 pods match job-name=x in namespace ns, but this pod, y-a, does not match" in other.message
        assert "its labels are job-name=y" in other.message
        assert "none of the 1 pods that match job-name=x in namespace ns can be identified as this pod" in unknown
        assert "no pod matches job-name=z in namespace ns" in empty
        assert bad.code is Exit.CONFIG
        assert "LAUNCHER_RANK is 1, but pod y-a has no number from Kubernetes" in bad.message

    run(test())


def test_a_peer_is_described_as_soon_as_its_end_is_recorded(api: FakeApi, settings: Make) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"), pod("x-c", "10.0.0.3"))

    async def test() -> None:
        search = Searching(settings("x-a"))
        await search.task
        await search.finder.close()
        evicted = pod("x-d", "10.0.0.4")
        evicted["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
        api.put(evicted)
        api.delete("x-c")
        asking = asyncio.gather(*(search.finder.describe_peer(name) for name in ("x-b", "uid-x-c", "x-d", "x-a")))
        await until(lambda: api.count("get") > 2)
        api.put(ended(pod("x-b", "10.0.0.2"), 137, "OOMKilled"))
        killed, deleted, evicted_for, well = await asking
        assert killed == "OOMKilled, exit code 137"
        assert deleted == "the pod was deleted"
        assert evicted_for == "Evicted: The node was low on memory."
        assert well == ""
        assert children() == []

    run(test())


def test_a_kubeconfig_is_used_if_one_is_set(api: FakeApi, settings: Make, authority: Authority, tmp_path: Path) -> None:
    api.put(pod("x-a", "10.0.0.1"), pod("x-b", "10.0.0.2"), pod("x-c", "10.0.0.3"))
    (tmp_path / "kubeconfig").write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:{api.port}", certificate-authority: {authority.ca}}}}}]
users: [{{name: u, user: {{token: first}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "KUBECONFIG": str(tmp_path / "kubeconfig")}
    peers = asyncio.run(found(settings("x-b", env=env)))
    assert peers.hub == "10.0.0.1"


def test_two_thousand_pods_take_one_list_and_a_short_message(api: FakeApi, settings: Make) -> None:
    size = 2000
    api.put(*(pod(f"x-{i}", f"10.{i // 250}.0.{i % 250}" if i < 1900 else "", index=i) for i in range(size)))

    async def test() -> None:
        hub = Searching(settings("x-0", size=size))
        assert (await hub.task).hub is None
        assert api.packed == 1  # the long list
        assert (await found(settings("x-1999", size=size, pod_ip="10.9.9.9"))).hub == "10.0.0.0"
        text = hub.finder.describe_missing({f"x-{i}" for i in range(1800)})
        assert text.startswith("x-1800 (10.7.0.50) has not joined yet; ")
        assert text.endswith("and 194 more")
        assert sorted(selector for verb, selector, _ in api.asked if verb == "list") == [
            "job-name=x",
            "job-name=x,batch.kubernetes.io/job-completion-index in (0,1999)",
        ]
        await hub.finder.close()

    run(test())


def test_the_launcher_never_loads_the_client() -> None:
    code = (
        "import sys; from launcher.discovery import dns, kubernetes, static;"
        "print([m for m in ('kubernetes', 'tenacity', 'urllib3', 'multiprocessing') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY).stdout == "[]\n"


def test_the_identity_is_known_though_the_hubs_pod_has_ended(api: FakeApi, settings: Make) -> None:
    # So a pod that starts after the job is complete does not wait for pods that have left.
    api.put(ended(pod("x-a", "10.0.0.7", index=0), 0), pod("x-b", "10.0.0.8", index=1))

    async def test() -> None:
        finder = make_finder(settings("x-b"))
        try:
            assert await finder.identity() == "job-uid"
        finally:
            await finder.close()

    run(test())
