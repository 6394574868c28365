"""Find peers by the API server. A child process asks it, so that this one never loads its client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from typing import Any

from launcher.base.aio import bounded
from launcher.base.helper import Helper
from launcher.base.kube_pods import Pod
from launcher.discovery.choose import choose, complete, failed_for_good, missing, other_job, there
from launcher.discovery.deadline import Deadline
from launcher.discovery.finder import FinderSettings
from launcher.discovery.view import View
from launcher.errors import Exit, Failure
from launcher.model import BOTH, Member, Peers

_CHILD = "launcher.discovery.kubernetes_child"
_ASK = 5.0  # seconds for the whole of one question
_COALESCE = 0.05  # seconds: pods of a big job change in bursts
_LONGEST = 30.0  # seconds between two starts of a child that crashes


class KubernetesFinder:
    """Keeps a view of the pods by what the child tells, as long as that is needed."""

    def __init__(self, settings: FinderSettings) -> None:
        self._settings = settings
        self._waiting = Deadline(settings.timeout, settings.deadline)
        self._view = View()
        self._failure: Failure | None = None
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._finds = 0
        self._follows_on = False  # after peers were found

    async def start(self) -> None:
        """Start the child, whose imports alone take a third of a second."""
        if self._following is None or self._following.done():
            self._failure = None
            self._view.listed = False
            self._follows_on = False
            worker = self._worker({"do": "follow"})
            self._following = asyncio.create_task(self._follow(worker))
            await worker.start()

    async def identity(self) -> str | None:
        """As soon as the own pod is known."""
        self._waiting.begin()
        await self.start()
        while not self._is_known():
            await self._next_view()
        return self._view.pods[self._view.me or ""].job

    async def find(self) -> Peers:
        """Numbered: once the hub's pod has an address. Otherwise: once exactly N live pods have one."""
        self._waiting.begin()
        # Past the deadline the view that is there says more than a new one would, which starts empty.
        self._waiting.check_deadline(missing(self._view, self._settings), self._advice())
        await self.start()
        while (peers := self._choice()) is None:
            await self._next_view()
        self._finds += 1
        # Whoever sees all pods goes on until they run: one that is held up may have an address, and has to be named.
        # Whoever looks again has not joined, and may have to look once more.
        self._follows_on = self._finds == 1 and self._view.whole
        if self._finds == 1 and (not self._view.whole or self._is_enough()):
            await self._end()
        return peers

    def members(self) -> list[Member]:
        """Those whose pods have an address. A numbered member that is not the hub knows of two."""
        return there(self._view, self._settings)

    def missing(self, present: Collection[str]) -> str:
        """As far as the child has told so far. Only the hub knows who has joined: for others running is enough."""
        return missing(self._view, self._settings, present or None)

    def other(self) -> tuple[str | None, str]:
        """As far as the child has told. Where identities are given, nobody tells that of the other role."""
        known = None if self._settings.job_id else other_job(self._view, self._settings)
        return known, failed_for_good(self._view, self._settings)

    async def ask(self, pod: str) -> str:
        """Look at one pod again, in a child of its own."""
        known = next((p for p in self._view.pods.values() if pod in (p.name, p.uid)), None)
        worker = self._worker(
            {"do": "ask", "pod": pod, "name": known.name if known else "", "uid": known.uid if known else ""}
        )
        try:
            return await bounded(self._answer(worker), _ASK)
        except asyncio.TimeoutError:
            return ""
        finally:
            await worker.close()

    async def close(self) -> None:
        """End the child. What is known stays known."""
        await self._end()

    def _choice(self) -> Peers | None:
        self._raise_what_failed()
        return choose(self._view, self._settings)

    def _is_enough(self) -> bool:
        """With roles it never is before the join: pods of the other role may still fail for good."""
        return self._settings.role == BOTH and complete(self._view, self._settings)

    def _is_known(self) -> bool:
        self._raise_what_failed()
        return self._view.listed and self._view.me in self._view.pods

    def _raise_what_failed(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._following is not None and self._following.done():
            self._following.result()

    async def _next_view(self) -> None:
        """Until the child has told more, within the deadline."""
        state = missing(self._view, self._settings)
        self._waiting.check(state, self._advice())
        self._changed.clear()
        await self._waiting.pause(state, self._settings.timeout, self._changed)
        await asyncio.sleep(_COALESCE)

    async def _follow(self, worker: Helper) -> None:
        pause = 1.0
        while True:
            try:
                async for message in worker.messages():
                    self._take(message)
                    pause = 1.0
                    if self._follows_on and self._view.listed and self._is_enough():
                        return
            finally:
                await worker.close()
            if self._failure is not None:
                return
            why = worker.last_words() or "without a word"
            self._view.trouble = f"the process that asks the API server ended with {worker.code} ({why}), starting anew"
            self._changed.set()
            await asyncio.sleep(pause + random.uniform(0, 0.5))
            pause = min(pause * 2, _LONGEST)
            worker = self._worker({"do": "follow"})

    def _take(self, message: dict[str, Any]) -> None:
        view = self._view
        match message:
            case {"pod": seen}:
                view.pods[seen["uid"]] = Pod(**seen)
            case {"gone": uid}:
                view.pods.pop(uid, None)
            case {"me": uid}:
                view.me = uid
            case {"whole": whole}:
                view.whole = whole
            case {"again": _}:
                view.pods, view.listed = {}, False
            case {"listed": _}:
                view.listed, view.trouble = True, ""
            case {"trouble": text}:
                view.trouble = text
            case {"failure": {"code": code, "message": text}}:
                self._failure = Failure(Exit(code), text)
        if view.listed or view.trouble or self._failure:
            self._changed.set()

    async def _answer(self, worker: Helper) -> str:
        async for message in worker.messages():
            if "became" in message:
                return str(message["became"])
        return ""

    async def _end(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    def _worker(self, what: dict[str, Any]) -> Helper:
        settings = self._settings
        request = {
            "namespace": settings.namespace,
            "selector": settings.selector,
            "role": settings.role,
            "job_id": settings.job_id,
            "pod_name": settings.pod_name,
            "pod_uid": settings.pod_uid,
            "pod_ip": settings.pod_ip,
            "host_name": settings.host_name,
            "kubeconfig": settings.env.get("KUBECONFIG", ""),
            "service_account": settings.service_account,
        }
        return Helper(_CHILD, request | what, settings.env)

    def _advice(self) -> str:
        settings = self._settings
        return f"Look at `kubectl -n {settings.namespace} get pods -l {settings.selector}` and `kubectl describe pod`"


def make(settings: FinderSettings) -> KubernetesFinder:
    """This way of finding peers."""
    return KubernetesFinder(settings)
