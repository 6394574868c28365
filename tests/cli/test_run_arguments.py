"""The arguments of run, plan and local: which belong to the launcher, and which to the user's command."""

from __future__ import annotations

import pytest

from launcher.cli.run_arguments import asks_for_help, parse
from launcher.errors import Exit, Failure


def test_only_the_flags_of_the_launcher_are_removed_from_the_command_line() -> None:
    request = parse(["--job=train", "--launcher-peer-timeout", "5", "--version", "--launcher-rank=1", "x y"])
    assert request.own == {"LAUNCHER_PEER_TIMEOUT": "5", "LAUNCHER_RANK": "1"}
    assert request.flags == ("--job=train", "--version", "x y")


def test_a_command_after_two_dashes_is_not_changed() -> None:
    request = parse(["--launcher-rank=0", "--", "python", "t.py", "--launcher-rank=9", "--", "a b"])
    assert request.command == ("python", "t.py", "--launcher-rank=9", "--", "a b")


@pytest.mark.parametrize("words", [["--launcher-peer"], ["--launcher-nosuch=1"], ["--launcher-rank"], ["--"]])
def test_abbreviated_flags_of_the_launcher_are_not_accepted(words: list[str]) -> None:
    with pytest.raises(Failure) as caught:
        parse(words)
    assert caught.value.code == Exit.USAGE


def test_flags_of_plan_and_local_may_stand_between_flags_of_paddle() -> None:
    words = ["--config=a", "--nodes", "3", "--launcher-rank=1", "--json", "--job=train"]
    request = parse(words, switches=["--json"], valued=["--nodes"])
    assert request.options == {"--nodes": "3", "--json": ""}
    assert request.own == {"LAUNCHER_RANK": "1"}
    assert request.flags == ("--config=a", "--job=train")


def test_a_help_flag_after_two_dashes_belongs_to_the_users_command() -> None:
    assert asks_for_help(["--config=a", "-h"])
    assert asks_for_help(["--help", "--", "true"])
    assert not asks_for_help(["--", "python", "train.py", "--help"])
