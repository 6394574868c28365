"""What the volume keeps for one job: its secret, its generations, its mark of completion.

The files are in output/.launcher/<identity>/. The leases, which all jobs of the folder share, are beside that folder.
If each role has its own controller, the identity of the job is `<trainers' controller>+<pservers' controller>`. This
identity is known only after the join. Before the join only the secret is used, and all such jobs of the folder share
one secret. All functions block while the volume blocks: the event loop must not call them.
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

_KEPT = 100  # generations; numbers continue from the latest, so older ones are not needed


class Record:
    """The files of one job.

    A job without an identity has only a secret: nothing distinguishes this job from another job of the same name.

    controller: the identity of the pods of this member's role, if the job's identity is not known before the join
    """

    def __init__(self, output: str, identity: str | None, controller: str | None = None) -> None:
        self._output = output
        self.identity = identity
        self._controller = controller
        name = identity or ("roles" if controller else "unidentified")
        self._folder = os.path.join(output, ".launcher", name)
        self.leases = LeaseFiles(output)

    def open(self) -> None:
        """Make the folder of the job, and write a test file to it. Raises Failure if the volume has a fault."""
        files.make_folder(self._folder)
        probe = self._path(f"probe.{secrets.token_hex(8)}")
        files.write_atomically(probe, bytes(4096))
        os.unlink(probe)

    def earlier(self) -> Record:
        """Return the record that earlier gangs of this job have written, or this record if there is no earlier record.

        If the job's identity is not known before the join, the record is found by the controller of this role.
        """
        if not self._controller:
            return self
        names = os.listdir(os.path.dirname(self._folder))
        mine = [Record(self._output, name) for name in names if self._controller in name.split("+")]
        return max(mine, key=lambda record: (record.is_complete(), os.path.getmtime(record._folder)), default=self)

    def secret(self) -> bytes:
        """Return the job's secret. The first member that asks for the secret creates it."""
        return files.create_once(self._path("secret"), secrets.token_hex(32).encode())

    def is_complete(self) -> bool:
        return self.identity is not None and files.exists(self._path("complete"))

    def completed_before(self) -> list[str]:
        """Return the identities of other jobs of this name that are complete on this volume."""
        folder = os.path.dirname(self._folder)
        others = (name for name in os.listdir(folder) if name != self.identity)
        return sorted(name for name in others if files.exists(os.path.join(folder, name, "complete")))

    def mark_complete(self) -> None:
        if self.identity is not None:
            files.write_atomically(self._to_write("complete"), b"all members have trained\n")

    def history(self, shape: Shape) -> History:
        """Return the history of all generations. The history is empty if its file cannot be read."""
        return History(self.attempts(), shape)

    def attempts(self) -> Mapping[str, Any]:
        """Return the content of attempts.json."""
        return self._content(self.attempts_file)

    def explain(self, generation: int, cause: Cause, shape: Shape) -> None:
        """Replace the recorded cause of a generation.

        The caller must call this only if the hub could not write the cause, or knew less.
        """
        history = self.history(shape)
        if self.identity is not None and history.explain(generation, cause):
            files.write_atomically(self.attempts_file, as_bytes(history.content()))

    def keep_ranks(self, roster: Roster) -> None:
        """Write all ranks, by pod uid, for the next gang.

        There, pods without numbers keep their ranks, and a new pod takes the rank of the pod that it replaces.
        """
        ranks = {member.uid: member.rank for member in roster.members if member.uid}
        if self.identity is not None and ranks:
            files.write_atomically(self._to_write("roster.json"), json.dumps({"ranks": ranks}, indent=1).encode())

    def kept_ranks(self) -> dict[str, int]:
        """Return the ranks in the latest gang, by pod uid. The result is empty if the file cannot be read."""
        ranks = self._content(self._path("roster.json")).get("ranks")
        return {uid: rank for uid, rank in ranks.items() if type(rank) is int} if isinstance(ranks, dict) else {}

    def has_begun(self) -> bool:
        """Return whether `mark_begun` was called for this job. Then all passes in the folder are this job's own."""
        return self.identity is not None and files.exists(self._path("begun"))

    def mark_begun(self) -> None:
        """Record that all passes in the folder are this job's own. The passes of earlier jobs were moved aside."""
        if self.identity is not None:
            files.create_once(self._to_write("begun"), b"what earlier jobs had left was moved aside\n")

    def claim(self, generation: int, who: str) -> bool:
        """Claim a generation for this gang. Return whether this gang got the generation: only one gang can get it.

        Always True for a job without an identity.
        """
        if self.identity is None:
            return True
        claim = f"{who} {secrets.token_hex(8)}\n".encode()
        return files.create_once(self._to_write(f"generation-{generation}"), claim) == claim

    @property
    def attempts_file(self) -> str:
        return self._path("attempts.json")

    def _content(self, path: str) -> dict[str, Any]:
        """Return the content of a JSON file, or {} if the file cannot be read, or if the job has no identity."""
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file) if self.identity is not None else {}
        except (OSError, ValueError):
            content = {}
        return content if isinstance(content, dict) else {}

    def _to_write(self, name: str) -> str:
        """Return the path of a file, and make its folder."""
        files.make_folder(self._folder)
        return self._path(name)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)


class History:
    """The generations of one job, over all of its gangs, as in attempts.json: begin, resume pass, end, cause.

    without_progress: how many of the latest generations in a row ended before a pass was complete
    """

    def __init__(self, content: Mapping[str, Any], shape: Shape) -> None:
        self._shape = shape
        count, generations = content.get("without_progress"), content.get("generations")
        self.without_progress = count if isinstance(count, int) else 0
        known = generations if isinstance(generations, list) else []
        self._generations = [dict(one) for one in known if isinstance(one, dict) and type(one.get("number")) is int]

    @property
    def generation(self) -> int | None:
        """The number of the latest generation."""
        return self._generations[-1]["number"] if self._generations else None

    def catch_up(self, content: Mapping[str, Any]) -> None:
        """Replace this history by `content`, if another gang of this job has written newer generations into it."""
        other = History(content, self._shape)
        if other._reached > self._reached:
            self.without_progress, self._generations = other.without_progress, other._generations

    @property
    def _reached(self) -> tuple[int, bool]:
        latest = self._generations[-1] if self._generations else {"number": -1}
        return latest["number"], latest.get("ended") is not None

    def begin(self, number: int, resume: int | None) -> None:
        """Add a generation.

        If the hub could not write the end of the previous generation, the previous generation keeps no end.
        """
        self._generations.append(
            {"number": number, "began": utc_now(), "after_pass": resume, "ended": None, "first_cause": None}
        )
        del self._generations[:-_KEPT]

    def end(self, cause: Cause | None) -> None:
        """Record the end of the latest generation; None: the job is complete. A second call replaces the cause."""
        if self._generations:
            latest = self._generations[-1]
            first_cause = cause_fields(cause and replace(cause, tail=()), self._shape)
            latest |= {"ended": latest.get("ended") or utc_now(), "first_cause": first_cause}

    def explain(self, number: int, cause: Cause) -> bool:
        """Replace the recorded cause of a generation, and return True.

        Change nothing and return False if it is not the latest, or has ended by a cause of another kind or pod.
        """
        if self.generation is None or self.generation != number:
            return False
        latest = self._generations[-1]
        known = latest.get("first_cause") or {}
        if latest.get("ended") is not None and (known.get("kind"), known.get("pod")) != (cause.kind, cause.pod):
            return False
        self.end(cause)
        return True

    def content(self) -> dict[str, Any]:
        return {"without_progress": self.without_progress, "generations": list(self._generations)}
