"""`spec.sampleSetRef`: the claim of a SampleSet, mounted in the workers as the operator did."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from launcher.job.findings import Fields, Findings
from launcher.job.spec import Json, RoleSpec

VOLUME = "paddle-launcher-samples"
_KNOWN = {"name", "namespace", "mountPath"}
_PATH = "spec.sampleSetRef"


@dataclass(frozen=True)
class SampleSet:
    """The claim of a SampleSet, which has the name of the SampleSet, and the folder for it in the workers."""

    claim: str
    mount_path: str


def read(spec: Fields, namespace: str | None, findings: Findings) -> SampleSet | None:
    """Return the SampleSet of a job, or None if it has none or after adding problems."""
    reference = spec.mapping("sampleSetRef")
    if reference is None:
        return None
    for name, suggestion in reference.unknown(_KNOWN):
        findings.add_note(reference.path(name), f"ignored: a sampleSetRef has no such field{suggestion}")
    claim, mount_path = reference.text("name"), reference.text("mountPath")
    for name, expected in (
        ("name", "the name of a SampleSet, and of its claim"),
        ("mountPath", "a folder in the pods"),
    ):
        if not reference.values.get(name):
            findings.add_problem(reference.path(name), f"missing: expected {expected}")
    if mount_path and (not mount_path.startswith("/") or ":" in mount_path):
        findings.add_problem(reference.path("mountPath"), f"{mount_path!r}: expected an absolute path without a colon")
    own = reference.text("namespace")
    if own and namespace and own != namespace:
        findings.add_problem(
            reference.path("namespace"),
            f"{own!r}: the job is in {namespace!r}, and pods can mount only claims of their own namespace: run the job "
            "in the namespace of the SampleSet",
        )
    elif own and not namespace:
        findings.add_note(
            reference.path("namespace"),
            f"{own}: the job must be in this namespace, too: add metadata.namespace, or use -n {own}",
        )
    return SampleSet(claim, mount_path) if claim and mount_path else None


def mounted(role_spec: RoleSpec, samples: SampleSet, findings: Findings) -> RoleSpec:
    """Return the role with the claim in its main container. The mount is writable, as the operator's was."""
    template = copy.deepcopy(dict(role_spec.template))
    pod: Json = template["spec"]
    changed = replace(role_spec, template=template)
    container = changed.main_container
    mounts = container.get("volumeMounts") or []
    path = samples.mount_path.rstrip("/")
    if any(str(mount.get("mountPath")).rstrip("/") == path for mount in mounts):
        findings.add_problem(
            f"{_PATH}.mountPath", f"{samples.mount_path!r}: container {role_spec.container} mounts another volume there"
        )
    source = {"persistentVolumeClaim": {"claimName": samples.claim}}
    volumes = pod.get("volumes")
    pod["volumes"] = [*(volumes if isinstance(volumes, list) else []), {"name": VOLUME} | source]
    container["volumeMounts"] = [*mounts, {"name": VOLUME, "mountPath": samples.mount_path}]
    return changed
