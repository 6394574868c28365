"""The faults of `make chaos` follow from the seed, and each invariant detects its violation."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import psutil
import pytest

from chaos import invariants, kinds, limits, plan
from chaos.arena import End, Frozen
from chaos.disk import Disk
from chaos.indexed import IndexedJob
from chaos.local_faults import LEFT_OUT, LocalFaults
from chaos.plan import CLOCK, KINDS, LAUNCH, TRAINING, Fault, Plan
from chaos.pod_faults import PodFaults
from chaos.rounds import Done, Story
from tests.support.jobs import until
from tests.support.supervising import needs_root
from tests.support.switches import TwoSwitches

PASSES = 3
PLAN = Plan(1, 2, PASSES, 0.1, max_restarts=1, rejoin_timeout=60, backoff_limit=0, volume_timeout=30)


# ---- plans -------------------------------------------------------------------------------------------------------


def test_a_seed_always_gives_the_same_plan() -> None:
    for seed in range(50):
        assert plan.make(seed, list(KINDS)) == plan.make(seed, reversed(list(KINDS)))  # type: ignore[arg-type]
    assert len({str(plan.make(seed, KINDS)) for seed in range(50)}) > 25


def test_a_hundred_plans_contain_all_kinds_of_faults_and_all_victims_exist() -> None:
    plans = [plan.make(seed, KINDS) for seed in range(100)]
    assert {fault.kind for one in plans for fault in one.faults} == set(KINDS)
    assert {one.members for one in plans} == set(range(3, 9))
    assert {len(one.faults) for one in plans} == set(range(plan.MOST_FAULTS + 1))
    assert all(rank < one.members for one in plans for fault in one.faults for rank in fault.ranks)


def test_a_plan_contains_only_the_given_kinds_of_faults() -> None:
    plans = [plan.make(seed, {"kill trainer", "volume full"}) for seed in range(50)]
    assert {fault.kind for one in plans for fault in one.faults} == {"kill trainer", "volume full"}


def test_kinds_of_faults_that_are_left_out_are_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere, needs = {"node off": "for nodes"}, {"cut": "iptables-restore", "kill trainer": "sh"}
    (tmp_path / "sh").write_text("")
    (tmp_path / "sh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(kinds.explained(kinds.left_out(elsewhere, needs))) == [
        "left out: node off: for nodes",
        "left out: cut: iptables-restore is not installed",
    ]


def test_every_kind_of_fault_is_possible_locally_or_for_pods() -> None:
    only_for_pods = {kind for kind, why in LEFT_OUT.items() if "pods" in why}
    assert only_for_pods == {"delete pod", "force delete pod", "node off", "api down"}
    assert not only_for_pods & set(PodFaults.left_out)
    assert {CLOCK, *limits.FREEZES} <= set(PodFaults.left_out)


def test_the_seed_and_the_kinds_of_a_failed_round_repeat_its_plan() -> None:
    drawn = plan.make(42, {"kill trainer", "cut", "volume full"})
    assert drawn != plan.make(42, KINDS)
    assert plan.make(42, kinds.named(",".join(drawn.kinds))) == drawn


@needs_root
def test_a_seed_whose_faults_are_not_possible_here_is_refused(tmp_path: Path) -> None:
    assert any(fault.kind == "cut" for fault in plan.make(3, {"cut"}).faults)
    play = [sys.executable, "-m", "chaos", "--rounds=1", "--seed=3", "--kinds=cut"]
    done = subprocess.run(play, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "left out: cut, cut incoming, cut outgoing: iptables-restore is not installed" in done.stdout
    assert re.match(r"seed 3 cannot be played here: cut of .*: iptables-restore is not installed", done.stderr)


def test_a_launcher_is_frozen_for_longer_than_the_other_members_wait_and_they_still_train() -> None:
    plans = [plan.make(seed, limits.FREEZES) for seed in range(50)]
    faults = [fault for one in plans for fault in one.faults]
    assert all(fault.lasts and fault.lasts > plan.SILENCE + plan.FENCE for fault in faults)
    assert all(fault.replaced is None or fault.replaced < (fault.lasts or 0) for fault in faults)
    assert {fault.kind for fault in faults if fault.replaced} == limits.FREEZES
    assert all(one.passes >= 16 for one in plans if one.faults)


def test_a_round_whose_size_changes_has_an_elastic_job() -> None:
    plans = [plan.make(seed, {"grow", "shrink", "kill launcher"}) for seed in range(50)]
    for one in plans:
        assert bool(one.begins) == any(fault.kind in plan.SIZES for fault in one.faults)
        assert one.variables.get("CONF_PADDLE_GRADIENT_NUM") == (f"1:{one.members}" if one.begins else None)
        assert 2 <= (one.begins or 2) <= one.members
        assert not one.begins or (one.max_restarts, one.rejoin_timeout) == (6, 60)
    assert {one.variables["LAUNCHER_SHRINK"] for one in plans if one.begins} == {"now", "wait"}


def test_the_time_limit_of_a_round_includes_its_faults() -> None:
    cut = replace(PLAN, faults=(Fault(0, "cut", (1,), LAUNCH, 1.0, 25.0),))
    assert limits.seconds(cut) > limits.seconds(PLAN) + 25 + plan.SILENCE


# ---- machines that freeze -----------------------------------------------------------------------------------------

TICK = "import time\nwhile True:\n    print(flush=True)\n    time.sleep(0.01)"
DIAL = "import socket, sys\nsocket.create_connection((sys.argv[1], 7000), 2)"


@needs_root
def test_a_frozen_machine_stands_still_while_another_machine_has_its_address(tmp_path: Path) -> None:
    ticks, freeze = tmp_path / "ticks", Fault(0, "freeze machine", (1,), TRAINING, 0.0, 40.0)
    with TwoSwitches(2) as network, ticks.open("ab") as out:
        here, there = ({"POD_IP": address} for address in network.addresses)
        faults = LocalFaults(PLAN, network, cast(Disk, None), None, lambda rank, role: None)
        frozen = psutil.Process(network.popen([sys.executable, "-c", TICK], stdout=out, env=there).pid)
        until(lambda: ticks.stat().st_size)
        faults.do(freeze)
        until(lambda: frozen.status() == psutil.STATUS_STOPPED)
        network.replace(1)
        assert not network.inside(1)
        assert network.inside() == [frozen.pid]
        listen = [sys.executable, "-m", "http.server", "7000"]
        network.popen(listen, env=there, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        dial = [sys.executable, "-c", DIAL, network.addresses[1]]
        until(lambda: network.run(dial, env=here).returncode == 0)
        before = ticks.stat().st_size
        faults.undo(freeze)
        until(lambda: ticks.stat().st_size > before)


# ---- the simulated Indexed Job ----------------------------------------------------------------------------------


def test_exit_codes_of_consequences_are_ignored_and_a_final_exit_code_fails_the_job() -> None:
    job = IndexedJob(2, backoff_limit=1)
    failed = []
    for code in (69, 143, 137, 3):
        job.ended(1, code)
        failed.append(job.failed)
    assert failed == ["", "", "", "2 pods have failed"]
    mistaken = IndexedJob(2, backoff_limit=9)
    mistaken.ended(0, 78)
    assert mistaken.failed == "rank 0 ended with 78"
    assert not mistaken.due()


def test_a_job_is_complete_as_soon_as_every_rank_is_complete() -> None:
    job = IndexedJob(2, backoff_limit=0)
    job.ended(0, 0)
    job.ended(0, 0)
    assert not job.complete
    job.ended(1, 0)
    assert job.complete


def test_the_size_of_a_job_changes_by_its_highest_rank() -> None:
    job = IndexedJob(2, backoff_limit=0)
    job.grow()
    assert job.due() == [2]
    job.made(2)
    for rank in range(3):
        job.ended(rank, 0)
    assert job.complete
    job.grow()
    assert not job.complete
    assert job.shrink() == 3
    assert (job.due(), job.complete) == ([], True)


# ---- invariants ----------------------------------------------------------------------------------------------------


def restarted(folder: Path) -> Story:
    """Return a round in which a trainer was killed after the first of three passes. All invariants hold."""
    output = folder / "quick-start" / "output"
    record = output / ".launcher" / "job"
    record.mkdir(parents=True)
    for name in ("complete", "generation-0", "generation-1"):
        (record / name).touch()
    for number in range(PASSES):
        save(output, number)
    history(output, (0, None, cause("trainer", 1)), (1, 0, None))
    for rank in range(2):
        node = output / f"node_{rank}"
        node.mkdir()
        lines = [*log(0, rank, 10 + rank), *log(1, rank, 20 + rank, after=0)]
        (node / "train.log").write_text("\n".join(lines) + "\n")
    stamps = folder / "stamps"
    words = [*run(100, 0, 10, 0, 1), *run(100, 1, 11, 0, 1), *run(200, 0, 20, 1, 2), *run(200, 1, 21, 1, 2)]
    stamps.write_text("".join(f"{word}\n" for word in words))
    fault = Fault(0, "kill trainer", (1,), TRAINING, 0.5)
    ends = [End(rank, f"pod-{rank}", 0, "exit code 0: the job is complete\n", at_end(0)) for rank in range(2)]
    story = Story(PLAN, output.parent, stamps, "job", [Done(fault, "killed", 1.0, 150)], ends, complete=True)
    story.said = "\n".join(end.last for end in ends)
    return story


def save(output: Path, number: int) -> None:
    folder = output / f"pass-{number:05d}"
    folder.mkdir()
    for name in ("___fc_layer_0__.w0", "___fc_layer_0__.wbias"):
        (folder / name).write_bytes(struct.pack("<iIQf", 0, 4, 1, 0.5))
    (folder / "done").touch()


def history(output: Path, *generations: tuple[int, int | None, object]) -> None:
    generated = [{"number": number, "after_pass": after, "first_cause": cause} for number, after, cause in generations]
    (output / "job.json").write_text(json.dumps({"generations": generated}))


def cause(kind: str, rank: int) -> dict[str, object]:
    return {"kind": kind, "rank": rank, "what": f"{kind} of {rank}"}


def log(generation: int, rank: int, pid: int, after: int | None = None) -> list[str]:
    mark = f"==== 2026-11-18 14:40:11 generation {generation}, pod pod-{rank}"
    return [
        f"{mark}{'' if after is None else f', after pass {after}'} ====",
        f"I1118 14:40:12.000000 {pid:5d} Util.cpp:155] x",
    ]


def run(at: int, rank: int, pid: int, first: int, passes: int) -> list[str]:
    """Return the stamps of a trainer that begins at this time."""
    words = [("begins", first)]
    for number in range(first, first + passes):
        words += [("batch", number), ("pass", number), *([("saves", number), ("saved", number)] if rank == 0 else [])]
    return [f"{at + step} pod-{rank} {pid} {rank} {word} {number}" for step, (word, number) in enumerate(words)]


def at_end(code: int, text: str = "the job is complete") -> str:
    return f"2026-11-18 14:41:11 [rank 0] exit code {code}: {text}"


def failed(story: Story, code: int, termination: str, last: str) -> None:
    story.complete = False
    story.ends = [End(0, "pod-0", code, termination, last)]


def stamp(story: Story, *lines: str) -> None:
    with story.stamps.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def output(story: Story) -> Path:
    return story.folder / "output"


def test_all_invariants_hold_for_a_job_that_resumed_after_a_kill(tmp_path: Path) -> None:
    assert invariants.violated(restarted(tmp_path)) == []


def test_a_log_without_a_generation_violates_no_invariant(tmp_path: Path) -> None:
    story = restarted(tmp_path)
    (output(story) / "node_1" / "train.log").write_text("==== 2026-11-18 14:40:11 pod pod-1, never joined ====\n")
    assert invariants.violated(story) == []


def hang(story: Story, *, restarted_after: float = 80.0, cause: object = None) -> None:
    """Rank 1 hangs after two passes. The next generation begins later, and its cause is recorded."""
    second = 10**9
    words = [*run(100, 0, 10, 0, 2), *run(100, 1, 11, 0, 2)]
    at = round((10 + restarted_after) * second)
    words += [*run(at, 0, 20, 2, 1), *run(at, 1, 21, 2, 1)]
    story.stamps.write_text("".join(f"{word}\n" for word in words))
    story.done[:] = [Done(Fault(0, "hang trainer", (1,), TRAINING, 0.5, 150.0), "process", 10.0, 10 * second)]
    history(output(story), (0, None, cause), (1, 1, None))
    for file in output(story).glob("node_*/train.log"):
        file.write_text(file.read_text().replace("after pass 0", "after pass 1"))


STALLED = {"kind": "stalled", "rank": None, "what": "stalled"}


def test_a_hang_that_is_named_in_time_violates_no_invariant(tmp_path: Path) -> None:
    story = restarted(tmp_path)
    hang(story, cause=STALLED)
    assert invariants.violated(story) == []


VIOLATIONS: dict[str, tuple[str, Callable[[Story], object]]] = {
    "the job does not end": ("no hang", lambda s: setattr(s, "hung", True)),
    "a pass is missing": ("exit 0 only", lambda s: (output(s) / "pass-00002" / "done").unlink()),
    "a truncated model": (
        "exit 0 only",
        lambda s: (output(s) / "pass-00002" / "___fc_layer_0__.w0").write_bytes(b"x"),
    ),
    "no mark of completion": ("exit 0 only", lambda s: (output(s) / ".launcher/job/complete").unlink()),
    "a pass trained again": ("no pass lost", lambda s: stamp(s, *run(300, 0, 30, 2, 1))),
    "a pass skipped": ("no pass lost", lambda s: stamp(s, *run(300, 0, 30, 4, 1))),
    "a log with another pass": ("the history", lambda s: history(output(s), (0, None, None), (1, 1, None))),
    "a generation without a claim": ("the history", lambda s: (output(s) / ".launcher/job/generation-1").unlink()),
    "claims with a gap": ("one writer", lambda s: (output(s) / ".launcher/job/generation-0").unlink()),
    "a trainer overlaps with the next": ("one writer", lambda s: stamp(s, "250 pod-1 11 1 batch 1")),
    "trainers of two ranks overlap": ("one writer", lambda s: stamp(s, "201 pod-1 11 1 batch 1")),
    "a wrong last log line": ("a named cause", lambda s: failed(s, 69, "exit code 69: rank 1", at_end(70))),
    "no termination message": ("a named cause", lambda s: failed(s, 69, "", at_end(69))),
    "a traceback": ("a named cause", lambda s: setattr(s, "said", "Traceback (most recent call last):")),
    "an unknown cause": ("a named cause", lambda s: failed(s, 69, "exit code 69: unknown", at_end(69))),
    "a cause without a fault": (
        "a cause that fits",
        lambda s: history(output(s), (0, None, cause("lost", 1)), (1, 0, None)),
    ),
    "a cause with the wrong rank": (
        "a cause that fits",
        lambda s: history(output(s), (0, None, cause("trainer", 0)), (1, 0, None)),
    ),
    "a hang without a stall": ("a hang is named", lambda s: hang(s)),
    "a hang that is named late": ("a hang is named", lambda s: hang(s, restarted_after=140, cause=STALLED)),
    "no reason to fail": (
        "what can be survived",
        lambda s: failed(s, 137, "exit code 137: killed", at_end(137, "killed")),
    ),
    "an end by a fault of NFS": ("the faults of NFS", lambda s: end_by_nfs(s)),
    "a process is left": ("nothing left", lambda s: s.left.append("process 1")),
    "a temporary file is left": ("nothing left", lambda s: (output(s) / ".job.json.0123.tmp").touch()),
    "a whole pass was moved": ("nothing left", lambda s: save_in_another_folder(s)),
}


def end_by_nfs(story: Story) -> None:
    """A launcher ends, and is started again by Kubernetes: the job is complete."""
    story.done[:] = [Done(Fault(0, "nfs lost answers", (), TRAINING, 0.5, 3.0), "begun", 1.0, 150)]
    story.ends = [*story.ends, End(0, "pod-0-old", 74, "exit code 74: x failed", at_end(74, "x failed"))]


def save_in_another_folder(story: Story) -> None:
    aside = output(story) / "incomplete-1"
    aside.mkdir()
    save(aside, 7)


@pytest.mark.parametrize("what", VIOLATIONS)
def test_each_invariant_detects_its_violation(tmp_path: Path, what: str) -> None:
    name, spoil = VIOLATIONS[what]
    story = restarted(tmp_path)
    spoil(story)
    assert any(one.startswith(name) for one in invariants.violated(story)), invariants.violated(story)


LONG_BEFORE = 200 - int((plan.SILENCE + plan.FENCE) * 1e9)  # generation 1 began at 200


def replaced_while_frozen(folder: Path, *, late: str, since: int = LONG_BEFORE, replaced: bool = True) -> Story:
    """Return the round of `restarted`, but pod-1 was frozen as generation 1 began. Its trainer adds a late stamp."""
    story = restarted(folder)
    story.frozen = [Frozen("pod-1", since, 250, replaced)]
    stamp(story, late)
    return story


AWAKE = 250 + int(30e9)  # from this time on, the launcher must have ended the trainer


@pytest.mark.parametrize("late", ["240 pod-1 11 1 batch 1", "260 pod-1 11 1 batch 1"], ids=["frozen", "just woken"])
def test_the_trainer_of_a_frozen_launcher_may_overlap_with_the_next_generation(tmp_path: Path, late: str) -> None:
    assert invariants.violated(replaced_while_frozen(tmp_path, late=late)) == []


@pytest.mark.parametrize(
    ("late", "since", "replaced"),
    [
        (f"{AWAKE} pod-1 11 1 batch 1", LONG_BEFORE, True),
        ("260 pod-1 11 1 batch 1", LONG_BEFORE, False),
        ("260 pod-0 10 0 batch 1", LONG_BEFORE, True),
        ("260 pod-1 11 1 batch 1", 150, True),
    ],
    ids=["long after it woke", "not replaced", "not frozen", "the other members have not waited"],
)
def test_a_freeze_excuses_no_other_overlap(tmp_path: Path, late: str, since: int, replaced: bool) -> None:
    violated = invariants.violated(replaced_while_frozen(tmp_path, late=late, since=since, replaced=replaced))
    assert violated
    assert all(one.startswith("one writer") for one in violated)


def test_a_pass_that_a_frozen_trainer_saves_late_may_be_trained_twice(tmp_path: Path) -> None:
    story = restarted(tmp_path)
    stamp(story, "260 pod-0 10 0 saves 1", "261 pod-0 10 0 saved 1")
    assert any(one.startswith("no pass lost") for one in invariants.violated(story))
    story.frozen = [Frozen("pod-0", LONG_BEFORE, 250, replaced=True)]
    assert not any(one.startswith("one writer") for one in invariants.violated(story))


def test_a_job_may_fail_after_more_failures_than_its_limit(tmp_path: Path) -> None:
    story = restarted(tmp_path)
    failed(story, 137, "exit code 137: killed", at_end(137, "killed"))
    story.done.append(replace(story.done[0], at=2.0, at_clock=300))
    assert not [one for one in invariants.violated(story) if one.startswith("what can be survived")]


# ---- jobs whose size changes -----------------------------------------------------------------------------------------


def resized(folder: Path) -> Story:
    """Return an elastic job of two members that began with one, and grew after its first pass."""
    story = restarted(folder)
    story.plan = replace(PLAN, begins=1, max_restarts=6)
    story.done[:] = [Done(Fault(0, "grow", (), TRAINING, 0.5), "2 pods", 1.0, 150)]
    history(output(story), (0, None, {**cause("resized", 0), "rank": None}), (1, 0, None))
    for rank, samples in enumerate((60, 40)):
        data = story.folder / str(rank) / "data"
        data.mkdir(parents=True)
        (data / "train.txt").write_text("sample\n" * samples)
        with (output(story) / f"node_{rank}" / "train.log").open("a") as file:
            lines = [f"I1118 14:40:1{n}.0 9 T.cpp:1]  Pass={n} Batch=2 samples={samples} AvgCost=0.5" for n in (1, 2)]
            file.writelines(f"{line}\n" for line in lines)
    return story


def test_all_invariants_hold_for_a_job_that_grew(tmp_path: Path) -> None:
    assert invariants.violated(resized(tmp_path)) == []


@pytest.mark.parametrize("samples", [39, 41])
def test_a_sample_that_is_missing_or_used_twice_is_detected(tmp_path: Path, samples: int) -> None:
    story = resized(tmp_path)
    log = output(story) / "node_1" / "train.log"
    log.write_text(log.read_text().replace("Pass=1 Batch=2 samples=40", f"Pass=1 Batch=2 samples={samples}"))
    assert invariants.violated(story) == (
        [f"each sample once per pass: pass 1 of generation 1 has used {60 + samples} samples of 100"]
    )


def test_the_member_at_fault_in_an_elastic_job_is_known_by_its_pod(tmp_path: Path) -> None:
    story = resized(tmp_path)
    story.done.append(Done(Fault(1, "term launcher", (1,), TRAINING, 0.5), "process", 1.0, 150))
    for pod, expected in (("pod-1-7", 0), ("pod-0-3", 1)):
        history(output(story), (0, None, {**cause("stopped", 0), "pod": pod}), (1, 0, None))
        assert len(invariants.violated(story)) == expected
