"""What must hold after each round, with any faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from chaos import causes, counting, frozen, limits, traces
from chaos.counting import claims, may_lose_files, output, record, whole_passes
from chaos.rounds import Story
from tests.standin.evaluate import read_parameter

_TEMPORARY = re.compile(r"\..*\.(tmp|claim)|probe\..*")
_PARAMETERS = ("___fc_layer_0__.w0", "___fc_layer_0__.wbias")


def violated(story: Story) -> list[str]:
    """Return one sentence per violation, which begins with the name of the invariant."""
    found = list(no_hang(story))
    if found:  # the other invariants hold only after the job
        return [f"no hang: {what}" for what in found]
    return [f"{name}: {what}" for name, holds in INVARIANTS.items() for what in holds(story)]


def no_hang(story: Story) -> Iterator[str]:
    """The job ends within the limit, which is the sum of all documented timeouts."""
    if story.hung:
        yield f"the job has not ended after {limits.seconds(story.plan):.0f} s"


def complete_only_with_all(story: Story) -> Iterator[str]:
    """If a launcher ended with 0, all passes are complete, and each model can be loaded.

    On a full volume, Paddle v0 may lose files of any pass. Then only the last pass must be complete.
    """
    if not any(end.code == 0 for end in story.ends):
        return
    if not (record(story) / "complete").exists():
        yield "a launcher has ended with 0 without a mark of completion"
    last = story.plan.passes - 1
    examined = {last} if may_lose_files(story) else set(range(last + 1))
    for number in sorted(examined - set(whole_passes(story))):
        yield f"a launcher has ended with 0 without pass {number}"
    for number in sorted(examined & set(whole_passes(story))):
        yield from _unreadable(output(story) / f"pass-{number:05d}")


def no_end_by_nfs(story: Story) -> Iterator[str]:
    """Lost answers, stale handles and old names end no launcher, not even one that is started again later."""
    if story.effective and all(fault.kind in limits.UNNOTICED for fault in story.effective):
        for end in story.ends:
            if end.code:
                yield f"pod {end.pod} has ended with {end.code}: {end.last}"


def _unreadable(folder: Path) -> Iterator[str]:
    for name in _PARAMETERS:
        try:
            read_parameter(str(folder), name)
        except Exception as error:  # any error means that this is not a model
            yield f"{folder.name} cannot be loaded: {name}: {error!r}"


def one_writer(story: Story) -> Iterator[str]:
    """No generation begins or trains while another generation trains. The claims are consecutive.

    The trainer of a frozen launcher is an exception, see `frozen`.
    """
    numbers = claims(story)
    if numbers != list(range(len(numbers))):
        yield f"the claims of generations have gaps: {numbers}"
    runs = traces.runs(story.stamps)
    for trainer in sorted({run.trainer for run in runs}):
        for one, other in pairwise(run for run in runs if run.trainer == trainer):
            if frozen.beside(story, one, other.first):
                yield f"{other} began while {one} was still training"
    yield from _overlapping(story, runs)


def _overlapping(story: Story, runs: list[traces.Run]) -> Iterator[str]:
    """Yield overlaps between trainers of different ranks, if their logs show their generations."""
    known = counting.generations_of(story)
    numbered = [(known[run.pod, run.pid], run) for run in runs if (run.pod, run.pid) in known]
    for number, run in numbered:
        for later, other in numbered:
            if later > number and frozen.beside(story, run, other.first):
                yield f"{other} of generation {later} began while {run} of generation {number} was still training"


def nothing_left(story: Story) -> Iterator[str]:
    """No process and no mount is left. No temporary file is left, unless its writer was killed or could not write."""
    for what in story.left:
        yield f"left behind: {what}"
    for moved in output(story).glob("incomplete-*/pass-*/done"):
        if not list(_unreadable(moved.parent)):
            yield f"a whole pass was moved to another folder: {moved.relative_to(story.folder)}"
    for moved in output(story).glob("earlier-*"):
        yield f"passes of this job were treated as passes of an earlier job: {moved.name}"
    excused = any(end.struck for end in story.ends) or any(
        fault.kind in limits.ON_VOLUME | limits.ON_NFS | limits.LOSSES for fault in story.effective
    )
    if not excused:
        for file in story.folder.rglob("*"):
            if _TEMPORARY.fullmatch(file.name):
                yield f"left behind: {file.relative_to(story.folder)}"


INVARIANTS: Mapping[str, Callable[[Story], Iterator[str]]] = {
    "exit 0 only with all passes and a loadable model": complete_only_with_all,
    "no pass lost or trained twice": counting.each_pass_once,
    "each sample once per pass": counting.each_sample_once,
    "the history agrees": counting.history_agrees,
    "one writer": one_writer,
    "a named cause": causes.names_a_cause,
    "a cause that fits": causes.fits,
    "a hang is named": causes.names_a_hang,
    "what can be survived is survived": causes.survived,
    "the faults of NFS end no launcher": no_end_by_nfs,
    "nothing left behind": nothing_left,
}
