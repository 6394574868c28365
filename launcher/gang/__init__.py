"""The gang: N launchers that start together, fail together with the first cause named, and end together."""

from launcher.gang.events import (
    REPORTS,
    AlreadyComplete,
    Begin,
    Collect,
    Event,
    Finish,
    GangSettings,
    HubLost,
    Lead,
    LookAgain,
    Missing,
    Next,
    NotAgain,
    Restart,
    Stop,
    Train,
)
from launcher.gang.gang import Gang

__all__ = [
    "REPORTS",
    "AlreadyComplete",
    "Begin",
    "Collect",
    "Event",
    "Finish",
    "Gang",
    "GangSettings",
    "HubLost",
    "Lead",
    "LookAgain",
    "Missing",
    "Next",
    "NotAgain",
    "Restart",
    "Stop",
    "Train",
]
