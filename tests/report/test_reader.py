"""The files of a job become facts, also if some are missing, cut, of an earlier job, or too large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import Exit, Failure
from launcher.report import fields, lanes, page, reader
from launcher.report.accounts import account
from launcher.report.facts import Facts, Place
from launcher.report.verdict import judge
from launcher.store import unjoined
from tests.support.report_jobs import BEGIN, MadeJob, cause, second, stamp


def line(at: float, name: str, **fields: Any) -> str:
    return json.dumps({"v": 1, "at": stamp(at), "event": name, **fields}) + "\n"


def prepend(path: Path, text: str) -> None:
    path.write_text(text + (path.read_text() if path.exists() else ""))


def generation(number: int, at: float, **fields: Any) -> dict[str, Any]:
    return {"number": number, "began": second(at), **fields}


def read(folder: Path) -> Facts:
    return reader.read(str(folder / "output"))


def test_a_missing_folder_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no such folder") as raised:
        read(tmp_path)
    assert raised.value.code == Exit.NO_INPUT


def test_an_earlier_job_in_the_same_folder_is_left_out(tmp_path: Path) -> None:
    output = MadeJob(generations=2).write(tmp_path) / "output"
    long_ago = BEGIN - 90_000
    members = [{"rank": rank, "role": "both", "pod": f"old-{rank}", "uid": f"o{rank}"} for rank in range(5)]
    began = {"v": 1, "generation": generation(0, long_ago)}
    prepend(
        output / "events.jsonl",
        line(long_ago, "gang", job="quick-start", members=members)
        + line(long_ago, "generation_begun", **began)
        + line(long_ago + 5, "pass", generation=0, **{"pass": 9})
        + line(long_ago + 9, "ended", exit_code=1, first_cause=cause(1)),
    )
    for rank in range(5):
        (output / f"node_{rank}").mkdir(exist_ok=True)
        old = line(long_ago, "joined", job="x", role="both", rank=rank, pod=f"old-{rank}", uid=f"o{rank}")
        old += line(long_ago + 1, "warning", text="of the earlier job", generation=0)
        prepend(output / f"node_{rank}" / "events.jsonl", old + line(long_ago + 9, "ended", exit_code=69, generation=0))
    facts = read(tmp_path)
    assert facts.begin >= BEGIN
    assert list(facts.members) == [Place(0, 0), Place(0, 1), Place(0, 2)]
    assert [member.pod for member in facts.members.values()] == ["quick-start-0", "quick-start-1", "quick-start-2"]
    assert not any(member.warnings for member in facts.members.values())
    assert (0, 9) not in facts.passes
    assert judge(facts).sentence.startswith("The job is complete: 6 passes")


def test_the_same_job_that_is_started_again_is_one_job(tmp_path: Path) -> None:
    output = MadeJob(ends="failed", generations=1).write(tmp_path) / "output"
    again = BEGIN + 5000
    members = [{"rank": rank, "role": "both", "pod": f"new-{rank}", "uid": f"n{rank}"} for rank in range(3)]
    with (output / "events.jsonl").open("a") as file:
        file.write(line(again, "gang", job="quick-start", members=members))
        file.write(line(again + 1, "generation_begun", generation=generation(1, again + 1, after_pass=2)))
        file.write(line(again + 60, "pass", generation=1, **{"pass": 3}))
        done = generation(1, again + 1, after_pass=2, ended=second(again + 61))
        file.write(line(again + 61, "generation_ended", generation=done))
        file.write(line(again + 61, "ended", exit_code=0))
    for rank in range(3):
        with (output / f"node_{rank}" / "events.jsonl").open("a") as file:
            file.write(line(again - 9, "staging_begun"))
            file.write(line(again, "joined", job="x", role="both", rank=rank, pod=f"new-{rank}", uid=f"n{rank}"))
            file.write(line(again + 2, "phase", phase="training", generation=1))
            file.write(line(again + 61, "ended", exit_code=0, generation=1))
            file.write(line(again + 61, "phase", phase="complete", generation=1))
    facts = read(tmp_path)
    verdict = judge(facts)
    assert verdict.sentence.startswith("The job is complete: 4 passes")
    assert [len(member.runs) for member in facts.members.values()] == [2, 2, 2]
    states = {span.state for lane in lanes.lanes(facts, verdict) for span in lane.spans}
    assert "lost" not in states  # between the end and the new start, no launcher was missed


def test_job_json_completes_what_a_killed_hub_has_not_written_to_its_timeline(tmp_path: Path) -> None:
    output = MadeJob(generations=1, ends="running").write(tmp_path) / "output"
    why = cause(0, kind="lost", what="the hub was lost")
    one = generation(0, BEGIN + 10, ended=second(BEGIN + 140), first_cause=why)
    (output / "job.json").write_text(json.dumps({"generations": [one], "members": []}))
    (first,) = read(tmp_path).history
    assert first.ended == BEGIN + 140
    assert first.cause is not None
    assert first.cause.sentence == "rank 0 (pod quick-start-0): the hub was lost"


def test_a_later_end_of_a_generation_has_the_better_cause(tmp_path: Path) -> None:
    output = MadeJob(generations=1, ends="failed").write(tmp_path) / "output"
    at = BEGIN + 200
    better = generation(0, BEGIN + 10, ended=second(BEGIN + 155), first_cause=cause(2, what="OOMKilled"))
    with (output / "events.jsonl").open("a") as file:
        file.write(line(at, "generation_ended", generation=better))
    (first,) = read(tmp_path).history
    assert first.cause is not None
    assert first.cause.what == "OOMKilled"
    assert first.ended == pytest.approx(BEGIN + 155, abs=1)


def test_of_a_large_timeline_the_end_is_read_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_MOST", 4096)
    MadeJob(ends="failed", generations=3).write(tmp_path)
    facts = read(tmp_path)
    assert len(facts.unread) == 3
    assert "only its last 4 KiB were read" in facts.unread[0]
    assert judge(facts).sentence.startswith("The job failed: rank 2 (pod quick-start-2)")
    assert b"Files that could not be read" in page.render(facts)


def test_of_the_pods_that_waited_for_a_missing_pod_the_one_that_knows_most_is_read(tmp_path: Path) -> None:
    short = "waited 600 s: 2 of 3 have joined (missing: rank 1)"
    for pod, what in (("pod-0", f"{short}; pod-1 is Pending: Unschedulable"), ("pod-2", short)):
        end = {"kind": "peers", "rank": None, "role": None, "pod": None, "what": what}
        unjoined.add(str(tmp_path / "output"), pod, 75, end)
    assert judge(read(tmp_path)).sentence.endswith("pod-1 is Pending: Unschedulable")


def test_a_spoiled_file_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    output = MadeJob(generations=1).write(tmp_path) / "output"
    (output / "job.json").write_text("[" * 100_000)
    (output / "node_1" / "events.jsonl").write_bytes(b"\x00\xff{]\n" * 100)
    (output / ".launcher" / ".leases" / "0").write_text("{}")
    facts = read(tmp_path)
    assert any("job.json cannot be used" in text for text in facts.unread)
    assert judge(facts).state == "complete"
    assert len(facts.members) == 3


def test_a_replaced_pod_has_two_launchers_with_a_lost_time_between_them(tmp_path: Path) -> None:
    output = MadeJob(generations=1, ends="running").write(tmp_path) / "output"
    at = BEGIN + 200
    with (output / "events.jsonl").open("a") as file:
        peer = {"rank": 1, "role": "both", "pod": "quick-start-1"}
        file.write(line(at, "peer_lost", peer=peer, why="its connection has ended"))
    with (output / "node_1" / "events.jsonl").open("a") as file:
        file.write(line(at + 30, "staging_begun"))
        file.write(line(at + 33, "joined", job="x", role="both", rank=1, pod="new-pod", uid="new"))
    facts = read(tmp_path)
    member = facts.members[Place(0, 1)]
    assert [run.pod for run in member.runs] == ["quick-start-1", "new-pod"]
    lane = lanes.lanes(facts, judge(facts))[1]
    lost = [span for span in lane.spans if span.state == "lost"]
    assert [(span.begin, span.end) for span in lost] == [(at, at + 30)]


def test_members_of_two_roles_are_named_by_their_roles(tmp_path: Path) -> None:
    output = tmp_path / "output"
    members = [
        {"rank": 0, "role": "trainer", "pod": "t-0", "uid": "a"},
        {"rank": 0, "role": "pserver", "pod": "p-0", "uid": "b"},
    ]
    why = {"kind": "pserver", "rank": 0, "role": "pserver", "pod": "p-0", "what": "was killed", "code": 137}
    ended = generation(0, BEGIN + 1, ended=second(BEGIN + 60), first_cause=why)
    output.mkdir()
    (output / "events.jsonl").write_text(
        line(BEGIN, "gang", job="wide", members=members)
        + line(BEGIN + 1, "generation_begun", generation=generation(0, BEGIN + 1))
        + line(BEGIN + 60, "generation_ended", generation=ended)
        + line(BEGIN + 60, "ended", exit_code=137, first_cause=why)
    )
    for name, phase in (("node_0", "training"), ("pserver_0", "serving")):
        (output / name).mkdir()
        own = line(BEGIN + 2, "phase", phase=phase, generation=0) + line(BEGIN + 60, "ended", exit_code=69)
        (output / name / "events.jsonl").write_text(own)
    facts = read(tmp_path)
    verdict = judge(facts)
    assert verdict.sentence == "The job failed: pserver 0 (pod p-0): was killed"
    assert "output/pserver_0/server.log" in verdict.advice[1]
    found = lanes.lanes(facts, verdict)
    assert [lane.label for lane in found] == ["trainer 0", "pserver 0"]
    assert found[1].marks[0].text.startswith("ended generation 0: pserver 0 (pod p-0)")
    assert account(facts, verdict, lanes.end_of_axis(facts, verdict)).wall == pytest.approx(60, abs=2)


@pytest.mark.parametrize("seconds", [-7200.0, 259_200.0])
def test_times_before_a_clock_was_set_are_corrected(tmp_path: Path, seconds: float) -> None:
    """All clocks are wrong at first, and are set after 100 s."""
    output = MadeJob(generations=2).write(tmp_path) / "output"
    right = read(tmp_path)
    for file in output.glob("**/events.jsonl"):
        before, after = list[str](), list[str]()
        for text in file.read_text().splitlines():
            event = json.loads(text)
            at = fields.seconds(event["at"]) or 0.0
            if at < BEGIN + 100:
                event["at"] = stamp(at - seconds)
                if "generation_" in event["event"]:
                    event["generation"]["began"] = second(at - seconds)
            (before if at < BEGIN + 100 else after).append(json.dumps(event) + "\n")
        set_at = line(BEGIN + 100, "clock_set", seconds=seconds)
        file.write_text("".join([*before, set_at, *after]))
    found = read(tmp_path)
    assert judge(found).sentence == judge(right).sentence
    assert [lane.spans for lane in lanes.lanes(found, judge(found))] == (
        [lane.spans for lane in lanes.lanes(right, judge(right))]
    )


@pytest.mark.parametrize(
    ("code", "why", "sentence"),
    [
        (0, None, "The job is complete: 100 s."),
        (137, cause(1, what="trainer was killed"), "The job failed: rank 1 (pod quick-start-1): trainer was killed"),
        (None, None, "The job runs, and its members have written no timeline."),
    ],
)
def test_without_a_timeline_job_json_says_how_the_job_has_ended(
    tmp_path: Path, code: int | None, why: Any, sentence: str
) -> None:
    """As in the folder of an older version."""
    ended = None if code is None else second(BEGIN + 100)
    members = [{"rank": rank, "role": "both", "pod": f"quick-start-{rank}"} for rank in range(3)]
    job = {
        "job": "quick-start",
        "members": members,
        "generations": [{**generation(0, BEGIN), "ended": ended, "first_cause": why}],
        "started": second(BEGIN),
        "ended": ended,
        "exit_code": code,
        "first_cause": why,
    }
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "job.json").write_text(json.dumps(job))
    facts = read(tmp_path)
    assert judge(facts).sentence == sentence
    assert b"</html>" in page.render(facts)


def test_a_folder_without_a_timeline_is_not_called_a_job_that_has_not_begun(tmp_path: Path) -> None:
    (tmp_path / "output" / "node_0").mkdir(parents=True)
    assert "no timeline" in judge(read(tmp_path)).sentence
