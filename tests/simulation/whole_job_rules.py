"""The rules that the launchers of each job must keep, checked from outside of the launchers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from launcher.errors import Exit
from launcher.gang import messages
from launcher.model import Cause, CauseKind, Outcome
from tests.simulation.children import Child
from tests.simulation.pods import Entry, Pod
from tests.simulation.schedule import Cut, Freeze, Killed, Off, Silence
from tests.simulation.whole_jobs import GRACE, Stalls, Tale

TOLERANCE = 1e-6
CODES = {int(code) for code in Exit}
LEAVES_WITHIN = 10.0  # seconds after the grace: for the hub's last message, the shutdown, and a slow volume


def every_launcher_ends(tale: Tale) -> None:
    assert not tale.waiting, f"have not ended: {[pod.label for pod in tale.waiting]}"


def results(tale: Tale) -> Iterator[tuple[Pod, Outcome]]:
    for pod in tale.pods:
        if pod.result is not None:
            yield pod, pod.result


def no_launcher_reports_a_fault_of_its_own(tale: Tale) -> None:
    for entry in tale.scene.entries:
        if entry.kind in ("said", "end"):
            assert "fault of the launcher" not in entry.text, f"{entry.pod.label}: {entry.text}"


# ---- processes -------------------------------------------------------------------------------------------------------


def lifetimes(tale: Tale) -> list[tuple[Child, Pod, float, float]]:
    """Return each child with its pod, its start and its end."""
    begins: dict[Child, Entry] = {}
    ends: dict[Child, float] = {}
    for entry in tale.scene.entries:
        if "started" in entry.facts:
            begins[entry.facts["started"]] = entry
        elif "ended" in entry.facts:
            ends[entry.facts["ended"]] = entry.at
    return [(child, begin.pod, begin.at, ends.get(child, float("inf"))) for child, begin in begins.items()]


def trainers_of_two_generations_never_run_together(tale: Tale) -> None:
    """Trainers of a frozen or unreachable launcher may continue for a while, see docs/resume.md."""
    size = len(tale.scene.jobs[0].pods)
    lost = (fault.rank % size for fault in tale.schedule.faults if isinstance(fault, Killed | Off))
    if tale.has(Freeze, Silence, Stalls, Cut) or 0 in lost:
        return
    trainers = [lifetime for lifetime in lifetimes(tale) if lifetime[0].process.role == "trainer"]
    for (one, pod, begun, ended), (other, another, began, finished) in itertools.combinations(trainers, 2):
        if one.generation != other.generation or pod.job is not another.job:
            together = min(ended, finished) - max(begun, began)
            assert together <= TOLERANCE, f"for {together:g} s at {max(begun, began):g}: {pod.label} {another.label}"


def no_process_runs_after_its_launcher_has_left(tale: Tale) -> None:
    for entry in tale.scene.entries:
        if "ended" in entry.facts:
            assert "left behind" not in entry.text, f"{entry.pod.label}: {entry.text}"


def a_launcher_starts_no_process_after_sigterm(tale: Tale) -> None:
    """A frozen launcher is an exception, because it handles the signal later."""
    for entry in tale.scene.entries if not tale.has(Freeze) else ():
        if "started" in entry.facts and entry.pod.told_at:
            signalled = entry.pod.told_at[0]
            assert entry.at <= signalled + TOLERANCE, (
                f"SIGTERM at {signalled}: {entry.at} {entry.pod.label} {entry.text}"
            )


def a_trainer_starts_after_its_member_has_copied_its_files(tale: Tale) -> None:
    staged = set[Pod]()
    for entry in tale.scene.entries:
        if entry.facts.get("staged"):
            staged.add(entry.pod)
        if "started" in entry.facts and entry.facts["started"].process.role == "trainer":
            assert entry.pod in staged, f"{entry.at} {entry.pod.label}: {entry.text}"


def a_trainer_starts_after_the_server_of_its_pod_serves(tale: Tale, *, lone_trainers: bool = False) -> None:
    """A trainer starts after the server of its own pod serves in the same attempt.

    lone_trainers: a generation may have a single trainer, which needs no server
    """
    latest: dict[Pod, Child] = {}
    serving = set[Child]()
    for entry in tale.scene.entries:
        if "serves" in entry.facts:
            serving.add(entry.facts["serves"])
        if "started" in entry.facts:
            child = entry.facts["started"]
            if child.process.role == "pserver":
                latest[entry.pod] = child
            elif entry.pod in latest and (not lone_trainers or latest[entry.pod].generation == child.generation):
                assert latest[entry.pod] in serving, f"{entry.at} {entry.pod.label}: {entry.text}"


def a_trainer_resumes_after_the_last_pass(tale: Tale) -> None:
    """Only for v0: its flags contain the pass with which to resume."""
    if (
        tale.schedule.mode != "v0"
        or tale.schedule.pservers
        or not tale.schedule.saves
        or tale.schedule.second_start is not None
    ):
        return
    if tale.has(Silence, Cut, Freeze, Stalls, Killed, Off):
        return
    last, first_of = -1, dict[int | None, int]()
    for entry in tale.scene.entries:
        last = max(last, entry.facts.get("saved", -1))
        if entry.kind == "runs" and entry.text.startswith("logs ") and entry.facts["generation"] is not None:
            first_of.setdefault(entry.facts["generation"], last + 1)
        if "started" in entry.facts and entry.facts["started"].process.role == "trainer":
            first = first_of[entry.facts["started"].generation]
            resumes = f"--start_pass={first} " in f"{entry.text} "
            assert resumes or (not first and "start_pass" not in entry.text), f"{entry.pod.label}: {entry.text}"


def a_second_signal_ends_all_children_at_once(tale: Tale) -> None:
    if tale.has(Freeze):
        return
    for _, pod, begun, ended in lifetimes(tale):
        if len(pod.told_at) > 1 and begun <= pod.told_at[1]:
            assert ended <= pod.told_at[1] + 0.1, f"{pod.label}: SIGTERM at {pod.told_at}, ended at {ended}"


# ---- before the join -------------------------------------------------------------------------------------------------

HELD = "waiting up to 30 s for the gang, to report this failure"


def a_failure_before_the_join_is_held_and_reported(tale: Tale) -> None:
    """A launcher that holds a failure reports it after it has joined, or ends because of it.

    The exception is a member whose volume delays the end of its join, after the welcome. Meanwhile the gang may be
    stopped because of another member.
    """
    for pod in tale.pods:
        own = [entry for entry in tale.scene.entries if entry.pod is pod]
        held = next((number for number, entry in enumerate(own) if entry.text == HELD), None)
        if held is None or pod.result is None or pod.told_at:
            continue
        later = own[held:]
        reported = any(entry.kind == "out" and b'"word":"failed"' in entry.facts["line"] for entry in later)
        known = pod.rank == 0 and joined(tale, pod)  # the hub does not send its own failure
        cause = pod.result.cause
        own_cause = cause is not None and cause.rank in (pod.rank, None)
        stopped_early = cause is not None and not joined(tale, pod)
        assert reported or known or own_cause or stopped_early, f"{pod.label}: {pod.result}"


# ---- messages of the hub ---------------------------------------------------------------------------------------------


def of_single_gangs(tale: Tale) -> Iterator[tuple[Pod, list[Pod], list[tuple[Entry, dict[str, Any]]]]]:
    """Yield the hub, the other pods, and the hub's messages in order, for each job that has only one gang."""
    rejoins = any("for a replacement pod" in entry.text for entry in tale.scene.entries)
    if rejoins or not tale.undisturbed() or any(pod.starts for pod in tale.pods):
        return
    for job in tale.scene.jobs:
        hub, *others = job.pods
        own = (entry for entry in tale.scene.entries if entry.pod is hub and entry.kind in ("in", "out"))
        yield hub, others, [(entry, json.loads(entry.facts["line"])) for entry in own]


