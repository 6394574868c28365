"""What the volume keeps for one job: its secret, its generations, its mark of completion.

The files are in output/.launcher/<identity>/. The leases, which all jobs of the folder share, are beside that folder.
If each role has its own controller, the identity of the job is `<trainers' controller>+<pservers' controller>`. This
identity is known only after the join. Before the join only the secret is used, and all such jobs of the folder share
one secret. All functions block while the volume blocks: the event loop must not call them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from launcher.base import bounds, file_errors
from launcher.base.clock import utc_now
from launcher.base.files import Folder
from launcher.model import BOTH, Cause, Roster, Shape, member_name, name_and_pod
from launcher.store import json_fields
from launcher.store.json_fields import as_bytes, cause_fields
from launcher.store.lease_files import LeaseFiles

T = TypeVar("T")

_KEPT = 100  # generations; numbers continue from the latest, so older ones are not needed
ATTEMPTS = "attempts.json"
_ROSTER, _SECRET, _COMPLETE, _BEGUN = "roster.json", "secret", "complete", "begun"
_SECRET_LIMIT = 4096
_FIELDS = {"began": str, "ended": str, "after_pass": int, "trainers": int, "first_cause": dict}
_CAUSE_FIELDS = {"kind": str, "pod": str, "what": str, "role": str, "rank": int, "code": int}


class Record:
    """The files of one job.

    A job without an identity has only a secret: nothing distinguishes this job from another job of the same name.

    controller: the identity of the pods of this member's role, if the job's identity is not known before the join
    """

    def __init__(self, output: str, identity: str | None, controller: str | None = None) -> None:
        self._output = output
        self.identity = identity
        self._controller = controller
        self._records = Folder(output, ".launcher")
        self.folder = self._records.below(identity or ("roles" if controller else "unidentified"))
        self.leases = LeaseFiles(output)

    def open(self) -> None:
        """Make the folder of the job, and write a test file to it. Raises Failure if the volume has a fault."""
        probe = f"probe.{secrets.token_hex(8)}"
        self.folder.write(probe, bytes(4096))
        self.folder.remove(probe)

    def earlier(self) -> Record:
        """Return the record that earlier gangs of this job have written, or this record if there is no earlier record.

        If the job's identity is not known before the join, the record is found by the controller of this role.
        """
        if not self._controller:
            return self
        names = self._records.folders()
        mine = [Record(self._output, name) for name in names if self._controller in name.split("+")]
        return max(mine, key=lambda record: (record.is_complete(), record.folder.changed_at()), default=self)

    def secret(self) -> bytes:
        """Return the job's secret. The first member that asks for the secret creates it."""
        secret = self.folder.create(_SECRET, secrets.token_hex(32).encode(), private=True, limit=_SECRET_LIMIT)
        if not re.fullmatch(rb"[0-9a-f]{64}", secret):
            what = "it is not a secret of a launcher" if secret.strip() else "it is empty"
            advice = "remove this file while no pod of the job runs; the first pod then makes a new secret"
            raise file_errors.unusable(self.folder.path_of(_SECRET), what, advice)
        return secret

    def is_complete(self) -> bool:
        return self.identity is not None and self.folder.exists(_COMPLETE)

    def completed_before(self) -> list[str]:
        """Return the identities of other jobs of this name that are complete on this volume."""
        others = (name for name in self._records.folders() if name != self.identity)
        return sorted(name for name in others if self._records.below(name).exists(_COMPLETE))

    def mark_complete(self) -> None:
        if self.identity is not None:
            self.folder.mark(_COMPLETE, b"all members have trained\n")

    def history(self, shape: Shape) -> History:
        """Return the history of all generations. The history is empty if there is no file."""
        return History(self.attempts(), shape)

    def attempts(self) -> Mapping[str, Any]:
        """Return the content of attempts.json. Raises Failure if the file cannot be used."""
        advice = "remove this file: the job then counts its attempts from 0, and resumes after its last pass as before"
        return self._read(ATTEMPTS, _check_attempts, advice) or {}

    def explain(self, generation: int, cause: Cause, shape: Shape) -> None:
        """Replace the recorded cause of a generation.

        The caller must call this only if the hub could not write the cause, or knew less.
        """
        history = self.history(shape)
        if self.identity is not None and history.explain(generation, cause):
            self.folder.write(ATTEMPTS, as_bytes(history.content()))

    def keep_ranks(self, roster: Roster) -> None:
        """Write all ranks, by pod uid, for the next gang.

        In the next gang, pods without numbers keep their ranks. A new pod takes the rank of the pod that it replaces.
        """
        ranks = {member.uid: member.rank for member in roster.members if member.uid}
        if self.identity is not None and ranks:
            self.folder.write(_ROSTER, json.dumps({"ranks": ranks}, indent=1).encode())

    def kept_ranks(self) -> dict[str, int]:
        """Return the ranks in the latest gang, by pod uid. The result is empty if there is no file."""
        return self._read(_ROSTER, _ranks, "remove this file: the pods then get their ranks anew") or {}

    def has_begun(self) -> bool:
        """Return whether `mark_begun` was called for this job. If so, all passes in the folder belong to this job."""
        return self.identity is not None and self.folder.exists(_BEGUN)

    def mark_begun(self) -> None:
        """Record that all passes in the folder are this job's own. The passes of earlier jobs were moved aside."""
        if self.identity is not None:
            self.folder.create(_BEGUN, b"what earlier jobs had left was moved aside\n")

    def claim(self, generation: int, who: str) -> bool:
        """Claim a generation for this gang. Return whether this gang got the generation: only one gang can get it.

        Always True for a job without an identity.
        """
        if self.identity is None:
            return True
        claim = f"{who} {secrets.token_hex(8)}\n".encode()
        return self.folder.create(f"generation-{generation}", claim) == claim

    @property
    def attempts_file(self) -> str:
        return self.folder.path_of(ATTEMPTS)

    def _read(self, name: str, parse: Callable[[dict[str, Any]], T], advice: str) -> T | None:
        """Return the parsed content of a JSON file. None if the file is missing, or if the job has no identity."""
        data = None if self.identity is None else self.folder.read(name)
        if data is None:
            return None
        try:
            return parse(json_fields.read_object(data))
        except ValueError as error:
            raise file_errors.unusable(self.folder.path_of(name), str(error), advice) from None


