"""The gang: N launchers that start together, fail together with the first cause named, and end together."""

from launcher.gang.gang import Gang
from launcher.gang.words import Event, Finish, HubLost, Lead, LookAgain, Missing, Settings, Stop, Train

__all__ = ["Event", "Finish", "Gang", "HubLost", "Lead", "LookAgain", "Missing", "Settings", "Stop", "Train"]
