"""The data types that all rooms share."""

from __future__ import annotations

import json

import pytest

from launcher.model import BOTH, HETER, PSERVER, TRAINER, CauseKind, Shape, member_folder, member_name


@pytest.mark.parametrize("kind", CauseKind)
def test_the_kind_of_a_cause_is_shown_as_its_value(kind: CauseKind) -> None:
    assert f"{kind} {kind!s}" == f"{kind.value} {kind.value}"
    assert json.dumps({"kind": kind}) == json.dumps({"kind": kind.value})


def test_each_kind_of_cause_says_what_may_follow_from_it() -> None:
    def kinds(name: str) -> set[str]:
        return {kind.value for kind in CauseKind if getattr(kind, name)}

    assert kinds("is_child") == {"trainer", "pserver", "heter"}
    assert kinds("restartable") == {"trainer", "pserver", "heter", "stalled", "volume"}
    assert kinds("gone") == {"lost", "stopped"}


def test_ranks_count_trainers_first_then_servers_then_heter_workers() -> None:
    shape = Shape(trainers=2, pservers=1, heters=2)
    assert (shape.size, shape.roles) == (5, (TRAINER, PSERVER, HETER))
    roles = [shape.role(rank) for rank in range(5)]
    assert roles == [TRAINER, TRAINER, PSERVER, HETER, HETER]
    assert [shape.number(rank) for rank in range(5)] == [0, 1, 0, 0, 1]
    assert [shape.rank(role, shape.number(rank)) for rank, role in enumerate(roles)] == list(range(5))
    assert shape.names([1, 2, 4]) == "trainer 1, pserver 0, heter worker 1"
    assert Shape(3).roles == (BOTH,)


def test_each_role_has_names_and_folders_of_its_own() -> None:
    assert [member_name(role, 1) for role in (BOTH, TRAINER, PSERVER, HETER)] == [
        "rank 1",
        "trainer 1",
        "pserver 1",
        "heter worker 1",
    ]
    folders = [member_folder(role, 1) for role in (BOTH, TRAINER, PSERVER, HETER)]
    assert folders == ["node_1", "node_1", "pserver_1", "heter_1"]
