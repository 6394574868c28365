"""Folders with random events, some of them wrong, always become a page with whole drawings."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from launcher.report import page, reader
from tests.support.report_jobs import BEGIN, stamp

_NAMES = ["staging_begun", "staging_ended", "joined", "generation", "phase", "pass", "numbers", "process_ended"]
_NAMES += ["stop_requested", "warning", "ended", "gang", "generation_begun", "generation_ended", "peer_lost"]
_NAMES += ["peer_returned", "unknown"]
_PHASES = ["starting", "training", "serving", "trained", "restarting", "gathering", "ending", "complete", "failed"]
_VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    3,
    -1,
    2**31 - 1,
    10**18,
    1e300,
    -1e29,
    0.5,
    "nan",
    "inf",
    "<b>",
    "pserver",
    "lost",
]
_VALUES += [
    "2026-11-18T11:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    [],
    ["a"] * 3,
    {},
    [None],
    {"rank": 0},
]
_FIELDS = ["bytes", "rank", "role", "pod", "uid", "job", "exit_code", "out_of_memory", "tail", "text", "first_cause"]
_FIELDS += ["members", "peer", "why", "loss", "accuracy", "examples_per_second", "settings", "versions", "process"]


class Events:
    """Random events. Most of them are as a launcher writes them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def often(self) -> bool:
        return self.random.random() < 0.75

    def at(self) -> str:
        usual = stamp(BEGIN + self.random.random() * 3600)
        return usual if self.random.random() < 0.97 else self.random.choice([stamp(-6e10), "9999-12-31T23:59:59.999Z"])

    def cause(self) -> dict[str, Any]:
        kind, rank = self.random.choice(["trainer", "lost", "stopped", "volume"]), self.random.choice([0, 1, 7, None])
        return {"kind": kind, "rank": rank, "role": "both", "pod": "p", "what": "it died", "code": 1, "tail": ["x"]}

    def generation(self) -> dict[str, Any]:
        one: dict[str, Any] = {"number": self.random.randrange(4), "began": f"{self.at()[:19]}Z"}
        if self.often():
            one["ended"] = f"{self.at()[:19]}Z"
        if self.often():
            one["after_pass"] = self.random.randrange(4)
        if self.often():
            one["first_cause"] = self.cause()
        return one

    def event(self) -> dict[str, Any]:
        name = self.random.choice(_NAMES)
        found: dict[str, Any] = {"v": 1, "at": self.at(), "event": name}
        found |= {field: self.random.choice(_VALUES) for field in _FIELDS if not self.often()}
        if self.often():
            found |= {"generation": self.random.randrange(4), "pass": self.random.randrange(6)}
        if self.often():
            found["phase"] = self.random.choice(_PHASES)
        if name.startswith("generation_") and self.often():
            found["generation"] = self.generation()
        if name == "gang" and self.often():
            members = range(self.random.randrange(5))
            found["members"] = [{"rank": rank, "role": "both", "pod": f"p{rank}", "uid": "u"} for rank in members]
        if name.startswith("peer") and self.often():
            found["peer"] = {"rank": self.random.randrange(4), "role": "both", "pod": "p"}
        if name == "ended" and self.often():
            found |= {"first_cause": self.cause(), "exit_code": 69}
        return found

    def write(self, output: Path) -> None:
        members = 30 if self.random.random() < 0.1 else self.random.randrange(4)
        for name in ["", "pserver_0", *(f"node_{rank}" for rank in range(members))]:
            (output / name).mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(self.event()) for _ in range(self.random.randrange(40))]
            (output / name / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
        if not self.often():
            (output / "job.json").write_text(json.dumps({"generations": [self.generation(), 7], "members": 7}))


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_random_events_become_a_page(tmp_path: Path, seed: int) -> None:
    for number in range(seed, seed + 20):
        output = tmp_path / str(number) / "output"
        Events(number).write(output)
        content = page.render(reader.read(str(output), now=BEGIN + 4000)).decode()
        assert "<h1>" in content
        assert not re.search(r'\b(?:d|x|x1|x2|y|y1|y2|width)="[^"]*(?:nan|inf)', content), f"seed {number}"
