"""What the pod of `doctor` found in its image: launcher, Python, Paddle."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.base import kube_pods
from launcher.doctor import mend
from launcher.doctor.place import Place, bring_launcher, last_line
from launcher.doctor.report import OK, UNKNOWN, WARNING, WRONG, Check
from launcher.job.recognition import Workload, template_of
from launcher.job.spec import PS, V0, Json
from launcher.paddle import advice

_WITH_SERVERS = ((2, 6), (3, 0))  # versions of Paddle with parameter servers; docs/paddle.md
_OLDEST = (2, 6)  # the oldest version, except for v0, that tests train with


def launcher(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    if not facts.get("path"):
        text = f"the image has no {asked['launcher']}" + ("" if "/" in str(asked["launcher"]) else " in its PATH")
        yield Check("launcher", WRONG, text, bring_launcher(place))
    elif facts.get("code"):
        text = f"{facts['path']} does not run: {last_line(facts.get('error'))}"
        yield Check("launcher", WRONG, text, bring_launcher(place))
    else:
        yield Check("launcher", OK, f"{facts.get('version')} at {facts['path']}")


def python(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    if not facts.get("path"):
        state = UNKNOWN if asked["mode"] == V0 else WRONG
        text = f"the image has no {facts.get('name')} in its PATH"
        yield Check("python", state, text, () if state == UNKNOWN else _rename_program(place))
    elif facts.get("code"):
        text = f"{facts['path']} does not run: {last_line(facts.get('error'))}"
        yield Check("python", WRONG, text, _rename_program(place))
    else:
        yield Check("python", OK, f"{facts.get('version')} at {facts['path']}")


def _rename_program(place: Place) -> tuple[str, ...]:
    return mend.edit(place.subject, place.workload, "name after -- a Python that the image has, such as python3")


def paddle(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    how, version = str(asked["mode"]), str(facts.get("version") or "")
    if not facts.get("path"):
        if how == V0:
            text = "mode v0 runs the program `paddle`, and the image has none in its PATH"
            fix = "pass your program after --, as in args: [run, --, python3, train.py]; or use an image of Paddle v0"
            yield Check("paddle", WRONG, text, mend.edit(place.subject, place.workload, fix))
        else:
            yield Check("paddle", UNKNOWN, "without Python there is no Paddle")
        return
    if how == V0:
        shown = version.partition(",")[0] or "the program paddle"
        yield Check("paddle", OK, f"{shown} at {facts['path']}, for mode v0")
        return
    if facts.get("code") or not version:
        tail = str(facts.get("error") or "").splitlines()
        known = advice(how, "trainer", int(facts.get("code") or 1), tail)
        text = f"`import paddle` fails: {last_line(facts.get('error'))}"
        yield Check("paddle", WRONG, text, _mend_import(place, "\n".join(tail), known or ""))
        return
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if how == PS and numbers not in _WITH_SERVERS and numbers >= _OLDEST:
        text = f"Paddle {version} has no parameter servers, which mode ps needs: 2.6.2 and 3.0.0 have"
        yield Check("paddle", WRONG, text, _other_wheel(place))
        return
    kind = "with CUDA" if facts.get("cuda") else "for CPUs"
    if not facts.get("cuda") and _wants_gpus(place.workload):
        text = f"Paddle {version} is built for CPUs, but the pods ask for GPUs"
        yield Check("paddle", WRONG, text, _rebuild(place, f"pip install paddlepaddle-gpu=={version}"))
        return
    if numbers and numbers < _OLDEST:
        yield Check("paddle", WARNING, f"{version} {kind}: not tested with the launcher; 2.6.2, 3.0.0 and 3.3.1 are")
        return
    yield Check("paddle", OK, f"{version} {kind}, fits mode {how}")


def _other_wheel(place: Place) -> tuple[str, ...]:
    return (
        *_rebuild(place, 'pip install paddlepaddle==2.6.2 "protobuf<7" "numpy<2"'),
        *mend.edit(place.subject, place.workload, "or train collectively: LAUNCHER_MODE=collective, no servers"),
    )


def _mend_import(place: Place, tail: str, known: str) -> tuple[str, ...]:
    if "libgomp" in tail:
        return _rebuild(place, "apt-get update && apt-get install -y libgomp1")
    if "No module named 'paddle'" in tail:
        return _rebuild(place, "pip install paddlepaddle==3.3.1")
    return (known,) if known else ()


def _rebuild(place: Place, step: str) -> tuple[str, ...]:
    image = place.image
    tag = f"{image.partition('@')[0]}-mended"
    return (f"printf 'FROM {image}\\nRUN {step}\\n' | docker build -t {tag} -",)


def _wants_gpus(workload: Workload) -> bool:
    resources = kube_pods.main_container(template_of(workload.seen)).get("resources") or {}
    limits = resources.get("limits") if isinstance(resources, dict) else None
    return isinstance(limits, dict) and any("gpu" in str(name).lower() for name in limits)
