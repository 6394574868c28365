"""This member as it knows itself, where nobody else tells."""

from __future__ import annotations

from launcher.base.host import own_address
from launcher.discovery.finder import FinderSettings
from launcher.errors import Exit, Failure
from launcher.model import Member


def own_member(settings: FinderSettings, rank: int, address: str | None = None) -> Member:
    """The member with this rank; its address is the given one, else the pod's, the training device's or any."""
    known = address or settings.pod_ip or settings.training_address or own_address()
    if not known:
        raise Failure(Exit.CONFIG, "this pod has no network address but loopback: set POD_IP (fieldRef status.podIP)")
    name = settings.pod_name or settings.host_name
    return Member(name, settings.pod_uid or "", known, settings.training_address or known, rank, settings.role)


def ordinal(settings: FinderSettings) -> int | None:
    """The number at the end of the pod's name, for those ways that only work with such names."""
    for name in (settings.pod_name or "", settings.host_name.partition(".")[0]):
        _, dash, digits = name.rpartition("-")
        if dash and digits.isascii() and digits.isdigit():
            return int(digits)
    return None
