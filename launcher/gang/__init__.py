"""The gang: N launchers that start together, fail together with the first cause named, and end together."""

from launcher.gang.events import (
    PROGRESS_REPORTS,
    AlreadyComplete,
    Begin,
    CollectEvidence,
    Event,
    Finish,
    GangSettings,
    HubLost,
    JoinFailed,
    Lead,
    MissingMembers,
    Restart,
    StartRefused,
    Stop,
    Train,
    Verdict,
)
from launcher.gang.gang import Gang

__all__ = [
    "PROGRESS_REPORTS",
    "AlreadyComplete",
    "Begin",
    "CollectEvidence",
    "Event",
    "Finish",
    "Gang",
    "GangSettings",
    "HubLost",
    "JoinFailed",
    "Lead",
    "MissingMembers",
    "Restart",
    "StartRefused",
    "Stop",
    "Train",
    "Verdict",
]
