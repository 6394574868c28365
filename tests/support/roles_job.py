"""A job whose pods have one role each: three trainers, two servers."""

from __future__ import annotations

from tests.support.jobs import Job

TRAINERS, PSERVERS = 3, 2


PSERVER = TRAINERS  # the first one's launcher: trainers come first


class RolesJob(Job):
    """Three trainers, then two servers, by static peers. Numbers here count through all of them."""

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
