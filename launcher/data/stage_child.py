"""The child that stages: one request as a line of JSON on standard input, and lines of JSON on standard output.

Answers: {"say": text} any number of times, then {"complete": true} or {"failure": [exit code, message]}. This process
never waits for a volume, its workers do, so it ends when nobody reads its answers any more. It has one thread, because
it forks.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from launcher.base.helper_child import request
from launcher.base.log import TextHandler, shown_by
from launcher.data.pool import Pool
from launcher.data.stage import Stage
from launcher.errors import Failure

_CLEANING = 5  # seconds for removing what is half made; the next start removes the rest


def main() -> None:
    """Do what the request says."""
    with shown_by(TextHandler(lambda text: _tell({"say": text}))), Pool(watch=1) as pool:
        staging = Stage(request(), pool)
        try:
            staging.run()
        except Failure as failure:
            _tell({"failure": [int(failure.code), failure.message]})
            pool.close()
            signal.alarm(_CLEANING)
            staging.clean()
        else:
            _tell({"complete": True})


def _tell(message: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        os._exit(1)  # nobody waits any more


if __name__ == "__main__":
    main()
