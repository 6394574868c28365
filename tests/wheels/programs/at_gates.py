"""A program of the quick start that waits before a pass while the test holds it there: `at_gates.py PROGRAM FLAGS...`.

Before pass 3, each trainer waits while the file pass-3 is in the folder of the variable GATES.
"""

import os
import runpy
import sys
import time

sys.argv = sys.argv[1:]
sys.path[0] = os.getcwd()

import passes  # type: ignore[import-not-found] # noqa: E402


class Progress(passes.Progress):  # type: ignore[misc]
    """Wait at the gate of this pass."""

    def __init__(self, of_pass: int, *rest: int) -> None:
        while os.path.exists(os.path.join(os.environ["GATES"], f"pass-{of_pass}")):
            time.sleep(0.02)
        super().__init__(of_pass, *rest)


passes.Progress = Progress
runpy.run_path(sys.argv[0], run_name="__main__")
