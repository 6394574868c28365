"""The command `paddle-launcher report`."""

from __future__ import annotations

import os

from launcher.base import files
from launcher.base.files import Folder
from launcher.report import page, reader
from launcher.report.child import NAME


def write(job_folder: str, file: str | None, visualdl_folder: str | None) -> str:
    """Write the report of a job. Return its path, with a line about VisualDL if its curves were exported.

    file: where to write the page; None: into the output folder of the job
    """
    output = os.path.join(job_folder, "output")
    facts = reader.read(output)
    content = page.render(facts)
    if file is None:
        Folder(output).write(NAME, content)
    else:
        files.write_atomically(file, content)
    written = os.path.join(output, NAME) if file is None else file
    if visualdl_folder is None:
        return written
    from launcher.report import visualdl

    runs = visualdl.export(facts, visualdl_folder)
    return f"{written}\n{len(runs)} runs for `visualdl --logdir {visualdl_folder}`"
