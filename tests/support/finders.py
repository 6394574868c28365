"""Settings of finders for tests."""

from __future__ import annotations

from typing import Any

from launcher.discovery.finder import FinderSettings
from launcher.model import BOTH, Shape


def settings(**more: Any) -> FinderSettings:
    """Return the settings of a job with three members, with these changes. `size` and `pservers` set the shape."""
    given: dict[str, Any] = {
        "role": BOTH,
        "shape": Shape(more.pop("size", 3), more.pop("pservers", 0)),
        "job_name": "x",
        "namespace": "ns",
        "selector": "",
        "service": None,
        "peers": (),
        "pod_name": None,
        "pod_ip": None,
        "pod_uid": None,
        "host_name": "x-a",
        "rank": None,
        "job_id": None,
        "training_address": "",
        "timeout": 30.0,
        "timeout_variable": "LAUNCHER_PEER_TIMEOUT",
        "env": {},
    }
    return FinderSettings(**(given | more))


def dns_settings(**more: Any) -> FinderSettings:
    return settings(
        **({"discovery": "dns", "service": "svc", "pod_ip": "10.0.0.9", "host_name": "x-2", "timeout": 60.0} | more)
    )
