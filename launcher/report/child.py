"""The child process that writes output/report.html. The hub starts it by `launcher.base.helper.Helper`:

    Helper("launcher.report.child", {"output": the job's output folder}, env)

The child answers {"written": path, "bytes": size}, or {"failure": [exit code, message]}. The launcher may kill the
child at any time: readers see the complete old page or the complete new one. The memory and the time of the child
are bounded. If the container runs out of memory, the kernel ends the child before all other processes.
"""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress

from launcher.base.files import Folder
from launcher.base.helper_child import Answers, read_request
from launcher.errors import Exit, Failure
from launcher.report import page, reader

NAME = "report.html"
_MEMORY = 256 * 1024 * 1024  # bytes
_PROCESSOR = 60  # seconds of processor time
_WALL = 180  # seconds, for a volume that does not answer


def write(output: str, memory: int = _MEMORY) -> tuple[str, int]:
    """Write the report of a job into its output folder. Return its path and its size. Raises Failure."""
    folder = Folder(output)
    try:
        content = page.render(reader.read(output))
    except MemoryError:
        problem = f"the report was not written: the files of the job need more than {memory >> 20} MiB to be read"
        raise Failure(Exit.IO_FAILED, f"{folder.path}: {problem}") from None
    folder.write(NAME, content)
    return folder.path_of(NAME), len(content)


def limit(memory: int = _MEMORY) -> None:
    """Bound the memory and the time of this process, and give it the lowest priority."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_WALL)
    os.nice(19)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR, _PROCESSOR))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def main() -> None:
    asked, answers = read_request(), Answers()
    limit()
    try:
        path, size = write(asked["output"])
    except Failure as failure:
        answers.send({"failure": [int(failure.code), failure.message]})
    else:
        answers.send({"written": path, "bytes": size})


if __name__ == "__main__":
    main()
