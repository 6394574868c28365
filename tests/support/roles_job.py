"""A job with roles: three pods are trainers, two pods are servers."""

from __future__ import annotations

from tests.support.jobs import Job

TRAINERS, PSERVERS = 3, 2


PSERVER = TRAINERS  # the number of the first server's launcher: trainers come first


class RolesJob(Job):
    """Three trainers and two servers with static peers. Their numbers count from 0 through both, trainers first."""

    def variables(self, rank: int) -> dict[str, str]:
        addresses = self.nodes.addresses
        role = "pserver" if rank >= TRAINERS else "trainer"
        peers = f"trainer={','.join(addresses[:TRAINERS])};pserver={','.join(addresses[TRAINERS:])}"
        return super().variables(rank) | {
            "CONF_PADDLE_GRADIENT_NUM": str(TRAINERS),
            "LAUNCHER_PSERVERS": str(PSERVERS),
            "LAUNCHER_ROLE": role,
            "LAUNCHER_PEERS": peers,
            **self.environment,
        }
