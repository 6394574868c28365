"""How many failed attempts a Job can take, as the launcher describes it, and whether our manifests agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from launcher import config
from launcher.errors import Exit
from launcher.model import Cause, CauseKind
from launcher.run import backoff_limit, outcome
from tests.support.paths import K8S


def said(**variables: str) -> str | None:
    environment = {"JOB_NAME": "job", "CONF_PADDLE_GRADIENT_NUM": "3"} | variables
    return backoff_limit.describe(config.read(environment, {}, check_here=False))


@pytest.mark.parametrize(
    ("limit", "policy", "expected"),
    [
        ("0", "0", "allows no failed attempt: its backoffLimit is 0, and each counts 3 pods"),
        ("2", "0", "allows no failed attempt: its backoffLimit is 2, and each counts 3 pods"),
        ("3", "0", "allows up to 1 failed attempt: its backoffLimit is 3, and each counts 3 pods"),
        ("6", "0", "allows up to 2 failed attempts: its backoffLimit is 6, and each counts 3 pods"),
        ("4", "1", "allows up to 4 failed attempts: its backoffLimit is 4, and each counts 1 pod"),
    ],
)
def test_a_failed_attempt_counts_all_pods_without_a_policy(limit: str, policy: str, expected: str) -> None:
    assert said(LAUNCHER_BACKOFF_LIMIT=limit, LAUNCHER_FAILURE_POLICY=policy) == f"the Job {expected}"


def test_if_the_limit_is_unknown_the_message_names_its_variable() -> None:
    text = said()
    assert text is not None
    assert "counts 3 pods of the Job's backoffLimit: set LAUNCHER_BACKOFF_LIMIT to the Job's" in text


def test_without_a_job_that_counts_failures_there_is_no_description() -> None:
    assert said(LAUNCHER_STAY="1") is None
    assert said(LAUNCHER_PEERS="10.0.0.1,10.0.0.2,10.0.0.3") is None


SERVER = {
    "LAUNCHER_ROLE": "pserver",
    "LAUNCHER_PSERVERS": "2",
    "LAUNCHER_FAILURE_POLICY": "1",
    "LAUNCHER_SERVICE": "trainer=job-trainer.job",
}


@pytest.mark.parametrize(
    ("variables", "kind", "rank", "alone"),
    [
        ({"LAUNCHER_BACKOFF_LIMIT": "0"}, "trainer", 1, True),
        ({"LAUNCHER_BACKOFF_LIMIT": "0"}, "pserver", 4, False),
        ({"LAUNCHER_BACKOFF_LIMIT": "0"}, "lost", 1, False),
        ({"LAUNCHER_BACKOFF_LIMIT": "0"}, "stopped", 1, False),
        ({"LAUNCHER_BACKOFF_LIMIT": "1"}, "trainer", 1, False),
        ({"LAUNCHER_BACKOFF_LIMIT": "0", "LAUNCHER_FAILURE_POLICY": "0"}, "trainer", 1, False),
    ],
    ids=["a trainer", "of the own role", "lost", "SIGTERM", "a pod may fail", "consequences count"],
)
def test_a_failure_of_the_other_role_ends_its_job_if_the_limit_is_0(
    variables: dict[str, str], kind: str, rank: int, alone: bool
) -> None:
    environment = {"JOB_NAME": "job", "CONF_PADDLE_GRADIENT_NUM": "3"} | SERVER | variables
    read = config.read(environment, {}, check_here=False)
    cause = Cause(CauseKind(kind), rank, "pod-1", "it ended", 3)
    why = backoff_limit.other_role_is_over(read, cause)
    assert bool(why) is alone
    mine = outcome.outcome_of(cause, 3, told_to_stop=False, shape=read.shape, alone=why)
    assert mine.code == (Exit.GIVEN_UP if alone else Exit.PEER_FAILED)
    assert "(pod-1): it ended" in mine.text
    if cause.kind.is_child:
        theirs = outcome.outcome_of(cause, rank, told_to_stop=False, shape=read.shape, alone=why)
        assert theirs.code == 3, "whose it is keeps its own code"


@pytest.mark.parametrize("name", ["job", "job-indexed", "single"])
def test_the_variables_of_our_manifests_match_the_fields_of_their_job(name: str) -> None:
    spec: Mapping[str, Any] = yaml.safe_load((K8S / name / "job.yaml").read_text())["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    told = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert told["LAUNCHER_BACKOFF_LIMIT"] == str(spec["backoffLimit"])
    assert (told.get("LAUNCHER_FAILURE_POLICY") == "1") == ("podFailurePolicy" in spec)
    assert float(told["LAUNCHER_STOP_GRACE"]) == spec["template"]["spec"]["terminationGracePeriodSeconds"] - 5
