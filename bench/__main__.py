"""`make bench`: run all benchmarks that need only this machine, or the benchmarks named as arguments.

Other benchmarks must be named: `pods`, `replaced` and `api` need a cluster (KUBECONFIG, E2E_IMAGE), `paddle` needs two
Pythons with Paddle (PADDLE_2, PADDLE_3), `elastic` needs etcd, too, `paddlejobs` needs a cluster and PADDLE_2.
"""

from __future__ import annotations

import subprocess
import sys

NAMES = ("start", "idle", "log_path", "staging", "gang", "faults", "restarts", "sizes")


def main() -> int:
    for name in sys.argv[1:] or NAMES:
        print(f"\n== {name}", flush=True)
        if code := subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
