"""The recording of a scenario: a readable text that is the same for two runs.

It contains only what is seen from outside of a launcher: calls of its supervisor, messages of the gang, files on the
volume, log messages, and the exit. Events of the same instant are sorted by their kinds, since their order cannot be
seen from outside.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tests.simulation.pods import Entry, Pod, Scene

INSTANT = 0.02  # seconds; less than a message takes to another pod
_PAUSE = 0.2  # seconds; shorter pauses are not shown
_KINDS = ("fault", "child", "in", "said", "runs", "out", "file", "end")
_UNTOLD = ("alive", "challenge", "hello", "proof")  # also sent to check a neighbour
_TRIES = ("join ", "again ", "waiting ")
_ID = re.compile(r"\b[0-9a-f]{16,64}\b")
_MADE = re.compile(r"probe\.|earlier-")
_PRETTY = {"in": "<-", "out": "->"}

Line = tuple[str, str]  # the kind, and the text


def text(title: str, scene: Scene, waiting: Iterable[Pod]) -> str:
    """Return the whole recording."""
    parts = [f"{title}\n"]
    for pod in scene.pods():
        entries = [entry for entry in scene.entries if entry.pod is pod]
        if entries:
            parts.append("\n".join([f"==== {pod.label}", *_lines(scene, entries)]) + "\n")
    left = "\n".join(["==== in which order they leave", *_leaving(scene), *_waiting(waiting)])
    return "\n".join([*parts, left]) + "\n"


def _lines(scene: Scene, entries: list[Entry]) -> Iterator[str]:
    before = entries[0].at
    for at, group in _instants(list(_told(entries))):
        if at - before >= _PAUSE:
            yield f"  ---- {int((at - before + INSTANT) * 10) / 10:g} s later"
        before = at
        seen = [line for entry in group if (line := _line(scene, entry))]
        seen.sort(key=lambda line: _KINDS.index(line[0]))
        for kind, words in _joined(_latest(seen)):
            yield f"  {_PRETTY.get(kind, kind):5} {words}"


def _told(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries without heartbeats, and without the repeated messages of a member that tries to join."""
    tried = set[tuple[str, Pod, str]]()
    for entry in entries:
        if entry.kind in ("in", "out"):
            said = spoken(entry.facts["line"])
            way = (entry.kind, entry.facts["other"], said)
            if not said or way in tried:
                continue
            if said.startswith(_TRIES):
                tried.add(way)
            elif said.startswith("welcome"):
                tried.clear()
        yield entry


def _instants(entries: list[Entry]) -> Iterator[tuple[float, list[Entry]]]:
    group = list[Entry]()
    for entry in entries:
        if group and entry.at - group[0].at > INSTANT:
            yield group[0].at, group
            group = []
        group.append(entry)
    yield group[0].at, group


def _latest(lines: list[Line]) -> list[Line]:
    """Keep only the last version of each file in one instant: other pods may not have seen the earlier versions."""
    found: dict[object, Line] = {}
    for number, (kind, words) in enumerate(lines):
        name = words.partition(":")[0] if kind == "file" else number
        found.pop(name, None)
        found[name] = kind, words
    return list(found.values())


def _joined(lines: list[Line]) -> Iterator[Line]:
    """Merge equal messages to several pods, or from several pods, into one line."""
    heard = sorted((line for line in lines if line[0] == "in"), key=lambda line: line[1].partition(" ")[0])
    sent = sorted((line for line in lines if line[0] == "out"), key=lambda line: line[1].partition(" ")[0])
    for kind, group in itertools.groupby(lines, lambda line: line[0]):
        if kind not in ("in", "out"):
            yield from group
            continue
        words: dict[str, list[str]] = {}
        for _, said in heard if kind == "in" else sent:
            other, _, word = said.partition(" ")
            words.setdefault(word, []).append(other)
        for word, others in words.items():
            yield kind, f"{' '.join(dict.fromkeys(others))}: {word}"


def _line(scene: Scene, entry: Entry) -> Line | None:
    match entry.kind:
        case "in" | "out":
            said = spoken(entry.facts["line"])
            return (entry.kind, f"{entry.facts['other'].label} {said}") if said else None
        case "file":
            told = _file(entry.text, entry.facts["content"])
            return ("file", told) if told else None
        case "end":
            result = entry.facts["result"]
            cause = _cause(result.cause and asdict(result.cause))
            return "end", _normal(scene, entry.pod, f"{result.code}, cause: {cause}\n{entry.text}")
        case _:
            return entry.kind, _normal(scene, entry.pod, entry.text)


def _normal(scene: Scene, pod: Pod, words: str) -> str:
    words = words.replace(scene.volume.folder, "VOLUME").replace(pod.machine.disk, "DISK")
    words = re.sub(r"earlier-\d+T\d+Z", "earlier-TIME", _ID.sub("ID", words))
    return words.rstrip("\n").replace("\n", "\n        ")


# ---- words of the gang -----------------------------------------------------------------------------------------------


def spoken(line: bytes) -> str:
    """Return a message of the protocol in short form, or "" if it is not recorded."""
    message = json.loads(line)
    word = message["word"]
    if word in _UNTOLD:
        return ""
    reader = _FIELDS.get(word)
    return f"{word} {reader(message) if reader else ''}".rstrip()


