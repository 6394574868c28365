"""Jobs with roles: each pod is a trainer, a server or a heter worker. Their numbers count from 0 through all roles."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.model import COUNT_VARIABLE
from tests.support.jobs import Job

TRAINERS, PSERVERS = 3, 2
PSERVER = TRAINERS  # the number of the first server's launcher: trainers come first

HETER_ROLES = {"trainer": 2, "pserver": 1, "heter": 2}  # of a HeterJob
HETER_SERVER, HETER = 2, 3  # the numbers of its server's launcher, and of the first heter worker's


class RolesJob(Job):
    """Three trainers and two servers with static peers."""

    counts: Mapping[str, int] = {"trainer": TRAINERS, "pserver": PSERVERS}

    def role(self, rank: int) -> str:
        return [role for role, count in self.counts.items() for _ in range(count)][rank]

    def variables(self, rank: int) -> dict[str, str]:
        left = iter(self.nodes.addresses)
        peers = {role: ",".join(next(left) for _ in range(count)) for role, count in self.counts.items()}
        return super().variables(rank) | {
            **{COUNT_VARIABLE[role]: str(count) for role, count in self.counts.items()},
            "LAUNCHER_ROLE": self.role(rank),
            "LAUNCHER_PEERS": ";".join(f"{role}={addresses}" for role, addresses in peers.items()),
            **self.environment,
        }


class HeterJob(RolesJob):
    """Two trainers, one server and two heter workers with static peers."""

    counts = HETER_ROLES
