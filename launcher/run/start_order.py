"""In which order the processes of one turn start on this member, and what the gang is told of that."""

from __future__ import annotations

import logging
from collections.abc import Callable

from launcher.gang import Gang
from launcher.model import Plan, Process

log = logging.getLogger(__name__)

LED_WITHIN = 15.0  # for the first trainer to listen: importing paddle and making its data ready


class StartOrder:
    """Servers first; then, where the plan says so, the trainer that all others find each other by; then all trainers.

    `start` starts a process. `later` calls something after a time, unless the turn is over by then.
    """

    def __init__(
        self,
        gang: Gang,
        turn: int,
        start: Callable[[Process], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._gang = gang
        self._turn = turn
        self._start = start
        self._later = later
        self._make_plan: Callable[[], Plan] | None = None
        self.plan: Plan | None = None  # the one that holds
        self._serving = False  # servers are started
        self._staged = False
        self._may_lead = False
        self._may_train = False
        self._led = False
        self._trains = False
        self._unserved = 0
        self._untrained = 0
        self._closed = False

    # ---- what has happened ---------------------------------------------------------------------------------------

    def serve_early(self, plan: Plan) -> None:
        """Start servers that need no roster. The plan that holds comes with `begin`."""
        if plan.early:
            self._serve(plan)

    def begin(self, make_plan: Callable[[], Plan]) -> None:
        """All is known that the plan depends on, but for what is still being copied."""
        self._make_plan = make_plan
        self.plan = make_plan()
        self._untrained = len(self.plan.trainers)
        self._go_on()

    def staged(self) -> None:
        """What is copied is here."""
        self._staged = True
        self._go_on()

    def lead(self) -> None:
        """It is everywhere."""
        self._may_lead = True
        self._go_on()

    def train(self) -> None:
        """And every server serves."""
        self._may_train = True
        self._go_on()

    def served(self) -> None:
        """One more process listens on all its ports."""
        self._unserved -= 1
        if not self._unserved:
            self._gang.report_serving(self._turn)

    def trainer_done(self) -> None:
        """A trainer has ended with 0."""
        if self._led:
            self._unled("has ended without having listened")
        self._untrained -= 1
        if not self._untrained:
            self._gang.report_trained(self._turn)

    def close(self) -> None:
        """Nothing is started any more."""
        self._closed = True

    # ---- what follows --------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether all trainers have ended."""
        return self._trains and not self._untrained

    def _go_on(self) -> None:
        if self._closed or self.plan is None:
            return
        if not self._serving and (self.plan.early or self._staged):
            self._serve(self.plan)
        if self.plan.leads and self._may_lead and not self._led:
            self._lead(self.plan)
        if self._may_train and not self._trains:
            self._train()

    def _serve(self, plan: Plan) -> None:
        """A member serves once its servers do, and the trainer that all others find each other by."""
        self._serving = True
        self._unserved = sum(bool(process.ports) for process in (*plan.servers, *plan.trainers))
        for server in plan.servers:
            self._start(server)
        if not self._unserved:
            self._gang.report_serving(self._turn)

    def _lead(self, plan: Plan) -> None:
        """Others would only try in vain, every 3 s, as long as the first trainer does not listen."""
        log.info("everything is copied: the first trainer starts, the others once it listens")
        self._led = True
        self._start(plan.trainers[0])
        self._later(LED_WITHIN, lambda: self._unled(f"does not listen within {LED_WITHIN:g} s"))

    def _unled(self, why: str) -> None:
        """A program of another kind may never listen; trying in vain harms nobody."""
        if self._unserved:
            log.info(f"the first trainer {why}: the others start without that")
            self._unserved = 0
            self._gang.report_serving(self._turn)

    def _train(self) -> None:
        """The plan is made again: what was copied meanwhile says which configuration there is."""
        assert self._make_plan is not None
        self._trains = True
        plan = self._make_plan()
        for trainer in plan.trainers[1 if self._led else 0 :]:
            self._start(trainer)
        if not plan.trainers:
            self._gang.report_trained(self._turn)  # nothing is left to train here, or the others do it
