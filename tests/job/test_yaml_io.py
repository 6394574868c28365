"""YAML files as `render` reads and writes them."""

from __future__ import annotations

import re

import pytest
import yaml

from launcher.errors import Exit
from tests.support.render_command import paddle_job, render, role


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "standard input: not valid YAML: line 1, column 5: expected the node content"),
        ("a: 1\na: 2", "standard input: not valid YAML: line 2, column 1: a: duplicate key"),
        ("[1]", "document 1: [1]: expected a Kubernetes object"),
        ("", "expected a PaddleJob of batch.paddlepaddle.org/v1, found nothing"),
        ("kind: Pod\napiVersion: v1", "expected a PaddleJob of batch.paddlepaddle.org/v1, found Pod of v1"),
        ("kind: PaddleJob\napiVersion: kubeflow.org/v1", "found PaddleJob of kubeflow.org/v1"),
    ],
)
def test_a_file_without_a_valid_paddle_job_ends_with_78(text: str, expected: str) -> None:
    ended = render(text=text)
    assert ended.returncode == Exit.CONFIG
    assert expected in ended.stderr
    assert ended.stdout == ""


def test_text_that_looks_like_a_number_is_quoted_even_if_only_kubectl_reads_it_so() -> None:
    words = ["1e-3", "0o17", "y", "2026-11-18", "12:30", "1_000", "0x1f", "+1", ".5", "null", "true", "~", "1.2.3", "-"]
    env = ", ".join(f'{{name: V{number}, value: "{word}"}}' for number, word in enumerate(words))
    ended = render(text=paddle_job(f"{{worker: {role(f', env: [{env}]')}}}"))
    assert ended.returncode == 0, ended.stderr
    for number, word in enumerate(words):
        (line,) = re.findall(rf"name: V{number}\n *value: (.*)", ended.stdout)
        plain = line == word
        assert yaml.safe_load(line) == word
        assert not plain or word == "1.2.3", f"{word} is written without quotes"


def test_anchors_and_merges_are_written_out() -> None:
    text = paddle_job(f"{{ps: &same {role()}, worker: *same}}")
    ended = render(text=text)
    assert ended.returncode == 0, ended.stderr
    assert "&" not in ended.stdout
    merged = paddle_job(f"{{ps: &same {role()}, worker: {{<<: *same, replicas: 3}}}}")
    rendered = [each for each in yaml.safe_load_all(render(text=merged).stdout) if each["kind"] == "Job"]
    assert [each["spec"]["parallelism"] for each in rendered] == [2, 3]
