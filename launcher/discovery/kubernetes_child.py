"""The child of launcher.discovery.kubernetes, which talks to the API server.

Its answers, a line each: {"me": uid}, {"whole": bool}, {"pod": {...}}, {"gone": uid}, {"listed": true},
{"again": true} before a new list, {"trouble": text}, {"failure": {...}}, {"became": text}.
"""

from __future__ import annotations

import gc
import random
import time
from dataclasses import asdict
from typing import Any

from launcher.base import kube_pods
from launcher.base.helper_child import Answers, request
from launcher.base.host import held_here, is_held, parsed
from launcher.base.kube_pods import LIVE, Pod
from launcher.errors import Exit, Failure
from launcher.model import BOTH

gc.disable()  # it would look through the client's 700 modules again and again while they load: a quarter of the time
from launcher.base.kube import KubeClient  # noqa: E402
from launcher.base.kube_credentials import Kubeconfig, ServiceAccount  # noqa: E402
from launcher.base.kube_errors import Denied, Expired, Refused, Transient  # noqa: E402
from launcher.discovery.retries import Retries  # noqa: E402
from launcher.discovery.rights import denied  # noqa: E402

gc.enable()

Json = dict[str, Any]

_LOOK = 3.0  # seconds in which a pod that died shows up as dead
_NO_ACCOUNT = (
    "let the pod have its service account's token (automountServiceAccountToken), or find peers without the API "
    "server: LAUNCHER_DISCOVERY=dns or static"
)
_AT_ONCE = 1.0  # a watch that ends sooner than this without an event was not a watch


