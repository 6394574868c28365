"""The gang: N launchers that start together, restart together and end together, and report the same first cause."""

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
    NotComplete,
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
    "NotComplete",
    "Restart",
    "StartRefused",
    "Stop",
    "Train",
    "Verdict",
]
