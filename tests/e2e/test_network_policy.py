"""`options/network-policy`: which pods its policies select. Needs kubectl, but no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Json
from tests.e2e.manifests import kustomized, overlay

MANIFESTS = ["job", "job-indexed", "ps-and-workers", "statefulset"]


def renamed(folder: Path, name: str, suffix: str) -> list[Json]:
    """Return the objects of an overlay that renames its Jobs or its StatefulSet, as in docs/kubernetes.md."""
    folder.mkdir()
    overlay(folder, name, "network-policy")
    made = yaml.safe_load((folder / "kustomization.yaml").read_text())
    workloads = [each for each in yaml.safe_load_all(kustomized(folder)) if "template" in each.get("spec", {})]
    made["patches"] = [
        {
            "target": {"kind": each["kind"], "name": each["metadata"]["name"]},
            "options": {"allowNameChange": True},
            "patch": yaml.safe_dump(
                {key: each[key] for key in ("apiVersion", "kind")}
                | {"metadata": {"name": f"{each['metadata']['name']}-{suffix}"}}
            ),
        }
        for each in workloads
    ]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(made))
    return list(yaml.safe_load_all(kustomized(folder)))


def pods(objects: list[Json]) -> list[Json]:
    """Return the labels of the pods of each Job and StatefulSet, with the label that the Job controller adds."""
    workloads = [each for each in objects if "template" in each.get("spec", {})]
    return [
        each["spec"]["template"]["metadata"]["labels"]
        | ({"job-name": each["metadata"]["name"]} if each["kind"] == "Job" else {})
        for each in workloads
    ]


def policy(objects: list[Json]) -> Json:
    (found,) = (each for each in objects if each["kind"] == "NetworkPolicy")
    return found


def selects(selector: Json, labels: Json) -> bool:
    wanted = [(key, [value]) for key, value in selector.get("matchLabels", {}).items()]
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "In"
        wanted.append((each["key"], each["values"]))
    assert wanted, "an empty selector selects all pods"
    return all(labels.get(key) in values for key, values in wanted)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_policy_lets_the_pods_of_one_job_reach_each_other_and_no_pod_of_another_job(
    tmp_path: Path, name: str
) -> None:
    first, second = (renamed(tmp_path / suffix, name, suffix) for suffix in ("one", "two"))
    for own, other in ((first, second), (second, first)):
        spec = policy(own)["spec"]
        (rule,) = spec["ingress"]
        (source,) = rule["from"]
        for selector in (spec["podSelector"], source["podSelector"]):
            assert all(selects(selector, labels) for labels in pods(own))
            assert not any(selects(selector, labels) for labels in pods(other))
    assert policy(first)["metadata"]["name"] != policy(second)["metadata"]["name"], "the second would replace the first"


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_policy_selects_the_pods_of_a_job_that_keeps_its_name(tmp_path: Path, name: str) -> None:
    objects = list(yaml.safe_load_all(kustomized(overlay(tmp_path, name, "network-policy"))))
    assert pods(objects)
    assert all(selects(policy(objects)["spec"]["podSelector"], labels) for labels in pods(objects))
