"""The range of an elastic job, from the fields of a PaddleJob: `spec.elastic`, `requests` and `limits`."""

from __future__ import annotations

from launcher.config.parsers import MAX_NODES
from launcher.job.findings import Fields, Findings

_BOUNDS = ("requests", "limits")


def read(spec: Fields, findings: Findings) -> tuple[int, int] | None:
    """Return the fewest and the most workers of an elastic job, or None if their number is fixed."""
    elastic = spec.integer("elastic")
    if elastic is not None and elastic < 0:
        findings.add_problem(spec.path("elastic"), f"{elastic}: expected 1, or 0 for a fixed number of pods")
    if elastic and isinstance(spec.values.get("heter"), dict):
        findings.add_problem(
            spec.path("elastic"), problem_with_heters(elastic, spec.path("elastic"), spec.path("heter"))
        )
    sizes = None
    for name in ("ps", "worker", "heter"):
        role = spec.values.get(name)
        if not isinstance(role, dict):
            continue
        fields = Fields(role, spec.path(name), findings)
        if name == "worker" and elastic:
            sizes = _sizes(spec, fields, findings)
        else:
            _note_ignored(
                fields, findings, "set spec.elastic: 1" if name == "worker" else "only workers may be elastic"
            )
    return sizes


def problem_with_heters(elastic: object, path: str, path_of_heters: str) -> str:
    """Return what is wrong with the value `elastic` of a job that has heter workers, too."""
    return f"{elastic}: a job with heter workers has a fixed size: remove {path} or {path_of_heters}"


def _sizes(spec: Fields, worker: Fields, findings: Findings) -> tuple[int, int] | None:
    """Return the range. By default, it is from one worker to `replicas`."""
    replicas, least, most = (worker.integer(name) for name in ("replicas", *_BOUNDS))
    if replicas is None or replicas < 1:
        return None  # this is a problem of `replicas`
    least, most = 1 if least is None else least, replicas if most is None else most
    if not 1 <= least <= replicas:
        findings.add_problem(
            worker.path("requests"), f"{least}: expected 1 to {replicas}, since replicas is {replicas}"
        )
    if not replicas <= most <= MAX_NODES:
        findings.add_problem(
            worker.path("limits"), f"{most}: expected {replicas} to {MAX_NODES}, since replicas is {replicas}"
        )
    if least == most:
        findings.add_note(
            spec.path("elastic"),
            f"{spec.values['elastic']}: ignored: the number of pods is fixed, since requests, replicas and limits are "
            f"all {replicas}",
        )
        return None
    return least, most


def _note_ignored(fields: Fields, findings: Findings, advice: str) -> None:
    replicas = fields.values.get("replicas")
    for bound in _BOUNDS:
        value = fields.integer(bound)
        if value is not None and value != replicas:
            findings.add_note(
                fields.path(bound), f"{value}: ignored: the number of pods is fixed (replicas: {replicas}): {advice}"
            )