def the_hub_sends_begin_and_train_only_after_all_members_are_ready(tale: Tale) -> None:
    for _, others, lines in of_single_gangs(tale):
        received: dict[tuple[str, int], set[Pod]] = {}
        for entry, message in lines:
            word, attempt = message["word"], message.get("turn", 0)
            if entry.kind == "in":
                received.setdefault((word, attempt), set()).add(entry.facts["other"])
            for needed, of_attempt in _NEEDED_MESSAGES.get(word, ()) if entry.kind == "out" else ():
                if word == "begin" and attempt == 0:
                    continue
                missing = set(others) - received.get((needed, attempt if of_attempt else 0), set())
                assert not missing, f"{word} {attempt} without {needed} of {[pod.label for pod in missing]}"


_NEEDED_MESSAGES = {"begin": [("ended", True)], "train": [("staged", False), ("serving", True)]}


def the_hub_sends_the_same_messages_to_all_members(tale: Tale) -> None:
    """All members get the same start and the same restart of each attempt, and the same last message."""
    for hub, _, lines in of_single_gangs(tale):
        sent: dict[tuple[str, int], Any] = {}
        for entry, message in lines:
            if entry.kind == "out" and message["word"] in ("begin", "restart", "stop"):
                known = sent.setdefault((message["word"], message.get("turn", 0)), message)
                assert known == message, f"{hub.label}: {known} {message}"


