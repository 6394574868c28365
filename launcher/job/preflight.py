"""Report, before the pods of a job exist, the problems that the launchers in these pods would report."""

from __future__ import annotations

from collections.abc import Callable

from launcher import config, paddle
from launcher.errors import ConfigProblems, Failure
from launcher.job.findings import Findings
from launcher.job.pod_env import replaced_variables, variables
from launcher.job.spec import JobSpec, RoleSpec


def check_pods(job_spec: JobSpec, findings: Findings, container_path: Callable[[RoleSpec], str]) -> None:
    """Add a problem for each problem that a role's launcher would report, and a note for each of its warnings.

    container_path: returns the path of a role's main container, or an empty text if fields have no path
    """
    _note_moving_tags(job_spec, findings, container_path)
    for role_spec in job_spec.roles:
        container = container_path(role_spec)
        env = f"{container}.env" if container else "env"
        for index, reason in replaced_variables(job_spec, role_spec):
            findings.add_note(f"{env}[{index}]", reason)
        problems, warnings = _start(job_spec, role_spec)
        for reason in problems:
            findings.add_problem(container or "env", reason)
        for reason in warnings:
            findings.add_note(env, reason)


def _start(job_spec: JobSpec, role_spec: RoleSpec) -> tuple[list[str], list[str]]:
    """Return the problems and warnings of a launcher in the role's first pod. Values from the cluster are unset."""
    values = {entry["name"]: entry["value"] for entry in variables(job_spec, role_spec) if entry.get("value")}
    try:
        job_config = config.read(values | {"JOB_COMPLETION_INDEX": "0"}, {}, check_here=False)
    except ConfigProblems as failure:
        return failure.problems, list(failure.warnings)
    try:
        paddle.plan(job_config, (), role_spec.command, None, None)
    except Failure as failure:
        return failure.message.splitlines(), list(job_config.warnings)
    return [], list(job_config.warnings)


def _note_moving_tags(job_spec: JobSpec, findings: Findings, container_path: Callable[[RoleSpec], str]) -> None:
    """Add a note for each image of the launcher's containers that has no fixed version."""
    images: dict[str, str | None] = {}
    for role_spec in job_spec.roles:
        path = container_path(role_spec)
        images[f"{path}.image" if path else "runtime_image"] = role_spec.main_container.get("image")
        images["--launcher-image" if path else "launcher_image"] = job_spec.launcher_image
    for path, image in images.items():
        if image and _tag(image) in ("", "latest"):
            tag = "the tag latest" if _tag(image) else "no tag, which means latest,"
            findings.add_note(
                path,
                f"{image}: kept, but an image with {tag} may change while the job runs, and a pod that is replaced "
                "gets the new one: use the tag of a version, or a digest",
            )


def _tag(image: str) -> str:
    """Return the tag of an image, or its digest, or "" if it has neither."""
    name, _, digest = image.partition("@")
    return digest or name.rpartition("/")[2].partition(":")[2]
