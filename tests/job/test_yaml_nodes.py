"""YAML that stands for much more than it says, or that has no meaning in Kubernetes: refused, small and fast."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import yaml

from launcher.errors import Exit, Failure
from launcher.job import yaml_io
from tests.support.render_command import WORKER, paddle_job, render

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus" / "yaml"
MOST = 500_000  # characters that the aliases of a file may add


def refused(text: str) -> str:
    """Return the message with which `render` refuses the text. It may take 5 s of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = render(text=text)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.returncode == Exit.CONFIG, ended.stderr
    assert ended.stderr.startswith("paddle-launcher: standard input: "), ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert after.ru_utime - before.ru_utime < 5
    return ended.stderr


@pytest.mark.parametrize("name", ["aliases-of-aliases", "merges-of-merges", "a-long-text-many-times"])
def test_aliases_that_stand_for_too_much_are_refused_at_once(name: str) -> None:
    assert f"its aliases (*) stand for more than {MOST} characters" in refused((CORPUS / name).read_text())


def test_aliases_of_all_documents_together_stand_for_too_much() -> None:
    document = f"a: &a {'x' * (MOST // 10)}\nb: *a\n---\n"
    assert len(yaml_io.read((document * 9).encode(), "file")) == 9
    with pytest.raises(Failure, match="stand for more than"):
        yaml_io.read((document * 11).encode(), "file")


def test_a_file_without_aliases_may_be_of_any_size() -> None:
    text = "".join(f"key{number}: {'x' * 1000}\n" for number in range(MOST // 500))
    assert len(yaml_io.read(text.encode(), "file")) == 1


@pytest.mark.parametrize("name", ["cycle-of-a-list", "cycle-of-a-mapping", "cycle-of-a-merge", "cycle-as-a-key"])
def test_a_value_that_contains_itself_is_refused(name: str) -> None:
    assert "this value contains an alias (*) of itself" in refused((CORPUS / name).read_text())


@pytest.mark.parametrize("name", ["deep-lists", "deep-mappings", "deep-by-aliases"])
def test_a_file_that_is_nested_too_deeply_is_refused(name: str) -> None:
    assert "nested too deeply" in refused((CORPUS / name).read_text())


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("!!int x", "'x': expected int, since it has this tag"),
        ("!!float x", "'x': expected float, since it has this tag"),
        ("!!bool maybe", "'maybe': expected bool, since it has this tag"),
        ("!!timestamp 2026-13-45", "!!timestamp: expected a type that Kubernetes knows"),
        ("!!binary aGVsbG8=", "!!binary: expected a type that Kubernetes knows"),
        ("!!set {b, c}", "!!set: expected a type that Kubernetes knows"),
        ("!!python/object/apply:os.system [id]", "!!python/object/apply:os.system: expected a type"),
        ("!mine x", "!mine: expected a type that Kubernetes knows"),
        ("9" * 5000, "a number of 5000 digits: expected at most 100"),
        ("{b: 1, b: 2}", "b: duplicate key"),
        ('"\\U00110000"', "expected the number of a Unicode character"),
        ('"\\UFFFFFFFF"', "expected the number of a Unicode character"),
        ('"\\uD800"', "a half of a character"),
    ],
)
def test_what_has_no_meaning_in_kubernetes_is_refused_with_its_place(value: str, problem: str) -> None:
    message = refused(f"a: {value}\n")
    assert "not valid YAML: line 1, column " in message
    assert problem in message


@pytest.mark.parametrize("value", ["0x_", "0b_", "=", "12:30", "2026-11-19", "1_000", "!!str 5", "!!int 5"])
def test_all_other_values_are_read(value: str) -> None:
    (document,) = yaml_io.read(f"a: [{value}]\n".encode(), "file")
    assert yaml.safe_load(yaml_io.dump(document.value)) == document.value


def test_a_merged_mapping_may_have_the_keys_that_it_merges() -> None:
    (document,) = yaml_io.read(b"base: {x: &b {<<: {k: 1}, k: 2}}\nderived: {<<: *b}\n", "file")
    assert document.value == {"base": {"x": {"k": 2}}, "derived": {"k": 2}}


def test_items_that_are_no_list_are_refused() -> None:
    assert "document 1: items: 5: expected a list" in refused("kind: List\nitems: 5\n")


def test_a_job_whose_roles_share_their_template_is_rendered() -> None:
    ended = render(text=paddle_job(f"&s {{{WORKER}}}"))
    assert ended.returncode == 0, ended.stderr


def test_a_message_that_quotes_the_file_has_no_escape_sequence() -> None:
    message = refused('kind: "\\e[31mred"\n')
    assert r"found \x1b[31mred of no apiVersion" in message
