"""`make bench`: every benchmark, one after the other; or those named as arguments.

Those run only when they are named that need more: `pods`, `replaced` and `api` a cluster (KUBECONFIG, E2E_IMAGE),
`paddle` two Pythons with Paddle (PADDLE_2, PADDLE_3), `paddlejobs` a cluster and PADDLE_2.
"""

from __future__ import annotations

import subprocess
import sys

NAMES = ("start", "idle", "log_path", "staging", "gang", "faults", "restarts")


def main() -> int:
    for name in sys.argv[1:] or NAMES:
        print(f"\n== {name}", flush=True)
        if code := subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
