"""The state of a job in one sentence, with the last lines of the process that failed and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.base.passes import pass_name
from launcher.model import CauseKind, role_name
from launcher.report.facts import FINISHED, TRAINING, Death, Facts, FirstCause, Member, Place, Run
from launcher.report.words import duration, names

COMPLETE, FAILED, RUNNING, SILENT, EMPTY = "complete", "failed", "running", "silent", "empty"
_QUIET = 30.0  # seconds. A hub renews its lease every 5 s
_LATE = 12.0  # seconds; the lease is then overdue
_CLOCKS = 5.0  # seconds: the clocks of two nodes usually differ by less
_SILENT_TRAINER = 30.0  # seconds without new numbers, of a trainer that has printed them often
_KILLED = 137
_OF_PROCESS: dict[str, str] = {
    CauseKind.TRAINER: "train.log",
    CauseKind.PSERVER: "server.log",
    CauseKind.HETER: "heter.log",
}


@dataclass(frozen=True)
class Verdict:
    """What has become of the job.

    title: one word or two
    sentence: one sentence that names rank, pod and cause
    cause: the first cause; of a running job, the cause of the latest restart
    tail: the last lines of the process that failed, and `tail_of` says whose lines they are
    advice: what to do, one sentence each
    at: when the job has ended, or the time of the newest event
    """

    state: str
    title: str
    sentence: str
    cause: FirstCause | None = None
    tail: tuple[str, ...] = ()
    tail_of: str = ""
    advice: tuple[str, ...] = ()
    at: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.state != RUNNING


def judge(facts: Facts) -> Verdict:
    """Return the verdict about a job."""
    if facts.unjoined is not None and (facts.end is None or facts.end[0] < facts.unjoined[0]) and not _is_held(facts):
        at, code, why = facts.unjoined
        return _failed(facts, why, at, code)
    if not facts.gangs and not facts.generations and not any(member.runs for member in facts.members.values()):
        if facts.members:
            missing_timeline = "The folder has no timeline of the job, so this page cannot say what happened."
            hint = "`paddle-launcher status` shows what is known. Was events.jsonl removed?"
            return Verdict(EMPTY, "No timeline", missing_timeline, advice=(hint,))
        hint = "`kubectl get pods` and the logs of the pods show what the pods wait for."
        return Verdict(EMPTY, "Not begun", "The job has not begun: no member has joined yet.", advice=(hint,))
    if facts.end is not None:
        at, code, cause = facts.end
        return _complete(facts, at) if cause is None and code == 0 else _failed(facts, cause, at, code)
    latest = facts.gangs[-1] if facts.gangs else 0.0
    runs = [(member, member.run) for member in facts.members.values() if member.is_current and member.run]
    ended = [run for _, run in runs if run.ended is not None and run.ended >= latest - _CLOCKS]
    if ended and _all_over(facts, runs):
        return _ended_without_hub(facts, ended)
    if facts.lease is not None and (facts.lease.is_released or facts.lease.age > _QUIET) and not _is_moving(facts):
        return _stopped_without_end(facts)
    return _running(facts, runs)


def _is_held(facts: Facts) -> bool:
    """Return whether a gang holds the folder, so that another gang may train now."""
    return facts.lease is not None and not facts.lease.is_released and facts.lease.age < _QUIET


def _all_over(facts: Facts, runs: list[tuple[Member, Run]]) -> bool:
    """Return whether all launchers have ended, except a member that the other members have lost."""
    causes = [run.cause for _, run in runs if run.cause is not None]
    lost = {cause.place for cause in causes if cause.kind in (CauseKind.LOST, CauseKind.STOPPED)}
    return all(run.ended is not None or member.place in lost for member, run in runs)


def _is_moving(facts: Facts) -> bool:
    """Return whether an event was written just now. The clock of another node may be days ahead: it proves nothing."""
    return any(abs(facts.now - at) < _QUIET for at in facts.latest)


# ---- jobs that are over ----------------------------------------------------------------------------------------------


def _complete(facts: Facts, at: float) -> Verdict:
    passes = len({number for _, number in facts.passes})
    trained = f"{passes} {'pass' if passes == 1 else 'passes'} in " if passes else ""
    resizes = sum(each.is_resize for each in facts.history)
    restarts = max(0, len(facts.generations) - 1 - resizes)
    changes = [_count(restarts, "restart", "restarts"), _count(resizes, "change of size", "changes of size")]
    with_changes = " and ".join(filter(None, changes))
    sentence = f"The job is complete: {trained}{duration(at - facts.begin)}{', with ' if with_changes else ''}"
    sentence += f"{with_changes}."
    return Verdict(COMPLETE, "Complete", sentence, at=at)


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}" if number else ""


def _failed(facts: Facts, cause: FirstCause | None, at: float, code: int) -> Verdict:
    if cause is None:
        return Verdict(FAILED, "Failed", f"The job failed with exit code {code}, and no cause was written.", at=at)
    tail, tail_of = _tail(facts, cause)
    advice = (*_advice(cause, tail_of), *_resume(facts))
    return Verdict(FAILED, "Failed", f"The job failed: {cause.sentence}", cause, tail, tail_of, advice, at)


def _ended_without_hub(facts: Facts, ended: list[Run]) -> Verdict:
    """Return the verdict from the events of the other members, since the hub could not write the end."""
    causes = [run.cause for run in ended if run.cause is not None]
    at = max(run.ended or 0.0 for run in ended)
    if not causes:
        return _complete(facts, at) if all(run.exit_code == 0 for run in ended) else _failed(facts, None, at, 1)
    named = [cause for cause in causes if cause.rank is not None] or causes
    return _failed(facts, max(named, key=named.count), at, 1)


def _stopped_without_end(facts: Facts) -> Verdict:
    assert facts.lease is not None
    silent = [member for member in facts.members.values() if member.is_current and _has_no_end(member)]
    quiet = duration(facts.lease.age)
    if facts.lease.is_released:
        sentence = "The job has stopped, and its end was not written"
    else:
        sentence = f"The job has stopped, and its end was not written: the hub was silent for {quiet}"
    named = [member.full_name if len(silent) < 3 else member.name for member in silent]
    whose = f"; {names(named)} wrote no end" if silent else ""
    cause = facts.latest_failure
    advice = (
        "Look at the pods: `kubectl get pods` and `kubectl describe pod`. The pods were killed, or their node is gone, "
        "or the volume took no more writes: check the free space of the volume.",
        *_resume(facts),
    )
    tail, tail_of = _tail(facts, cause)
    return Verdict(SILENT, "Stopped", f"{sentence}{whose}.", cause, tail, tail_of, advice, facts.last)


def _has_no_end(member: Member) -> bool:
    return member.run is not None and member.run.ended is None


# ---- jobs that run ---------------------------------------------------------------------------------------------------


def _running(facts: Facts, runs: list[tuple[Member, Run]]) -> Verdict:
    cause = facts.latest_failure
    troubles = _troubles(facts, runs)
    lost = missing(facts)
    waits = any(run.phase == "gathering" and run.ended is None for _, run in runs)
    trains = any(run.state == TRAINING and run.ended is None and member.place not in lost for member, run in runs)
    begins = "The job is training" if trains and not waits else _not_training(facts, runs)
    numbers = [number for _, number in facts.passes]
    if begins.endswith("training") and facts.history:
        number = max((n for g, n in facts.passes if g == facts.history[-1].number), default=None)
        after = facts.history[-1].after_pass
        newest = number if number is not None else after
        begins += f": pass {0 if newest is None else newest + 1}" if numbers or newest is not None else ""
    sentence = ", ".join([begins, *troubles]) + "."
    tail, tail_of = _tail(facts, cause)
    advice = _advice(cause, tail_of)[:1] if cause else ()
    return Verdict(RUNNING, "Running", sentence, cause, tail, tail_of, advice, facts.now)


def _not_training(facts: Facts, runs: list[tuple[Member, Run]]) -> str:
    if not runs and not facts.gangs:
        return "The job runs, and its members have written no timeline"
    states = {run.state for _, run in runs if run.ended is None}
    gathering = [member.name for member, run in runs if run.phase == "gathering" and run.ended is None]
    latest = facts.history[-1] if facts.history else None
    if gathering and latest and latest.cause and latest.is_resize:
        return f"The job changes its size: {latest.cause.sentence}"
    if gathering:
        lost = [each.full_name for each in (facts.members.get(place) for place in missing(facts)) if each]
        cause = facts.latest_failure
        wanted = lost or ([cause.member] if cause and cause.member else [])
        return f"The job waits for a new pod in place of {names(wanted)}" if wanted else "The job waits for new pods"
    if states and states <= {FINISHED}:
        return "The job finishes"
    if any(run.phase == "restarting" for _, run in runs):
        cause = facts.latest_failure
        return f"The job restarts, because {cause.sentence}" if cause else "The job restarts"
    if any(run.phase == "ending" for _, run in runs):
        return "The job ends"
    return "The job starts"


def _troubles(facts: Facts, runs: list[tuple[Member, Run]]) -> list[str]:
    found = []
    lease = facts.lease
    hub = facts.members.get(Place(False, 0))
    if lease is not None and not lease.is_released and lease.age > _LATE and hub is not None:
        found.append(f"{hub.full_name}, the hub, was silent for {duration(lease.age)}")
    lost = missing(facts)
    waits = any(run.phase == "gathering" for _, run in runs)
    for member, _ in runs:
        if member.place in lost and not waits:
            since = facts.now - lost[member.place]
            found.append(f"{member.full_name} has not been connected for {duration(since)}")
    found += [
        f"{member.full_name} was silent for {duration(silent)}"
        for member, run in runs
        if member.place not in lost and (silent := _silence(facts, member, run))
    ]
    return found[:3] + ([f"and {len(found) - 3} more members are silent"] if len(found) > 3 else [])


def missing(facts: Facts) -> dict[Place, float]:
    """Return the missing members, with the time at which the hub or the other members noticed the loss."""
    since: dict[Place, float] = {}
    runs = [(member, member.run) for member in facts.members.values() if member.is_current and member.run]
    waiting = [run.since for _, run in runs if run.phase == "gathering" and run.ended is None]
    for member, run in runs:
        if waiting and run.phase != "gathering" and run.last < min(waiting):
            since[member.place] = min(waiting) if run.ended is None else run.ended
    for change in facts.peers:
        if facts.gangs and change.at < facts.gangs[-1]:
            continue
        if change.is_lost:
            since[change.place] = change.at
        else:
            since.pop(change.place, None)
    return since


def _silence(facts: Facts, member: Member, run: Run) -> float:
    """Return for how many seconds a trainer has printed no numbers, or 0 if such a pause is usual for this trainer."""
    recent = [sample.at for sample in member.samples[-20:] if sample.at >= run.since]
    if run.state != TRAINING or len(recent) < 3:
        return 0.0
    usual = (recent[-1] - recent[0]) / (len(recent) - 1)
    silent = facts.now - recent[-1]
    return silent if silent > max(_SILENT_TRAINER, 10 * usual) else 0.0


# ---- last lines and advice -------------------------------------------------------------------------------------------


def _tail(facts: Facts, cause: FirstCause | None) -> tuple[tuple[str, ...], str]:
    """Return the last lines of the process that failed, and whose lines they are."""
    if cause is None or cause.kind not in _OF_PROCESS:
        return (), ""
    lines = tuple(line for line in cause.tail or death_tail(facts, cause) if line.strip())
    return lines, f"{role_name(cause.kind)} of {cause.member}" if lines else ""


def death_tail(facts: Facts, cause: FirstCause) -> tuple[str, ...]:
    """Return the last lines that the member at fault has recorded."""
    member = facts.members.get(cause.place) if cause.place else None
    deaths: list[Death] = [] if member is None else member.deaths
    return next((death.tail for death in reversed(deaths) if death.process == cause.kind and death.tail), ())


def _advice(cause: FirstCause, tail_of: str) -> tuple[str, ...]:
    pod = cause.pod or "POD"
    describe = f"`kubectl describe pod {pod}`"
    log = f"output/{cause.place.folder}" if cause.place else "output/node_*"
    if cause.kind in _OF_PROCESS:
        return _advice_for_process(cause, describe, log, tail_of)
    known: dict[str, tuple[str, ...]] = {
        CauseKind.STALLED: (f"Read {log}/stalled-*.txt: they have the stacks of all processes at that time.",),
        CauseKind.PEERS: ("Look at the pod that is missing: `kubectl get pods`, then `kubectl describe pod POD`.",),
        CauseKind.STAGING: ("Check the configuration and the shard that the message names, then start the job again.",),
        CauseKind.PLAN: ("Correct the variable or argument that the message names, then start the job again.",),
        CauseKind.VOLUME: ("Check the volume: free space, quota, mount. Then start the job again.",),
        CauseKind.TAKEN_OVER: ("Two gangs used this folder. Look for a second job of this name: `kubectl get pods`.",),
        CauseKind.STOPPED: (
            f"The pod was deleted, evicted or preempted: {describe} says why, while the pod exists.",
            "With LAUNCHER_MAX_RESTARTS above 0 the other pods wait for the new pod.",
        ),
        CauseKind.LOST: (
            f"Look at the pod and its node: {describe}. If the pod was OOMKilled, give it more memory.",
            "With LAUNCHER_MAX_RESTARTS above 0 the other pods wait for the new pod.",
        ),
        CauseKind.LAUNCHER: (f"Look at the pod: {describe} and `kubectl logs {pod}`.",),
    }
    return known.get(cause.kind, (f"Look at the pod: {describe}.",))


def _advice_for_process(cause: FirstCause, describe: str, log: str, tail_of: str) -> tuple[str, ...]:
    name = _OF_PROCESS[cause.kind]
    read = f"The whole log is in {log}/{name}." if tail_of else f"Read the end of its log, {log}/{name}."
    if "memory" in cause.what:
        first = "Give the container more memory (resources.limits.memory), or train with smaller batches."
    elif cause.code == _KILLED:
        first = f"Find out what killed the process: {describe}, and the events of the node."
    elif cause.final:
        first = "The same failure came twice before any progress: correct the program, then start the job again."
    else:
        first = "Read the last lines of the process. docs/exit-codes.md explains the exit code."
    return (first, read)


def _resume(facts: Facts) -> tuple[str, ...]:
    if facts.saved is None:
        return ("No whole pass is saved: the job begins with its first pass again.",)
    return (
        f"Started again with the same identity, the job resumes after pass {facts.saved} ({pass_name(facts.saved)}).",
    )
