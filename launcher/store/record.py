"""What the volume remembers of one job: its secret, its generations, its mark of completion.

It lives in output/.launcher/<identity>/, beside the leases that all jobs of the folder share. Where each role has
pods of its own, the job's identity is that of both together, `<trainers'>+<pservers'>`, which nobody knows before the
join: until then there is only the secret, one for all jobs of this folder. Everything here blocks as long as the volume
does: call it off the loop.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from launcher.base import files
from launcher.base.clock import utc_now
from launcher.model import Cause, Roster, Shape
from launcher.store.json_fields import as_bytes, cause_fields
from launcher.store.lease import LeaseFiles

_KEPT = 100  # generations; the numbers of older ones are still known by those that follow


class Record:
    """One job's memory. A job without an identity has a secret only: nothing could tell it from another of its name.

    `controller` is what controls the pods of the own role, where the identity is still to be agreed.
    """

    def __init__(self, output: str, identity: str | None, controller: str | None = None) -> None:
        self._output = output
        self.identity = identity
        self._controller = controller
        name = identity or ("roles" if controller else "unidentified")
        self._folder = os.path.join(output, ".launcher", name)
        self.leases = LeaseFiles(output)

    def open(self) -> None:
        """Make the folder and see that it can be written: what is wrong with the volume is said before all else."""
        files.make_folder(self._folder)
        probe = self._path(f"probe.{secrets.token_hex(8)}")
        files.write_atomically(probe, bytes(4096))
        os.unlink(probe)

    def agreed(self, identity: str) -> Record:
        """The same once the identity is known. Its folder is made by the first who writes there."""
        return Record(self._output, identity)

    def earlier(self) -> Record:
        """What an earlier attempt has left of this job: before the identity is known, of that with this controller."""
        if not self._controller:
            return self
        names = os.listdir(os.path.dirname(self._folder))
        mine = [Record(self._output, name) for name in names if self._controller in name.split("+")]
        return max(mine, key=lambda record: (record.is_complete(), os.path.getmtime(record._folder)), default=self)

    def secret(self) -> bytes:
        """The same for all members: made by whoever comes first."""
        return files.create_once(self._path("secret"), secrets.token_hex(32).encode())

    def is_complete(self) -> bool:
        return self.identity is not None and files.exists(self._path("complete"))

    def completed_before(self) -> list[str]:
        """Other jobs of this name that were complete on this volume, by their identities."""
        folder = os.path.dirname(self._folder)
        others = (name for name in os.listdir(folder) if name != self.identity)
        return sorted(name for name in others if files.exists(os.path.join(folder, name, "complete")))

    def mark_complete(self) -> None:
        if self.identity is not None:
            files.write_atomically(self._to_write("complete"), b"all members have trained\n")

    def history(self, shape: Shape) -> History:
        """All attempts so far; a file that nobody can read counts as none."""
        return History(self.attempts(), shape)

    def attempts(self) -> Mapping[str, Any]:
        """The same as it was written."""
        return self._content(self.attempts_file)

    def explain(self, generation: int, cause: Cause, shape: Shape) -> None:
        """Why this generation is over, where its hub could not say it, or knew less of it."""
        history = self.history(shape)
        if self.identity is not None and history.explain(generation, cause):
            files.write_atomically(self.attempts_file, as_bytes(history.content()))

    def keep_ranks(self, roster: Roster) -> None:
        """For pods without numbers: whoever replaces one of them later takes its rank, the others keep theirs."""
        ranks = {member.uid: member.rank for member in roster.members if member.uid}
        if self.identity is not None and ranks:
            files.write_atomically(self._to_write("roster.json"), json.dumps({"ranks": ranks}, indent=1).encode())

    def kept_ranks(self) -> dict[str, int]:
        """The ranks that pods had in the latest gang, by their uids; a file that nobody can read holds none."""
        ranks = self._content(self._path("roster.json")).get("ranks")
        return {uid: rank for uid, rank in ranks.items() if type(rank) is int} if isinstance(ranks, dict) else {}

    def has_begun(self) -> bool:
        """Whether the passes on the volume are this job's own."""
        return self.identity is not None and files.exists(self._path("begun"))

    def mark_begun(self) -> None:
        """From now on they are: what earlier jobs left was moved aside."""
        if self.identity is not None:
            files.create_once(self._to_write("begun"), b"what earlier jobs had left was moved aside\n")

    def claim(self, generation: int, who: str) -> bool:
        """Whether this generation of the job is ours: each has one gang only. Without an identity nothing is shared."""
        if self.identity is None:
            return True
        claim = f"{who} {secrets.token_hex(8)}\n".encode()
        return files.create_once(self._to_write(f"generation-{generation}"), claim) == claim

    @property
    def attempts_file(self) -> str:
        return self._path("attempts.json")

    def _content(self, path: str) -> dict[str, Any]:
        """Of a file in JSON; nothing without an identity, or where nobody can read it."""
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file) if self.identity is not None else {}
        except (OSError, ValueError):
            content = {}
        return content if isinstance(content, dict) else {}

    def _to_write(self, name: str) -> str:
        """The path of a file whose folder is there."""
        files.make_folder(self._folder)
        return self._path(name)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)


class History:
    """What attempts.json holds. `without_progress`: how many generations in a row ended before a pass was done."""

    def __init__(self, content: Mapping[str, Any], shape: Shape) -> None:
        self._shape = shape
        count, generations = content.get("without_progress"), content.get("generations")
        self.without_progress = count if isinstance(count, int) else 0
        known = generations if isinstance(generations, list) else []
        self._generations = [dict(one) for one in known if isinstance(one, dict) and type(one.get("number")) is int]

    @property
    def generation(self) -> int | None:
        """The number of the latest one."""
        return self._generations[-1]["number"] if self._generations else None

    def catch_up(self, content: Mapping[str, Any]) -> None:
        """With what another gang of this job has written meanwhile."""
        other = History(content, self._shape)
        if other._reached > self._reached:
            self.without_progress, self._generations = other.without_progress, other._generations

    @property
    def _reached(self) -> tuple[int, bool]:
        latest = self._generations[-1] if self._generations else {"number": -1}
        return latest["number"], latest.get("ended") is not None

    def begin(self, number: int, resume: int | None) -> None:
        """One that ended without a word of its hub keeps its end open."""
        self._generations.append(
            {"number": number, "began": utc_now(), "after_pass": resume, "ended": None, "first_cause": None}
        )
        del self._generations[:-_KEPT]

    def end(self, cause: Cause | None) -> None:
        """The latest one is over; without a cause the job is complete. Said again where more is known of the cause."""
        if self._generations:
            latest = self._generations[-1]
            words = cause_fields(cause and replace(cause, tail=()), self._shape)
            latest |= {"ended": latest.get("ended") or utc_now(), "first_cause": words}

    def explain(self, number: int, cause: Cause) -> bool:
        """By somebody who knows more of the end of a generation than its hub could say. False: it is known already."""
        latest = self._generations[-1] if self._generations else {}
        known = latest.get("first_cause") or {}
        its_own = latest.get("number") == number and latest.get("ended") is None
        if not its_own and (known.get("kind"), known.get("pod")) != (cause.kind, cause.pod):
            return False
        self.end(cause)
        return True

    def content(self) -> dict[str, Any]:
        return {"without_progress": self.without_progress, "generations": list(self._generations)}
