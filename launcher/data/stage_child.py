"""The child process of staging. It reads a request as one line of JSON, and answers in lines of JSON.

Answers: {"say": text} any number of times, then {"complete": copied bytes} or {"failure": [exit code, message]}.
Only the workers of this process wait for volumes. So this process can always end when the launcher closes the pipe.
This process must have only one thread, since it forks.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from launcher.base.helper_child import read_request
from launcher.base.log import TextHandler, shown_by
from launcher.data.copier import Copier
from launcher.data.pool import Pool
from launcher.data.progress import copied_bytes
from launcher.errors import Failure

_CLEANING = 5  # seconds to remove incomplete copies; the next start removes those that are left


def main() -> None:
    """Make all copies of the request."""
    with shown_by(TextHandler(lambda text: _answer({"say": text}))), Pool(output=1) as pool:
        copier = Copier(read_request(), pool)
        try:
            copier.run()
        except Failure as failure:
            _answer({"failure": [int(failure.code), failure.message]})
            pool.close()
            signal.alarm(_CLEANING)
            copier.clean()
        else:
            _answer({"complete": copied_bytes()})


def _answer(message: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        os._exit(1)  # the launcher has ended


if __name__ == "__main__":
    main()
