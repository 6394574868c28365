"""Call the API server, in a child process of `launcher.discovery.kubernetes`.

The request names the work: `watch` or `describe`. The child sends these messages to its parent:

    watch       {"has_all": bool} once. For each list: {"listing": true}, then {"pod": {...}} for each pod, then
                {"listed": true}. For each later change: {"pod": {...}} or {"gone": uid}. {"own": uid}, once this pod
                is found
    describe    {"description": text}
    both        {"trouble": text}, {"failure": {...}}
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import asdict
from typing import Any

from launcher.base import kube_pods
from launcher.base.helper_child import Answers, read_request
from launcher.base.host import is_among, local_addresses, parse_address
from launcher.base.kube_pods import LIVE, Pod
from launcher.errors import Exit, Failure
from launcher.model import BOTH

gc.disable()  # importing the client's 700 modules takes a quarter less time without garbage collection
from launcher.base.kube import KubeClient  # noqa: E402
from launcher.base.kube_credentials import Kubeconfig, ServiceAccount  # noqa: E402
from launcher.base.kube_errors import Denied, Expired, Refused, Transient  # noqa: E402
from launcher.discovery.retries import Retries  # noqa: E402
from launcher.discovery.rights import describe_denial  # noqa: E402

gc.enable()

Json = dict[str, Any]

_RECORDED = 3.0  # seconds in which the API server records the death of a pod
_SHORTEST_WATCH = 1.0  # seconds; a watch that ends earlier than this, and without an event, has failed
_NO_ACCOUNT = (
    "mount the service account's token into the pod (automountServiceAccountToken), or find peers without the API "
    "server: LAUNCHER_DISCOVERY=dns or static"
)


class PodWatcher:
    """List and then watch the job's pods. Send each change to the parent."""

    def __init__(self, asked: Json, client: KubeClient, retries: Retries, answers: Answers) -> None:
        self._asked = asked
        self._client = client
        self._retries = retries
        self._send = answers.send
        self._host_name: str = asked["host_name"].partition(".")[0]
        self._held = local_addresses()
        self._pods: dict[str, Pod] = {}
        self._own_object: Json | None = None
        self._own: str | None = None
        self._version: str | None = None
        self._selector: str = asked["selector"]

    def run(self) -> None:
        """Watch until the parent ends this process."""
        self._own_object = self._retries.run(self._get_own)
        self._selector, has_all = _narrowed(
            self._selector, self._own_object, self._asked["role"], self._asked["leading"]
        )
        self._send({"has_all": has_all})
        while True:
            self._retries.run(self._list_and_watch)

    def _get_own(self) -> Json | None:
        uid, name = self._asked["pod_uid"], self._asked["pod_name"] or self._host_name
        try:
            found = self._client.get("Pod", name)
        except Denied:
            return None  # then the selector stays as it is, and this member lists all pods
        return found if found and (not uid or found["metadata"]["uid"] == uid) else None

    def _list_and_watch(self) -> None:
        try:
            if self._version is None:
                self._list()
            self._watch()
        except Expired:
            self._version = None

    def _list(self) -> None:
        found, self._version = self._client.list_versioned("Pod", self._selector)
        if self._own_object is not None:
            self._check_selection(self._own_object, found)
        self._send({"listing": True})
        self._pods.clear()
        for each in found:
            self._update(each)
        self._find_own()
        self._send({"listed": True})

    def _watch(self) -> None:
        started, had_events = time.monotonic(), False
        assert self._version is not None
        events = self._client.watch("Pod", self._selector, self._version)
        self._retries.has_all_rights = True
        try:
            for event in events:
                had_events = True
                changed = event["object"]
                self._version = changed["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._remove(changed["metadata"]["uid"])
                elif event["type"] != "BOOKMARK":
                    self._update(changed)
                    self._find_own()
        except Transient:
            if not had_events:
                raise
        else:
            if not had_events and time.monotonic() - started < _SHORTEST_WATCH:
                raise Transient("the API server ended the watch immediately")
        # When an API server restarts, all members lose their watches. Random pauses spread their new requests.
        time.sleep(random.uniform(0, 0.5))

    def _update(self, changed: Json) -> None:
        pod = kube_pods.read_pod(changed, self._asked["job_id"])
        if self._pods.get(pod.uid) != pod:
            self._pods[pod.uid] = pod
            self._send({"pod": asdict(pod)})

    def _remove(self, uid: str) -> None:
        if self._pods.pop(uid, None):
            self._send({"gone": uid})

    def _find_own(self) -> None:
        if self._own is None:
            own = [pod for pod in self._pods.values() if self._is_own(pod)]
            own = own or [pod for pod in self._pods.values() if pod.state == LIVE and self._has_own_address(pod)]
            if len(own) == 1:
                self._own = own[0].uid
                self._send({"own": self._own})

    def _is_own(self, pod: Pod) -> bool:
        asked = self._asked
        if asked["pod_uid"]:
            return bool(pod.uid == asked["pod_uid"])
        return bool(pod.name == (asked["pod_name"] or self._host_name))

    def _has_own_address(self, pod: Pod) -> bool:
        given = self._asked["pod_ip"]
        return parse_address(pod.address) == parse_address(given) if given else is_among(pod.address, self._held)

    def _check_selection(self, own: Json, found: list[Json]) -> None:
        if any(each["metadata"]["uid"] == own["metadata"]["uid"] for each in found):
            return
        has = ",".join(f"{key}={value}" for key, value in sorted(kube_pods.pod_labels(own).items())) or "none"
        raise Failure(
            Exit.CONFIG,
            f"{len(found) or 'no'} pods match {self._asked['selector']} in namespace {self._client.namespace}, "
            f"but this pod, {own['metadata']['name']}, does not match: its labels are {has}. "
            "Set JOB_NAME to the Job's name, or LAUNCHER_SELECTOR to labels that all pods of the job have",
        )


def describe_pod(asked: Json, client: KubeClient, retries: Retries) -> str:
    """Return how a pod ended, or "" if that is not known within 3 s. The API server records a death up to 1 s late."""
    until = time.monotonic() + _RECORDED
    while True:
        said = retries.run(lambda: _look(asked, client))
        if said or time.monotonic() > until:
            return said
        time.sleep(0.5)


def _look(asked: Json, client: KubeClient) -> str:
    name, uid = asked["name"], asked["uid"]
    if not name or not uid:
        listed = client.list("Pod", asked["selector"])
        found = next(
            (each for each in listed if asked["pod"] in (each["metadata"]["name"], each["metadata"]["uid"])), None
        )
        return _description(found) if found else ""
    found = client.get("Pod", name)
    if found is None or found["metadata"]["uid"] != uid:
        return "the pod was deleted"
    return _description(found)


def _description(found: Json) -> str:
    return kube_pods.describe_end(found) or kube_pods.describe_silent_node(found)


def _narrowed(selector: str, own: Json | None, role: str, leading: int) -> tuple[str, bool]:
    """Return the selector of the pods that this member needs, and whether these are all pods of the job.

    Number 0 needs all pods. Every other numbered member needs only its own pod and number 0 of each role. If each of
    1,000 members listed 1,000 pods, this would overload the API server.

    leading: how many numbers, from 0 on, may be those of the hub
    """
    number = kube_pods.pod_number(own) if own else None
    if not own or not number:
        return selector, True
    has = kube_pods.pod_labels(own)
    name = own["metadata"]["name"]
    numbers = ",".join(map(str, range(leading)))
    first = {kube_pods.INDEX: numbers, kube_pods.ORDINAL: numbers}
    if role == BOTH:  # with roles the hub may belong to another StatefulSet, whose name is not known
        base = name.rpartition("-")[0]
        first[kube_pods.STATEFUL_NAME] = ",".join(f"{base}-{number}" for number in range(leading))
    for label, hubs in first.items():
        if label in has:
            return f"{selector},{label} in ({hubs},{has[label]})", False
    return selector, True


def _connect(asked: Json) -> KubeClient:
    kubeconfig = asked["kubeconfig"]
    credentials = Kubeconfig(kubeconfig) if kubeconfig else ServiceAccount(_NO_ACCOUNT, asked["service_account"])
    return KubeClient(credentials, asked["namespace"], describe_denial)


def main() -> None:
    """Do the work that the request names. If it fails, send the failure as a message."""
    asked, answers = read_request(), Answers()
    try:
        client = _connect(asked)
        retries = Retries(client, lambda text: answers.send({"trouble": text}))
        if asked["do"] == "watch":
            PodWatcher(asked, client, retries, answers).run()
        else:
            answers.send({"description": describe_pod(asked, client, retries)})
    except Failure as failure:
        hint = " (LAUNCHER_SELECTOR?)" if isinstance(failure, Refused) else ""
        answers.send({"failure": {"code": int(failure.code), "message": failure.message + hint}})


if __name__ == "__main__":
    main()