def _cause(cause: Mapping[str, Any] | None) -> str:
    if cause is None:
        return "none"
    more = [name for name in ("final", "silent") if cause.get(name)]
    whose = "" if cause["rank"] is None else f" of rank {cause['rank']}"
    return " ".join([f"by {cause['kind']}{whose}, code {cause['code']}", *more])


def _turn(message: Mapping[str, Any]) -> str:
    return f"turn {message['turn']}"


_FIELDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "again": lambda said: f"{said['reason']}{' (retry)' if said['retry'] else ''}",
    "waiting": lambda said: f"{said['joined']} of {said['size']}, not yet {said['ranks']}",
    "welcome": lambda said: f"rank {said['rank']} turn {said['turn']}, {len(json.loads(said['roster']))} members",
    "begin": lambda said: f"turn {said['turn']} generation {said['generation']} after pass {said['resume']}",
    "train": lambda said: f"turn {said['turn']} stall {said['stall']:g}",
    "collect": lambda said: f"survey {said['survey']} file {said['file']}",
    "restart": lambda said: f"turn {said['turn']} {_cause(said['cause'])}",
    "stop": lambda said: f"{_cause(said['cause'])}{' again' if said['again'] else ''}",
    "finish": lambda said: f"in {said['after']:.0f} s" if said["after"] else "",
    "join": lambda said: f"{said['pod']} rank {said['rank']}{'' if said['gang'] is None else ' returns'}",
    "serving": _turn,
    "trained": _turn,
    "progress": lambda said: f"turn {said['turn']} {said['line']!r}",
    "collected": lambda said: f"survey {said['survey']} processes {said['processes']} written {said['written']}",
    "ended": _turn,
    "failed": lambda said: f"turn {said['turn']} {_cause(said['cause'])}",
    "unreached": lambda said: f"rank {said['rank']} for {said['age']:.0f} s: {said['reason']}",
}


# ---- files -----------------------------------------------------------------------------------------------------------


def _file(path: str, content: bytes) -> str:
    """Return the name of a file and a summary of its content, or "" for files that are not recorded."""
    name = path.rpartition("/")[2]
    if _MADE.match(name):
        return "" if name.startswith("probe") else "earlier-TIME"
    if name == "events.jsonl":
        return ""  # the files below are what its events say
    shown = re.sub(r"earlier-\d+T\d+Z", "earlier-TIME", path.removeprefix("job/output/"))
    reader = _READERS.get(name)
    if reader is not None:
        return f"{shown}: {reader(json.loads(content))}"
    if "/.leases/" in path:
        return f"{shown}: {_lease(content)}"
    return f"{shown}: there"


def _lease(content: bytes) -> str:
    if content.startswith(b"{"):
        holder = json.loads(content)
        return f"taken by {holder['pod']} of {holder['job']}, {holder['ends_within']:g} s"
    return f"over in {float(content):.0f} s"


def _status(content: Mapping[str, Any]) -> str:
    told = f"{content['phase']}, generation {content['generation']}, last pass {content['last_pass']}"
    if content["exit_code"] is None:
        return told
    return f"{told}, exit code {content['exit_code']}, {_first(content['first_cause'])}"


def _job(content: Mapping[str, Any]) -> str:
    ended = (
        "" if content["exit_code"] is None else f"; exit code {content['exit_code']} {_first(content['first_cause'])}"
    )
    return f"{_generations(content)}{ended}"


def _attempts(content: Mapping[str, Any]) -> str:
    return f"{content['without_progress']} without progress; {_generations(content)}"


def _generations(content: Mapping[str, Any]) -> str:
    told = []
    for one in content["generations"]:
        end = "runs" if one["ended"] is None else f"ended {_first(one['first_cause'])}"
        after = "" if one["after_pass"] is None else f" after pass {one['after_pass']}"
        told.append(f"{one['number']}{after} {end}")
    return ", ".join(told) or "no generation"


def _first(cause: Mapping[str, Any] | None) -> str:
    if cause is None:
        return "in order"
    role = "rank" if cause["role"] == "both" else cause["role"]
    whose = "" if cause["rank"] is None else f" of {role} {cause['rank']}"
    return f"by {cause['kind']}{whose}, code {cause['code']}"


_READERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "status.json": _status,
    "job.json": _job,
    "attempts.json": _attempts,
    "roster.json": lambda content: ", ".join(f"{uid} {rank}" for uid, rank in content["ranks"].items()),
}


# ---- the end ---------------------------------------------------------------------------------------------------------


def _leaving(scene: Scene) -> Iterator[str]:
    left = sorted((pod for pod in scene.pods() if pod.left_at is not None), key=lambda pod: pod.left_at or 0.0)
    groups: list[list[Pod]] = []
    for pod in left:
        if groups and (pod.left_at or 0.0) - (groups[-1][0].left_at or 0.0) <= INSTANT:
            groups[-1].append(pod)
        else:
            groups.append([pod])
    for group in groups:
        group.sort(key=lambda pod: pod.label)
        yield "  " + ", ".join(f"{pod.label} {pod.result.code if pod.result else None}" for pod in group)


def _waiting(waiting: Iterable[Pod]) -> list[str]:
    return [f"  {pod.label} still waits" for pod in waiting]
