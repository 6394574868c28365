"""Which test runs which block of commands. tests/test_blocks.py checks that this list is complete."""

from __future__ import annotations

import subprocess

from tests.support.pages import Block, blocks_of
from tests.support.paths import REPOSITORY

# A test of the whole page, which runs all of its blocks.
WHOLE_PAGES = {
    "docs/install.md": "tests/dist/test_install.py",
    "docs/kubernetes.md": "tests/e2e/test_docs.py",
    "docs/eks.md": "tests/aws/test_eks.py",
}

_HERE = "tests/test_page_commands.py"
_PADDLE = "tests/wheels/test_page_commands.py"
_CLUSTER = "tests/e2e/test_page_commands.py"

# Page; heading of the blocks, or how one block begins; test.
TESTS = (
    ("README.md", "make demo\n", ".ci/run"),
    ("README.md", "## Install", f"{_CLUSTER}::test_the_path_for_2016_manifests"),
    ("README.md", "## I have 2016 manifests", f"{_CLUSTER}::test_the_path_for_2016_manifests"),
    ("README.md", "## I have a train.py", f"{_CLUSTER}::test_the_path_for_a_training_program"),
    ("README.md", "## I have a PaddleJob", f"{_CLUSTER}::test_the_path_for_a_paddlejob"),
    ("README.md", "## Train on one machine", f"{_PADDLE}::test_the_readme_trains_on_one_machine"),
    ("docs/configuration.md", "paddle-launcher schema ", f"{_HERE}::test_the_schema_of_all_variables_is_written"),
    ("docs/events.md", "tail -n 3 ", f"{_HERE}::test_commands_that_read_the_folder_of_a_job"),
    ("docs/paddle.md", "paddle-launcher run -- python train.py\n", f"{_HERE}::test_a_program_runs_by_itself"),
    ("docs/paddlejob.md", "docker build ", f"{_HERE}::test_a_paddlejob_is_rendered_with_an_image_that_was_built"),
    ("docs/report.md", "kubectl cp ", f"{_CLUSTER}::test_the_report_is_copied_and_written"),
    ("docs/report.md", "paddle-launcher report ", f"{_HERE}::test_commands_that_read_the_folder_of_a_job"),
    ("docs/troubleshooting.md", "## Troubleshooting", f"{_CLUSTER}::test_troubleshooting_of_a_failed_job"),
    ("docs/troubleshooting.md", "## My job waits", f"{_CLUSTER}::test_troubleshooting_of_a_running_job"),
    ("docs/troubleshooting.md", "## My pods are Pending", f"{_CLUSTER}::test_troubleshooting_of_a_running_job"),
    ("docs/troubleshooting.md", "## My pods end with 69", f"{_CLUSTER}::test_troubleshooting_of_a_failed_job"),
    (
        "docs/troubleshooting.md",
        "## The job prints nothing any more",
        f"{_CLUSTER}::test_troubleshooting_of_a_running_job",
    ),
    (
        "docs/troubleshooting.md",
        "## The job is complete but there is no model",
        f"{_CLUSTER}::test_troubleshooting_of_a_complete_job",
    ),
    ("docs/troubleshooting.md", "## The model is bad", f"{_CLUSTER}::test_troubleshooting_of_a_complete_job"),
    ("docs/troubleshooting.md", "## The job does not resume", f"{_CLUSTER}::test_troubleshooting_of_a_failed_job"),
    ("docs/troubleshooting.md", "## The pods are gone", f"{_CLUSTER}::test_troubleshooting_of_a_failed_job"),
    ("docs/watch.md", "paddle-launcher status --watch quick-start\n", f"{_HERE}::test_a_job_is_watched_to_its_end"),
    ("k8s/README.md", "docker build -f docker/inject.Dockerfile", f"{_HERE}::test_the_image_of_the_init_container"),
    ("examples/quick_start/README.md", "## On this machine", f"{_PADDLE}::test_the_quick_start_trains_on_one_machine"),
    ("examples/quick_start/README.md", "## What to expect", f"{_PADDLE}::test_the_quick_start_trains_on_one_machine"),
)  # fmt: skip


def pages() -> list[str]:
    """Return all pages with commands for readers, except for Chinese ones."""
    given = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "k8s/README.md", "examples/**/README.md"]
    patterns = [f":(glob){each}" for each in given]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=REPOSITORY, text=True, capture_output=True, check=True,
    )  # fmt: skip
    return sorted(listed.stdout.split())


def runners_of(block: Block) -> list[str]:
    """Return the tests that run a block."""
    if block.page in WHOLE_PAGES:
        return [WHOLE_PAGES[block.page]]
    return [test for page, words, test in TESTS if page == block.page and _means(words, block)]


def _means(words: str, block: Block) -> bool:
    if words.startswith("## "):
        return not block.unrun and block.heading == words.removeprefix("## ")
    return block.commands.startswith(words)


def run_by(test: str) -> list[Block]:
    """Return the blocks that a test runs, in their order. `test` is the end of its name in TESTS."""
    chosen = {page: None for page, _, name in TESTS if name.endswith(f"::{test}")}
    found = [
        block
        for page in chosen
        for block in blocks_of(page)
        if not block.unrun and any(each.endswith(f"::{test}") for each in runners_of(block))
    ]
    assert found, f"no block is run by {test}"
    return found
