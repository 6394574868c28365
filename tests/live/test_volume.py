"""Views of a job from the files on its volume."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from launcher.errors import Exit, Failure
from launcher.live.view import JobView
from launcher.live.volume import VolumeSource
from launcher.model import Numbers
from tests.support.volumes import JobFolder

CAUSE = {"kind": "trainer", "rank": 1, "role": "both", "pod": "pod-1", "what": "trainer ended with 3", "code": 3}


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path)


def view_of(job: JobFolder) -> JobView:
    return VolumeSource(str(job.path)).poll()


def told(view: JobView) -> list[str]:
    return [event.text for event in view.events]


def test_a_view_has_the_members_their_numbers_and_the_last_line_of_their_logs(job: JobFolder) -> None:
    job.of(
        1, "numbers", generation=0, pass_number=3, passes=8, step=10, pass_steps=20, loss=0.25, examples_per_second=99
    )
    job.log(0, "==== 2026-11-19 generation 0, pod pod-0 ====\n")
    job.log(1, "one\ntraining pass=3/8\n")
    view = view_of(job)
    assert (view.name, view.phase, view.generation, view.verdict) == ("quick-start", "training", 0, "")
    assert [(each.rank, each.pod, each.phase) for each in view.members] == (
        [(rank, f"pod-{rank}", "training") for rank in range(3)]
    )
    assert view.members[1].numbers == Numbers(3, 8, 10, None, 20, 0.25, examples_per_second=99)
    assert (view.members[1].output, view.members[0].output) == ("training pass=3/8", "")
    assert view.fraction == pytest.approx(2.5 / 8)
    assert told(view) == ["all 3 members have joined", "generation 0 begins"]


def test_later_views_have_what_happened_since_then(job: JobFolder) -> None:
    source = VolumeSource(str(job.path))
    assert source.poll().members[2].last_pass is None
    job.of(2, "pass", **{"pass": 0})
    job.add("pass", generation=0, **{"pass": 0})
    job.of(2, "phase", phase="restarting")
    job.of(0, "warning", text="odd \x1b[2J")
    view = source.poll()
    assert (view.members[2].last_pass, view.members[2].phase) == (0, "restarting")
    assert {"pass 0 is done", "rank 0: warning: odd \\x1b[2J"} <= set(told(view))
    assert told(source.poll()) == told(view)


def test_the_number_of_passes_of_paddle_v0_makes_the_progress(job: JobFolder) -> None:
    job.of(0, "generation", generation=0, passes=4)
    job.of(0, "pass", **{"pass": 0})
    view = view_of(job)
    assert (view.members[0].current_pass, view.fraction) == ("2/4", 0.25)


def test_a_new_generation_forgets_the_numbers_of_the_one_before(job: JobFolder) -> None:
    job.of(0, "numbers", generation=0, loss=0.25)
    job.of(0, "generation", generation=1, after_pass=2)
    member = view_of(job).members[0]
    assert (member.numbers, member.last_pass) == (Numbers(), 2)


def test_a_loss_that_is_not_finite_is_shown(job: JobFolder) -> None:
    job.of(0, "numbers", generation=0, loss="nan")
    loss = view_of(job).members[0].numbers.loss
    assert loss is not None
    assert math.isnan(loss)


def test_a_complete_job_ends_the_view_with_0(job: JobFolder) -> None:
    source = VolumeSource(str(job.path))
    assert source.poll().verdict == ""
    job.end()
    view = source.poll()
    assert (view.exit_code, view.verdict, view.phase, view.fraction) == (0, "the job is complete", "complete", 1.0)


def test_a_failed_job_ends_the_view_with_its_code_and_first_cause(job: JobFolder) -> None:
    job.end(3, **CAUSE)
    view = view_of(job)
    assert (view.exit_code, view.phase) == (3, "failed")
    assert view.verdict == "exit code 3: rank 1 (pod-1): trainer ended with 3"
    assert [member.what for member in view.members] == (
        ["because of rank 1", "trainer ended with 3", "because of rank 1"]
    )


def test_members_that_have_not_written_their_end_yet_are_waited_for(job: JobFolder) -> None:
    source = VolumeSource(str(job.path))
    job.add("ended", exit_code=0)
    assert source.poll().verdict == ""
    for rank in range(3):
        job.of(rank, "ended", exit_code=0)
    assert source.poll().verdict == "the job is complete"


def test_a_job_whose_hub_was_killed_ends_by_what_its_members_have_written(job: JobFolder) -> None:
    lost = CAUSE | {"kind": "lost", "rank": 0, "pod": "pod-0", "what": "was lost", "code": 76}
    for rank in (1, 2):
        job.of(rank, "ended", exit_code=76, first_cause=lost)
        job.of(rank, "phase", phase="failed")
    source = VolumeSource(str(job.path))
    assert source.poll().verdict == ""
    job.age(60)
    view = source.poll()
    assert (view.exit_code, view.verdict) == (76, "exit code 76: rank 0 (pod-0): was lost")
    assert view.members[0].phase == "lost"
    assert view.members[0].what.startswith("training? not written for ")


def test_a_job_of_which_all_launchers_were_killed_continues_to_be_watched_with_a_note(job: JobFolder) -> None:
    job.age(60)
    view = view_of(job)
    assert view.verdict == ""
    assert {member.phase for member in view.members} == {"lost"}
    assert any("no launcher of this job renews its lease" in note for note in view.notes)


def test_a_job_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    view = VolumeSource(str(tmp_path)).poll()
    assert (view.phase, view.members) == ("waiting", ())
    assert "no member has joined yet" in view.notes[0]


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no such folder") as caught:
        VolumeSource(str(tmp_path / "nothing")).poll()
    assert caught.value.code == Exit.NO_INPUT


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"rank": "x"}', b'{"members": 5}', b"\xff"])
@pytest.mark.parametrize(
    "name", ["job.json", "node_0/status.json", "node_0/events.jsonl", "events.jsonl", "node_0/train.log"]
)
def test_a_spoiled_file_is_named_and_the_view_continues(job: JobFolder, name: str, content: bytes) -> None:
    source = VolumeSource(str(job.path))
    source.poll()
    (job.output / name).write_bytes(content)
    view = source.poll()
    assert len(view.members) == 3
    assert all(note.isprintable() for note in view.notes)
    if name.endswith(".json") and not content.startswith(b'{"'):
        assert any(name in note for note in view.notes)
        assert source.poll().notes == view.notes


def test_links_that_another_user_has_made_are_not_followed(job: JobFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret\n")
    os.symlink(tmp_path / "secret", job.output / "node_0" / "train.log")
    assert view_of(job).members[0].output == ""


def test_hostile_texts_are_escaped(job: JobFolder) -> None:
    job.of(0, "joined", job="j", role="both", rank=0, pod="pod\x1b[2J\u202e", uid="")
    job.of(0, "phase", phase="training\n\x07")
    job.log(0, "\x1b]0;title\x07 \u202eevil\n")
    job.add("peer_lost", peer={"rank": "\x1b", "pod": "\x1b[2J"}, why="\x1b[31m")
    view = view_of(job)
    member = view.members[0]
    assert all(text.isprintable() for text in (member.pod, member.phase, member.output, *told(view)))


def test_the_pause_between_two_polls_grows_with_the_time_that_a_poll_takes(job: JobFolder) -> None:
    source = VolumeSource(str(job.path))
    assert [source.pause(took) for took in (0.01, 1.0, 60.0)] == [1.0, 4.0, 10.0]


def test_a_new_size_is_told_when_its_generation_begins(job: JobFolder) -> None:
    begun = {"number": 1, "began": "2026-11-19T11:00:00Z", "ended": None}
    job.add("generation_begun", generation={**begun, "trainers": 3})
    source = VolumeSource(str(job.path))
    source.poll()
    job.add("generation_begun", generation={**begun, "number": 2, "trainers": 2})
    assert told(source.poll())[-1] == "generation 2 begins, with 2 trainers instead of 3"
