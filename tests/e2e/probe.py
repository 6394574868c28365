"""Program in the pods of the end-to-end tests: it finds peers, and prints the result as a line of JSON."""

import asyncio
import json
import os
import socket
import sys
import time
from typing import Any

from launcher.base.log import TextHandler, shown_by
from launcher.discovery.finder import FinderSettings, make_finder
from launcher.errors import Failure
from launcher.model import BOTH, Shape


def settings() -> FinderSettings:
    """Return the settings of this pod. Values without a variable are as in a pod without the downward API."""
    rank = os.environ.get("JOB_COMPLETION_INDEX")
    return FinderSettings(
        discovery=os.environ["DISCOVERY"],
        role=BOTH,
        shape=Shape(int(os.environ["SIZE"])),
        job_name=None,
        namespace=os.environ["NAMESPACE"],
        selector=os.environ["SELECTOR"],
        service=os.environ.get("SERVICE"),
        peers=(),
        pod_name=None,
        pod_ip=None,
        pod_uid=None,
        host_name=socket.gethostname(),
        rank=int(rank) if rank else None,
        job_id=None,
        training_address=socket.gethostbyname(socket.gethostname()),
        timeout=float(os.environ["TIMEOUT"]),
        timeout_variable="LAUNCHER_PEER_TIMEOUT",
        env=dict(os.environ),
    )


async def search() -> dict[str, Any]:
    """Find the peers, or ask about one pod until its end is known."""
    finder = make_finder(settings())
    started = time.monotonic()
    try:
        if "ASK" in os.environ:
            while not (became := await finder.describe_peer(os.environ["ASK"])):
                pass
            return {"became": became}
        peers = await finder.find()
    finally:
        await finder.close()
    found = {"hub": peers.hub, "rank": peers.rank, "identity": peers.identity}
    return found | {"address": peers.me.address, "uid": peers.me.uid, "seconds": round(time.monotonic() - started, 2)}


try:
    with shown_by(TextHandler(lambda line: print(line, file=sys.stderr, flush=True))):
        print(json.dumps(asyncio.run(search())), flush=True)
except Failure as failure:
    print(json.dumps({"failure": failure.message}), flush=True)
    sys.exit(int(failure.code))
time.sleep(float(os.environ.get("STAY", "3")))  # so that no pod ends before all pods have found each other