class PodWatcher:
    """One list and then one watch of the pods, told to the launcher as far as it matters to it."""

    def __init__(self, asked: Json, client: KubeClient, retries: Retries, answers: Answers) -> None:
        self._asked = asked
        self._client = client
        self._retries = retries
        self._tell = answers.tell
        self._host_name: str = asked["host_name"].partition(".")[0]
        self._held = held_here()
        self._known: dict[str, Pod] = {}
        self._own: Json | None = None
        self._me: str | None = None
        self._version: str | None = None
        self._selector: str = asked["selector"]

    def run(self) -> None:
        """Until the launcher ends this process."""
        self._own = self._retries.run(self._own_pod)
        self._selector, whole = _narrowed(self._selector, self._own, self._asked["role"])
        self._tell({"whole": whole})
        while True:
            self._retries.run(self._step)

    def _own_pod(self) -> Json | None:
        # All but number 0 read two pods instead of all when they know their own labels.
        uid, name = self._asked["pod_uid"], self._asked["pod_name"] or self._host_name
        try:
            found = self._client.get("Pod", name)
        except Denied:
            return None  # the pods can still be listed: all of them
        return found if found and (not uid or found["metadata"]["uid"] == uid) else None

    def _step(self) -> None:
        try:
            if self._version is None:
                self._list()
            self._watch()
        except Expired:
            self._version = None

    def _list(self) -> None:
        found, self._version = self._client.list_versioned("Pod", self._selector)
        if self._own is not None:
            self._refuse_other_selection(self._own, found)
        self._tell({"again": True})
        self._known.clear()
        for seen in found:
            self._take(seen)
        self._find_me()
        self._tell({"listed": True})

    def _watch(self) -> None:
        started, moved = time.monotonic(), False
        assert self._version is not None
        events = self._client.watch("Pod", self._selector, self._version)
        self._retries.has_all_rights = True
        try:
            for event in events:
                moved = True
                seen = event["object"]
                self._version = seen["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._drop(seen["metadata"]["uid"])
                elif event["type"] != "BOOKMARK":
                    self._take(seen)
                    self._find_me()
        except Transient:
            if not moved:
                raise
        else:
            if not moved and time.monotonic() - started < _AT_ONCE:
                raise Transient("the watch ended at once")
        # A server that restarts cuts all watches at once: they must not all come back at once.
        time.sleep(random.uniform(0, 0.5))

    def _take(self, seen: Json) -> None:
        pod = kube_pods.pod(seen, self._asked["job_id"])
        if self._known.get(pod.uid) != pod:
            self._known[pod.uid] = pod
            self._tell({"pod": asdict(pod)})

    def _drop(self, uid: str) -> None:
        if self._known.pop(uid, None):
            self._tell({"gone": uid})

    def _find_me(self) -> None:
        if self._me is None:
            mine = [pod for pod in self._known.values() if self._is_me(pod)]
            mine = mine or [pod for pod in self._known.values() if pod.state == LIVE and self._has_my_address(pod)]
            if len(mine) == 1:
                self._me = mine[0].uid
                self._tell({"me": self._me})

    def _is_me(self, pod: Pod) -> bool:
        asked = self._asked
        if asked["pod_uid"]:
            return bool(pod.uid == asked["pod_uid"])
        return bool(pod.name == (asked["pod_name"] or self._host_name))

    def _has_my_address(self, pod: Pod) -> bool:
        given = self._asked["pod_ip"]
        return parsed(pod.address) == parsed(given) if given else is_held(pod.address, self._held)

    def _refuse_other_selection(self, own: Json, found: list[Json]) -> None:
        if any(seen["metadata"]["uid"] == own["metadata"]["uid"] for seen in found):
            return
        has = ",".join(f"{key}={value}" for key, value in sorted(kube_pods.labels(own).items())) or "none"
        raise Failure(
            Exit.CONFIG,
            f"{len(found) or 'no'} pods match {self._asked['selector']} in namespace {self._client.namespace}, "
            f"and this pod, {own['metadata']['name']}, is not one of them: its labels are {has}. "
            "Set JOB_NAME to the Job's name, or LAUNCHER_SELECTOR to labels that all pods of the job have",
        )


def _narrowed(selector: str, own: Json | None, role: str) -> tuple[str, bool]:
    """Numbered members need number 0 of each role and themselves: 1,000 that read 1,000 pods hurt the API server."""
    number = kube_pods.number(own) if own else None
    if not own or not number:
        return selector, True
    has = kube_pods.labels(own)
    name = own["metadata"]["name"]
    first = {kube_pods.INDEX: "0", kube_pods.ORDINAL: "0"}
    if role == BOTH:  # else the hub's name may be another
        first[kube_pods.STATEFUL_NAME] = f"{name.rpartition('-')[0]}-0"
    for label, hub in first.items():
        if label in has:
            return f"{selector},{label} in ({hub},{has[label]})", False
    return selector, True


def describe_end(asked: Json, client: KubeClient, retries: Retries) -> str:
    """Say what became of a pod; ask again until that shows, since a death takes up to a second to be recorded."""
    until = time.monotonic() + _LOOK
    while True:
        said = retries.run(lambda: _look(asked, client))
        if said or time.monotonic() > until:
            return said
        time.sleep(0.5)


def _look(asked: Json, client: KubeClient) -> str:
    name, uid = asked["name"], asked["uid"]
    if not name or not uid:
        found = client.list("Pod", asked["selector"])
        seen = next((pod for pod in found if asked["pod"] in (pod["metadata"]["name"], pod["metadata"]["uid"])), None)
        return kube_pods.became(seen) or kube_pods.silent_node(seen) if seen else ""
    seen = client.get("Pod", name)
    if seen is None or seen["metadata"]["uid"] != uid:
        return "the pod was deleted"
    return kube_pods.became(seen) or kube_pods.silent_node(seen)


def _connect(asked: Json) -> KubeClient:
    kubeconfig = asked["kubeconfig"]
    credentials = Kubeconfig(kubeconfig) if kubeconfig else ServiceAccount(_NO_ACCOUNT, asked["service_account"])
    return KubeClient(credentials, asked["namespace"], denied)


def main() -> None:
    """Do what the request says; a clean error is an answer, too."""
    asked, answers = request(), Answers()
    try:
        client = _connect(asked)
        retries = Retries(client, lambda text: answers.tell({"trouble": text}))
        if asked["do"] == "follow":
            PodWatcher(asked, client, retries, answers).run()
        else:
            answers.tell({"became": describe_end(asked, client, retries)})
    except Failure as failure:
        hint = " (LAUNCHER_SELECTOR?)" if isinstance(failure, Refused) else ""
        answers.tell({"failure": {"code": int(failure.code), "message": failure.message + hint}})


if __name__ == "__main__":
    main()
