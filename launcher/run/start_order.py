"""The order in which the processes of one attempt start on this member."""

from __future__ import annotations

import logging
from collections.abc import Callable

from launcher.gang import Gang
from launcher.model import Plan, Process

log = logging.getLogger(__name__)

LED_WITHIN = 15.0  # seconds for the first trainer to listen: it must import paddle and read its data before


class StartOrder:
    """Start the servers, then the leading trainer if the plan has one, then all other trainers. Report to the gang.

    start: starts a process
    later: calls a function after some seconds, unless the attempt is over by then
    """

    def __init__(
        self,
        gang: Gang,
        attempt: int,
        start: Callable[[Process], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._gang = gang
        self._attempt = attempt
        self._start = start
        self._later = later
        self._make_plan: Callable[[], Plan] | None = None
        self.plan: Plan | None = None  # known from `begin` on
        self._serves = False  # servers were started
        self._staged = False
        self._may_lead = False
        self._may_train = False
        self._leads = False
        self._trains = False
        self._not_listening = 0  # processes that do not listen yet
        self._training = 0  # trainers that have not ended
        self._is_closed = False

    # ---- what has happened -------------------------------------------------------------------------------------------

    def serve_early(self, plan: Plan) -> None:
        """Start the servers at once if they need no roster. `begin` gets the final plan."""
        if plan.early:
            self._serve(plan)

    def begin(self, make_plan: Callable[[], Plan]) -> None:
        """Take the plan of this generation. `make_plan` is called again once everything is copied."""
        self._make_plan = make_plan
        self.plan = make_plan()
        self._training = len(self.plan.trainers)
        self._proceed()

    def staged(self) -> None:
        """Record that configuration and shard of this member are copied."""
        self._staged = True
        self._proceed()

    def lead(self) -> None:
        """Record that every member has copied its configuration and shard: the leading trainer may start."""
        self._may_lead = True
        self._proceed()

    def train(self) -> None:
        """Record that every member has copied its configuration and shard, and that every server listens."""
        self._may_train = True
        self._proceed()

    def served(self) -> None:
        """Record that one more process listens on all of its ports."""
        self._not_listening -= 1
        if not self._not_listening:
            self._gang.report_serving(self._attempt)

    def trainer_done(self) -> None:
        """Record that a trainer has ended with exit code 0."""
        if self._leads:
            self._stop_leading("has ended before it listened")
        self._training -= 1
        if not self._training:
            self._gang.report_trained(self._attempt)

    def close(self) -> None:
        """Start no further process."""
        self._is_closed = True

    # ---- what follows ------------------------------------------------------------------------------------------------

    @property
    def all_trained(self) -> bool:
        """Whether all trainers of this member have started and have ended with exit code 0."""
        return self._trains and not self._training

    def _proceed(self) -> None:
        if self._is_closed or self.plan is None:
            return
        if not self._serves and (self.plan.early or self._staged):
            self._serve(self.plan)
        if self.plan.leads and self._may_lead and not self._leads:
            self._lead(self.plan)
        if self._may_train and not self._trains:
            self._train()

    def _serve(self, plan: Plan) -> None:
        """Start the servers. This member serves once all its servers listen, and its leading trainer if it has one."""
        self._serves = True
        self._not_listening = sum(bool(process.ports) for process in (*plan.servers, *plan.trainers))
        for server in plan.servers:
            self._start(server)
        if not self._not_listening:
            self._gang.report_serving(self._attempt)

    def _lead(self, plan: Plan) -> None:
        """Start the first trainer alone. Until it listens, other trainers fail to connect, and retry every 3 s."""
        log.info("all files are copied: the first trainer starts now; the other trainers start as soon as it listens")
        self._leads = True
        self._start(plan.trainers[0])
        self._later(LED_WITHIN, lambda: self._stop_leading(f"does not listen within {LED_WITHIN:g} s"))

    def _stop_leading(self, why: str) -> None:
        """Report serving although the first trainer does not listen: some training programs never listen."""
        if self._not_listening:
            log.info(f"the first trainer {why}: the other trainers start now")
            self._not_listening = 0
            self._gang.report_serving(self._attempt)

    def _train(self) -> None:
        """Start all trainers that do not run yet. Make a new plan first: the configuration was copied meanwhile."""
        assert self._make_plan is not None
        self._trains = True
        plan = self._make_plan()
        for trainer in plan.trainers[1 if self._leads else 0 :]:
            self._start(trainer)
        if not plan.trainers:
            self._gang.report_trained(self._attempt)  # this member has nothing to train