def _check_attempts(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of attempts.json if all fields have the right types. Raises ValueError."""
    json_fields.integer(content, "without_progress", 0)
    for each in json_fields.objects(content, "generations"):
        json_fields.integer(each, "number", most=bounds.MAX_NUMBER - 1)
        json_fields.check(each, _FIELDS)
        json_fields.check(each.get("first_cause") or {}, _CAUSE_FIELDS)
    return content


def _ranks(content: Mapping[str, Any]) -> dict[str, int]:
    json_fields.check(content, {"ranks": dict})
    ranks: dict[str, Any] = content.get("ranks") or {}
    found = {uid: json_fields.integer(ranks, uid) for uid in ranks}
    if len(set(found.values())) != len(found):
        raise ValueError("two pods have the same rank")
    return found


class History:
    """The generations of one job, over all of its gangs, as in attempts.json: begin, resume pass, end, cause.

    content: the content of attempts.json, which was checked
    without_progress: how many of the latest generations in a row ended before a pass was complete
    """

    def __init__(self, content: Mapping[str, Any], shape: Shape) -> None:
        self._shape = shape
        self.without_progress: int = content.get("without_progress", 0)
        self._generations = [dict(each) for each in content.get("generations") or []]

    @property
    def generation(self) -> int | None:
        """The number of the latest generation."""
        return self._generations[-1]["number"] if self._generations else None

    def catch_up(self, content: Mapping[str, Any]) -> bool:
        """Replace this history by `content` if another gang of this job has written newer generations into it.

        Return whether it was replaced.
        """
        other = History(content, self._shape)
        if other._reached <= self._reached:
            return False
        self.without_progress, self._generations = other.without_progress, other._generations
        return True

    @property
    def _reached(self) -> tuple[int, bool]:
        latest = self._generations[-1] if self._generations else {"number": -1}
        return latest["number"], latest.get("ended") is not None

    @property
    def trainers(self) -> int | None:
        """How many members trained in the latest generation, or None if that is not known."""
        return self._generations[-1].get("trainers") if self._generations else None

    def begin(self, number: int, resume: int | None, trainers: int) -> None:
        """Add a generation, in which so many members train.

        If the hub could not write the end of the previous generation, the previous generation keeps no end.
        """
        self._generations.append(
            {
                "number": number,
                "began": utc_now(),
                "after_pass": resume,
                "trainers": trainers,
                "ended": None,
                "first_cause": None,
            }
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

        Change nothing and return False if the generation is not the latest, or ended by a cause of another kind or pod.
        """
        if self.generation is None or self.generation != number:
            return False
        latest = self._generations[-1]
        known = latest.get("first_cause") or {}
        if latest.get("ended") is not None and (known.get("kind"), known.get("pod")) != (cause.kind, cause.pod):
            return False
        self.end(cause)
        return True

    def causes(self) -> dict[int, str]:
        """Return why each generation has ended, as one line. Generations whose cause is not known are left out."""
        return {
            each["number"]: text for each in self._generations if (text := _describe(each.get("first_cause") or {}))
        }

    def content(self) -> dict[str, Any]:
        return {"without_progress": self.without_progress, "generations": list(self._generations)}


def _describe(fields: Mapping[str, Any]) -> str:
    """Return what `model.describe_cause` returns for the cause in these fields, which were checked."""
    if not fields.get("what"):
        return ""
    place = "" if fields.get("rank") is None else member_name(fields.get("role") or BOTH, fields["rank"])
    beginning = name_and_pod(place, json_fields.text(fields, "pod")) if place and fields.get("pod") else ""
    return " ".join(f"{beginning}{json_fields.text(fields, 'what')}".split())
