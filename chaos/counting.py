"""Invariants about passes and generations, from the files on the volume and the trainers' stamps."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos import frozen, limits, traces
from chaos.plan import SIZES
from chaos.rounds import Story


def output(story: Story) -> Path:
    return story.folder / "output"


def record(story: Story) -> Path:
    """Return the folder in which the launchers record the job."""
    return output(story) / ".launcher" / story.job_id


def claims(story: Story) -> list[int]:
    """Return the numbers of the claimed generations, sorted."""
    return sorted(int(claim.name.rpartition("-")[2]) for claim in record(story).glob("generation-*"))


def whole_passes(story: Story) -> list[int]:
    """Return the numbers of the complete passes, sorted."""
    return sorted(int(done.parent.name.rpartition("-")[2]) for done in output(story).glob("pass-*/done"))


def may_lose_files(story: Story) -> bool:
    """Return whether the volume was full: Paddle v0 then loses small files without an error, and trains on."""
    return any(fault.kind == "volume full" for fault in story.effective)


def history(story: Story) -> list[dict[str, Any]]:
    """Return the generations in job.json, or an empty list if the file does not exist: no generation has begun."""
    try:
        found: list[dict[str, Any]] = json.loads((output(story) / "job.json").read_text())["generations"]
    except FileNotFoundError:
        return []
    return found


def marks(story: Story) -> dict[int, list[traces.Mark]]:
    """Return the marks in the trainer log of each rank."""
    ranks = range(story.plan.members)
    return {rank: traces.marks(output(story) / f"node_{rank}" / "train.log") for rank in ranks}


def generations_of(story: Story) -> dict[tuple[str, int], int]:
    """Return the generation of each trainer, by pod and pid. Trainers without a line in a log are missing."""
    every = (mark for found in marks(story).values() for mark in found)
    return {(mark.pod, pid): mark.generation for mark in every for pid in mark.pids}


def each_pass_once(story: Story) -> Iterator[str]:
    """Each run of trainer 0 begins with the pass after the newest saved pass, and trains the passes in order."""
    # begun: the pass after which the last run began. perhaps: a pass without a stamp that may be saved nevertheless.
    begun, perhaps = -1, -1
    before: list[traces.Stamp] = []
    for run in [run for run in traces.runs(story.stamps) if run.trainer == 0]:
        (first,) = run.numbers("begins")
        known = [stamp for stamp in before if not frozen.is_late(story, stamp, run.first)]
        saved = max([begun, *(stamp.number for stamp in known if stamp.word == "saved")])
        if first <= saved:
            yield f"{run} trains pass {first} again, although pass {saved} had been saved"
        if first > max(saved, perhaps) + 1:
            yield f"{run} begins with pass {first}, although pass {first - 1} had not been saved"
        for word in ("pass", "saved"):
            numbers = run.numbers(word)
            lost = word == "saved" and may_lose_files(story) and numbers == sorted({*numbers} & {*run.numbers("pass")})
            if numbers != list(range(first, first + len(numbers))) and not lost:
                yield f"{run} began with pass {first}, and {word}: {numbers}"
        before += run.stamps
        begun = max(begun, first - 1)
        perhaps = max([-1, *run.numbers("saves")])
    stamped = {stamp.number for stamp in before if stamp.word == "saved"}
    expected = stamped if may_lose_files(story) else set(range(max([begun, *stamped]) + 1))
    for number in sorted(expected - set(whole_passes(story))):
        yield f"pass {number} was saved, and is missing"


def each_sample_once(story: Story) -> Iterator[str]:
    """In each pass that a later pass of the same generation followed, all trainers together have used each sample once.

    If the volume had faults, or launchers were killed or frozen, logs may lack lines.
    """
    if not {fault.kind for fault in story.effective} <= SIZES | limits.DEATHS | {"term launcher"}:
        return
    lines = sum(file.read_bytes().count(b"\n") for file in story.folder.glob("[0-9]*/data/train.txt"))
    samples: dict[tuple[int, int], int] = defaultdict(int)
    for rank in range(story.plan.members):
        for generation, number, count in traces.passes(output(story) / f"node_{rank}" / "train.log"):
            samples[generation, number] += count
    for (generation, number), count in samples.items():
        if count > lines or (count < lines and (generation, number + 1) in samples):
            yield f"pass {number} of generation {generation} has used {count} samples of {lines}"


def history_agrees(story: Story) -> Iterator[str]:
    """The claims, the marks in all logs and job.json agree."""
    recorded = {one["number"]: one["after_pass"] for one in history(story)}
    numbers = [one["number"] for one in history(story)]
    if numbers != sorted(set(numbers)):
        yield f"job.json has its generations in the wrong order: {numbers}"
    for number in sorted(set(recorded) - set(claims(story))):
        yield f"job.json has generation {number}, which no gang has claimed"
    for rank, found in marks(story).items():
        in_log = [mark.generation for mark in found]
        if in_log != sorted(set(in_log)):
            yield f"the log of rank {rank} has its generations in the wrong order: {in_log}"
        for mark in found:
            if recorded.get(mark.generation, mark.after) != mark.after:
                after = f"{mark.after} for rank {rank}, {recorded[mark.generation]} in job.json"
                yield f"generation {mark.generation} resumed after pass {after}"
            recorded.setdefault(mark.generation, mark.after)
    yield from _begun_as_recorded(story, recorded)


def _begun_as_recorded(story: Story, recorded: dict[int, int | None]) -> Iterator[str]:
    known = generations_of(story)
    for run in traces.runs(story.stamps):
        number = known.get((run.pod, run.pid))
        if number is None:
            continue
        after, (first,) = recorded[number], run.numbers("begins")
        if first != (0 if after is None else after + 1):
            yield f"{run} of generation {number} began with pass {first}, but should resume after pass {after}"