def the_death_that_a_cause_names_has_happened(tale: Tale) -> None:
    died = set[tuple[int, str]]()
    for entry in tale.scene.entries:
        if "ended" in entry.facts:
            died.add((entry.pod.rank, entry.text))
        if entry.kind == "end" and (cause := entry.facts["result"].cause) and cause.kind.is_child:
            assert (cause.rank, f"{cause.kind} ends with {cause.code}") in died, f"{entry.pod.label}: {cause}"


# ---- the end ---------------------------------------------------------------------------------------------------------


def exit_codes_are_as_documented(tale: Tale) -> None:
    for pod, result in results(tale):
        expected = _code(pod, result.cause, pod.job.shape.size)
        signalled = bool(pod.told_at) and pod.told_at[0] <= (pod.left_at or 0.0)
        assert result.code in ({expected, Exit.STOPPED} if signalled else {expected}), f"{pod.label}: {result}"


def _code(pod: Pod, cause: Cause | None, size: int) -> int:
    """Return the exit code by docs/exit-codes.md of a launcher that got no signal."""
    if cause is None:
        return Exit.COMPLETE
    if cause.final:
        return Exit.GIVEN_UP
    if cause.kind is CauseKind.PEERS:
        return int(cause.code)
    if cause.kind is CauseKind.LOST:
        return Exit.PEER_LOST if pod.rank == (0 if cause.rank else 1) else Exit.PEER_FAILED
    if cause.rank != pod.rank and not (cause.kind is CauseKind.STALLED and pod.rank == 0):
        return Exit.PEER_FAILED
    masked = cause.kind.is_child and cause.code in CODES
    return Exit.MASKED if masked else int(cause.code)


def a_launcher_ends_with_143_after_sigterm(tale: Tale) -> None:
    """A launcher that would have left soon without the signal is an exception."""
    for pod, result in results(tale):
        if pod.told_at and not tale.has(Freeze) and pod.told_at[0] + LEAVES_WITHIN < (pod.left_at or 0.0):
            assert result.code == Exit.STOPPED, f"{pod.label}, SIGTERM at {pod.told_at[0]}: {result}"


def a_launcher_leaves_in_time_after_sigterm(tale: Tale) -> None:
    if tale.has(Freeze):
        return
    for pod, _ in results(tale):
        if pod.told_at:
            took = (pod.left_at or 0.0) - pod.told_at[0]
            assert took <= GRACE + LEAVES_WITHIN, f"{pod.label} took {took:g} s"


def the_termination_message_contains_the_outcome(tale: Tale) -> None:
    for entry in tale.scene.entries:
        if entry.kind == "end":
            result = entry.facts["result"]
            head = f"exit code {result.code}: {result.text}"
            assert entry.text.startswith(head[:2000]), f"{entry.pod.label}: {entry.text}"
            said = [known.text for known in tale.scene.entries if known.pod is entry.pod and known.kind == "said"]
            assert said[-1] == head, f"{entry.pod.label}: the last log message is {said[-1]}"


def all_members_name_the_same_cause_without_disturbances(tale: Tale) -> None:
    """This holds for all members that have joined. Jobs with late or replaced pods are not checked."""
    if (
        not tale.undisturbed()
        or any(pod.told_at for pod in tale.pods)
        or len(tale.pods) > tale.scene.jobs[0].shape.size
    ):
        return
    causes = {
        (result.cause and (result.cause.kind, result.cause.rank, result.cause.code))
        for pod, result in results(tale)
        if joined(tale, pod)
    }
    assert len(causes) <= 1, f"several causes: {causes}"


