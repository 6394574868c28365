"""Whose pod `doctor` has made, and where."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.doctor import mend
from launcher.doctor.settings import claims_of
from launcher.doctor.subject import Subject
from launcher.job.recognition import Workload

_LAUNCHER_BUILD = "docker build -f docker/Dockerfile --build-arg BASE={image} -t {image}-launcher ."


@dataclass(frozen=True)
class Place:
    """Whose pod it was, and where.

    bound: the service accounts that may read pods as soon as the objects of the file exist
    """

    subject: Subject
    workload: Workload
    namespace: str
    bound: frozenset[str] = frozenset()
    service: str = ""

    @property
    def image(self) -> str:
        return self.workload.image


def describe_claims(place: Place) -> tuple[str, ...]:
    found = claims_of(place.workload)
    return (mend.kubectl(place.namespace, "describe", "pvc", *found),) if found else ()


def bring_launcher(place: Place) -> tuple[str, ...]:
    if place.subject.is_paddlejob:
        return (
            _LAUNCHER_BUILD.format(image=place.image),
            "or leave out --no-inject: then an init container brings the launcher into any image",
        )
    return (
        _LAUNCHER_BUILD.format(image=place.image),
        "or with an older Python or none: add k8s/options/inject to your kustomization",
    )


def last_line(text: object) -> str:
    lines = [line for line in str(text or "").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it says nothing"
