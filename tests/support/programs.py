"""A program that serves or trains, depending on its variables, and writes a line for each step."""

from __future__ import annotations

from tests.support.jobs import Job

# Like a program for Paddle, it finds its role in its variables. It writes a line for each step.
PROGRAM = """
    import os, signal, socket, sys, time
    role, rank = os.environ["TRAINING_ROLE"].lower(), os.environ["PADDLE_TRAINER_ID"]
    here = os.environ["PLACE"]

    def leave(name):
        open(f"{here}/{role}-{rank}-{name}", "w").close()

    def others(name, count):
        while sum(f.startswith(name) for f in os.listdir(here)) < count:
            time.sleep(0.01)

    def listen(variable):
        host, _, port = os.environ[variable].rpartition(":")
        door = socket.create_server((host, int(port)))
        leave("listens")
        return door
"""


def left(job: Job) -> set[str]:
    return {path.name for path in (job.folder / "place").iterdir()}