def joined(tale: Tale, pod: Pod) -> bool:
    return any(entry.pod is pod and "the gang is complete" in entry.text for entry in tale.scene.entries)


def the_member_at_fault_leaves_first(tale: Tale) -> None:
    """The other members wait, because Kubernetes counts the first failed pod. After SIGTERM, no member is at fault."""
    if not tale.undisturbed() or tale.schedule.volume_delay or any(pod.told_at for pod in tale.pods):
        return
    ended = list(results(tale))
    for pod, result in ended:
        cause = result.cause
        reported = cause is not None and (cause.kind.restartable or cause.kind is CauseKind.STAGING)
        if cause and cause.rank == pod.rank and reported and joined(tale, pod):
            earlier = [other for other, _ in ended if (other.left_at or 0.0) < (pod.left_at or 0.0) - 0.5]
            assert not [other for other in earlier if other.job is pod.job], (
                f"{pod.label} leaves after {[other.label for other in earlier]}"
            )


FINISH_WITHIN = 1.5  # seconds for which a launcher waits for the end of other launchers


def messages_of(tale: Tale, pod: Pod, kind: str, word: str) -> list[Entry]:
    """Return the messages with this word that a pod has sent (out) or received (in)."""
    begin = f'{{"word":"{word}"'.encode()
    own = (entry for entry in tale.scene.entries if entry.pod is pod and entry.kind == kind)
    return [entry for entry in own if entry.facts["line"].startswith(begin)]


def all_other_members_wait_for_finish_before_they_leave(tale: Tale) -> None:
    """They wait after a final stop. The hub sends finish as soon as the member at fault has ended."""
    for pod, result in results(tale) if tale.undisturbed() else ():
        stops = [entry.at for entry in messages_of(tale, pod, "in", "stop") if b'"again":false' in entry.facts["line"]]
        if stops and result.cause and result.cause.rank != pod.rank:
            waited = (pod.left_at or 0.0) - stops[-1]
            finished = [entry for entry in messages_of(tale, pod, "in", "finish") if entry.at >= stops[-1]]
            assert finished or waited >= FINISH_WITHIN, f"{pod.label} leaves {waited:g} s after a stop"


def the_hub_leaves_after_all_other_members_have_ended(tale: Tale) -> None:
    """There are two exceptions: the hub itself is at fault, or it has received a second signal."""
    for pod, result in results(tale) if tale.undisturbed() else ():
        stops = [entry.at for entry in messages_of(tale, pod, "out", "stop") if b'"again":false' in entry.facts["line"]]
        cause = result.cause
        if not stops or cause is None or len(pod.told_at) > 1:
            continue
        if cause.rank == pod.rank and cause.kind is not CauseKind.STOPPED:
            continue
        waited = (pod.left_at or 0.0) - stops[-1]
        stopped = {entry.facts["other"] for entry in messages_of(tale, pod, "in", "stopped") if entry.at >= stops[-1]}
        sent_to = {entry.facts["other"] for entry in messages_of(tale, pod, "out", "stop") if entry.at == stops[-1]}
        assert sent_to <= stopped or waited >= FINISH_WITHIN, f"{pod.label} leaves {waited:g} s after a stop"


# ---- files -----------------------------------------------------------------------------------------------------------


def exit_code_0_requires_the_mark_of_completion(tale: Tale) -> None:
    marked: float | None = None
    for entry in tale.scene.entries:
        if entry.kind == "file" and entry.text.endswith("/complete"):
            marked = entry.at if marked is None else marked
        if entry.kind == "end" and entry.facts["result"].code == Exit.COMPLETE:
            assert marked is not None, f"{entry.pod.label} ends with 0 before the mark"


