"""Finding the hub by name, with the system's own resolver against a small DNS server, in namespaces of their own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import pytest

from launcher.discovery.dns import hub_name, process_age
from launcher.discovery.finder import make_finder
from launcher.errors import Exit, Failure
from tests.support.finders import dns_settings
from tests.support.paths import REPOSITORY


def resolve(script: list[list[str] | None], search: str, **more: Any) -> dict[str, Any]:
    """Find peers with a name server that returns these answers, one per look-up. None: the name does not exist."""
    asked = {"script": script, "search": search, "settings": more}
    inside = ["unshare", "--mount", "--net", sys.executable, "-m", "tests.support.dns_world", json.dumps(asked)]
    done = subprocess.run(inside, capture_output=True, text=True, cwd=REPOSITORY, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_only_the_hubs_full_name_is_looked_up_until_it_is_there() -> None:
    found = resolve([None, ["10.0.0.7"]], "ns.svc.cluster.test svc.cluster.test cluster.test")
    assert (found["hub"], found["rank"]) == ("10.0.0.7", 2)
    assert set(found["names"]) == {"x-0.svc.ns.svc.cluster.test"}
    assert "x-0.svc.ns.svc.cluster.test. has no address yet" in found["said"][0]


def test_looking_again_tries_the_other_address_of_a_replaced_hub() -> None:
    found = resolve([["10.0.0.10", "10.0.0.9"]], "ns.svc.cluster.test", finds=3)
    assert found["hubs"] == ["10.0.0.9", "10.0.0.10", "10.0.0.9"]


def test_a_name_that_never_has_an_address_ends_with_what_to_check() -> None:
    found = resolve([None], "ns.svc.cluster.test", timeout=2.5)
    assert found["code"] == 75
    for part in ("x-0.svc.ns.svc.cluster.test.", "subdomain: svc", "publishNotReadyAddresses"):
        assert part in found["message"]


def test_number_zero_is_the_hub_and_looks_nothing_up() -> None:
    finder = make_finder(dns_settings(host_name="x-0"))
    peers = asyncio.run(finder.find())
    assert (peers.rank, peers.hub, peers.me.address) == (0, None, "10.0.0.9")
    assert "kubectl get pods" in finder.describe_missing([])


def test_a_server_is_numbered_within_its_role_and_looks_up_the_trainers_first_pod() -> None:
    roles: dict[str, Any] = {"role": "pserver", "pservers": 2, "service": "trainer=worker.paddle"}
    with pytest.raises(Failure, match="2 is not a number from 0 to 1"):
        asyncio.run(make_finder(dns_settings(host_name="server-2", **roles)).find())
    asked = resolve([["10.0.0.7"]], "ns.svc.cluster.test", host_name="server-1", **roles)
    assert (asked["hub"], asked["rank"]) == ("10.0.0.7", 4)
    assert set(asked["names"]) == {"worker-0.paddle.ns.svc.cluster.test"}


@pytest.mark.parametrize("more", [{"host_name": "x-abcde"}, {"host_name": "x-24567"}, {"rank": 3}])
def test_without_a_number_below_n_the_message_says_how_to_set_one(more: dict[str, Any]) -> None:
    with pytest.raises(Failure, match="LAUNCHER_RANK") as caught:
        asyncio.run(make_finder(dns_settings(**more)).find())
    assert caught.value.code is Exit.CONFIG


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"service": "svc.ns.svc.cluster.test."}, "x-0.svc.ns.svc.cluster.test."),
        ({"service": "svc.ns.svc.cluster.test"}, "x-0.svc.ns.svc.cluster.test."),
        ({"service": "svc.other"}, "x-0.svc.other"),
        ({"service": "svc.other", "host_name": "job-2.svc.other.svc.cluster.test"}, "job-0.svc.other"),
        ({"service": "svc.other", "host_name": "node", "pod_name": "set-2"}, "set-0.svc.other"),
        ({"service": "svc.other", "host_name": "node"}, "x-0.svc.other"),
        ({"service": "svc.other", "host_name": "job-2", "pod_name": "job-2-abcde"}, "job-0.svc.other"),
        ({"service": "svc.other", "host_name": "node-2", "pod_name": "job-2-abcde"}, "x-0.svc.other"),
    ],
)
def test_the_hubs_name_is_made_from_the_own_name_or_else_from_the_job(more: dict[str, Any], name: str) -> None:
    assert hub_name(dns_settings(**more), 2) == name


def test_the_age_of_the_process_counts_from_its_creation() -> None:
    begin = time.monotonic()
    code = "import time; time.sleep(0.5); from launcher.discovery.dns import process_age; print(process_age())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    tick = 0.02  # the kernel counts creations in hundredths of a second
    assert 0.5 - tick < float(done.stdout) < time.monotonic() - begin + tick
    assert process_age() > float(done.stdout)


def test_in_an_elastic_job_the_names_of_all_pods_before_this_one_are_looked_up() -> None:
    found = resolve([["10.0.0.7"]], "ns.svc.cluster.test", any_leads=True)
    assert set(found["names"]) == {f"x-{number}.svc.ns.svc.cluster.test" for number in (0, 1)}
    assert found["lower"] == ["10.0.0.7", "10.0.0.7"]


def test_in_an_elastic_job_a_pod_whose_name_has_no_address_does_not_lead() -> None:
    found = resolve([None], "ns.svc.cluster.test", any_leads=True)
    assert (found["lower"], found["hub"], found["rank"]) == ([], None, 2)
