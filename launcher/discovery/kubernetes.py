"""Find peers with the API server. A child process loads the Kubernetes client, to keep the launcher small."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from launcher.base.aio import wait_within
from launcher.base.helper import Helper
from launcher.base.kube_pods import Pod
from launcher.discovery.deadline import Deadline
from launcher.discovery.finder import LEADING, Finder, FinderSettings
from launcher.discovery.missing import describe_missing
from launcher.discovery.selection import all_run, choose_peers, other_role_failure, other_role_job, present_members
from launcher.discovery.view import View
from launcher.errors import Exit, Failure
from launcher.model import BOTH, Member, Peers

_CHILD = "launcher.discovery.kubernetes_child"
_DESCRIBE = 5.0  # seconds to find out how a peer's pod ended
_COALESCE = 0.05  # seconds to wait for further changes: many pods of a large job change at the same time
_LONGEST = 30.0  # seconds: the longest pause before a child that has crashed is started again


class KubernetesFinder(Finder):
    """Keep a view of the pods. A child process sends all changes, and runs until the view is no longer needed."""

    def __init__(self, settings: FinderSettings) -> None:
        super().__init__(settings)
        self._deadline = Deadline(settings.timeout, settings.timeout_variable)
        self._view = View()
        self._listed = self._view  # the latest whole list, for messages while a new list is made
        self._failure: Failure | None = None
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._finds = 0
        self._ends_when_all_run = False

    async def start(self) -> None:
        """Start the child process early, since it needs a third of a second for its imports."""
        if self._watching is None or self._watching.done():
            self._failure = None
            self._begin_list()
            self._ends_when_all_run = False
            child = self._child({"do": "watch"})
            self._watching = asyncio.create_task(self._watch(child))
            await child.start()

    async def identity(self) -> str | None:
        """Return the identity as soon as the API server has listed this pod."""
        self._deadline.start()
        await self.start()
        while not self._knows_own_pod():
            await self._next_view()
        return self._view.pods[self._view.own or ""].job

    async def find(self) -> Peers:
        """Return the peers as soon as the hub's pod has an address.

        If pods have no numbers, all N live pods must have an address.
        """
        self._deadline.start()
        self._deadline.check(self._describe(), self._advice())
        await self.start()
        while (peers := self._chosen()) is None:
            await self._next_view()
        self._finds += 1
        # If the view has all pods, the child runs until all pods run: a pod with an address may still be delayed, and
        # messages must name this pod. A second call means that the join has failed. Then the child runs until `close`,
        # since this member may have to look again.
        self._ends_when_all_run = self._finds == 1 and self._view.has_all
        if self._finds == 1 and (not self._view.has_all or self._is_complete()):
            await self._end()
        return peers

    def members(self) -> list[Member]:
        """Return the members whose pods have an address.

        If pods have numbers, these may be only the hub and this member.
        """
        return present_members(self._view, self._settings)

    def describe_missing(self, joined: Collection[str]) -> str:
        """Return which members are missing in the latest view. If `joined` is empty, a pod that runs is not missing."""
        return self._describe(joined or None)

    def other_role(self, role: str) -> tuple[str | None, str]:
        known = None if self._settings.job_id else other_role_job(self._view, role)
        return known, other_role_failure(self._view, self._settings, role)

    async def describe_peer(self, pod: str) -> str:
        """Start a new child process, which asks the API server how the pod ended."""
        known = next((p for p in self._view.pods.values() if pod in (p.name, p.uid)), None)
        question = {"pod": pod, "name": known.name if known else "", "uid": known.uid if known else ""}
        child = self._child({"do": "describe", **question})
        try:
            return await wait_within(self._description(child), _DESCRIBE)
        except asyncio.TimeoutError:
            return ""
        finally:
            await child.close()

    async def close(self) -> None:
        """End the child process. Keep the view as it is."""
        await self._end()

    def _describe(self, joined: Collection[str] | None = None) -> str:
        """Describe the pods. Until a new list is complete, describe the earlier list, unless there is an error."""
        view = self._view if self._view.is_listed or self._view.trouble else self._listed
        return describe_missing(view, self._settings, joined)

    def _begin_list(self) -> None:
        if self._view.is_listed:
            self._listed = replace(self._view)
        self._view.pods, self._view.is_listed = {}, False

    def _chosen(self) -> Peers | None:
        self._raise_failure()
        return choose_peers(self._view, self._settings)

    def _is_complete(self) -> bool:
        # With roles the view is needed until the join: pods of another role may still fail for good.
        return self._settings.role == BOTH and all_run(self._view, self._settings)

    def _knows_own_pod(self) -> bool:
        self._raise_failure()
        return self._view.is_listed and self._view.own in self._view.pods

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._watching is not None and self._watching.done():
            self._watching.result()

    async def _next_view(self) -> None:
        state = self._describe()
        self._deadline.report(state, self._advice())
        self._changed.clear()
        await self._deadline.pause(state, self._settings.timeout, self._changed)
        await asyncio.sleep(_COALESCE)

    async def _watch(self, child: Helper) -> None:
        pause = 1.0
        while True:
            try:
                async for message in child.messages():
                    self._take(message)
                    pause = 1.0
                    if self._ends_when_all_run and self._view.is_listed and self._is_complete():
                        return
            finally:
                await child.close()
            if self._failure is not None:
                return
            why = child.last_error_line() or "without a message"
            trouble = (
                f"the process that uses the API server exited with code {child.exit_code} ({why}), and starts again"
            )
            self._view.trouble = trouble
            self._changed.set()
            await asyncio.sleep(pause + random.uniform(0, 0.5))
            pause = min(pause * 2, _LONGEST)
            child = self._child({"do": "watch"})

    def _take(self, message: dict[str, Any]) -> None:
        view = self._view
        match message:
            case {"pod": fields}:
                view.pods[fields["uid"]] = Pod(**fields)
            case {"gone": uid}:
                view.pods.pop(uid, None)
            case {"own": uid}:
                view.own = uid
            case {"has_all": has_all}:
                view.has_all = has_all
            case {"listing": _}:
                self._begin_list()
            case {"listed": _}:
                view.is_listed, view.trouble = True, ""
            case {"trouble": text}:
                view.trouble = text
            case {"failure": {"code": code, "message": text}}:
                self._failure = Failure(Exit(code), text)
        if view.is_listed or view.trouble or self._failure:
            self._changed.set()

    async def _description(self, child: Helper) -> str:
        async for message in child.messages():
            if "description" in message:
                return str(message["description"])
        return ""

    async def _end(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    def _child(self, question: dict[str, Any]) -> Helper:
        settings = self._settings
        request = {
            "namespace": settings.namespace,
            "selector": settings.selector,
            "role": settings.role,
            "leading": LEADING if settings.any_leads else 1,
            "job_id": settings.job_id,
            "pod_name": settings.pod_name,
            "pod_uid": settings.pod_uid,
            "pod_ip": settings.pod_ip,
            "host_name": settings.host_name,
            "kubeconfig": settings.env.get("KUBECONFIG", ""),
            "service_account": settings.service_account,
        }
        return Helper(_CHILD, request | question, settings.env)

    def _advice(self) -> str:
        settings = self._settings
        return f"Look at `kubectl -n {settings.namespace} get pods -l {settings.selector}` and `kubectl describe pod`"
