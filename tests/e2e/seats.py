"""A resource that only the pods of one test ask for, so that no other test fills the nodes."""

from __future__ import annotations

import json

from tests.e2e.cluster import Json, kubectl


class Seat:
    """An extended resource of nodes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def offer(self, count: int | None, *names: str) -> None:
        """Set how many seats each of these nodes has. None removes the resource from the nodes."""
        quantity = None if count is None else str(count)
        status = {"status": {"capacity": {self.name: quantity}, "allocatable": {self.name: quantity}}}
        for node in names:
            patch = ("--subresource=status", "--type=merge", "-p", json.dumps(status))
            kubectl("patch", "node", node, *patch)

    def taken(self) -> Json:
        """Return the resources of a container that takes one seat."""
        return {"limits": {self.name: "1"}}


def nodes() -> list[str]:
    found: list[Json] = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    return [node["metadata"]["name"] for node in found]
