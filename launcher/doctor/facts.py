"""The questions of `doctor` for its pod, and what the answers mean: one check per question."""

from __future__ import annotations

from launcher.config import JobConfig
from launcher.doctor import image, network, start, volume
from launcher.doctor.place import Place, describe_claims
from launcher.doctor.pod import Visit, program_of
from launcher.doctor.report import OK, UNKNOWN, WRONG, Check
from launcher.doctor.settings import command_of, job_config, service_of
from launcher.errors import Failure
from launcher.job import recognition
from launcher.job.recognition import Workload
from launcher.job.spec import PS, V0, Json
from launcher.model import TRAINER, TRAINS
from launcher.paddle import mode

_READERS = {
    "launcher": image.launcher,
    "python": image.python,
    "paddle": image.paddle,
    "device": network.device,
    "ports": network.ports,
    "names": network.names,
    "rights": network.rights,
    "workdir": volume.workdir,
    "volume": volume.volume,
    "data": volume.data,
}
_ON_VOLUME = ("volume", "data")


def asked_of(workload: Workload, namespace: str, name: str, service: str) -> Json:
    """Return the questions for the pod. `name`: of the pod, in the Service `service`."""
    found, command = job_config(workload), command_of(workload)
    asked: Json = {"launcher": program_of(workload), "program": command[0] if command else "", "namespace": namespace}
    asked |= {"mode": recognition.mode([workload]), "name": f"{name}.{service}" if service else ""}
    asked |= {"ports": [], "api": False, "workdir": workload.value("LAUNCHER_WORKDIR"), "volume": "", "job": ""}
    asked |= {"shards": 0, "more": False, "config": "", "dns": bool(service_of(workload))}
    if found is None:
        return asked
    asked |= {"mode": _mode(found, command), "ports": _ports(found, _mode(found, command))}
    asked["api"] = found.members > 1 and found.discovery.method == "kubernetes"
    if found.job_path:
        asked |= {"volume": found.job_path, "job": found.job_folder, "config": found.train_config_dir or ""}
        asked |= {"shards": found.trainers if found.role in TRAINS else 0, "more": found.is_elastic}
    return asked


def read(place: Place, seen: Visit, asked: Json) -> list[Check]:
    """Return one check per question."""
    checks = [*start.start(place, seen)]
    answered = {check.name for check in checks if check.state in (WRONG, OK)}
    for what, reader in _READERS.items():
        if what in answered:
            continue
        facts = seen.facts.get(what)
        if facts is None:
            if seen.began == what:
                text = "the pod did not answer in time" + (": does the volume answer?" if what in _ON_VOLUME else "")
                checks.append(Check(what, WRONG, text, describe_claims(place) if what in _ON_VOLUME else ()))
            continue
        if error := (facts.get("error") if set(facts) == {"error"} else ""):
            checks.append(Check(what, UNKNOWN, str(error)))
            continue
        try:
            checks += list(reader(place, facts, asked))
        except (
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            ArithmeticError,
        ):  # another program of the image has printed this
            checks.append(Check(what, UNKNOWN, "the answer of the pod cannot be read"))
    return checks


def unasked(why: str) -> list[Check]:
    """Return the checks that need a pod, as not answered."""
    return [Check(what, UNKNOWN, why) for what in ("pod", "image", *_READERS)]


def _mode(found: JobConfig, command: tuple[str, ...]) -> str:
    try:
        return mode(found, command)
    except Failure:
        return V0 if not command else ""


def _ports(found: JobConfig, how: str) -> list[int]:
    """Return the ports on which processes of a pod listen."""
    if found.members == 1:
        return []
    ports = [found.gang.port]
    if how == V0:
        ports += range(found.port, found.port + found.ports_num + found.ports_num_sparse)
    elif how == PS and found.role != TRAINER:
        ports.append(found.port)
    if how != V0 and found.role in TRAINS:
        ports += range(found.gang.port + 1, found.gang.port + 1 + found.trainers_per_node)
    if found.monitoring.metrics_port:
        ports.append(found.monitoring.metrics_port)
    return sorted({port for port in ports if port <= 65535})
