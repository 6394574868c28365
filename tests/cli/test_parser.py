"""The arguments of each command, and its help."""

from __future__ import annotations

import shlex

import pytest

from launcher.cli import parser
from launcher.cli.commands import COMMANDS, Command
from launcher.cli.run_arguments import parse
from tests.support import commands_page
from tests.support.paths import REPOSITORY


def test_the_page_of_commands_shows_their_help() -> None:
    shown = (REPOSITORY / "docs" / "commands.md").read_text()
    assert shown.split() == commands_page.page().split(), "python -m tests.support.commands_page > docs/commands.md"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_fits_in_80_columns_and_its_examples_are_right(command: Command) -> None:
    assert max(map(len, parser.help_of(command).splitlines())) < 80
    for example in command.examples:
        line = example.partition("paddle-launcher ")[2].partition("|")[0].partition(")")[0].partition(" > ")[0]
        name, *words = shlex.split(line)
        assert name == command.name
        if name in ("run", "plan", "local"):
            parse(words, switches=["--json"], valued=["--nodes"])
        else:
            parser.parse(command, words)


@pytest.mark.parametrize(
    "line", ["-f -n ns job 1", "job 1 --follow --namespace ns", "job -f 1 --namespace=ns", "--namespace ns -f job 1"]
)
def test_flags_stand_before_between_and_after_other_words(line: str) -> None:
    given = parser.parse(parser.named("logs"), line.split())
    assert (given.job, given.rank, given.namespace, given.follow) == ("job", 1, "ns", True)


def test_an_empty_namespace_is_none() -> None:
    assert parser.parse(parser.named("status"), ["--namespace", "", "job"]).namespace is None
