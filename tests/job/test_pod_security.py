"""What the launcher's containers may do in rendered pods, if their template leaves it open."""

from __future__ import annotations

import pytest
import yaml

from launcher.errors import Failure
from launcher.job import PaddleJob
from tests.support.render_command import paddle_job, role
from tests.support.rendering import (
    REQUIRED_PARAMETERS,
    Json,
    jobs,
    main_container,
    pod_spec,
    render_text,
)


def rendered(container: str = "", pod: str = "") -> Json:
    """Return the pod spec of a job whose container and pod have these additional fields."""
    (job,) = jobs(render_text(paddle_job(f"{{worker: {role(container, pod=pod)}}}"))).values()
    return pod_spec(job)


def security(pod: Json) -> tuple[Json, Json]:
    """Return the security contexts of the main container and of the launcher's init container."""
    (main,), (inject, *_) = pod["containers"], pod["initContainers"]
    return main["securityContext"], inject["securityContext"]


def both(pod: Json) -> tuple[Json, Json]:
    """Return the same with the fields of the pod that the containers do not set."""
    main, inject = security(pod)
    of_pod = pod.get("securityContext") or {}
    return of_pod | main, of_pod | inject


def is_restricted(pod: Json, container: Json) -> bool:
    """Return whether a container fulfils the Pod Security level `restricted`, apart from its volumes."""
    context = (pod.get("securityContext") or {}) | container["securityContext"]
    return (
        context.get("allowPrivilegeEscalation") is False
        and context.get("runAsNonRoot") is True
        and context.get("runAsUser") != 0
        and context.get("seccompProfile") == {"type": "RuntimeDefault"}
        and context.get("capabilities", {}).get("drop") == ["ALL"]
    )


def test_by_default_a_container_gets_no_more_privileges_and_the_profile_of_the_runtime() -> None:
    for context in both(rendered()):
        assert context["allowPrivilegeEscalation"] is False
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_root_keeps_its_capabilities() -> None:
    """Images of 2016 run as root and write to volumes of other users."""
    for more in ("", ", securityContext: {runAsUser: 0}", ", securityContext: {runAsNonRoot: false}"):
        for context in (security(rendered(more))[0], security(rendered(pod=more))[0]):
            assert "capabilities" not in context
            assert not context.get("runAsNonRoot")


@pytest.mark.parametrize(
    "given", ["{runAsUser: 1000}", "{runAsNonRoot: true}", "{runAsUser: 1000, runAsNonRoot: true}"]
)
@pytest.mark.parametrize("place", ["container", "pod"])
def test_a_user_who_is_not_root_has_no_capabilities(given: str, place: str) -> None:
    pod = rendered(**{place: f", securityContext: {given}"})
    for container in (*pod["containers"], *pod["initContainers"]):
        assert is_restricted(pod, container)
    if "runAsUser" in given:
        assert {context["runAsUser"] for context in both(pod)} == {1000}
    else:
        assert both(pod)[1]["runAsUser"] > 0, "the image of the init container runs as root by default"


@pytest.mark.parametrize(
    "given",
    [
        "{allowPrivilegeEscalation: true}",
        "{seccompProfile: {type: Unconfined}}",
        "{runAsUser: 1000, runAsNonRoot: false}",
        "{runAsUser: 1000, capabilities: {drop: [NET_RAW]}}",
    ],
)
def test_what_the_template_sets_is_kept(given: str) -> None:
    (main, _) = security(rendered(f", securityContext: {given}"))
    assert main.items() >= yaml.safe_load(given).items()


def test_a_profile_of_the_pod_is_kept_too() -> None:
    pod = rendered(pod=", securityContext: {seccompProfile: {type: Localhost, localhostProfile: a}}")
    assert all(context["seccompProfile"]["type"] == "Localhost" for context in both(pod))


@pytest.mark.parametrize("given", ["{privileged: true}", "{capabilities: {add: [SYS_ADMIN]}}"])
def test_a_container_that_asks_for_privileges_gets_them(given: str) -> None:
    """The API server refuses such a container with allowPrivilegeEscalation false."""
    (main, _) = security(rendered(f", securityContext: {given}"))
    assert "allowPrivilegeEscalation" not in main


def test_other_containers_are_not_changed() -> None:
    pod = rendered(pod=", initContainers: [{name: fetch, image: 'busybox:1'}]")
    assert {"name": "fetch", "image": "busybox:1"} in pod["initContainers"]


@pytest.mark.parametrize(
    ("container", "pod", "token"),
    [
        ("", "", False),
        ("", ", automountServiceAccountToken: null", False),
        ("", ", automountServiceAccountToken: true", True),
        ("", ", serviceAccountName: trainer", None),
        ("", ", serviceAccount: trainer", None),
        (", env: [{name: LAUNCHER_DISCOVERY, value: kubernetes}]", "", None),
    ],
)
def test_pods_have_no_token_unless_their_template_names_an_account(container: str, pod: str, token: object) -> None:
    assert rendered(container, pod).get("automountServiceAccountToken") is token


def test_pods_of_a_job_in_python_have_the_same_defaults() -> None:
    for job in jobs(PaddleJob(**REQUIRED_PARAMETERS).objects()).values():
        assert pod_spec(job)["automountServiceAccountToken"] is False
        assert main_container(job)["securityContext"]["allowPrivilegeEscalation"] is False
    for job in jobs(PaddleJob(**REQUIRED_PARAMETERS, service_account="trainer").objects()).values():
        assert "automountServiceAccountToken" not in pod_spec(job)


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("securityContext: 5", "securityContext: 5: expected a mapping"),
        ("securityContext: {runAsUser: me}", "securityContext.runAsUser: 'me': expected a whole number"),
        ("securityContext: {capabilities: []}", "securityContext.capabilities: []: expected a mapping"),
    ],
)
@pytest.mark.parametrize("place", ["container", "pod"])
def test_a_security_context_of_a_wrong_type_is_refused(field: str, problem: str, place: str) -> None:
    with pytest.raises(Failure) as failed:
        rendered(**{place: f", {field}"})
    assert problem in failed.value.message