def the_mark_is_written_after_all_members_have_trained(tale: Tale) -> None:
    """Before the mark, there is a generation in which the trainer of each member has ended with 0."""
    trained: dict[int | None, set[int]] = {}
    for entry in tale.scene.entries:
        if "ended" in entry.facts and entry.text == "trainer ends with 0":
            trained.setdefault(entry.facts["ended"].generation, set()).add(entry.pod.rank)
        if entry.kind == "file" and entry.text.endswith("/complete"):
            all_trainers = set(range(entry.pod.job.shape.trainers))
            passes_left = tale.schedule.mode == "v0" and tale.schedule.saves and not tale.schedule.pservers
            assert passes_left or all_trainers in trained.values(), f"at {entry.at} have trained: {trained}"


def each_generation_begins_once(tale: Tale) -> None:
    """This holds across all gangs of the job, because of the claims on the volume."""
    begun: dict[int, tuple[Pod, int]] = {}
    latest: dict[Pod, int] = {}
    for entry in tale.scene.entries:
        if entry.kind == "out" and b'"word":"begin"' in entry.facts["line"]:
            message = json.loads(entry.facts["line"])
            generation, attempt = message["generation"], (entry.pod, message["turn"])
            assert begun.setdefault(generation, attempt)[0] is entry.pod, f"{generation}: {begun[generation]} {attempt}"
            assert latest.get(entry.pod, -1) <= generation, f"{generation} after {latest}"
            latest[entry.pod] = generation


def nothing_is_written_after_the_lease_has_ended(tale: Tale) -> None:
    """The pod that ends the lease writes no file after that, except in `.launcher`: another gang may read the files.

    A pod that left a session to rejoin has ended that session's lease, and lives on.
    """
    for pod in tale.pods:
        own = [entry for entry in tale.scene.entries if entry.pod is pod]
        if pod.result is None or any(_stops_to_rejoin(entry) or _REJOINS.search(entry.text) for entry in own):
            continue
        files = [entry.text for entry in own if entry.kind == "file"]
        ended = [number for number, path in enumerate(files) if path.endswith(".over")]
        after = [path for path in files[ended[-1] :] if "/.launcher/" not in path] if ended else []
        assert not after, f"{pod.label} writes {after} after {files[ended[-1]]}"


_REJOINS = re.compile("for a replacement pod|for enough members|joining the larger gang")


def _stops_to_rejoin(entry: Entry) -> bool:
    line = entry.facts["line"] if entry.kind in ("in", "out") else b""
    return b'"word":"stop"' in line and messages.read_stop(json.loads(line)).rejoin


def the_lease_ends_after_all_trainers_have_ended(tale: Tale) -> None:
    """At the release of a lease, no trainer runs. Servers may still run, since they write no files."""
    if not tale.undisturbed():
        return
    running = [lifetime for lifetime in lifetimes(tale) if lifetime[0].process.role == "trainer"]
    for entry in tale.scene.entries:
        if entry.kind == "file" and entry.text.endswith(".over") and float(entry.facts["content"]) == 0.0:
            left = [pod.label for _, pod, begun, ended in running if begun < entry.at < ended - TOLERANCE]
            assert not left, f"at {entry.at}: {left}"


RULES = (
    every_launcher_ends,
    no_launcher_reports_a_fault_of_its_own,
    trainers_of_two_generations_never_run_together,
    no_process_runs_after_its_launcher_has_left,
    a_launcher_starts_no_process_after_sigterm,
    a_trainer_starts_after_its_member_has_copied_its_files,
    a_trainer_starts_after_the_server_of_its_pod_serves,
    a_trainer_resumes_after_the_last_pass,
    a_second_signal_ends_all_children_at_once,
    a_failure_before_the_join_is_held_and_reported,
    the_hub_sends_begin_and_train_only_after_all_members_are_ready,
    the_hub_sends_the_same_messages_to_all_members,
    the_death_that_a_cause_names_has_happened,
    exit_codes_are_as_documented,
    a_launcher_ends_with_143_after_sigterm,
    a_launcher_leaves_in_time_after_sigterm,
    the_termination_message_contains_the_outcome,
    all_members_name_the_same_cause_without_disturbances,
    the_member_at_fault_leaves_first,
    all_other_members_wait_for_finish_before_they_leave,
    the_hub_leaves_after_all_other_members_have_ended,
    exit_code_0_requires_the_mark_of_completion,
    the_mark_is_written_after_all_members_have_trained,
    each_generation_begins_once,
    nothing_is_written_after_the_lease_has_ended,
    the_lease_ends_after_all_trainers_have_ended,
)
