"""docs/eks.md without AWS: which blocks tests run, and that each is complete. tests/aws and tests/e2e run them."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.eks_page import page_blocks
from tests.support.pages import Block


def lines(block: Block) -> str:
    return f"line {block.line}"


@pytest.mark.parametrize("block", page_blocks(), ids=lines)
def test_only_blocks_with_eksctl_are_not_run_and_the_page_says_why(block: Block) -> None:
    calls_eksctl = re.search(r"^\s*eksctl ", block.commands, re.MULTILINE) is not None
    assert bool(block.unrun) == calls_eksctl
    assert not calls_eksctl or "needs an AWS account" in block.unrun


@pytest.mark.parametrize("block", page_blocks(), ids=lines)
def test_every_block_uses_only_variables_of_its_own_or_of_the_first_block(block: Block) -> None:
    def assigned(commands: str) -> set[str]:
        return set(re.findall(r"\b([A-Z_]+)=", commands)) | set(re.findall(r"\bfor (\w+) in", commands))

    used = set(re.findall(r"\$\{?(\w+)", block.commands))
    assert used - assigned(block.commands) - assigned(page_blocks()[0].commands) <= {"PWD"}


@pytest.mark.parametrize("block", page_blocks(), ids=lines)
def test_every_block_is_a_complete_script(block: Block) -> None:
    subprocess.run(["bash", "-n", "-c", block.commands], check=True)
    assert "#" not in block.commands, "zsh takes a pasted comment for a command"
