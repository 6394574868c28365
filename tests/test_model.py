"""The data types that all rooms share."""

from __future__ import annotations

import json

import pytest

from launcher.model import CauseKind


@pytest.mark.parametrize("kind", CauseKind)
def test_the_kind_of_a_cause_is_shown_as_its_value(kind: CauseKind) -> None:
    assert f"{kind} {kind!s}" == f"{kind.value} {kind.value}"
    assert json.dumps({"kind": kind}) == json.dumps({"kind": kind.value})


def test_each_kind_of_cause_says_what_may_follow_from_it() -> None:
    def kinds(name: str) -> set[str]:
        return {kind.value for kind in CauseKind if getattr(kind, name)}

    assert kinds("is_child") == {"trainer", "pserver"}
    assert kinds("restartable") == {"trainer", "pserver", "stalled", "volume"}
    assert kinds("gone") == {"lost", "stopped"}
