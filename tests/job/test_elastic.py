"""The range of an elastic PaddleJob, from YAML and from Python."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from launcher.errors import Exit
from launcher.job import ConfigProblems, PaddleJob
from tests.support.render_command import WORKER, messages, paddle_job, render, role
from tests.support.rendering import (
    INJECTED,
    REQUIRED_PARAMETERS,
    Json,
    example,
    jobs,
    of_kind,
    plain_variables,
    read_config,
    render_example,
    render_text,
)

RANGE = "CONF_PADDLE_GRADIENT_NUM"


def elastic(replicas: int = 3, bounds: str = ", requests: 2, limits: 5", more: str = "", pod: str = "") -> str:
    """Return an elastic PaddleJob."""
    return paddle_job(f"{{worker: {role(more=bounds, replicas=replicas, pod=pod)}, elastic: 1{more}}}")


def python(**parameters: Any) -> list[Json]:
    return list(yaml.safe_load_all(PaddleJob(**(REQUIRED_PARAMETERS | parameters)).to_yaml()))


def test_the_example_of_the_operator_becomes_one_elastic_indexed_job_without_etcd() -> None:
    objects = render_example("elastic.yaml")
    assert [each["kind"] for each in objects] == ["Secret", "Service", "Job"]
    (job,) = jobs(objects).values()
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (3, 3)
    assert job["spec"]["completionMode"] == "Indexed"
    job_config = read_config(job)
    assert (job_config.least, job_config.shape.trainers, job_config.is_elastic) == (2, 4, True)
    assert job_config.rejoins
    assert "ELASTIC" not in str(job)
    assert "etcd" not in str(job).lower()


def test_the_example_has_no_notes_so_it_can_be_rendered_strictly() -> None:
    ended = render("--strict", text=example("elastic.yaml"))
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("bounds", "sizes"),
    [("", "1:3"), (", requests: 2", "2:3"), (", limits: 8", "1:8"), (", requests: 3, limits: 4", "3:4")],
)
def test_without_bounds_the_range_is_from_one_pod_to_the_replicas(bounds: str, sizes: str) -> None:
    (job,) = jobs(render_text(elastic(bounds=bounds))).values()
    assert plain_variables(job)[RANGE] == sizes


@pytest.mark.parametrize("level", ["0", "null"])
def test_without_elastic_the_number_is_fixed_and_a_note_says_how_it_can_change(level: str) -> None:
    text = elastic().replace("elastic: 1", f"elastic: {level}")
    ended = render(text=text)
    assert messages(ended) == [
        "spec.worker.requests: 2: ignored: the number of pods is fixed (replicas: 3): set spec.elastic: 1",
        "spec.worker.limits: 5: ignored: the number of pods is fixed (replicas: 3): set spec.elastic: 1",
    ]
    (job,) = jobs(render_text(text)).values()
    assert plain_variables(job)[RANGE] == "3"


def test_a_range_of_one_size_is_no_range() -> None:
    ended = render(text=elastic(bounds=", requests: 3, limits: 3"))
    assert messages(ended) == [
        "spec.elastic: 1: ignored: the number of pods is fixed, since requests, replicas and limits are all 3"
    ]


def test_the_number_of_servers_is_always_fixed() -> None:
    spec = f"{{ps: {role(more=', limits: 4')}, worker: {role(more=', limits: 4')}, elastic: 1}}"
    ended = render(text=paddle_job(spec))
    assert messages(ended) == [
        "spec.ps.limits: 4: ignored: the number of pods is fixed (replicas: 2): only workers may be elastic"
    ]
    for job in jobs(list(yaml.safe_load_all(ended.stdout))).values():
        assert plain_variables(job)[RANGE] == "1:4"
        assert plain_variables(job)["LAUNCHER_PSERVERS"] == "2"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (elastic(bounds=", requests: 4, limits: 5"), "spec.worker.requests: 4: expected 1 to 3, since replicas is 3"),
        (elastic(bounds=", requests: 0"), "spec.worker.requests: 0: expected 1 to 3, since replicas is 3"),
        (elastic(bounds=", limits: 2"), "spec.worker.limits: 2: expected 3 to 100000, since replicas is 3"),
        (elastic(bounds=", limits: many"), "spec.worker.limits: 'many': expected a whole number"),
        (elastic().replace("elastic: 1", "elastic: -1"), "spec.elastic: -1: expected 1, or 0 for a fixed number"),
        (elastic().replace("elastic: 1", "elastic: true"), "spec.elastic: True: expected a whole number"),
        (elastic(replicas=0), "spec.worker.replicas: 0: expected 1 or more"),
        (
            paddle_job(f"{{worker: {role(more=', limits: 1000', replicas=1)}, elastic: 1}}", "x" * 53),
            f"metadata.name: '{'x' * 53}': too long by 1: its last pod would be called",
        ),
    ],
)
def test_a_wrong_range_is_a_problem_of_its_field(text: str, problem: str) -> None:
    ended = render(text=text)
    assert ended.returncode == Exit.CONFIG
    assert any(line.startswith(problem) for line in messages(ended)), ended.stderr


def test_a_job_with_heter_workers_has_a_fixed_size() -> None:
    ended = render(text=elastic(more=f", ps: {role()}, heter: {role()}"))
    assert ended.returncode == Exit.CONFIG
    expected = "spec.elastic: 1: a job with heter workers has a fixed size: remove spec.elastic or spec.heter"
    assert expected in messages(ended)


def test_an_elastic_job_must_be_able_to_start_its_processes_again() -> None:
    text = elastic().replace("command: [", "env: [{name: LAUNCHER_MAX_RESTARTS, value: '0'}], command: [")
    ended = render(text=text)
    assert "LAUNCHER_MAX_RESTARTS: 0: expected 1 or more, since CONF_PADDLE_GRADIENT_NUM is 2:5" in ended.stderr


def test_a_job_that_begins_with_one_pod_has_what_several_pods_need() -> None:
    objects = render_text(elastic(replicas=1, bounds=", limits: 3"))
    assert [each["kind"] for each in objects] == ["Secret", "Service", "Job"]
    (job,) = jobs(objects).values()
    assert plain_variables(job)["LAUNCHER_MODE"] == "collective"
    assert read_config(job).discovery.method == "dns"


def test_volcano_starts_an_elastic_job_once_the_fewest_pods_can_run() -> None:
    (group,) = of_kind(render_text(elastic(pod=", schedulerName: volcano")), "PodGroup")
    assert group["spec"] == {"minMember": 2}
    (group,) = of_kind(python(trainers=3, pservers=1, elastic=(2, 4), gang_scheduling=True), "PodGroup")
    assert group["spec"] == {"minMember": 3}


@pytest.mark.parametrize(("number", "notes"), [(1, 1), (2, 0), (3, 0), (4, 1)])
def test_volcano_may_wait_for_more_pods_but_not_for_more_than_there_are(number: int, notes: int) -> None:
    ended = render(text=elastic(more=f", schedulingPolicy: {{minAvailable: {number}}}"))
    assert len(messages(ended)) == notes
    if notes:
        assert f"{number}: kept, but the job needs 2 of its 3 pods: expected 2" in ended.stderr


def test_an_elastic_job_in_python_has_a_range() -> None:
    (job,) = jobs(python(pservers=0, trainers=3, elastic=(2, 5))).values()
    assert (job["spec"]["completions"], plain_variables(job)[RANGE]) == (3, "2:5")
    rendered = jobs(python(pservers=2, trainers=3, elastic=(2, 5)))
    assert [job["spec"]["completions"] for job in rendered.values()] == [2, 3]
    assert {plain_variables(job)[RANGE] for job in rendered.values()} == {"2:5"}


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"elastic": (0, 5)}, r"elastic: \(0, 5\): expected the fewest and the most trainers, such as \(2, 5\)"),
        ({"elastic": (5, 2)}, r"elastic: \(5, 2\): expected the fewest"),
        ({"elastic": (3, 3)}, r"elastic: \(3, 3\): expected the fewest"),
        ({"elastic": 5}, "elastic: 5: expected the fewest"),
        ({"elastic": "2:5"}, "elastic: '2:5': expected the fewest"),
        ({"elastic": (1, True)}, r"elastic: \(1, True\): expected the fewest"),
        ({"elastic": (4, 6)}, r"trainers: 3: expected 4 to 6, since elastic is \(4, 6\)"),
        ({"elastic": (2, 5), "max_restarts": 0}, "LAUNCHER_MAX_RESTARTS: 0: expected 1 or more"),
    ],
)
def test_a_wrong_range_in_python_is_refused(parameters: Json, problem: str) -> None:
    with pytest.raises(ConfigProblems, match=problem):
        PaddleJob(**(REQUIRED_PARAMETERS | {"trainers": 3} | parameters))


def test_a_job_with_heter_workers_in_python_has_a_fixed_size() -> None:
    with pytest.raises(ConfigProblems) as caught:
        PaddleJob(**(REQUIRED_PARAMETERS | {"trainers": 3, "heters": 2, "elastic": (2, 5)}))
    expected = "elastic: (2, 5): a job with heter workers has a fixed size: remove elastic or heters"
    assert caught.value.problems == [expected]


def test_with_a_fixed_number_nothing_is_different() -> None:
    fixed = paddle_job(f"{{{WORKER}, elastic: 0}}")
    without = fixed.replace(", elastic: 0", "")
    first, second = (jobs(render_text(text, INJECTED))["job-worker"] for text in (fixed, without))
    for job in (first, second):  # the name of the Secret differs each time
        job["spec"]["template"]["spec"]["volumes"] = []
    assert first == second
