"""Lines for machines have time, job, rank, generation and stream; a prefix stands before each line of a trainer."""

from __future__ import annotations

import json

import pytest

from launcher.config.variables import MonitoringConfig
from launcher.run.log_lines import LogLines

PLACE = {"job": "quick-start", "role": "both", "rank": 2, "pod": "pod-2", "generation": 4}


def lines(log_format: str = "text", prefix: str = "") -> LogLines:
    made = LogLines(MonitoringConfig(metrics_port=None, report=True, log_format=log_format, log_prefix=prefix))
    made.place = lambda: PLACE
    return made


def test_by_default_the_launcher_writes_for_readers_and_the_trainers_lines_stay_as_they_are() -> None:
    (line,) = lines().of_launcher("warning", "the disk is full", "rank 2")
    assert line.endswith(b"[rank 2] warning: the disk is full\n")
    assert lines().of_processes is None


def test_a_line_of_the_launcher_is_one_object_with_its_place_even_if_the_text_has_many_lines() -> None:
    (line,) = lines("json").of_launcher("warning", "stacks:\n  a\n  b", "rank 2")
    content = json.loads(line)
    assert content.pop("time").endswith("Z")
    assert content == {"level": "warning", "stream": "launcher", **PLACE, "message": "stacks:\n  a\n  b"}
    assert lines("json").of_processes is None


def test_on_request_each_line_of_a_trainer_is_an_object_too() -> None:
    formatted = lines("json-all").of_processes
    assert formatted is not None
    content = json.loads(formatted("trainer", b'loss: 0.5 "\xff'))
    assert (content["stream"], content["rank"], content["message"]) == ("trainer", 2, 'loss: 0.5 "\ufffd')


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("[rank {rank}] ", b"[rank 2] loss\n"),
        ("{job}/{pod} {stream} {generation}| ", b"quick-start/pod-2 trainer 4| loss\n"),
        ("{unknown} {0} {", b"{unknown} {0} {loss\n"),
    ],
)
def test_a_prefix_names_where_the_line_comes_from(prefix: str, expected: bytes) -> None:
    formatted = lines(prefix=prefix).of_processes
    assert formatted is not None
    assert formatted("trainer", b"loss") == expected


def test_a_rank_that_is_not_known_yet_is_left_out() -> None:
    made = lines(prefix="[rank {rank}] ")
    made.place = lambda: {**PLACE, "rank": None}
    assert made.of_processes is not None
    assert made.of_processes("trainer", b"loss") == b"[rank ] loss\n"
